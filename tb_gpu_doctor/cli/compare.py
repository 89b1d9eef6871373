"""``gpu-doctor compare A B``: did the change help, by how much, and where the time went."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_language, positive
from tb_gpu_doctor.cli.packs import readable
from tb_gpu_doctor.cli.terminal import console
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "compare", lang=lang, help=text("cli.compare.short", lang), description=text("cli.compare.description", lang)
    )
    parser.add_argument("before", metavar="A", help=text("cli.compare.before", lang))
    parser.add_argument("after", metavar="B", help=text("cli.compare.after", lang))
    parser.add_argument("--batch-before", type=positive, metavar="N", help=text("cli.compare.batch_before", lang))
    parser.add_argument("--batch-after", type=positive, metavar="N", help=text("cli.compare.batch_after", lang))
    parser.add_argument("--json", action="store_true", help=text("cli.compare.json", lang))
    parser.add_argument("--no-color", action="store_true", help=text("cli.diagnose.no_color", lang))
    add_cluster(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Compare and print; the exit status says whether it could, not what it found."""
    from tb_gpu_doctor.cli.progress import progress_bar
    from tb_gpu_doctor.comparing import compare_paths
    from tb_gpu_doctor.comparison.compare import Batches

    batches = Batches(arguments.batch_before, arguments.batch_after)
    with (
        readable(arguments.before, lang) as (before, name),
        readable(arguments.after, lang) as (after, other),
        progress_bar(lang, arguments.no_color) as report,
    ):
        comparison = compare_paths(before, after, batches, report, (name, other))
    if arguments.json:
        from tb_gpu_doctor.documents import to_json
        from tb_gpu_doctor.report.comparison_report import comparison_dict

        print(to_json(comparison_dict(comparison, lang)))
        return 0
    from tb_gpu_doctor.report.comparison_report import print_comparison

    print_comparison(comparison, console(arguments.no_color), lang)
    return 0
