"""Who loses how much of its window to what: to one cause of idle time, to copies, or to a crowded host.

Idle time is claimed once. `op_placement` takes what the host does between its two copies, `transfer_bound` what it
spends inside blocking copies, `cpu_contention` the part of launching that a host with free processors would not need;
the rules for `sync`, `launch` and `host_other` look at what is left. The accounting, and every number that is
shown of it, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Protocol

from tb_gpu_doctor.analysis.copy_facts import Cost
from tb_gpu_doctor.analysis.facts import ContentionFacts
from tb_gpu_doctor.analysis.idle_facts import Claim, IdleFacts
from tb_gpu_doctor.analysis.replay.what_if import Change
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.step_gains import StepTimes, mean_gain
from tb_gpu_doctor.diagnosis.context import Context, Gpu, WorkingGpu
from tb_gpu_doctor.diagnosis.model import Evidence, GpuRef, Phrase

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.cpu_contention import Limits as ContentionLimits
    from tb_gpu_doctor.diagnosis.rules.transfer_bound import Limits as TransferLimits

# A GPU shares another one's trouble from this part of the threshold, and of the other one's loss, on.
_SHARES_TROUBLE = 0.5


class StepLoss(Protocol):
    """What a loss means for one step; None without complete steps."""

    @property
    def per_step(self) -> float | None:
        """Mean loss per step in picoseconds."""

    @property
    def saving(self) -> float | None:
        """What a step would gain at most without it."""


def share_to_name(shares: Sequence[float], threshold: float) -> float | None:
    """From which share on a GPU is named, when one of them loses at least ``threshold``; None when none does.

    GPUs somewhat below it that lose at least half as much as the worst one share its trouble.
    """
    worst = max(shares, default=0.0)
    return min(threshold, _SHARES_TROUBLE * max(threshold, worst)) if worst >= threshold else None


def cost_per_step(context: Context, loss: StepLoss) -> tuple[Phrase, ...]:
    """What the loss means for one step, and that it is a bound; empty without steps."""
    if loss.per_step is None or loss.saving is None or not context.median_step:
        return ()
    key = "report.per_step.inferred" if context.steps_are_inferred else "report.per_step.marked"
    saving = context.of_typical_step(loss.saving)
    # both are means over the same steps, so what is done to one is done to the other
    lost = loss.per_step * (saving / loss.saving if loss.saving else 1.0)
    lost = context.of_typical_step(lost)
    return (Phrase(key, {"lost": lost, "step": context.median_step, "saving": saving}),)


def ranked(found: Iterable[Sequence[tuple[int, Evidence]]], limit: int) -> tuple[Evidence, ...]:
    """Evidence of several GPUs: the first of every GPU first, then all others, each by weight.

    Args:
        found: for each GPU (weight, evidence), the heaviest first.
        limit: how many at most.
    """
    items = [(min(rank, 1), -weight, item) for of_gpu in found for rank, (weight, item) in enumerate(of_gpu)]
    items.sort(key=lambda item: item[:2])
    return tuple(item for _, _, item in items[:limit])


# ---- idle time by cause ----


@dataclass(frozen=True)
class IdleLoss:
    """The GPUs that lose enough of their window to one cause, or to several together.

    Attributes:
        gpus: those at or above the threshold.
        share: mean over them of the lost part of the window.
        per_step: mean loss per step in picoseconds, None without steps.
        saving: what a step would gain at most without it, by its critical path; None without complete steps.
        gaps: how many gaps it is spread over, the mean over the GPUs.
        typical_gap: median charge of those gaps in picoseconds, the median over the GPUs.
        longest_gap: largest charge of one gap.
        half_gaps: how many of the largest gaps make up half of the loss, the mean over the GPUs.
        shares: the part of ``share`` that each cause has.
    """

    gpus: tuple[WorkingGpu, ...]
    share: float
    per_step: float | None
    saving: float | None
    gaps: float
    typical_gap: float
    longest_gap: int
    half_gaps: float
    shares: Mapping[Cause, float]

    @property
    def refs(self) -> tuple[GpuRef, ...]:
        """The GPUs by name."""
        return tuple(gpu.ref for gpu in self.gpus)


def idle_loss(
    context: Context, cause: Cause | tuple[Cause, ...], threshold: float, min_gaps: int = 1
) -> IdleLoss | None:
    """Who loses at least ``threshold`` of its window to ``cause`` in ``min_gaps`` gaps; None when nobody does.

    GPUs somewhat below the threshold that lose at least half as much as the worst one share its trouble
    and are named with it. Of several causes the times are added up, and the gaps are those of the worst.
    """
    causes = cause if isinstance(cause, tuple) else (cause,)
    losing = []
    for gpu in context.working_gpus:
        idle = unclaimed_idle(context, gpu)
        share = sum(idle.share(one) for one in causes) if idle is not None else 0.0
        if idle is not None and share >= _SHARES_TROUBLE * threshold:
            losing.append((gpu, share, idle.of(max(causes, key=idle.share)), idle))
    if share_to_name([item[1] for item in losing], threshold) is None:
        return None
    found = [item for item in losing if item[2].gaps >= min_gaps]
    border = share_to_name([item[1] for item in found], threshold)
    if border is None:
        return None
    found = [item for item in found if item[1] >= border]
    gpus = tuple(item[0] for item in found)
    charges = [item[2] for item in found]
    steps = [sum(map(fmean, lost)) for gpu in gpus if all(lost := [idle_per_step(context, gpu, one) for one in causes])]
    return IdleLoss(
        gpus=gpus,
        share=fmean(item[1] for item in found),
        per_step=fmean(steps) if steps else None,
        saving=gain_of_causes(context, {gpu.which for gpu in gpus}, *causes),
        gaps=fmean(facts.gaps for facts in charges),
        typical_gap=float(median(facts.typical for facts in charges)),
        longest_gap=max(facts.longest for facts in charges),
        half_gaps=fmean(facts.half for facts in charges),
        shares={one: fmean(item[3].share(one) for item in found) for one in causes},
    )


def unclaimed_idle(context: Context, gpu: Gpu) -> IdleFacts | None:
    """The idle time of a GPU without what findings with better evidence count; None where it has no window."""
    idle = gpu.facts.idle
    if idle is None:
        return None
    return idle.without(context.once(_claims).get((gpu.which, gpu.index), Claim()))


def idle_per_step(context: Context, gpu: Gpu, cause: Cause) -> tuple[int, ...]:
    """The unclaimed idle time of a GPU in each complete step; empty without any."""
    idle = unclaimed_idle(context, gpu)
    return idle.per_step[cause] if idle is not None and idle.per_step else ()


# What is replayed without the idle time of a cause, and how much more than the gaps it may show.
REPLAYED: dict[Cause, Change] = {
    Cause.INPUT: "no_input",
    Cause.LAUNCH: "launches_free",
    Cause.SYNC: "no_sync",
    Cause.COMPILE: "no_compilation",
    Cause.CHECKPOINT: "no_checkpoint",
    Cause.HOST_OTHER: "no_host_work",
}
_MOST_BEYOND = 1.25


def gain_of_causes(context: Context, which: Iterable[int], *causes: Cause) -> float | None:
    """What the mean step would gain at most without some files' unclaimed idle time of some causes.

    Idle time is what shows of the host's work. Where that also delays what hides it, a replay without the work shows
    more than the gaps do; but it knows nothing of who claims what, so what it adds is bounded.
    """
    removed: dict[tuple[int, int], tuple[int, ...]] = {}
    for place in which:
        file = context.files[place]
        for device in range(len(file.gpus)):
            columns = [idle_per_step(context, Gpu(file, place, device), cause) for cause in causes]
            removed[place, device] = tuple(map(sum, zip(*columns, strict=True)))
    bound = mean_gain(context.files, context.job, removed)
    changes = [REPLAYED[cause] for cause in causes if cause in REPLAYED]
    if bound is None or len(changes) != 1 or not context.what_if.offered:
        return bound
    replayed = next((one.gain for one in context.what_if.scenarios if list(one.changes) == changes), 0.0)
    return max(bound, min(replayed, _MOST_BEYOND * bound))


def worst_event(context: Context, gpus: Sequence[WorkingGpu], cause: Cause) -> tuple[str, str] | None:
    """Name of the host event behind most of the loss and the thread it mostly ran on; None when none is known."""
    return next(iter(events_behind(context, gpus, cause, 1)), None)


def events_behind(
    context: Context, gpus: Sequence[WorkingGpu], cause: Cause, limit: int | None = None
) -> list[tuple[str, str]]:
    """Names of the host events behind the loss and the thread each mostly ran on, those with most of it first.

    Args:
        context: of the session.
        gpus: who loses.
        cause: of the loss.
        limit: of each GPU, how many to look at.
    """
    names: dict[str, int] = {}
    threads: dict[str, dict[str, int]] = {}
    for gpu in gpus:
        idle = unclaimed_idle(context, gpu)
        for event in idle.of(cause).events[:limit] if idle is not None else ():
            names[event.name] = names.get(event.name, 0) + event.time
            seen = threads.setdefault(event.name, {})
            seen[event.thread] = seen.get(event.thread, 0) + event.thread_time
    ordered = sorted(names, key=lambda name: -names[name])
    return [(name, max(threads[name], key=threads[name].__getitem__)) for name in ordered]


def gap_evidence(context: Context, gpus: Sequence[WorkingGpu], cause: Cause) -> tuple[Evidence, ...]:
    """The gaps with the largest part charged to ``cause``: the worst of every GPU first, then the worst of all."""
    found = []
    for gpu in gpus:
        idle, items = unclaimed_idle(context, gpu), []
        for gap in idle.of(cause).worst if idle is not None else ():
            what: str | Phrase = Phrase("report.evidence.idle_to_end")
            if gap.event is not None:
                what = gap.event
            elif gap.before is not None:
                what = Phrase("report.evidence.waited_before", {"name": gap.before})
            host, number = gpu.ref.host, gpu.ref.id
            items.append((gap.charge, Evidence(host, number, gap.start, gap.end, gap.thread, gap.step, what)))
        found.append(items)
    return ranked(found, context.thresholds.max_evidence)


# ---- copies ----


@dataclass(frozen=True)
class CopyLoss:
    """The GPUs that lose enough of their window to copies.

    Attributes:
        gpus: those that lose most (`share_to_name`).
        share: mean over them of the lost part of the window.
        exposed, waited: the parts of ``share``: copies that nothing hides, idle time around them.
        per_step: mean loss per complete step in picoseconds, None without steps.
        saving: what a step would gain at most without it, by its critical path; None without complete steps.
    """

    gpus: tuple[WorkingGpu, ...]
    share: float
    exposed: float
    waited: float
    per_step: float | None
    saving: float | None

    @property
    def refs(self) -> frozenset[GpuRef]:
        """The GPUs by name."""
        return frozenset(gpu.ref for gpu in self.gpus)

    @property
    def places(self) -> frozenset[tuple[int, int]]:
        """The GPUs by their file's place and their index."""
        return frozenset((gpu.which, gpu.index) for gpu in self.gpus)


