"""What telemetry adds to findings that a profile has raised.

A profile shows that a GPU computes slower than the others with the same work, and cannot show why. Telemetry can:
heat, a lowered power limit, a lower clock. And where the profiler made steps longer, findings about the host say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import SEVERITIES, Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rules.profiler_overhead import worst_overhead
from tb_gpu_doctor.diagnosis.telemetry_gpus import names, ref, since
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.throttling import Kind, State, around, bands, kind_masks, measure, state, typical

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
            explanation += [*([] if sentence == title else [sentence]), *_figures(context, slow)]
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


def _figures(context: Context, slow: SlowGpu) -> list[Phrase]:
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
