"""GPUs that keep the others waiting, step after step.

Reads: who enters the collectives late, over all files of the job that share them; without
collectives, who computes longer. A late arrival costs only what the others cannot hide behind their
own compute, so the loss is bounded by how much more time they spend in communication and waiting
than the late GPU. Between two files only what exceeds the error of their clocks counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.results import DeviceSummary
from tb_gpu_doctor.diagnosis.arrivals import Arrivals, Member, find_arrivals, per_window, refs
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.late_causes import Reason, late_reason
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.stragglers import split_late

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


@dataclass(frozen=True)
class _Case:
    """The imbalance among GPUs that wait for each other."""

    late: tuple[Member, ...]
    early: tuple[Member, ...]
    shares: tuple[float, ...]
    per_step: float | None
    persistence: float
    steady: bool
    by_steps: bool
    compute_ratio: float
    kernel_ratio: float
    reason: Reason
    evidence: tuple[Evidence, ...]


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts."""
    limits: Limits = context.thresholds.of(KIND)
    most = context.thresholds.max_evidence
    cases = [case for found in find_arrivals(context) if (case := _case(found, limits, most)) is not None]
    if not cases:
        yield from _by_turns(context)
        return
    share = float(np.mean([value for case in cases for value in case.shares]))
    savings = [case.per_step for case in cases if case.per_step is not None]
    culprits = refs([member for case in cases for member in case.late])
    victims = refs([member for case in cases for member in case.early])
    compute_ratio = float(np.mean([case.compute_ratio for case in cases]))
    kernel_ratio = float(np.mean([case.kernel_ratio for case in cases]))
    # Hosts may differ; the one that loses most speaks for all.
    reason = max(cases, key=lambda case: max(case.shares)).reason
    facts = {
        "gpus": context.names(culprits),
        "victims": context.names(victims, others=len(culprits) + len(victims) == context.gpu_count),
        "share": share,
        "persistence": float(np.mean([case.persistence for case in cases])),
        "more_compute": compute_ratio - 1,
        "more_kernels": kernel_ratio - 1,
        "reason": reason.amount,
    }
    sentence = "explanation" if all(case.by_steps for case in cases) else "explanation_collectives"
    hint, order = _hint(reason.cause, kernel_ratio)
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
        saving_ps_per_step=float(np.mean(savings)) if savings else None,
        evidence=tuple(item for case in cases for item in case.evidence)[:most],
    )


