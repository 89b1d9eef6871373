"""``gpu-doctor kernels PATH``: the kernels of a profiled run, what limits each, as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_cluster, add_language, add_session
from tb_gpu_doctor.cli.progress import progress_bar
from tb_gpu_doctor.texts import text

if TYPE_CHECKING:
    from rich.console import Console

    from tb_gpu_doctor.analysis.filling import GridScaling
    from tb_gpu_doctor.api import SessionResult
    from tb_gpu_doctor.report.kernel_report import Listed, ListedGpu

_DEFAULT_TOP = 30


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "kernels",
        lang=lang,
        help=text("cli.kernels.short", lang),
        description=text("cli.kernels.description", lang),
    )
    number = text("cli.metavars.number", lang)
    path = text("cli.metavars.path", lang)
    parser.add_argument("path", metavar=path, help=text("cli.diagnose.path", lang))
    parser.add_argument("--csv", action="store_true", help=text("cli.kernels.csv", lang))
    parser.add_argument("--json", action="store_true", help=text("cli.kernels.json", lang))
    parser.add_argument("--by", choices=("gpu", "kernel"), default="kernel", help=text("cli.kernels.by", lang))
    parser.add_argument("--top", metavar=number, help=text("cli.kernels.top", lang, count=_DEFAULT_TOP))
    add_session(parser, lang)
    parser.add_argument("--batch-size", metavar=number, help=text("cli.kernels.batch_size", lang))
    parser.add_argument("--compare", metavar=path, help=text("cli.kernels.compare", lang))
    parser.add_argument("--compare-batch-size", metavar=number, help=text("cli.kernels.compare_batch_size", lang))
    parser.add_argument("--no-color", action="store_true", help=text("cli.diagnose.no_color", lang))
    add_cluster(parser, lang)
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Print the kernels; the exit status says whether the profile could be read."""
    top = _positive(arguments.top, "--top", lang)
    batches = _batches(arguments, lang)
    if arguments.csv and arguments.json:
        raise UsageError(text("cli.kernels.one_format", lang))
    # Here, so that `--help` needs neither numpy nor the decoder.
    from tb_gpu_doctor.report.kernel_report import ListedGpu, as_dict, csv_lines, kernel_list, over_gpus

    result = _read(arguments.path, arguments.run, arguments.session, lang)
    gpus = [ListedGpu(file.label, gpu.device) for file in result.files for gpu in file.gpus]
    kernels = kernel_list([([gpu.device for gpu in file.gpus], file.kernels) for file in result.files])
    if arguments.by == "kernel":
        kernels = over_gpus(kernels, gpus)
    scaling = _scaling(result, arguments, batches, lang) if batches is not None else ()
    if arguments.csv:
        for line in csv_lines(kernels[:top], gpus):
            sys.stdout.write(line.replace("\r\n", "\n"))
        return 0
    if arguments.json:
        from tb_gpu_doctor.documents import to_json

        data: dict[str, Any] = {
            "gpus": [{"host": gpu.host, "id": gpu.device.id, "name": gpu.device.name} for gpu in gpus],
            "kernels": [as_dict(kernel) for kernel in kernels[:top]],
        }
        if batches is not None:
            data["grid_scaling"] = scaling
        print(to_json(data))
        return 0
    _print(result, kernels, gpus, scaling, batches, top or _DEFAULT_TOP, _console(arguments), lang)
    return 0


def _print(
    result: SessionResult,
    kernels: list[Listed],
    gpus: list[ListedGpu],
    scaling: tuple[GridScaling, ...],
    batches: tuple[int, int] | None,
    top: int,
    console: Console,
    lang: str,
) -> None:
    from tb_gpu_doctor.report.kernel_report import print_fills, print_kernels, print_scaling
    from tb_gpu_doctor.report.sentences import say

    print_kernels(kernels, gpus, top, console, lang)
    fills = [gpu.fill for file in result.files for gpu in file.gpus if gpu.fill is not None]
    if kernels and len(fills) == len(gpus):
        console.print()
        print_fills(list(zip(gpus, fills, strict=True)), console, lang)
    if batches is None:
        return
    console.print()
    print_scaling(scaling, *batches, top, console, lang)
    for finding in _underfilled(result, scaling):
        console.print()
        for phrase in (finding.title, *finding.explanation):
            console.print(say(phrase, lang))


def _underfilled(result: SessionResult, scaling: tuple[GridScaling, ...]) -> list[Any]:
    """What the diagnosis says of grids that are too small, now that two batch sizes are known."""
    from tb_gpu_doctor.diagnosis.context import Context
    from tb_gpu_doctor.diagnosis.registry import rule_of

    return list(rule_of("underfilled_gpu").check(Context(result.files, scaling=scaling)))


def _read(path: str, run: str | None, session: list[str] | None, lang: str) -> SessionResult:
    from tb_gpu_doctor.api import choose_session, diagnose_session
    from tb_gpu_doctor.traces.sessions import find_sessions

    chosen = choose_session(find_sessions(path), run, session)
    with progress_bar(lang) as report:
        result = diagnose_session(chosen, report)
    from tb_gpu_doctor.report.sentences import error_sentence

    for failure in result.failures:
        print(error_sentence(failure, lang), file=sys.stderr)
    return result


def _scaling(
    result: SessionResult, arguments: argparse.Namespace, batches: tuple[int, int], lang: str
) -> tuple[GridScaling, ...]:
    from tb_gpu_doctor.analysis.filling import grid_scaling

    other = _read(arguments.compare, None, None, lang)
    kinds = {
        (gpu.device.name, gpu.device.sm_count)
        for file in (*result.files, *other.files)
        for gpu in file.gpus
        if gpu.device.sm_count is not None
    }
    if len(kinds) > 1:
        raise UsageError(text("cli.kernels.other_gpus", lang, names=sorted(f"{name} ({sms})" for name, sms in kinds)))
    sm_count = next(iter(kinds))[1] if kinds else None
    return grid_scaling(
        (row for file in result.files for row in file.kernels),
        (row for file in other.files for row in file.kernels),
        *batches,
        sm_count,
    )


def _batches(arguments: argparse.Namespace, lang: str) -> tuple[int, int] | None:
    """Both batch sizes, None where nothing is compared."""
    batch = _positive(arguments.batch_size, "--batch-size", lang)
    other = _positive(arguments.compare_batch_size, "--compare-batch-size", lang)
    if arguments.compare is None and batch is None and other is None:
        return None
    if arguments.compare is None or batch is None or other is None:
        raise UsageError(text("cli.kernels.compare_needs", lang))
    if batch == other:
        raise UsageError(text("cli.kernels.same_batch", lang))
    return batch, other


def _positive(value: str | None, option: str, lang: str) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:10]) < 1 << 31:
        raise UsageError(text("cli.kernels.whole_number", lang, option=option))
    return int(value[:10])


def _console(arguments: argparse.Namespace) -> Console:
    from rich.console import Console

    return Console(
        file=sys.stdout,
        no_color=True if arguments.no_color else None,
        color_system=None if arguments.no_color else "auto",
        width=None if sys.stdout.isatty() else 160,
        markup=False,
        highlight=False,
        emoji=False,
    )
