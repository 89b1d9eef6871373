"""``gpu-doctor kernels PATH``: the kernels of a profiled run, what limits each, as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.cli.arguments import (
    Parser,
    UsageError,
    add_cluster,
    add_command,
    add_no_color,
    add_number,
    add_path,
    add_session,
)
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import console, progress_bar
from tb_gpu_doctor.texts import text

if TYPE_CHECKING:
    from rich.console import Console

    from tb_gpu_doctor.analysis.filling import GridScaling
    from tb_gpu_doctor.api import SessionFacts
    from tb_gpu_doctor.report.kernel_report import Listed, ListedGpu

_DEFAULT_TOP = 30


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "kernels", execute, lang)
    add_path(parser, lang)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help=text("cli.kernels.csv", lang))
    form.add_argument("--json", action="store_true", help=text("cli.kernels.json", lang))
    parser.add_argument("--by", choices=("gpu", "kernel"), default="kernel", help=text("cli.kernels.by", lang))
    add_number(parser, lang, "--top", "cli.kernels.top")
    add_session(parser, lang)
    add_number(parser, lang, "--batch-size", "cli.kernels.batch_size")
    parser.add_argument("--compare", metavar=text("cli.metavars.path", lang), help=text("cli.kernels.compare", lang))
    add_number(parser, lang, "--compare-batch-size", "cli.kernels.compare_batch_size")
    add_no_color(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Print the kernels; the exit status says whether the profile could be read."""
    top, batches = arguments.top, _batches(arguments, lang)
    # Here, so that `--help` needs neither numpy nor the decoder.
    from tb_gpu_doctor.report.kernel_report import ListedGpu, as_dict, csv_lines, kernel_list, over_gpus

    facts = _read(arguments.path, arguments.run, arguments.session, lang)
    gpus = [ListedGpu(file.label, gpu.device) for file in facts.files for gpu in file.gpus]
    kernels = kernel_list([([gpu.device for gpu in file.gpus], file.kernels) for file in facts.files])
    if arguments.by == "kernel":
        kernels = over_gpus(kernels, gpus)
    scaling = _scaling(facts, arguments, batches, lang) if batches is not None else ()
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
    _print(facts, kernels, gpus, scaling, batches, top or _DEFAULT_TOP, console(arguments.no_color, 160), lang)
    return 0


def _print(
    facts: SessionFacts,
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
    fills = [gpu.fill for file in facts.files for gpu in file.gpus if gpu.fill is not None]
    if kernels and len(fills) == len(gpus):
        console.print()
        print_fills(list(zip(gpus, fills, strict=True)), console, lang)
    if batches is None:
        return
    console.print()
    print_scaling(scaling, *batches, top, console, lang)
    for finding in _underfilled(facts, scaling):
        console.print()
        for phrase in (finding.title, *finding.explanation):
            console.print(say(phrase, lang))


def _underfilled(facts: SessionFacts, scaling: tuple[GridScaling, ...]) -> list[Any]:
    """What the diagnosis says of grids that are too small, now that two batch sizes are known."""
    from tb_gpu_doctor.diagnosis.context import Context
    from tb_gpu_doctor.diagnosis.rule import rule_of

    return list(rule_of("underfilled_gpu").check(Context(facts.files, scaling=scaling)))


def _read(path: str, run: str | None, session: list[str] | None, lang: str) -> SessionFacts:
    from tb_gpu_doctor.api import choose_session, facts_of_session
    from tb_gpu_doctor.traces.sessions import find_sessions

    with opened(path) as source, progress_bar(lang) as report:
        facts = facts_of_session(choose_session(find_sessions(source.path), run, session), report)
    from tb_gpu_doctor.report.sentences import error_sentence

    for failure in facts.failures:
        print(error_sentence(failure, lang), file=sys.stderr)
    return facts


def _scaling(
    facts: SessionFacts, arguments: argparse.Namespace, batches: tuple[int, int], lang: str
) -> tuple[GridScaling, ...]:
    from tb_gpu_doctor.analysis.filling import grid_scaling

    other = _read(arguments.compare, None, None, lang)
    kinds = {
        (gpu.device.name, gpu.device.sm_count)
        for file in (*facts.files, *other.files)
        for gpu in file.gpus
        if gpu.device.sm_count is not None
    }
    if len(kinds) > 1:
        raise UsageError(text("cli.kernels.other_gpus", lang, names=sorted(f"{name} ({sms})" for name, sms in kinds)))
    sm_count = next(iter(kinds))[1] if kinds else None
    return grid_scaling(
        (row for file in facts.files for row in file.kernels),
        (row for file in other.files for row in file.kernels),
        *batches,
        sm_count,
    )


def _batches(arguments: argparse.Namespace, lang: str) -> tuple[int, int] | None:
    """Both batch sizes, None where nothing is compared."""
    batch, other = arguments.batch_size, arguments.compare_batch_size
    if arguments.compare is None and batch is None and other is None:
        return None
    if arguments.compare is None or batch is None or other is None:
        raise UsageError(text("cli.kernels.compare_needs", lang))
    if batch == other:
        raise UsageError(text("cli.kernels.same_batch", lang))
    return batch, other
