"""A comparison as plain data, version 1: the structure that docs/compare.md describes. Times are milliseconds."""

from __future__ import annotations

import math
from typing import Any

from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval
from tb_gpu_doctor.comparison.results import Comparison, FindingComparison, KernelChange, PartChange
from tb_gpu_doctor.comparison.scaling import BatchGrids
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean
from tb_gpu_doctor.traces.columns import PS_PER_MS

SCHEMA_VERSION = 1
MAX_NAME = 1_000
_SHORT_NAME = 120


def comparison_dict(comparison: Comparison, lang: str = "en") -> dict[str, Any]:
    """The comparison as JSON-ready data with texts in ``lang``."""
    lang = pick_language(lang)
    per_window = comparison.unit == "window"
    return {
        "schema_version": SCHEMA_VERSION,
        "language": lang,
        "outcome": comparison.outcome,
        "unit": comparison.unit,
        "headline": headline(comparison, lang),
        "reasons": [say(phrase, lang) for phrase in comparison.reasons],
        "obstacles": [say(phrase, lang) for phrase in comparison.obstacles],
        "confidence": CONFIDENCE,
        "change": _interval(comparison.change, 1.0),
        "before": _run(comparison.before, comparison.time_before),
        "after": _run(comparison.after, comparison.time_after),
        "parts": [_part(part, per_window) for part in comparison.parts],
        "findings": [_finding(finding, lang) for finding in comparison.findings],
        "kernels": [_kernel(kernel) for kernel in comparison.kernels],
        "kernel_time_before_ms": _ms(comparison.kernel_time_before),
        "kernel_time_after_ms": _ms(comparison.kernel_time_after),
        "grids": None if comparison.grids is None else _grids(comparison.grids, lang),
    }


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


def _grids(grids: BatchGrids, lang: str) -> dict[str, Any]:
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


def _run(run: RunSummary, time: float | None) -> dict[str, Any]:
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
        "time_ms": _ms(time),
        "median_step_ms": _ms(run.median_ps),
        "step_ms": [_ms(value) for value in run.wall_ps.tolist()],
        "occupancy": _finite(run.occupancy),
        "telemetry": {name: _finite(value) for name, value in run.telemetry.items()},
    }


def _part(part: PartChange, is_share: bool) -> dict[str, Any]:
    scale = 1.0 if is_share else 1 / PS_PER_MS
    unit = "share" if is_share else "ms"
    return {
        "part": part.part,
        f"before_{unit}": _finite(part.before * scale),
        f"after_{unit}": _finite(part.after * scale),
        f"difference_{unit}": _interval(part.difference, scale),
    }


def _finding(finding: FindingComparison, lang: str) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "name": text(f"compare.kinds.{finding.kind}", lang),
        "change": finding.change,
        "severity_before": finding.severity_before,
        "severity_after": finding.severity_after,
        "cost_before_ms": _ms(finding.cost_before),
        "cost_after_ms": _ms(finding.cost_after),
        "share_before": _finite(finding.share_before),
        "share_after": _finite(finding.share_after),
        "cause_before": finding.cause_before,
        "cause_after": finding.cause_after,
        "part_of_before": finding.part_of_before,
        "part_of_after": finding.part_of_after,
        "docs": f"findings/{finding.kind}",
    }


def _kernel(kernel: KernelChange) -> dict[str, Any]:
    return {
        "name": clean(kernel.name, MAX_NAME),
        "grid": kernel.grid,
        "block": kernel.block,
        "change": kernel.kind,
        "calls_before": _finite(kernel.calls_before),
        "calls_after": _finite(kernel.calls_after),
        "before_ms": _ms(kernel.before),
        "after_ms": _ms(kernel.after),
        "difference_ms": _ms(kernel.difference),
        "occupancy_before": _finite(kernel.occupancy_before),
        "occupancy_after": _finite(kernel.occupancy_after),
    }


def _interval(interval: Interval | None, scale: float) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {name: _finite(getattr(interval, name) * scale) for name in ("value", "low", "high")}


def _ms(picoseconds: float | None) -> float | None:
    return _finite(None if picoseconds is None else picoseconds / PS_PER_MS)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