def placement_loss(context: Context) -> CopyLoss | None:
    """Who loses time to ops on the CPU between GPU ops; None when nobody does."""
    return context.once(_placement_loss)


def transfer_loss(context: Context) -> CopyLoss | None:
    """Who loses time to copies, those of bounces that are found already left out; None when nobody does.

    Not counted is what would be hidden had the host not been late before a copy: that time is
    another cause's consequence.
    """
    return context.once(_transfer_loss)


def _placement_loss(context: Context) -> CopyLoss | None:
    costs = {
        (gpu.which, gpu.index): gpu.facts.bounces.cost for gpu in context.working_gpus if gpu.facts.bounces is not None
    }
    return _copy_loss(context, costs, context.thresholds.of("op_placement").warning)


def _transfer_loss(context: Context) -> CopyLoss | None:
    limits: TransferLimits = context.thresholds.of("transfer_bound")
    placed = placement_loss(context)
    taken = frozenset() if placed is None else placed.places
    costs = {}
    for gpu in context.working_gpus:
        copies, place = gpu.facts.copies, (gpu.which, gpu.index)
        if copies is None:
            continue
        cost = copies.cost
        if place in taken and copies.cost_without_bounces is not None:
            cost = copies.cost_without_bounces
        if _recurs(gpu, cost, limits):
            costs[place] = cost
    return _copy_loss(context, costs, limits.warning)


