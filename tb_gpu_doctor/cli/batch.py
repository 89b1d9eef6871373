"""``gpu-doctor batch MODULE:FUNCTION``: which batch size pays."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_command
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean, duration, number, size

if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.batch_measure import Point
    from tb_gpu_doctor.monitor.batch_size import BatchResult

_PICOSECONDS = 1e12


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "batch", execute, lang, "batch.command")

    def option(*names: str, key: str, **settings: object) -> None:
        parser.add_argument(*names, help=text(f"batch.command.{key}", lang), **settings)  # type: ignore[arg-type]

    option("factory", key="factory", metavar=text("batch.command.metavar", lang))
    option("--start", key="start", type=int, default=8, metavar="N")
    option("--max", key="max", type=int, default=1 << 20, metavar="N")
    option("--growth", key="growth", type=float, default=2.0, metavar="X")
    option("--to-memory", key="to_memory", action="store_true")
    option("--repeats", key="repeats", type=int, default=5, metavar="N")
    option("--warmup", key="warmup", type=int, default=3, metavar="N")
    option("--timeout", key="timeout", type=float, default=900.0, metavar="S")
    option("--logdir", key="logdir", metavar=text("cli.metavars.path", lang))
    option("--json", key="json", action="store_true")
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Measure, telling each size as it comes, and print what to take."""
    from tb_gpu_doctor.monitor.batch_measure import BadFactory, Measure
    from tb_gpu_doctor.monitor.batch_size import BatchError, OutOfRange, find_batch_size

    # A module beside which the command is started is found, as `python -m` finds it.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    out = sys.stderr if arguments.json else sys.stdout
    heading = "  ".join(f"{word:>12}" for word in text("batch.header", lang).splitlines())

    def tell(point: Point) -> None:
        nonlocal heading
        if heading:
            print(heading, file=out)
            heading = ""
        print(line(point, lang), file=out, flush=True)

    try:
        result = find_batch_size(
            arguments.factory,
            logdir=arguments.logdir,
            start=arguments.start,
            max_batch=arguments.max,
            growth=arguments.growth,
            patience=None if arguments.to_memory else 3,
            measure_as=Measure(warmup=arguments.warmup, repeats=arguments.repeats),
            timeout_s=arguments.timeout,
            on_point=tell,
        )
    except BadFactory as error:
        raise UsageError(text(f"batch.errors.factory.{error.code}", lang, **error.params)) from None
    except OutOfRange as error:
        raise UsageError(text("batch.errors.out_of_range", lang, name=error.name, value=str(error.value))) from None
    except ValueError as error:
        raise UsageError(text("batch.errors.arguments", lang, reason=str(error))) from None
    except BatchError as error:
        reason, *more = str(error).splitlines()
        for row in more:
            print(clean(row), file=sys.stderr)
        raise UsageError(text("batch.errors.failed", lang, reason=reason)) from None
    except OSError as error:
        if arguments.logdir is None:
            raise
        reason = error.strerror or str(error)
        raise UsageError(text("batch.errors.not_written", lang, path=arguments.logdir, reason=reason)) from None
    if arguments.json:
        from tb_gpu_doctor.documents import to_json

        print(to_json(result.to_dict()))
    else:
        print()
        print("\n".join(summary(result, lang)))
        if result.run is not None:
            print(text("batch.written", lang, path=os.path.join(arguments.logdir, result.run)))
    return 0


def line(point: Point, lang: str) -> str:
    """A row of the table."""
    if point.problem is not None or point.step_seconds is None or point.samples_per_s is None:
        known = point.problem in ("out_of_memory", "killed", "timeout")
        reason = (point.problem or "").splitlines()[0] if point.problem else ""
        key = point.problem if known else "other"
        return f"{point.batch_size:>12}  {text(f'batch.problems.{key}', lang, reason=reason)}"
    cells = (
        str(point.batch_size),
        number(point.samples_per_s, lang, 1),
        duration(point.step_seconds * _PICOSECONDS, lang),
        "" if point.peak_bytes is None else size(point.peak_bytes, lang),
    )
    return "  ".join(f"{cell:>12}" for cell in cells)


def summary(result: BatchResult, lang: str) -> list[str]:
    """What follows from the sweep."""
    lines = [text(f"batch.stopped.{result.stopped}", lang)]
    fit = result.fit
    if fit is not None:
        fixed, per_sample = fit.fixed_seconds * _PICOSECONDS, fit.per_sample_seconds * _PICOSECONDS
        lines.append(text("batch.fit", lang, fixed=fixed, per_sample=per_sample, error=fit.error))
    rates = {point.batch_size: point.samples_per_s for point in result.points if point.samples_per_s}
    if result.recommended is None:
        lines.append(text("batch.nothing", lang, batch=result.points[0].batch_size))
        return lines
    rate = rates[result.recommended]
    lines.append(text("batch.recommended", lang, batch=result.recommended, rate=rate, share=rate / max(rates.values())))
    if result.headroom is not None:
        lines.append(text("batch.headroom", lang, headroom=result.headroom))
    if not result.exact_memory:
        lines.append(text("batch.inexact", lang))
    return lines
