"""``gpu-doctor history LOGDIR``: how the runs of a logdir did over time."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_cluster, add_language, positive
from tb_gpu_doctor.cli.terminal import console
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "history", lang=lang, help=text("cli.history.short", lang), description=text("cli.history.description", lang)
    )
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text("cli.history.path", lang))
    parser.add_argument("--run", metavar="RUN", help=text("cli.diagnose.run", lang))
    parser.add_argument("--last", type=positive, default=50, metavar="N", help=text("cli.history.last", lang))
    parser.add_argument("--json", action="store_true", help=text("cli.history.json", lang))
    parser.add_argument("--no-color", action="store_true", help=text("cli.diagnose.no_color", lang))
    add_cluster(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Read all sessions and print; the exit status says whether it could, not what it found."""
    from tb_gpu_doctor.cli.progress import progress_bar
    from tb_gpu_doctor.comparing import history_of_path

    with progress_bar(lang, arguments.no_color) as report:
        history = history_of_path(arguments.path, arguments.run, arguments.last, report)
    if arguments.json:
        from tb_gpu_doctor.documents import to_json
        from tb_gpu_doctor.report.history_report import history_dict

        print(to_json(history_dict(history, lang)))
        return 0
    from tb_gpu_doctor.report.history_report import print_history

    print_history(history, console(arguments.no_color, 140), lang)
    return 0
