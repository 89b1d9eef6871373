"""Which checks of telemetry could be made, and why others could not: no driver, no values, no steps."""

from __future__ import annotations

import re

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Phrase
from tb_gpu_doctor.diagnosis.registry import rules
from tb_gpu_doctor.diagnosis.telemetry_gpus import judged, names
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.memory import measure as measure_memory
from tb_gpu_doctor.telemetry.samples import column

# What the driver's and the loader's words mean; they are English whatever the machine's language is.
_DRIVER_WORDS = (
    ("mismatch", re.compile(r"version.mismatch", re.IGNORECASE)),
    ("old_pynvml", re.compile(r"installed as pynvml|function not found|has no nvml", re.IGNORECASE)),
    ("no_pynvml", re.compile(r"No module named", re.IGNORECASE)),
    ("permission", re.compile(r"permission", re.IGNORECASE)),
    ("no_library", re.compile(r"library not found|shared library|cannot open shared object", re.IGNORECASE)),
    ("not_loaded", re.compile(r"driver not loaded", re.IGNORECASE)),
)
# Notes of a monitor that say why there is no sample at all.
_ABSENT = ("no_driver", "amd", "no_gpus", "no_gpus_at_all", "cannot_start", "sampler_ended", "driver_lost")


def why_no_samples(context: Context) -> tuple[Phrase, ...]:
    """That no GPU was recorded, with the reason of each kind that the monitors noted."""
    found: list[Phrase] = []
    for recording in context.telemetry.recordings:
        for note in recording.told:
            area, _, key = note.key.partition(".")
            if area != "recording" or key not in _ABSENT:
                continue
            reason = str(note.params.get("reason", "")).strip().rstrip(".")
            code = key
            if key in ("no_driver", "driver_lost", "cannot_start"):
                code = next((code for code, words in _DRIVER_WORDS if words.search(reason)), "other")
            phrase = Phrase(f"telemetry.no_samples.{code}", {"reason": reason or "?"})
            if phrase not in found:
                found.append(phrase)
    return tuple(found) or (Phrase("telemetry.doubts.no_gpus"),)


def checks_made(context: Context) -> tuple[tuple[Phrase, ...], tuple[Phrase, ...]]:
    """(names of the checks that could be made of every GPU, a sentence for each value whose lack left some out)."""
    done: list[Phrase] = []
    lacking: dict[tuple[str, tuple[int, ...]], list[Phrase]] = {}
    gpus = context.telemetry.gpus
    worked = {id(gpu) for gpu in judged(context)}
    for rule in rules():
        if rule.about != "telemetry":
            continue
        name = Phrase(f"findings.{rule.kind}.name")
        missing = ((metric, _without(gpus, metric, worked)) for metric in rule.metrics)
        first = next(((metric, rows) for metric, rows in missing if rows), None)
        if first is None:
            done.append(name)
        else:
            lacking.setdefault(first, []).append(name)
    sentences = []
    for (metric, rows), checks in lacking.items():
        chosen = [gpus[row] for row in rows]
        mig = metric == "utilization_percent" and all(gpu.series.facts.mig is not None for gpu in chosen)
        facts = {"gpus": names(context, chosen), "checks": tuple(checks)}
        sentences.append(Phrase(f"telemetry.lacking.{'mig' if mig else metric}", facts))
    return tuple(done), tuple(sentences)


def _without(gpus: tuple[GpuTelemetry, ...], metric: str, worked: set[int]) -> tuple[int, ...]:
    """Which GPUs' telemetry lacks what a rule needs altogether."""
    return tuple(row for row, gpu in enumerate(gpus) if not _has(gpu, metric, worked))


def _has(gpu: GpuTelemetry, metric: str, worked: set[int]) -> bool:
    if metric == "steps":
        return len(gpu.recording.steps.number) > 0
    if metric == "work":
        return id(gpu) in worked
    if metric == "memory":
        return measure_memory(gpu.series, gpu.recording.memory_growth) is not None
    return column(gpu.series, metric) is not None
