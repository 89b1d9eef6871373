"""``gpu-doctor check PATH``: pass or fail a run; what cannot be told never passes."""

from __future__ import annotations

import argparse
import contextlib
import os

from tb_gpu_doctor.cli.arguments import (
    Parser,
    UsageError,
    add_cluster,
    add_command,
    add_number,
    add_path,
    add_session,
)
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import check_writable, write_whole
from tb_gpu_doctor.texts import text

_FORMATS = ("text", "json", "junit", "github", "markdown")


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "check", execute, lang)
    add_path(parser, lang)
    parser.add_argument("--baseline", metavar=text("cli.metavars.path", lang), help=text("cli.check.baseline", lang))
    parser.add_argument("--config", metavar=text("cli.metavars.file", lang), help=text("cli.check.config", lang))
    parser.add_argument("--format", choices=_FORMATS, default="text", help=text("cli.check.format", lang))
    parser.add_argument(
        "--write",
        action="append",
        default=[],
        metavar=text("cli.check.write_metavar", lang),
        help=text("cli.check.write", lang),
    )
    add_session(parser, lang)
    add_number(parser, lang, "--batch", "cli.check.batch")
    add_number(parser, lang, "--batch-baseline", "cli.check.batch_baseline")
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Check, print and write; 0 passes, 1 is a regression, 2 cannot tell (as any error is)."""
    wanted = [_target(given, lang) for given in arguments.write]
    from tb_gpu_doctor.comparing import summary_of_path
    from tb_gpu_doctor.comparison.check import DEFAULT_FILE, EXIT_STATUS, Limits, check, read_limits
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.diagnosis.rule import kinds
    from tb_gpu_doctor.report.check_report import FORMATS

    config = arguments.config or (DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None)
    limits = Limits() if config is None else read_limits(config, kinds())
    baseline = arguments.baseline or limits.baseline
    before = None
    if baseline is not None:
        with opened(baseline) as source:
            before = source.named(summary_of_path(source.path))
    with opened(arguments.path) as source:
        run = source.named(summary_of_path(source.path, arguments.run, arguments.session))
    result = check(run, limits, before, Batches(arguments.batch_baseline, arguments.batch))
    for name, path in wanted:
        write_whole(path, FORMATS[name](result, lang))
    with contextlib.suppress(BrokenPipeError):  # a reader that goes away must not decide the check
        print(FORMATS[arguments.format](result, lang), end="", flush=True)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if arguments.format == "github" and summary:
        # A summary that cannot be shown must not decide the check.
        with contextlib.suppress(OSError), open(summary, "a", encoding="utf-8") as file:
            file.write(FORMATS["markdown"](result, lang))
    return EXIT_STATUS[result.status]


def _target(given: str, lang: str) -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if not equals or not path or name not in _FORMATS:
        raise UsageError(text("cli.check.bad_write", lang, formats=list(_FORMATS)))
    check_writable(path)
    return name, path
