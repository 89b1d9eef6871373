"""GPUs that keep the others waiting, step after step.

Reads: who enters the collectives late, over all files of the job that share them; without
collectives, who computes longer. A late arrival costs only what the others cannot hide behind their
own compute, so the loss is bounded by how much more time they spend in communication and waiting
than the late GPU. Between two files only what exceeds the error of their clocks counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tb_gpu_doctor.analysis.arrivals import Member
from tb_gpu_doctor.analysis.stragglers import Reason, Stragglers, Turns, find_stragglers, find_turns
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "imbalance"
# From this many kernels more on, their number is worth a sentence.
_DIFFERS = 1.01
# Who comes last in this part of the collectives is named, even where it is no proven habit.
_MOSTLY = 0.5


@dataclass(frozen=True)
class Limits:
    """Waiting for GPUs that come late, and when coming late is a habit."""

    # Of the step.
    warning: float = 0.10
    critical: float = 0.20
    # In how many of the steps the same GPUs must be late, and how many there must be.
    persistence: float = 2 / 3
    min_units: int = 3
    # Or, of at least so many steps or collectives, in how many of them when they take turns.
    often: float = 0.20
    often_units: int = 20
    # What part of the lateness a cause must explain to be named.
    explained: float = 0.80
    # How likely noise alone may show as much lateness; above it nothing is said.
    max_chance: float = 0.01


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts."""
    limits: Limits = context.thresholds.of(KIND)
    most = context.thresholds.max_evidence
    cases = list(find_stragglers(context.files, context.job, limits, most))
    if not cases:
        yield from _by_turns(context)
        return
    share = fmean(value for case in cases for value in case.shares)
    savings = [case.per_step for case in cases if case.per_step is not None]
    culprits = _refs(member for case in cases for member in case.late)
    victims = _refs(member for case in cases for member in case.early)
    compute_ratio = fmean(case.compute_ratio for case in cases)
    kernel_ratio = fmean(case.kernel_ratio for case in cases)
    # Hosts may differ; the one that loses most speaks for all.
    reason = max(cases, key=lambda case: max(case.shares)).reason
    facts: dict[str, object] = {
        "gpus": context.names(culprits),
        "victims": context.names(victims, others=len(culprits) + len(victims) == context.gpu_count),
        "share": share,
        "persistence": fmean(case.persistence for case in cases),
        "more_compute": compute_ratio - 1,
        "more_kernels": kernel_ratio - 1,
        "reason": reason.amount,
    }
    sentence = "explanation" if all(case.by_steps for case in cases) else "explanation_collectives"
    models = _models(cases) if reason.cause in ("slow_gpu", "uneven_work") else None
    if models is not None:
        reason = replace(reason, cause="slow_gpu")
        facts |= {"models": models[0], "other_models": models[1]}
    hint, order = _hint(reason.cause, kernel_ratio) if models is None else ("other_model", ("one_model",))
    yield Finding(
        kind=KIND,
        severity="critical" if share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.{sentence}", facts),
            *([] if all(case.steady for case in cases) else [Phrase(f"findings.{KIND}.not_always", facts)]),
            Phrase(f"findings.{KIND}.hints.{hint}", facts),
            *_details(reason),
        ),
        advice=context.advice(KIND, *order),
        gpus=culprits,
        victims=victims,
        cause=reason.cause,
        share=share,
        saving_ps_per_step=_saving(context, reason.cause, savings),
        evidence=tuple(item for case in cases for item in _evidence(case))[:most],
    )


def _saving(context: Context, cause: str | None, savings: Sequence[float]) -> float | None:
    """What a step gains: what others wait, or what a replay gains in which the late GPUs compute as long as they."""
    if not savings:
        return None
    waits = fmean(savings)
    if cause not in ("slow_gpu", "uneven_work") or not context.what_if.offered:
        return waits
    return max(waits, *(one.gain for one in context.what_if.scenarios if one.changes == ("late_gpu",)), 0.0)


