"""``gpu-doctor pack LOGDIR -o FILE``: a run in one file for somebody else."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tb_gpu_doctor.cli.arguments import Parser, add_command, add_output, add_path, add_session
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import check_writable, progress_bar
from tb_gpu_doctor.texts import text

if TYPE_CHECKING:
    from tb_gpu_doctor.packing.pack import Packed
    from tb_gpu_doctor.traces.sessions import Session, SessionScan

_DEFAULT = "run.gpudoctor.zip"
_MOST_TOLD = 5


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "pack", execute, lang)
    add_path(parser, lang)
    add_output(parser, lang, _DEFAULT)
    add_session(parser, lang, "cli.pack")
    parser.add_argument("--all", action="store_true", help=text("cli.pack.all", lang))
    parser.add_argument("--redact", action="store_true", help=text("cli.pack.redact", lang))
    parser.add_argument("--slim", action="store_true", help=text("cli.pack.slim", lang))
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Pack and tell on stderr what the pack holds; nothing leaves this machine."""
    from tb_gpu_doctor.packing.pack import pack_sessions
    from tb_gpu_doctor.traces.sessions import find_sessions

    check_writable(arguments.output)
    with opened(arguments.path) as source, progress_bar(lang) as report:
        chosen = chosen_sessions(find_sessions(source.path), arguments.run, arguments.session, arguments.all)
        packed = pack_sessions(chosen, arguments.output, arguments.redact, arguments.slim, report)
    for line in _told(packed, arguments, lang):
        print(line, file=sys.stderr)
    return 0


def chosen_sessions(
    scan: SessionScan, run: str | None, sessions: list[str] | None, everything: bool = False
) -> list[Session]:
    """The sessions to pack: those named, else those of the run, else all or the newest.

    Raises:
        ProfileError: there is none, or not the one that is named.
    """
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.traces.related import SEPARATOR

    if sessions:
        names = [name for given in sessions for name in given.split(SEPARATOR) if name]
        found = [choose_session(scan, run, name) for name in names]
        return list(dict.fromkeys(found))
    first = choose_session(scan, run)
    if run is None and not everything:
        return [first]
    fitting = [session for session in scan.sessions if run is None or session.run == first.run]
    profiles = [session for session in fitting if not session.is_telemetry and session.problem is None]
    # What was recorded beside profiles is packed with them.
    homes = {home for session in profiles for home in session.homes}
    alone = [session for session in fitting if session.is_telemetry and not set(session.homes) <= homes]
    return [*profiles, *alone] or [first]


def _told(packed: Packed, arguments: argparse.Namespace, lang: str) -> list[str]:
    from tb_gpu_doctor.report.sentences import error_sentence

    lines = [
        text(
            "pack.written",
            lang,
            path=packed.path,
            size=packed.pack_bytes,
            files=packed.files,
            sessions=packed.sessions,
        )
    ]
    if arguments.slim:
        lines.append(text("pack.slim", lang, before=packed.before_bytes, after=packed.unpacked_bytes))
    if arguments.redact:
        lines.append(text("pack.redacted", lang, count=packed.replaced))
        if packed.unsure:
            lines.append(text("pack.unsure", lang, count=packed.unsure))
    if packed.differences:
        lines.append(text("pack.different", lang, places=packed.differences[:_MOST_TOLD]))
    elif arguments.redact or arguments.slim:
        lines.append(text("pack.same", lang))
    if not arguments.redact:
        lines.append(text("pack.names_inside", lang))
    lines += [text("pack.left_out", lang, reason=error_sentence(error, lang)) for error in packed.left_out[:_MOST_TOLD]]
    lines.append(text("pack.open", lang, path=packed.path))
    return lines
