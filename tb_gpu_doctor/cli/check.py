"""``gpu-doctor check PATH``: pass or fail a run; what cannot be told never passes."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_cluster, add_language, add_session, positive
from tb_gpu_doctor.cli.packs import called, readable
from tb_gpu_doctor.texts import text

_FORMATS = ("text", "json", "junit", "github", "markdown")


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "check", lang=lang, help=text("cli.check.short", lang), description=text("cli.check.description", lang)
    )
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text("cli.diagnose.path", lang))
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
    parser.add_argument("--batch", type=positive, metavar="N", help=text("cli.check.batch", lang))
    parser.add_argument("--batch-baseline", type=positive, metavar="N", help=text("cli.check.batch_baseline", lang))
    add_cluster(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Check, print and write; 0 passes, 1 is a regression, 2 cannot tell (as any error is)."""
    wanted = [_target(given, lang) for given in arguments.write]
    from tb_gpu_doctor.comparing import summary_of_path
    from tb_gpu_doctor.comparison.check import DEFAULT_FILE, EXIT_STATUS, Limits, check, read_limits
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.diagnosis.registry import kinds
    from tb_gpu_doctor.report.check_report import FORMATS

    config = arguments.config or (DEFAULT_FILE if os.path.exists(DEFAULT_FILE) else None)
    limits = Limits() if config is None else read_limits(config, kinds())
    baseline = arguments.baseline or limits.baseline
    before = None
    if baseline is not None:
        with readable(baseline, lang) as (path, name):
            before = called(summary_of_path(path), name)
    with readable(arguments.path, lang) as (path, name):
        run = called(summary_of_path(path, arguments.run, arguments.session), name)
    result = check(run, limits, before, Batches(arguments.batch_baseline, arguments.batch))
    for name, path in wanted:
        _write(path, FORMATS[name](result, lang))
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
    return name, path


def _write(path: str, content: str) -> None:
    from tb_gpu_doctor.errors import DocumentError

    try:
        Path(path).write_text(content, encoding="utf-8")
    except OSError as error:
        raise DocumentError("cannot_write", path, reason=error.strerror or str(error)) from error
