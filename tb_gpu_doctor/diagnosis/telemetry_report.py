"""What a diagnosis says of telemetry beside its findings: one line of numbers for each GPU, and what was not joined."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rules.low_utilization import loads
from tb_gpu_doctor.diagnosis.telemetry_gpus import ref
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Load
from tb_gpu_doctor.telemetry.memory import measure as measure_memory
from tb_gpu_doctor.telemetry.samples import column, highest
from tb_gpu_doctor.telemetry.throttling import measure as measure_throttling
from tb_gpu_doctor.telemetry.throttling import state
from tb_gpu_doctor.texts import DEFAULT_LANGUAGE

_MOST_NOTES = 20


@dataclass(frozen=True)
class GpuFigures:
    """One GPU over its whole recording; None where not recorded. Shares are fractions of 1.

    Attributes:
        utilization: mean while training ran.
        clock_mhz, power_watts: medians while busy.
        temperature_celsius: the highest.
        memory_peak_bytes, memory_capacity_bytes, memory_source: what training needed (`telemetry.memory`).
        throttled: share of the busy time by kind (``thermal``, ``power``, ``other``), those that occurred.
        first_step, last_step: of the recording.
    """

    gpu: GpuRef
    name: str | None
    samples: int
    utilization: float | None
    clock_mhz: float | None
    clock_max_mhz: float | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    memory_peak_bytes: float | None
    memory_capacity_bytes: float | None
    memory_source: str | None
    throttled: tuple[tuple[str, float], ...]
    first_step: int | None
    last_step: int | None


@dataclass(frozen=True)
class TelemetryReport:
    """Telemetry of one diagnosis.

    Attributes:
        gpus: those that were joined; without a profile, all.
        recordings: folders that they come from.
        notes: what was not joined or not recorded, and why.
        simulated: whether a stand-in driver was behind any of it.
    """

    gpus: tuple[GpuFigures, ...]
    recordings: tuple[str, ...]
    notes: tuple[Phrase, ...]
    simulated: bool


def report_telemetry(context: Context) -> TelemetryReport | None:
    """The report, None where nothing was recorded."""
    telemetry = context.telemetry
    if not telemetry.recordings and not telemetry.reasons:
        return None
    known = {id(gpu): load for gpu, load in loads(context)}
    return TelemetryReport(
        gpus=tuple(_figures(context, gpu, known.get(id(gpu))) for gpu in telemetry.gpus),
        recordings=tuple(recording.run for recording in telemetry.recordings),
        notes=_notes(context),
        simulated=any(recording.simulated for recording in telemetry.recordings),
    )


def _notes(context: Context) -> tuple[Phrase, ...]:
    """One sentence for each reason, however many recordings it holds for; then what the monitors said."""
    groups: dict[str, tuple[list[str], dict[str, object]]] = {}
    for run, note in context.telemetry.reasons:
        runs, _ = groups.setdefault(note.code, ([], dict(note.params)))
        runs.append(run)
    found: list[Phrase] = [
        Phrase(f"notes.{code}", {**params, "runs": tuple(sorted(set(runs))[:3]), "recordings": len(set(runs))})
        for code, (runs, params) in groups.items()
    ]
    said: set[str] = set()
    for recording in context.telemetry.recordings:
        spoken = context.telemetry.words.get(recording.run, {DEFAULT_LANGUAGE: recording.notes})
        for index, sentence in enumerate(recording.notes):
            if sentence not in said:
                said.add(sentence)
                found.append(
                    Phrase.recorded({lang: notes[index] for lang, notes in spoken.items() if index < len(notes)})
                )
    return tuple(found[:_MOST_NOTES])


def _figures(context: Context, gpu: GpuTelemetry, load: Load | None) -> GpuFigures:
    limits, series = context.thresholds, gpu.series
    usual = state(series, limits.telemetry_busy_percent, None)
    memory = measure_memory(series, gpu.recording.memory_growth)
    heat = column(series, "temperature_celsius")
    steps = series.step[series.step >= 0]
    return GpuFigures(
        gpu=ref(gpu),
        name=series.facts.name,
        samples=len(series),
        utilization=None if load is None else load.utilization,
        clock_mhz=usual.clock_mhz,
        clock_max_mhz=series.facts.limits.get("sm_clock_max_mhz"),
        power_watts=usual.power_watts,
        power_limit_watts=usual.power_limit_watts,
        temperature_celsius=None if heat is None else highest(heat),
        memory_peak_bytes=None if memory is None else memory.peak_bytes,
        memory_capacity_bytes=None if memory is None else memory.capacity_bytes,
        memory_source=None if memory is None else memory.source,
        throttled=tuple(
            (throttling.kind, throttling.share)
            for throttling in measure_throttling(series, limits.telemetry_busy_percent)
        ),
        first_step=int(steps.min()) if len(steps) else None,
        last_step=int(steps.max()) if len(steps) else None,
    )
