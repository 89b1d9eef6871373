"""A comparison of two runs for its readers: the sentences that all forms share, JSON, and text for a terminal.

The JSON, version 1, has the structure that docs/compare.md describes; its times are milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval
from tb_gpu_doctor.comparison.compare import Comparison, FindingComparison, PartChange
from tb_gpu_doctor.comparison.kernel_changes import BatchGrids, KernelChange
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.documents import milliseconds, plain
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.report.terminal import Column, print_hanging, print_table
from tb_gpu_doctor.texts import has_text, pick_language, text
from tb_gpu_doctor.texts.numbers import clean, duration, number, percent, signed_percent, size
from tb_gpu_doctor.traces.columns import PS_PER_MS

SCHEMA_VERSION = 1
MAX_NAME = 1_000
_SHORT_NAME = 120
_STYLES = {
    "faster": "bold green", "slower": "bold red", "same": "bold cyan",
    "inconclusive": "bold yellow", "not_comparable": "bold magenta",
}  # fmt: skip
_SYMBOLS = {"faster": "▼", "slower": "▲", "same": "=", "inconclusive": "?", "not_comparable": "✖"}
_CHANGES = {"solved": "green", "better": "green", "new": "red", "worse": "red", "unchanged": "dim", "cannot_tell": ""}
_MAX_KERNELS = 10
_MAX_GRIDS = 5
# Changes of a kernel below this part of the unit's time are not worth a line.
_LEAST_KERNEL = 0.001
_CAUSES = (
    "input",
    "launch",
    "sync",
    "compile",
    "checkpoint",
    "host_other",
    "allocator",
    "dependency",
    "peer",
    "kernel_gap",
    "queued",
    "no_evidence",
)


def headline(comparison: Comparison, lang: str) -> str:
    """The one sentence with the numbers."""
    if comparison.change is None or comparison.unit == "window":
        return text("compare.headline.window", lang)
    return text(
        f"compare.headline.{comparison.unit}",
        lang,
        before=comparison.time_before,
        after=comparison.time_after,
        change=comparison.change.value,
    )


def grid_sentences(grids: BatchGrids, lang: str) -> list[str]:
    """One sentence a kernel: its blocks at both batches, and the batch that fills the GPU."""
    found = []
    for entry in grids.kernels:
        batch, wave = entry.block_per_sm_batch, entry.full_wave_batch
        key = "fixed" if batch is None else "batch" if wave is None or wave <= batch else "batch_wave"
        params = {
            "name": clean(entry.name, _SHORT_NAME),
            "before": entry.blocks,
            "after": entry.other_blocks,
            "batch_before": grids.batch_before,
            "batch_after": grids.batch_after,
            "sms": grids.sm_count,
            "batch": batch,
            "wave_batch": wave,
        }
        found.append(text(f"compare.grids.{key}", lang, **params))
    return found


def part_name(part: str, lang: str) -> str:
    """A part of the time in words."""
    if part in _CAUSES:
        return text("compare.parts.idle", lang, cause=text(f"report.causes.{part}", lang))
    return text(f"compare.parts.{part}", lang)


def comparison_dict(comparison: Comparison, lang: str = "en") -> dict[str, Any]:
    """The comparison as JSON-ready data with texts in ``lang``."""
    lang = pick_language(lang)
    per_window = comparison.unit == "window"
    return plain(
        {
            "schema_version": SCHEMA_VERSION,
            "language": lang,
            "outcome": comparison.outcome,
            "unit": comparison.unit,
            "headline": headline(comparison, lang),
            "reasons": [say(phrase, lang) for phrase in comparison.reasons],
            "obstacles": [say(phrase, lang) for phrase in comparison.obstacles],
            "confidence": CONFIDENCE,
            "change": comparison.change,
            "before": _run_document(comparison.before, comparison.time_before),
            "after": _run_document(comparison.after, comparison.time_after),
            "parts": [_part_document(part, per_window) for part in comparison.parts],
            "findings": [_finding_document(finding, lang) for finding in comparison.findings],
            "kernels": [_kernel_document(kernel) for kernel in comparison.kernels],
            "kernel_time_before_ms": milliseconds(comparison.kernel_time_before),
            "kernel_time_after_ms": milliseconds(comparison.kernel_time_after),
            "grids": None if comparison.grids is None else _grids_document(comparison.grids, lang),
        }
    )


def _grids_document(grids: BatchGrids, lang: str) -> dict[str, Any]:
    return {
        "title": text("compare.sections.grids", lang),
        "multiprocessors": grids.sm_count,
        "kernels": [
            {
                "name": clean(entry.name, MAX_NAME),
                "sentence": sentence,
                "blocks_before": entry.blocks,
                "blocks_after": entry.other_blocks,
                "grows": entry.scales,
                "batch": entry.block_per_sm_batch,
                "wave_batch": entry.full_wave_batch,
            }
            for entry, sentence in zip(grids.kernels, grid_sentences(grids, lang), strict=True)
        ],
    }


def _run_document(run: RunSummary, time: float | None) -> dict[str, Any]:
    return {
        "label": clean(run.label, MAX_NAME),
        "verdict": run.verdict,
        "format": run.format,
        "gpus": run.gpu_count,
        "models": sorted({clean(name, MAX_NAME) for name in run.models if name}),
        "hosts": run.hosts,
        "batch": run.batch,
        "steps": run.step_count,
        "step_source": run.step_source,
        "time_ms": milliseconds(time),
        "median_step_ms": milliseconds(run.median_ps),
        "step_ms": [milliseconds(value) for value in run.wall_ps.tolist()],
        "occupancy": run.occupancy,
        "telemetry": run.telemetry,
    }


def _part_document(part: PartChange, is_share: bool) -> dict[str, Any]:
    unit = "share" if is_share else "ms"
    scale = 1.0 if is_share else 1 / PS_PER_MS
    return {
        "part": part.part,
        f"before_{unit}": part.before * scale,
        f"after_{unit}": part.after * scale,
        f"difference_{unit}": part.difference if is_share else _in_milliseconds(part.difference),
    }


def _in_milliseconds(interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    return Interval(interval.value / PS_PER_MS, interval.low / PS_PER_MS, interval.high / PS_PER_MS)


def _finding_document(finding: FindingComparison, lang: str) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "name": text(f"findings.{finding.kind}.name", lang),
        "change": finding.change,
        "severity_before": finding.severity_before,
        "severity_after": finding.severity_after,
        "cost_before_ms": milliseconds(finding.cost_before),
        "cost_after_ms": milliseconds(finding.cost_after),
        "share_before": finding.share_before,
        "share_after": finding.share_after,
        "cause_before": finding.cause_before,
        "cause_after": finding.cause_after,
        "part_of_before": finding.part_of_before,
        "part_of_after": finding.part_of_after,
        "docs": f"findings/{finding.kind}",
    }


def _kernel_document(kernel: KernelChange) -> dict[str, Any]:
    return {
        "name": clean(kernel.name, MAX_NAME),
        "grid": kernel.grid,
        "block": kernel.block,
        "change": kernel.kind,
        "calls_before": kernel.calls_before,
        "calls_after": kernel.calls_after,
        "before_ms": milliseconds(kernel.before),
        "after_ms": milliseconds(kernel.after),
        "difference_ms": milliseconds(kernel.difference),
        "occupancy_before": kernel.occupancy_before,
        "occupancy_after": kernel.occupancy_after,
    }


def print_comparison(comparison: Comparison, console: Console, lang: str = "en") -> None:
    """Print a comparison; sentences are wrapped at the console's width."""
    lang = pick_language(lang)
    for line in _above(comparison, lang):
        print_hanging(line, console)
    _print_parts(comparison, console, lang)
    for line in _below(comparison, console.width, lang):
        print_hanging(line, console)


