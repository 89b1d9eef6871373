"""What the rules about a waiting GPU share: who waits, how much of it, and where to see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.model import Evidence, Phrase
from tb_gpu_doctor.diagnosis.step_gains import gain_of_causes


class StepLoss(Protocol):
    """What a loss means for one step; None without complete steps."""

    @property
    def per_step(self) -> float | None:
        """Mean loss per step in picoseconds."""

    @property
    def saving(self) -> float | None:
        """What a step would gain at most without it."""


# A GPU shares another one's trouble from this part of the threshold, and of the other one's loss, on.
_SHARES_TROUBLE = 0.5


@dataclass(frozen=True)
class IdleLoss:
    """The GPUs that lose enough of their window to one cause.

    Attributes:
        accounts: the GPUs at or above the threshold.
        share: mean over them of the lost part of the window.
        per_step: mean loss per step in picoseconds, None without steps.
        saving: what a step would gain at most without it, by its critical path; None without complete steps.
        gaps: how many gaps it is spread over, the mean over the GPUs.
        typical_gap: median charge of those gaps in picoseconds, the median over the GPUs.
        longest_gap: largest charge of one gap.
        half_gaps: how many of the largest gaps make up half of the loss, the mean over the GPUs.
    """

    accounts: tuple[GpuAccount, ...]
    share: float
    per_step: float | None
    saving: float | None
    gaps: float
    typical_gap: float
    longest_gap: int
    half_gaps: float


def idle_loss(context: Context, cause: Cause, threshold: float, min_gaps: int = 1) -> IdleLoss | None:
    """Who loses at least ``threshold`` of its window to ``cause``; None when nobody does.

    GPUs somewhat below the threshold that lose at least half as much as the worst one share its trouble
    and are named with it.
    """
    losing = [
        (account, share)
        for account in context.unclaimed.accounts()
        if (share := account.accounting.idle_of(cause) / account.accounting.wall) >= _SHARES_TROUBLE * threshold
    ]
    if share_to_name([share for _, share in losing], threshold) is None:
        return None
    answers = ask(_charges, [(account.profile, account.accounting.device, cause) for account, _ in losing])
    found = [(*item, charges) for item, charges in zip(losing, answers, strict=True) if charges.gaps >= min_gaps]
    border = share_to_name([share for _, share, _ in found], threshold)
    if border is None:
        return None
    found = [item for item in found if item[1] >= border]
    accounts = [account for account, _, _ in found]
    shares = [share for _, share, _ in found]
    charges = [charged for _, _, charged in found]
    steps = [lost for a in accounts if (lost := _per_step(a, cause)) is not None]
    return IdleLoss(
        accounts=tuple(accounts),
        share=float(np.mean(shares)),
        per_step=float(np.mean(steps)) if steps else None,
        saving=gain_of_causes(context.unclaimed, profiles_of(accounts), cause),
        gaps=float(np.mean([charged.gaps for charged in charges])),
        typical_gap=float(np.median([charged.typical for charged in charges])),
        longest_gap=max(charged.longest for charged in charges),
        half_gaps=float(np.mean([charged.half for charged in charges])),
    )


@dataclass(frozen=True)
class _Charges:
    """The gaps of one GPU with a part charged to a cause: how many, their median and largest charge, see `IdleLoss`."""

    gaps: int
    typical: float
    longest: int
    half: int


def _charges(profile: HostProfile, device: int, cause: Cause) -> _Charges:
    charges = charged_gaps(profile, device, cause)[1]
    if not len(charges):
        return _Charges(0, 0.0, 0, 0)
    return _Charges(len(charges), float(np.median(charges)), int(charges.max()), _half_count(charges))


def share_to_name(shares: Sequence[float], threshold: float) -> float | None:
    """From which share on a GPU is named, when one of them loses at least ``threshold``; None when none does.

    GPUs somewhat below it that lose at least half as much as the worst one share its trouble.
    """
    worst = max(shares, default=0.0)
    return min(threshold, _SHARES_TROUBLE * max(threshold, worst)) if worst >= threshold else None


def _per_step(account: GpuAccount, cause: Cause) -> float | None:
    """Mean loss of a GPU in its complete steps; None without any."""
    costs = account.profile.analysis.step_costs
    if costs is None or not len(costs.wall):
        return None
    return float(np.mean(costs.idle[:, account.accounting.device, cause]))


def profiles_of(accounts: Sequence[GpuAccount]) -> tuple[HostProfile, ...]:
    """The hosts of the given GPUs, each once."""
    return tuple({account.profile.label: account.profile for account in accounts}.values())


def cost_per_step(context: Context, loss: StepLoss) -> tuple[Phrase, ...]:
    """What the loss means for one step, and that it is a bound; empty without steps."""
    if loss.per_step is None or loss.saving is None or not context.median_step:
        return ()
    key = "report.per_step.inferred" if context.steps_are_inferred else "report.per_step.marked"
    return (Phrase(key, {"lost": loss.per_step, "step": context.median_step, "saving": loss.saving}),)


def _half_count(charges: np.ndarray) -> int:
    """The fewest gaps that make up half of the sum."""
    reached = np.cumsum(np.sort(charges)[::-1])
    return int(np.searchsorted(reached, reached[-1] / 2)) + 1


def charged_gaps(profile: HostProfile, device: int, cause: Cause) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a GPU's gaps that have a part charged to ``cause``, and those parts; only where the columns are."""
    gaps = profile.analysis.gaps
    low, high = np.searchsorted(gaps.device, [device, device + 1])
    charges = gaps.by_cause[low:high, cause]
    rows = np.flatnonzero(charges)
    return rows + low, charges[rows]


