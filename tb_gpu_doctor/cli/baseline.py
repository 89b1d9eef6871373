"""``gpu-doctor baseline PATH -o FILE``: keep how a run did, small enough to review and to check in."""

from __future__ import annotations

import argparse
import sys

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_command, add_output, add_path, add_session
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import check_writable, write_whole
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "baseline", execute, lang)
    add_path(parser, lang)
    add_output(parser, lang)
    add_session(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Summarize and write."""
    from tb_gpu_doctor.comparing import summary_of_path
    from tb_gpu_doctor.comparison.baseline_file import to_json

    if arguments.output is not None:
        check_writable(arguments.output)
    with opened(arguments.path) as source:
        content = to_json(source.named(summary_of_path(source.path, arguments.run, arguments.session)))
    if arguments.output is None:
        print(content, end="")
        return 0
    write_whole(arguments.output, content)
    print(text("cli.baseline.written", lang, path=arguments.output, size=len(content)), file=sys.stderr)
    return 0
