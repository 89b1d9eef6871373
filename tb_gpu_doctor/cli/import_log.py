"""``gpu-doctor import LOG LOGDIR``: a log of nvidia-smi or DCGM as a recording, whose curves TensorBoard shows."""

from __future__ import annotations

import argparse
import sys

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_command, add_zone
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean

NAME = "import"


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, NAME, execute, lang)
    parser.add_argument("log", metavar="LOG", help=text("cli.import.log", lang))
    parser.add_argument("logdir", metavar="LOGDIR", help=text("cli.import.logdir", lang))
    add_zone(parser, lang)
    parser.add_argument("--host", metavar="NAME", help=text("cli.import.host", lang))
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Read, write, and say what was written and what had to be assumed."""
    from tb_gpu_doctor.importing import import_log

    try:
        done = import_log(arguments.log, arguments.logdir, arguments.log_zone, arguments.host)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(text("cli.import.cannot_write", lang, path=clean(arguments.logdir), reason=reason)) from None
    for key, params in done.said:
        print(text(key, lang, **params), file=sys.stderr)
    facts = {"path": arguments.log, "logdir": arguments.logdir, "rows": done.rows, "gpus": done.gpus}
    print(text("cli.import.done", lang, **facts))
    return 0