def _recurs(gpu: WorkingGpu, cost: Cost, limits: TransferLimits) -> bool:
    """Whether more than one step loses time: the first copy of a run has nothing to hide behind."""
    steps = gpu.facts.steps
    if steps is None or len(cost.by_step) < 2:
        return True
    worst = cost.by_step.index(max(cost.by_step))
    others = sum(cost.by_step) - cost.by_step[worst]
    return others >= limits.recurs * limits.warning * (sum(steps.wall) - steps.wall[worst])


def _copy_loss(context: Context, costs: Mapping[tuple[int, int], Cost], threshold: float) -> CopyLoss | None:
    found = [(gpu, cost) for gpu in context.working_gpus if (cost := costs.get((gpu.which, gpu.index))) is not None]
    shares = [(cost.exposed + cost.waited) / gpu.account.wall for gpu, cost in found]
    border = share_to_name(shares, threshold)
    if border is None:
        return None
    found = [item for item, share in zip(found, shares, strict=True) if share >= border]
    exposed = fmean(cost.exposed / gpu.account.wall for gpu, cost in found)
    waited = fmean(cost.waited / gpu.account.wall for gpu, cost in found)
    per_step = [fmean(cost.by_step) for _, cost in found if cost.by_step]
    concerned = {gpu.which for gpu, _ in found}
    removed: StepTimes = {place: cost.by_step for place, cost in costs.items() if place[0] in concerned}
    return CopyLoss(
        gpus=tuple(gpu for gpu, _ in found),
        share=exposed + waited,
        exposed=exposed,
        waited=waited,
        per_step=fmean(per_step) if per_step else None,
        saving=mean_gain(context.files, context.job, removed),
    )