def _above(comparison: Comparison, lang: str) -> Iterator[Text]:
    for name, run in (("before", comparison.before), ("after", comparison.after)):
        yield Text(f"{text(f'compare.columns.{name}', lang)}: {clean(run.label, 200)}", style="dim")
    yield Text()
    verdict = Text(f"{_SYMBOLS[comparison.outcome]} ", style=_STYLES[comparison.outcome])
    verdict.append(text(f"compare.outcomes.{comparison.outcome}", lang), style=_STYLES[comparison.outcome])
    verdict.append("  " + headline(comparison, lang))
    yield verdict
    for phrase in comparison.reasons:
        yield Text("  " + say(phrase, lang))
    if comparison.obstacles:
        yield Text()
        yield _title("doubts", lang)
        for phrase in comparison.obstacles:
            yield Text("- " + say(phrase, lang))
    yield Text()
    yield _title("parts", lang)


def _below(comparison: Comparison, width: int, lang: str) -> Iterator[Text]:
    if comparison.findings:
        yield Text()
        yield from _findings(comparison, lang)
    yield from _kernels(comparison, width, lang)
    if comparison.grids is not None:
        yield Text()
        yield _title("grids", lang)
        for sentence in grid_sentences(comparison.grids, lang)[:_MAX_GRIDS]:
            yield Text("- " + sentence)
    yield from _telemetry(comparison, lang)


def _title(section: str, lang: str) -> Text:
    return Text(text(f"compare.sections.{section}", lang), style="bold underline")


def _print_parts(comparison: Comparison, console: Console, lang: str) -> None:
    """Where the time went before and after; changes that may be chance are marked."""
    rows: list[tuple[str | Text, ...]] = []
    shares = comparison.unit == "window"
    for part in comparison.parts:
        moved = part.after - part.before
        sure = part.difference is None or part.difference.excludes_zero
        rows.append(
            (
                part_name(part.part, lang),
                percent(part.before, lang) if shares else duration(part.before, lang),
                percent(part.after, lang) if shares else duration(part.after, lang),
                signed_percent(moved, lang) if shares else _signed(moved, lang),
                "" if sure else Text(f"({text('compare.unsure', lang)})", style="dim"),
            )
        )
    if comparison.time_before is not None and comparison.time_after is not None:
        moved = comparison.time_after - comparison.time_before
        before, after = duration(comparison.time_before, lang), duration(comparison.time_after, lang)
        rows.append((text("compare.columns.total", lang), before, after, _signed(moved, lang), ""))
    heads = [text(f"compare.columns.{name}", lang) for name in ("before", "after", "change")]
    columns = [Column(""), *(Column(head, is_number=True) for head in heads), Column("")]
    print_table(columns, rows, console, indent=2, head_style="dim")


