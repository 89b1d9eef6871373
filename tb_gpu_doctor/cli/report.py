"""``gpu-doctor report LOGDIR -o FILE``: the tab of one session as a file that opens anywhere."""

from __future__ import annotations

import argparse
import os
import sys

from tb_gpu_doctor.cli.arguments import Parser, add_command, add_output, add_path, add_session
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import check_writable, progress_bar, write_whole
from tb_gpu_doctor.texts import text

_DEFAULT = "gpu-doctor-report.html"


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "report", execute, lang)
    add_path(parser, lang)
    add_output(parser, lang, _DEFAULT)
    add_session(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Write the report and tell on stderr what it is of and how large; nothing leaves this machine."""
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.plugin.html_report import html_report
    from tb_gpu_doctor.plugin.session_view import analyse
    from tb_gpu_doctor.traces.sessions import find_sessions

    check_writable(arguments.output)
    with opened(arguments.path) as source:
        session = choose_session(find_sessions(source.path), arguments.run, arguments.session)
        with progress_bar(lang) as report:
            # Where the files lie on this machine is nobody else's business.
            view = analyse(session, report, os.path.basename)
        made = html_report(session, view, arguments.lang)
    write_whole(arguments.output, made.page)
    name = "/".join(part for part in (session.run, session.session) if part)
    print(
        text("cli.report.written", lang, path=arguments.output, session=name, size=len(made.page.encode())),
        file=sys.stderr,
    )
    if made.left_out:
        parts = [text(f"cli.report.parts.{part}", lang) for part in made.left_out]
        print(text("cli.report.left_out", lang, parts=parts), file=sys.stderr)
    return 0
