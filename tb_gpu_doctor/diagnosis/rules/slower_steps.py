"""Steps that become slower during the recording and stay so.

Reads: the wall time of the complete steps in their order, which part of the later ones grew, and the GPU's clock
before and after where it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.slower_steps import SlowerSteps, find_slower_steps
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.telemetry.throttling import state

KIND = "slower_steps"
# A host is to blame from this part of the largest growth on.
_TO_BLAME = 0.5
_ADVICE: dict[str, tuple[str, ...]] = {
    "compute": ("check_clocks", "same_work"),
    "communication": ("check_network", "check_clocks"),
    "input": ("feed",),
    "allocator": ("memory",),
}


@dataclass(frozen=True)
class Limits:
    """When steps have become slower, and what that costs."""

    # By the medians before and after: less is what clocks and machines do by themselves.
    ratio: float = 1.10
    # Of all pairs of an earlier and a later step this part has the longer one later: single long steps, and those that
    # come every so often, leave most pairs as they are.
    apart: float = 0.90
    # Of recordings whose steps merely scatter, fewer than this may look like it: many are looked at.
    chance: float = 0.001
    # Steps may resemble their neighbours and wander; a rise by this many scaled median deviations is none of that.
    far: float = 8.0
    # Fewer steps make no level; inferred ones must nearly all look alike.
    min_side: int = 6
    min_confidence: float = 0.90
    # What the later steps take longer than the earlier ones, of all steps' time.
    warning: float = 0.03
    critical: float = 0.15
    # The GPU's clock fell if it is below this part of what it was.
    clock: float = 0.95


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts."""
    limits: Limits = context.thresholds.of(KIND)
    files = context.files
    everywhere = (find_slower_steps(files, which, context.job, limits) for which in range(len(files)))
    found = [item for item in everywhere if item is not None and item.share >= limits.warning]
    if not found:
        return
    # Hosts that train together become slower together: those whose own work grew speak for all.
    worst = max(found, key=lambda item: item.growth)
    found = [item for item in found if item.growth >= _TO_BLAME * worst.growth]
    gpus = tuple(sorted(ref(item.file, device) for item in found for device in item.devices))
    shift = worst.shift
    facts = {
        "gpus": context.names(gpus),
        "share": worst.share,
        "number": worst.number(shift.at),
        "earliest": worst.number(shift.earliest),
        "latest": worst.number(shift.latest),
        "before": shift.before,
        "after": shift.after,
        "longer": shift.after / shift.before - 1,
        "count": worst.file.steps.count - shift.at,
        "steps": worst.file.steps.count,
        "grown": Phrase(f"findings.step_outliers.parts.{worst.grown}"),
        "growth": max(worst.parts),
        "part": max(worst.parts) / max(worst.growth, 1.0),
    }
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts)]
    if shift.latest > shift.earliest:
        explanation.append(Phrase(f"{key}.between", facts))
    explanation.append(Phrase(f"{key}.grown", facts))
    clocks = _clocks(context, worst, limits)
    if clocks is not None:
        explanation.append(clocks)
    if worst.file.steps.source == "inferred":
        explanation.append(Phrase(f"{key}.inferred"))
    yield Finding(
        kind=KIND,
        severity="critical" if worst.share >= limits.critical else "warning",
        title=Phrase(f"{key}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *_ADVICE.get(worst.grown, ("host",)), "look_closer"),
        gpus=gpus,
        cause=worst.grown,
        share=worst.share,
        saving_ps_per_step=worst.share * sum(worst.file.steps.durations) / worst.file.steps.count,
        evidence=_evidence(worst),
    )


def _clocks(context: Context, found: SlowerSteps, limits: Limits) -> Phrase | None:
    """That the GPU's clock fell at the same time, where a monitor saw it."""
    zero = found.file.wall_start_unix_ns
    wanted = {ref(found.file, device): device for device in found.devices}
    for gpu in context.telemetry.gpus:
        device = next((at for name, at in wanted.items() if (name.host, name.id) == (gpu.host, gpu.gpu)), None)
        steps = None if device is None else found.file.gpus[device].steps
        if steps is None or zero is None:
            continue
        worked = [step for step, end in enumerate(steps.end) if end >= 0]
        early = [step for step in worked if step < found.shift.at]
        late = [step for step in worked if step >= found.shift.at]
        if not early or not late:
            continue
        busy = context.thresholds.telemetry_busy_percent
        spans = [(steps.start(part[0]), steps.end[part[-1]]) for part in (early, late)]
        before, after = (state(gpu.series, busy, (zero + a // 1000, zero + b // 1000)).clock_mhz for a, b in spans)
        if before and after and after < limits.clock * before:
            return Phrase(f"findings.{KIND}.clock", {"before": before, "after": after})
    return None


def _evidence(found: SlowerSteps) -> tuple[Evidence, ...]:
    """The last step of the old level and the first of the new one, on the GPU whose work grew."""
    rows = []
    for step in (found.shift.at - 1, found.shift.at):
        gpu = found.file.gpus[found.devices[0]].steps
        if gpu is not None and gpu.end[step] >= 0:
            name = ref(found.file, found.devices[0])
            what = Phrase(f"report.evidence.{'last_fast' if step < found.shift.at else 'first_slow'}_step")
            rows.append(Evidence(name.host, name.id, gpu.start(step), gpu.end[step], None, found.number(step), what))
    return tuple(rows)


RULE = Rule(
    kind=KIND,
    order=185,
    about="run",
    cost="lost",
    reads=("many_steps", "steps", "idle_causes"),
    needs=("many_steps",),
    thresholds=Limits(),
    check=check,
)
