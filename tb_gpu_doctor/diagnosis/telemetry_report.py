"""What telemetry adds to a diagnosis: figures of each GPU, which checks could be made, and the reason behind findings.

A profile shows that a GPU computes slower than the others with the same work, and cannot show why. Telemetry can: heat,
a lowered power limit, a lower clock. And where the profiler made steps longer, findings about the host say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import SEVERITIES, Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rule import rules
from tb_gpu_doctor.diagnosis.rules.low_utilization import loads
from tb_gpu_doctor.diagnosis.rules.profiler_overhead import worst_overhead
from tb_gpu_doctor.diagnosis.telemetry_gpus import measured_gpus, names, ref, since
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Load
from tb_gpu_doctor.telemetry.memory import measure as measure_memory
from tb_gpu_doctor.telemetry.progress import silent_gpus
from tb_gpu_doctor.telemetry.series import column, highest
from tb_gpu_doctor.telemetry.throttling import Kind, State, around, bands, kind_masks, measure, state, typical
from tb_gpu_doctor.telemetry.throttling import measure as measure_throttling
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
_ABSENT = (
    "unknown_gpu",
    "silent_gpu",
    "no_driver",
    "amd",
    "no_gpus",
    "no_gpus_at_all",
    "cannot_start",
    "sampler_ended",
    "driver_lost",
)


def why_no_samples(context: Context) -> tuple[Phrase, ...]:
    """That no GPU was recorded, with the reasons as far as they are known."""
    return noted_absences(context) or (Phrase("telemetry.doubts.no_gpus"),)


def noted_absences(context: Context) -> tuple[Phrase, ...]:
    """That no GPU was recorded, with the reason of each kind that the monitors noted; empty where they noted none."""
    found: list[Phrase] = []
    for recording in (*context.telemetry.recordings, *context.telemetry.without_gpus):
        for note in recording.told:
            area, _, key = note.key.partition(".")
            if area != "recording" or key not in _ABSENT:
                continue
            if key == "no_gpus_at_all" and silent_gpus(recording):
                continue  # it knows some, and they do not answer
            reason = str(note.params.get("reason", "")).strip().rstrip(".")
            code = key
            if key in ("no_driver", "driver_lost", "cannot_start"):
                code = next((code for code, words in _DRIVER_WORDS if words.search(reason)), "other")
            facts = {"reason": reason or "?", "gpu": str(note.params.get("gpu", "?"))}
            phrase = Phrase(f"telemetry.no_samples.{code}", facts)
            if phrase not in found:
                found.append(phrase)
    return tuple(found)


def checks_made(context: Context, found: Set[str] = frozenset()) -> tuple[tuple[Phrase, ...], tuple[Phrase, ...]]:
    """(names of the checks that could be made of every GPU, a sentence for each value whose lack left some out).

    ``found`` are kinds that some GPU was found to have: nobody says that these were not checked.
    """
    done: list[Phrase] = []
    lacking: dict[tuple[str, tuple[int, ...]], list[Phrase]] = {}
    gpus = context.telemetry.gpus
    worked = {id(gpu) for gpu in measured_gpus(context)}
    for rule in rules():
        if rule.about != "telemetry" or ("ranks" in rule.metrics and len(context.telemetry.recordings) < 2):
            continue
        name = Phrase(f"findings.{rule.kind}.name")
        missing = ((metric, _without(gpus, metric, worked)) for metric in rule.metrics)
        first = next(((metric, rows) for metric, rows in missing if rows), None)
        if first is None:
            done.append(name)
        elif rule.kind not in found:
            lacking.setdefault(first, []).append(name)
    sentences = []
    for (metric, rows), checks in lacking.items():
        chosen = [gpus[row] for row in rows]
        mig = metric == "utilization_percent" and all(gpu.series.facts.mig is not None for gpu in chosen)
        facts = {"gpus": names(context, chosen), "checks": tuple(checks)}
        lacks = "mig" if mig else "steps" if metric == "ranks" else metric
        sentences.append(Phrase(f"telemetry.lacking.{lacks}", facts))
    return tuple(done), tuple(sentences)


def _without(gpus: tuple[GpuTelemetry, ...], metric: str, worked: set[int]) -> tuple[int, ...]:
    """Which GPUs' telemetry lacks what a rule needs altogether."""
    return tuple(row for row, gpu in enumerate(gpus) if not _has(gpu, metric, worked))


def _has(gpu: GpuTelemetry, metric: str, worked: set[int]) -> bool:
    if metric in ("steps", "ranks"):
        return len(gpu.recording.steps.number) > 0
    if metric == "work":
        return id(gpu) in worked
    if metric == "memory":
        return measure_memory(gpu.series, gpu.recording.memory_growth) is not None
    return column(gpu.series, metric) is not None


# While the profile was taken a GPU was throttled in this part of the samples around it.
_THROTTLED = 0.5
# Advice of an imbalance that a proven reason makes needless.
_DONE = re.compile(r"\.advice\.(check_clocks|even_work)")
# What is said of a slow GPU that was throttled; the finding about the throttling becomes part of the story.
_STORIES: tuple[tuple[Kind, str, str], ...] = (
    ("thermal", "thermal", "thermal_throttle"),
    ("power", "power", "power_throttle"),
    ("other", "hardware", "power_throttle"),
)


@dataclass(frozen=True)
class SlowGpu:
    """Why telemetry holds a GPU for slow.

    Attributes:
        gpu: the slow one.
        reason: ``thermal``, ``power``, ``hardware`` or ``clock`` (lower, and no reason recorded).
        since: phrase that says since when; None where no throttling was recorded.
        own, others: how it was and how the others typically were while the profile was taken.
    """

    gpu: GpuTelemetry
    reason: str
    since: Phrase | None
    own: State
    others: State


