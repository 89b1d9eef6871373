"""``gpu-doctor baseline PATH -o FILE``: keep how a run did, small enough to review and to check in."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_language, add_output, add_session
from tb_gpu_doctor.cli.packs import called, readable
from tb_gpu_doctor.files.writing import part_of
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "baseline", lang=lang, help=text("cli.baseline.short", lang), description=text("cli.baseline.description", lang)
    )
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text("cli.diagnose.path", lang))
    add_output(parser, lang, "baseline")
    add_session(parser, lang)
    add_cluster(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Summarize and write; the file appears whole or not at all."""
    from tb_gpu_doctor.comparing import summary_of_path
    from tb_gpu_doctor.comparison.baseline_file import to_json
    from tb_gpu_doctor.errors import DocumentError

    with readable(arguments.path, lang) as (path, name):
        content = to_json(called(summary_of_path(path, arguments.run, arguments.session), name))
    if arguments.output is None:
        print(content, end="")
        return 0
    beside = part_of(arguments.output)
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(content)
        if beside != arguments.output:
            os.replace(beside, arguments.output)
    except OSError as error:
        if beside != arguments.output:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        raise DocumentError("cannot_write", arguments.output, reason=error.strerror or str(error)) from error
    print(text("cli.baseline.written", lang, path=arguments.output, size=len(content)), file=sys.stderr)
    return 0
