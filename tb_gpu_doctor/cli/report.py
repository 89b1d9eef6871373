"""``gpu-doctor report LOGDIR -o FILE``: the tab of one session as a file that opens anywhere."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_language, add_output, add_session
from tb_gpu_doctor.cli.progress import progress_bar
from tb_gpu_doctor.files.writing import part_of
from tb_gpu_doctor.texts import text

_DEFAULT = "gpu-doctor-report.html"


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "report", lang=lang, help=text("cli.report.short", lang), description=text("cli.report.description", lang)
    )
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text("cli.diagnose.path", lang))
    add_output(parser, lang, "report", _DEFAULT)
    add_session(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Write the report and tell on stderr what it is of and how large; nothing leaves this machine."""
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.plugin.html_report import html_report
    from tb_gpu_doctor.plugin.session_view import analyse
    from tb_gpu_doctor.traces.sessions import find_sessions

    output = Path(arguments.output)
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(text("cli.report.no_folder", lang, path=output))
    session = choose_session(find_sessions(arguments.path), arguments.run, arguments.session)
    with progress_bar(lang) as report:
        # Where the files lie on this machine is nobody else's business.
        view = analyse(session, report, os.path.basename)
    made = html_report(session, view, arguments.lang)
    content = made.page.encode("utf-8")
    partial = Path(part_of(arguments.output))
    try:
        partial.write_bytes(content)
        if partial != output:
            partial.replace(output)
    except OSError as error:
        if partial != output:
            partial.unlink(missing_ok=True)
        raise UsageError(text("cli.report.unwritable", lang, path=output, reason=error.strerror or error)) from None
    name = "/".join(part for part in (session.run, session.session) if part)
    print(text("cli.report.written", lang, path=output, session=name, size=len(content)), file=sys.stderr)
    if made.left_out:
        parts = [text(f"cli.report.parts.{part}", lang) for part in made.left_out]
        print(text("cli.report.left_out", lang, parts=parts), file=sys.stderr)
    return 0