def costliest_events(profile: HostProfile, device: int, cause: Cause, most: int) -> Iterator[tuple[int, int]]:
    """(host event, charge) of the gaps of a GPU that ``cause`` has most of and an event proves, the costliest first.

    Args:
        profile: the host, where its columns are.
        device: of the GPU.
        cause: of the charges.
        most: gaps to look at.
    """
    gaps = profile.analysis.gaps
    rows, charges = charged_gaps(profile, device, cause)
    for index in np.argsort(-charges, kind="stable")[:most].tolist():
        event = int(gaps.evidence[rows[index]])
        if event >= 0 and gaps.cause[rows[index]] == cause:
            yield event, int(charges[index])


def worst_event(accounts: Sequence[GpuAccount], cause: Cause) -> tuple[str, str] | None:
    """Name of the host event behind most of the loss and the thread it mostly ran on; None when none is known."""
    names: dict[str, float] = {}
    threads: dict[str, dict[str, float]] = {}
    for found in ask(_worst_event, [(account.profile, account.accounting.device, cause) for account in accounts]):
        if found is not None:
            name, weight, thread, thread_weight = found
            names[name] = names.get(name, 0.0) + weight
            seen = threads.setdefault(name, {})
            seen[thread] = seen.get(thread, 0.0) + thread_weight
    if not names:
        return None
    worst = max(names, key=names.__getitem__)
    return worst, max(threads[worst], key=threads[worst].__getitem__)


def _worst_event(profile: HostProfile, device: int, cause: Cause) -> tuple[str, float, str, float] | None:
    """Of one GPU: (event, its part of the loss, its main thread, the part of the loss there)."""
    trace, gaps = profile.trace, profile.analysis.gaps
    rows, charges = charged_gaps(profile, device, cause)
    known = (gaps.cause[rows] == cause) & (gaps.evidence[rows] >= 0)
    events, weights = gaps.evidence[rows[known]], charges[known].astype(np.float64)
    if not len(events):
        return None
    by_name = np.bincount(trace.host_events.name[events], weights)
    top = int(np.argmax(by_name))
    mine = trace.host_events.name[events] == top
    by_thread = np.bincount(trace.host_events.thread[events[mine]], weights[mine])
    name, thread = trace.strings[top], trace.threads[int(np.argmax(by_thread))].name
    return name, float(by_name[top]), thread, float(by_thread.max())


def gap_evidence(context: Context, accounts: Sequence[GpuAccount], cause: Cause) -> tuple[Evidence, ...]:
    """The gaps with the largest part charged to ``cause``: the worst of every GPU first, then the worst of all."""
    most = context.thresholds.max_evidence
    calls = [(account.profile, account.accounting.device, cause, most) for account in accounts]
    return ranked_evidence(ask(_worst_gaps, calls), most)


def ranked_evidence(found: Iterable[Sequence[tuple[int, Evidence]]], most: int) -> tuple[Evidence, ...]:
    """Evidence of several GPUs: the first of every GPU first, then all others, each by weight.

    Args:
        found: for each GPU (weight, evidence), the heaviest first.
        most: how many at most.
    """
    ranked = [(min(rank, 1), -weight, item) for of_gpu in found for rank, (weight, item) in enumerate(of_gpu)]
    ranked.sort(key=lambda item: item[:2])
    return tuple(item for _, _, item in ranked[:most])


def _worst_gaps(profile: HostProfile, device: int, cause: Cause, most: int) -> list[tuple[int, Evidence]]:
    rows, charges = charged_gaps(profile, device, cause)
    order = np.argsort(-charges, kind="stable")[:most].tolist()
    return [(int(charges[index]), _gap_as_evidence(profile, device, int(rows[index]))) for index in order]


def _gap_as_evidence(profile: HostProfile, device: int, row: int) -> Evidence:
    trace, gaps = profile.trace, profile.analysis.gaps
    after, event = int(gaps.after[row]), int(gaps.evidence[row])
    what: str | Phrase
    thread = None
    if event >= 0:
        what = trace.strings[int(trace.host_events.name[event])]
        thread = trace.threads[int(trace.host_events.thread[event])].name
    elif after >= 0:
        name = trace.strings[int(trace.device_events.name[after])]
        what = Phrase("report.evidence.waited_before", {"name": name})
    else:
        what = Phrase("report.evidence.idle_to_end")
    return Evidence(
        host=profile.label,
        gpu=profile.ref(device).id,
        start=int(gaps.start[row]),
        end=int(gaps.end[row]),
        thread=thread,
        step=profile.step_number(after),
        what=what,
    )