def slow_gpu(context: Context, culprit: GpuRef, victims: Sequence[GpuRef]) -> SlowGpu | None:
    """What telemetry knows of a GPU that a profile shows to compute slower; None where it shows no difference.

    Only a clock below the others' counts: a hot GPU at full clock is not slow because of its heat.
    """
    limits = context.thresholds
    by_ref = {ref(gpu): gpu for gpu in context.telemetry.gpus}
    gpu = by_ref.get(culprit)
    peers = [by_ref[victim] for victim in victims if victim in by_ref]
    if gpu is None or not peers:
        return None
    own = state(gpu.series, limits.telemetry_busy_percent, gpu.window_ns)
    others = typical([state(peer.series, limits.telemetry_busy_percent, peer.window_ns) for peer in peers])
    if own.clock_mhz is None or not others.clock_mhz or own.clock_mhz >= limits.unequal_clock * others.clock_mhz:
        return None
    for kind, reason, _ in _STORIES:
        if _throttled(gpu, kind) >= _THROTTLED and all(_throttled(peer, kind) < _THROTTLED for peer in peers):
            return SlowGpu(gpu, reason, _since(context, gpu, kind), own, others)
    return SlowGpu(gpu, "clock", None, own, others)


def _throttled(gpu: GpuTelemetry, kind: Kind) -> float:
    """The part of the samples around the profile in which a GPU was throttled so."""
    mask = kind_masks(gpu.series).get(kind)
    if mask is None or gpu.window_ns is None:
        return 0.0
    near = around(gpu.series, gpu.window_ns)
    return float(mask[near].mean()) if near.any() else 0.0


def _since(context: Context, gpu: GpuTelemetry, kind: Kind) -> Phrase:
    """Since when it has been so: the lasting state that the profile lies in, else the stretch around the profile."""
    assert gpu.window_ns is not None
    for throttling in measure(gpu.series, context.thresholds.telemetry_busy_percent):
        if throttling.kind == kind and throttling.lasting and throttling.since_ns <= gpu.window_ns[1]:
            return since(gpu, throttling.since_step, throttling.since_ns)
    found = [band for band in bands(gpu.series) if band.kind == kind and band.start_ns <= gpu.window_ns[1]]
    if not found:
        return Phrase("telemetry.since.profile")
    return since(gpu, found[-1].start_step, found[-1].start_ns)


def explain_slow_gpus(context: Context, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, an imbalance by a slow GPU told with its reason and joined with the throttling behind it."""
    left = list(findings)
    for finding in findings:
        if finding.kind != "imbalance" or finding.cause != "slow_gpu":
            continue
        told = [slow for gpu in finding.gpus if (slow := slow_gpu(context, gpu, finding.victims)) is not None]
        if not told:
            continue
        title, explanation, advice = finding.title, list(finding.explanation), list(finding.advice)
        severity, parts = finding.severity, list(finding.absorbed)
        if len(told) == len(finding.gpus):
            title = _sentence(context, told[0])
        for slow in told:
            sentence = _sentence(context, slow)
            explanation += [*([] if sentence == title else [sentence]), *_slow_figures(context, slow)]
        # The hardware is found guilty: what the profile alone made one look at, the shares of work above all, is done.
        advice = [phrase for phrase in advice if not _DONE.search(phrase.key)]
        for _, reason, kind in _STORIES:
            same = [f for f in left if f.kind == kind and set(f.gpus) <= set(finding.gpus)]
            if same and any(slow.reason == reason for slow in told):
                absorbed = same[0]
                left.remove(absorbed)
                parts.append(absorbed)
                explanation += [p for p in absorbed.explanation[1:] if not p.key.endswith((".lasting", ".at_times"))]
                advice = [*absorbed.advice, *advice]
                severity = min(severity, absorbed.severity, key=SEVERITIES.index)
        joined = replace(
            finding,
            title=title,
            explanation=tuple(explanation),
            advice=tuple(advice),
            severity=severity,
            absorbed=tuple(parts),
        )
        left[left.index(finding)] = joined
    return left


def _sentence(context: Context, slow: SlowGpu) -> Phrase:
    facts = {"gpus": names(context, [slow.gpu]), "since": slow.since, "clock": slow.own.clock_mhz}
    facts["others"] = slow.others.clock_mhz
    return Phrase(f"telemetry.slow_gpu.{slow.reason}", facts)


def _slow_figures(context: Context, slow: SlowGpu) -> list[Phrase]:
    """Clock, temperature and power beside the others'."""
    found = []
    own, others = slow.own, slow.others
    pairs = (
        ("clock", own.clock_mhz, others.clock_mhz),
        ("temperature", own.temperature_celsius, others.temperature_celsius),
        ("power", own.power_watts, others.power_watts),
        ("limit", own.power_limit_watts, others.power_limit_watts),
    )
    for name, mine, theirs in pairs:
        if mine is None or theirs is None or (name == "limit" and mine >= 0.99 * theirs):
            continue
        facts = {"gpus": names(context, [slow.gpu]), "own": mine, "others": theirs}
        found.append(Phrase(f"telemetry.slow_gpu.figures.{name}", facts))
    return found


def mark_inflated(context: Context, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, those about the host's time with a word on the profiler where it made steps longer."""
    measured = worst_overhead(context)
    if measured is None:
        return list(findings)
    sentence = Phrase("telemetry.inflated", {"more": measured.ratio - 1})
    return [replace(f, explanation=(*f.explanation, sentence)) if f.rule.inflated_by_profiler else f for f in findings]
