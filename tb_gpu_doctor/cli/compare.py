"""``gpu-doctor compare A B``: did the change help, by how much, and where the time went."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_command, add_json, add_no_color, add_number
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import console, progress_bar
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "compare", execute, lang)
    parser.add_argument("before", metavar="A", help=text("cli.compare.before", lang))
    parser.add_argument("after", metavar="B", help=text("cli.compare.after", lang))
    add_number(parser, lang, "--batch-before", "cli.compare.batch_before")
    add_number(parser, lang, "--batch-after", "cli.compare.batch_after")
    add_json(parser, lang, "docs/compare.md")
    add_no_color(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Compare and print; the exit status says whether it could, not what it found."""
    from tb_gpu_doctor.comparing import compare_paths
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.report.comparison_report import comparison_dict, print_comparison

    batches = Batches(arguments.batch_before, arguments.batch_after)
    with (
        opened(arguments.before) as before,
        opened(arguments.after) as after,
        progress_bar(lang, arguments.no_color) as report,
    ):
        comparison = compare_paths(before.path, after.path, batches, report, (before.name, after.name))
    if arguments.json:
        from tb_gpu_doctor.documents import to_json

        print(to_json(comparison_dict(comparison, lang)))
    else:
        print_comparison(comparison, console(arguments.no_color), lang)
    return 0
