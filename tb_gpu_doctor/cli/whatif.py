"""``gpu-doctor whatif PATH``: how long a step would take without what costs time, by replaying what was recorded."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tb_gpu_doctor.cli.arguments import (
    Parser,
    UsageError,
    add_cluster,
    add_command,
    add_json,
    add_no_color,
    add_path,
    add_session,
)
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import console, progress_bar
from tb_gpu_doctor.texts import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tb_gpu_doctor.analysis.replay.what_if import Change


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "whatif", execute, lang)
    add_path(parser, lang)
    add_json(parser, lang, "docs/whatif.md")
    parser.add_argument(
        "--change",
        action="append",
        metavar=text("cli.whatif.change_metavar", lang),
        help=text("cli.whatif.change", lang),
    )
    add_session(parser, lang)
    add_no_color(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Print the replays; the exit status says whether the profile could be read."""
    # Here, so that `--help` needs neither numpy nor the decoder.
    from tb_gpu_doctor.analysis.job import analyse_job
    from tb_gpu_doctor.analysis.replay.what_if import what_if
    from tb_gpu_doctor.api import choose_session, facts_of_session
    from tb_gpu_doctor.documents import to_json
    from tb_gpu_doctor.report.what_if_report import as_dict, print_what_if
    from tb_gpu_doctor.traces.sessions import find_sessions

    wanted = None if arguments.change is None else [_combination(one, lang) for one in arguments.change]
    with opened(arguments.path) as source, progress_bar(lang) as report:
        session = choose_session(find_sessions(source.path), arguments.run, arguments.session)
        facts = facts_of_session(session, report)
    found = what_if(facts.files, analyse_job(facts.files), wanted)
    if arguments.json:
        print(to_json(as_dict(found, lang)))
    else:
        print_what_if(found, console(arguments.no_color, 120), lang)
    return 0


def _combination(given: str, lang: str) -> Sequence[Change]:
    """The changes that one option names, with commas between them."""
    from tb_gpu_doctor.analysis.replay.what_if import CHANGES

    names = [name.strip() for name in given.split(",") if name.strip()]
    unknown = [name for name in names if name not in CHANGES]
    if unknown or not names:
        raise UsageError(text("cli.whatif.no_such_change", lang, given=given, known=list(CHANGES)))
    return [change for change in CHANGES if change in names]