def _signed(picoseconds: float, lang: str) -> str:
    words = duration(abs(picoseconds), lang)
    return words if picoseconds == 0 else ("+" if picoseconds > 0 else "−") + words


def _findings(comparison: Comparison, lang: str) -> Iterator[Text]:
    yield _title("findings", lang)
    for finding in comparison.findings:
        line = Text("  ")
        line.append(text(f"compare.changes.{finding.change}", lang), style=_CHANGES[finding.change])
        line.append(f"  {text(f'findings.{finding.kind}.name', lang)}", style="bold")
        line.append(f"  {_cost(finding, True, comparison.unit, lang)} → {_cost(finding, False, comparison.unit, lang)}")
        root = finding.part_of_after or finding.part_of_before
        if root is not None and has_text(f"findings.{root}.name"):
            name = text(f"findings.{root}.name", lang)
            line.append("  " + text("compare.finding.part_of", lang, name=name), style="dim")
        yield line


def _cost(finding: FindingComparison, is_before: bool, unit: str, lang: str) -> str:
    severity = finding.severity_before if is_before else finding.severity_after
    cost = finding.cost_before if is_before else finding.cost_after
    share = finding.share_before if is_before else finding.share_after
    if severity is None:
        return text("compare.finding.absent", lang)
    if cost is not None:
        return text("compare.finding.cost_sample" if unit == "sample" else "compare.finding.cost", lang, cost=cost)
    if share is not None:
        return text("compare.finding.share", lang, share=share)
    return text(f"report.severities.{severity}", lang)


def _kernels(comparison: Comparison, width: int, lang: str) -> Iterator[Text]:
    least = _LEAST_KERNEL * max(comparison.time_before or 0.0, comparison.time_after or 0.0)
    shown = [kernel for kernel in comparison.kernels if abs(kernel.difference) > least][:_MAX_KERNELS]
    if not shown:
        return
    yield Text()
    yield _title("kernels", lang)
    names = Counter(kernel.name for kernel in shown)
    for kernel in shown:
        yield _kernel(kernel, width, lang, names[kernel.name] > 1)
    moved = comparison.kernel_time_after - comparison.kernel_time_before
    yield Text(f"  {_signed(moved, lang):>10}  {text('compare.columns.kernel_total', lang)}", style="dim")


def _kernel(kernel: KernelChange, width: int, lang: str, with_shape: bool) -> Text:
    line = Text(f"  {_signed(kernel.difference, lang):>10}  ")
    if kernel.kind != "changed":
        line.append(text(f"compare.kernel_changes.{kernel.kind}", lang) + "  ", style="bold")
    else:
        line.append(f"{duration(kernel.before, lang)} → {duration(kernel.after, lang)}  ")
        if not math.isclose(kernel.calls_before, kernel.calls_after, rel_tol=0.005):
            line.append(text("compare.calls", lang, before=kernel.calls_before, after=kernel.calls_after) + "  ")
    if with_shape and kernel.grid is not None and kernel.block is not None:
        # one name in several shapes: told apart as CUDA writes a launch
        shape = ("×".join(map(str, size)) for size in (kernel.grid, kernel.block))
        line.append(f"<<<{', '.join(shape)}>>> ")
    name = clean(kernel.name, max(30, width - cell_len(line.plain) - 1))
    return line.append(name or text("compare.other_kernels", lang), style="dim")


def _telemetry(comparison: Comparison, lang: str) -> Iterator[Text]:
    """What was recorded beside both, and the occupancy of their kernels, side by side."""
    before, after = comparison.before, comparison.after
    values = {
        name: (before.telemetry[name], after.telemetry[name]) for name in before.telemetry if name in after.telemetry
    }
    section = "telemetry" if values else "occupancy"
    if before.occupancy is not None and after.occupancy is not None:
        # Of the profiles themselves, whatever was recorded beside them.
        values["occupancy"] = (before.occupancy, after.occupancy)
    if not values:
        return
    yield Text()
    yield _title(section, lang)
    for name, (old, new) in values.items():
        words = f"{_figure(name, old, lang)} → {_figure(name, new, lang)}"
        yield Text(f"  {text(f'compare.telemetry.{name}', lang)}: {words}")


def _figure(name: str, value: float, lang: str) -> str:
    if name == "memory_peak_bytes":
        return size(value, lang)
    if name in ("clock_mhz", "power_watts", "temperature_celsius"):
        return f"{number(value, lang)} { {'clock_mhz': 'MHz', 'power_watts': 'W', 'temperature_celsius': '°C'}[name] }"
    return percent(value, lang)
