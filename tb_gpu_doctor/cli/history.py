"""``gpu-doctor history LOGDIR``: how the runs of a logdir did over time."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_command, add_json, add_no_color, add_number, add_path
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import console, progress_bar
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "history", execute, lang)
    add_path(parser, lang)
    parser.add_argument("--run", metavar="RUN", help=text("cli.help.run", lang))
    add_number(parser, lang, "--last", "cli.history.last", 50)
    add_json(parser, lang, "docs/history.md")
    add_no_color(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Read all sessions and print; the exit status says whether it could, not what it found."""
    from tb_gpu_doctor.comparing import history_of_path
    from tb_gpu_doctor.report.history_report import history_dict, print_history

    with opened(arguments.path) as source, progress_bar(lang, arguments.no_color) as report:
        history = history_of_path(source.path, arguments.run, arguments.last, report)
    if arguments.json:
        from tb_gpu_doctor.documents import to_json

        print(to_json(history_dict(history, lang)))
    else:
        print_history(history, console(arguments.no_color, 140), lang)
    return 0