# ---- a crowded host ----


@dataclass(frozen=True)
class ContentionLoss:
    """The GPUs that wait because launching slows down while the input pipeline's workers run.

    Attributes:
        found: (GPU, measurement) of those that lose most (`share_to_name`).
        share: mean over them of the lost part of the window.
        per_step, saving: as in `IdleLoss`.
    """

    found: tuple[tuple[WorkingGpu, ContentionFacts], ...]
    share: float
    per_step: float | None
    saving: float | None

    @property
    def refs(self) -> frozenset[GpuRef]:
        """The GPUs by name."""
        return frozenset(gpu.ref for gpu, _ in self.found)


def contention_loss(context: Context) -> ContentionLoss | None:
    """Who loses time to it; None when nobody does."""
    return context.once(_contention_loss)


def _contention_loss(context: Context) -> ContentionLoss | None:
    limits: ContentionLimits = context.thresholds.of("cpu_contention")
    found = [
        (gpu, measured)
        for gpu in context.working_gpus
        if (measured := gpu.facts.contention) is not None and measured.slowdown >= limits.slowdown
    ]
    shares = [measured.lost / gpu.account.wall for gpu, measured in found]
    border = share_to_name(shares, limits.warning)
    if border is None:
        return None
    found = [item for item, share in zip(found, shares, strict=True) if share >= border]
    per_step = [fmean(measured.by_step) for _, measured in found if measured.by_step]
    removed: StepTimes = {(gpu.which, gpu.index): measured.by_step for gpu, measured in found}
    return ContentionLoss(
        found=tuple(found),
        share=fmean(measured.lost / gpu.account.wall for gpu, measured in found),
        per_step=fmean(per_step) if per_step else None,
        saving=mean_gain(context.files, context.job, removed),
    )


def _claims(context: Context) -> dict[tuple[int, int], Claim]:
    """Which idle time of each GPU findings with better evidence count."""
    placed, copied, crowded = placement_loss(context), transfer_loss(context), contention_loss(context)
    bounces = frozenset() if placed is None else placed.places
    copies = frozenset() if copied is None else copied.places
    launches = frozenset() if crowded is None else frozenset((gpu.which, gpu.index) for gpu, _ in crowded.found)
    return {place: Claim(place in bounces, place in copies, place in launches) for place in bounces | copies | launches}