def _by_turns(context: Context) -> Iterator[Finding]:
    """When much is waited inside collectives and nobody in particular is to blame.

    With steps enough to see that somebody else is late each time, that is a finding like any other; before,
    only much waiting is worth a remark.
    """
    limits: Limits = context.thresholds.of(KIND)
    turns = find_turns(context.files, context.job, limits, context.thresholds.max_evidence)
    if turns is None:
        return
    share = fmean(value for _, value in turns.shares)
    sure = turns.steps >= limits.min_units or turns.collectives >= limits.often_units
    if share < (limits.warning if sure else limits.critical):
        return
    severity = "info" if not sure else "critical" if share >= limits.critical else "warning"
    factors = [factor for member, _ in turns.shares if (factor := member.file.per_step) is not None]
    # were all as late as the first, a step would end earlier by what a GPU waits on average
    waits = [value * member.window for member, value in turns.shares]
    saving = fmean(waits) * fmean(factors) if sure and len(factors) == len(turns.shares) else None
    facts: dict[str, object] = {"share": share}
    often_last = turns.last is not None and turns.last[1] >= _MOSTLY * turns.collectives
    explanation = [Phrase(f"findings.{KIND}.{'turns_last' if often_last else 'turns'}", facts)]
    if turns.last is not None:
        member, times = turns.last
        gpus = context.names([ref(member.file, member.device)])
        often = {"gpus": gpus, "often": times / turns.collectives, "count": turns.collectives}
        facts |= often
        explanation.append(Phrase(f"findings.{KIND}.last", often))
    cause = None
    if turns.reason is not None and turns.reason.cause in ("late_input", "late_host"):
        cause = turns.reason.cause
        if saving is not None and turns.steps:
            # the step ends as much earlier as the last one came late, not only as the others waited on average
            saving = max(saving, turns.reason.amount / turns.steps)
        explanation.append(Phrase(f"findings.{KIND}.turns_{cause}", facts))
        explanation += _details(turns.reason)
    yield Finding(
        kind=KIND,
        severity=severity,  # type: ignore[arg-type]
        title=Phrase(f"findings.{KIND}.{'title_turns_last' if often_last else 'title_turns'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *(("pin_host", "even_work@") if cause is None else _hint(cause, 1.0)[1])),
        cause=cause,
        victims=_refs(member for member, value in turns.shares if value >= limits.warning),
        share=share,
        saving_ps_per_step=saving,
        evidence=_longest_waits(turns),
    )


def _longest_waits(turns: Turns) -> tuple[Evidence, ...]:
    """The collectives in which somebody waited longest, each by who waited longest."""
    found = []
    for member, start, wait, number in turns.longest:
        gpu = ref(member.file, member.device)
        what = Phrase("report.evidence.waited_inside", {"wait": wait})
        found.append(Evidence(gpu.host, gpu.id, start, start + wait, None, number, what))
    return tuple(found)


def _hint(cause: str | None, kernel_ratio: float) -> tuple[str, tuple[str, ...]]:
    """What the facts say of the reason, and what to try first; only telemetry can prove a slow GPU."""
    if cause == "uneven_work":
        hint = "more_kernels" if kernel_ratio >= _DIFFERS else "larger_kernels"
        return hint, ("even_work@", "check_clocks", "pin_host")
    if cause == "slow_gpu":
        return "slower_kernels", ("check_clocks", "even_work@", "swap")
    if cause == "late_input":
        return "late_input", ("shard_input@", "pin_host")
    if cause == "late_host":
        return "late_host", ("pin_host", "shard_input@")
    return "starts_late", ("pin_host", "shard_input@", "check_clocks")


def _models(cases: Sequence[Stragglers]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The models of the late GPUs and of the others, where none is both: these are not equally fast by design.

    Another model runs other kernels for the same work, so their number and names say nothing of who has more.
    """
    late = {member.gpu.device.name for case in cases for member in case.late}
    early = {member.gpu.device.name for case in cases for member in case.early}
    if None in late | early or late & early:
        return None
    return tuple(sorted(filter(None, late))), tuple(sorted(filter(None, early)))


def _details(reason: Reason) -> list[Phrase]:
    """Which kernels are slow, or what the host was at."""
    if reason.slow_kernels:
        facts = {"times": reason.slowdown, "kernels": reason.slow_kernels, "count": len(reason.slow_kernels)}
        return [Phrase(f"findings.{KIND}.slow_kernels", facts)]
    if reason.host_cause is not None:
        facts = {"what": Phrase(f"report.causes.{reason.host_cause}"), "name": reason.host_event}
        return [Phrase(f"findings.{KIND}.{'host_event' if reason.host_event else 'host_cause'}", facts)]
    return []


def _evidence(case: Stragglers) -> Iterator[Evidence]:
    """The worst late arrivals, or the steps with the largest difference in compute."""
    for place in case.places:
        gpu = ref(place.member.file, place.member.device)
        what = Phrase("report.evidence.longer_compute", {"extra": place.excess})
        if place.entered:
            what = Phrase("report.evidence.others_waited", {"count": len(case.early)})
        yield Evidence(gpu.host, gpu.id, place.start, place.end, None, place.number, what)


def _refs(members: Iterable[Member]) -> tuple[GpuRef, ...]:
    """The GPUs by name, sorted."""
    return tuple(sorted(ref(member.file, member.device) for member in members))


RULE = Rule(
    kind=KIND,
    order=190,
    about="run",
    cost="lost",
    reads=("collectives", "steps", "kernels", "idle_causes", "host_events"),
    thresholds=Limits(),
    tells=("communication", "peer", "queued"),
    check=check,
)
