"""``gpu-doctor report PATH``: the tab of a session as a file that opens anywhere, or its diagnosis as Markdown."""

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
    parser.add_argument("--markdown", action="store_true", help=text("cli.report.markdown", lang))
    add_output(parser, lang, _DEFAULT)
    add_session(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Write the report and tell on stderr what it is of and how large; nothing leaves this machine."""
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.plugin.html_report import html_report
    from tb_gpu_doctor.plugin.session_view import analyse
    from tb_gpu_doctor.traces.sessions import find_sessions

    if arguments.markdown:
        return _markdown(arguments, lang)
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


def _markdown(arguments: argparse.Namespace, lang: str) -> int:
    """The diagnosis for a pull request or a ticket: on standard output, unless a file is named."""
    from tb_gpu_doctor.api import answer_session, choose_session
    from tb_gpu_doctor.report.markdown import diagnosis_markdown
    from tb_gpu_doctor.traces.sessions import find_sessions

    output = None if arguments.output == _DEFAULT else arguments.output
    if output is not None:
        check_writable(output)
    with opened(arguments.path) as source, progress_bar(lang) as report:
        session = choose_session(find_sessions(source.path), arguments.run, arguments.session)
        content = diagnosis_markdown(answer_session(session, report).diagnosis, lang)
    if output is None:
        print(content, end="")
    else:
        write_whole(output, content)
    return 0