def _by_turns(context: Context) -> Iterator[Finding]:
    """When much is waited inside collectives and nobody in particular is to blame.

    With steps enough to see that somebody else is late each time, that is a finding like any other; before,
    only much waiting is worth a remark.
    """
    limits: Limits = context.thresholds.of(KIND)
    lateness = context.job.lateness
    if lateness is None:
        return
    found = lateness.collectives
    shares: dict[Member, float] = {}
    for trace, device in zip(found.trace.tolist(), found.device.tolist(), strict=True):
        exposed, member = context.job.exposed.get((trace, device)), Member(context.profiles[trace], device)
        account = member.account
        if exposed is not None and account is not None and account.wall > 0:
            shares[member] = exposed.waiting / account.wall
    if not shares:
        return
    share = float(np.mean(list(shares.values())))
    sure = len(set(found.step[found.step >= 0].tolist())) >= limits.min_units
    sure |= len(found) >= limits.often_units
    if share < (limits.warning if sure else limits.critical):
        return
    severity = "info" if not sure else "critical" if share >= limits.critical else "warning"
    factors = [factor for member in shares if (factor := member.profile.per_step) is not None]
    # were all as late as the first, a step would end earlier by what a GPU waits on average
    waits = [value * member.window for member, value in shares.items()]
    saving = float(np.mean(waits) * np.mean(factors)) if sure and len(factors) == len(shares) else None
    last = np.argmax(lateness.behind, axis=1)
    counts = np.bincount(last[lateness.behind.max(axis=1) > lateness.error], minlength=len(found.trace))
    most = int(np.argmax(counts))
    facts: dict[str, object] = {"share": share}
    often_last = counts[most] >= _MOSTLY * len(found)
    explanation = [Phrase(f"findings.{KIND}.{'turns_last' if often_last else 'turns'}", facts)]
    if counts[most]:
        gpu = context.profiles[int(found.trace[most])].ref(int(found.device[most]))
        often = {"gpus": context.names([gpu]), "often": counts[most] / len(found), "count": len(found)}
        facts |= often
        explanation.append(Phrase(f"findings.{KIND}.last", often))
    yield Finding(
        kind=KIND,
        severity=severity,  # type: ignore[arg-type]
        title=Phrase(f"findings.{KIND}.{'title_turns_last' if often_last else 'title_turns'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "pin_host", "even_work@"),
        victims=refs([member for member, value in shares.items() if value >= limits.warning]),
        share=share,
        saving_ps_per_step=saving,
        evidence=_longest_waits(context),
    )


def _longest_waits(context: Context) -> tuple[Evidence, ...]:
    """The collectives in which somebody waited longest, each by who waited longest."""
    lateness = context.job.lateness
    if lateness is None:
        return ()
    found, items = lateness.collectives, []
    longest = lateness.wait.argmax(axis=1)
    waits = lateness.wait[np.arange(len(longest)), longest]
    for row in np.argsort(-waits, kind="stable")[: context.thresholds.max_evidence].tolist():
        column = int(longest[row])
        profile, device = context.profiles[int(found.trace[column])], int(found.device[column])
        start, wait = int(found.start[row, column]), int(waits[row])
        if wait <= lateness.error:
            break
        number = int(found.step[row]) if found.step[row] >= 0 else None
        what = Phrase("report.evidence.waited_inside", {"wait": wait})
        gpu = profile.trace.devices[device].id
        items.append(Evidence(profile.label, gpu, start, start + wait, None, number, what))
    return tuple(items)


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


def _details(reason: Reason) -> list[Phrase]:
    """Which kernels are slow, or what the host was at."""
    if reason.slow_kernels:
        facts = {"times": reason.slowdown, "kernels": reason.slow_kernels, "count": len(reason.slow_kernels)}
        return [Phrase(f"findings.{KIND}.slow_kernels", facts)]
    if reason.host_cause is not None:
        facts = {"what": Phrase(f"report.causes.{reason.host_cause}"), "name": reason.host_event}
        return [Phrase(f"findings.{KIND}.{'host_event' if reason.host_event else 'host_cause'}", facts)]
    return []


def _case(found: Arrivals, limits: Limits, most: int) -> _Case | None:
    lateness, by_steps = found.units(limits)
    files = np.unique([id(member.profile) for member in found.members], return_inverse=True)[1]
    split = split_late(lateness, found.window / len(lateness), limits, files.reshape(-1))
    if split is None:
        return None
    late = [found.members[column] for column in split.late]
    early = [found.members[column] for column in split.early]
    typical_wait = float(np.median(found.exposed[list(split.early)]))
    # What the late arrival cost in all, at most what the others really waited longer.
    bounds = [max(0.0, typical_wait - found.exposed[column]) for column in split.late]
    lost = [min(float(total), bound) for total, bound in zip(split.excess.clip(0).sum(axis=0), bounds, strict=True)]
    shares = tuple(value / found.window for value in lost)
    # With more late than early GPUs the early ones are the odd ones: count the loss over all.
    weight = 1.0 if len(late) <= len(early) else len(early) / len(found.members)
    if float(np.mean(shares)) * weight < limits.warning:
        return None
    reason = late_reason(late, early, float(np.mean(shares)), limits)
    # Late by turns, each of them costs what the others cost in their turn.
    bound = max(bounds) if split.steady else min(typical_wait, sum(bounds))
    worst = min(float(split.excess.clip(0).max(axis=1).sum()), bound)
    if reason.cause == "uneven_work":
        # Shared out evenly the work does not go away: the step comes down to the mean, not to the others.
        worst *= len(early) / len(found.members)
    return _Case(
        late=tuple(late),
        early=tuple(early),
        shares=shares,
        per_step=worst * found.per_step if found.per_step is not None else None,
        persistence=split.persistence,
        steady=split.steady,
        by_steps=by_steps,
        compute_ratio=_ratio(late, early, "compute"),
        kernel_ratio=_ratio(late, early, "kernels"),
        reason=reason,
        evidence=_evidence(found, split.late, len(early), most),
    )


def _ratio(late: Sequence[Member], early: Sequence[Member], field: str) -> float:
    def value(member: Member) -> float:
        summaries: Sequence[DeviceSummary] = member.profile.analysis.summaries
        return next((float(getattr(s, field)) for s in summaries if s.device == member.device), 0.0)

    top, bottom = float(np.mean(per_window(late, value))), float(np.median(per_window(early, value)))
    return top / bottom if bottom > 0 else 1.0


def _evidence(found: Arrivals, late: Sequence[int], waiting: int, most: int) -> tuple[Evidence, ...]:
    """The worst late arrivals, or the steps with the largest difference in compute."""
    items: list[tuple[int, Evidence]] = []
    for column in late:
        member = found.members[column]
        profile, gpu = member.profile, member.profile.trace.devices[member.device].id
        behind = found.behind[:, column]
        for row in np.argsort(-behind, kind="stable")[:most].tolist():
            excess = int(behind[row])
            if excess <= 0:
                break
            number = int(found.number[row]) if found.step[row] >= 0 else None
            if found.start is not None:
                end = int(found.start[row, column])
                window = profile.analysis.window
                start = end - excess if window is None else min(end, max(window.start, end - excess))
                what = Phrase("report.evidence.others_waited", {"count": waiting})
            else:
                steps = profile.analysis.steps
                index = int(np.flatnonzero(steps.complete)[row])
                if steps.end[index, member.device] < 0:
                    continue
                start, end = int(steps.start[index, member.device]), int(steps.end[index, member.device])
                what = Phrase("report.evidence.longer_compute", {"extra": excess})
            items.append((excess, Evidence(profile.label, gpu, start, end, None, number, what)))
    items.sort(key=lambda item: -item[0])
    return tuple(item for _, item in items[:most])


RULE = Rule(
    kind=KIND,
    order=190,
    about="run",
    cost="lost",
    reads=("collectives", "steps", "kernels", "idle_causes", "host_events"),
    thresholds=Limits(),
    check=check,
)
