"""Findings that share a root become one: the one that names the root takes the other in.

Each rule looks at its own numbers only, so one fault can raise several findings: slow steps that are
simply those that save, launches that are late because a wait had emptied the queue, a GPU that is late
because its input is. The table below says which finding takes in which, and on what evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from tb_gpu_doctor.analysis.arrivals import Member, find_arrivals
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.slow_steps import Outliers, find_outliers
from tb_gpu_doctor.diagnosis.context import Context, Gpu, ref
from tb_gpu_doctor.diagnosis.losses import gain_of_causes, idle_per_step, unclaimed_idle
from tb_gpu_doctor.diagnosis.model import Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rule import rules

# The loss of a cause that must lie in the slow steps for them to be its doing.
_IN_OUTLIERS = 0.5
# What part of a cause's loss must lie on late GPUs for it to be the reason that they are late; and what
# part of their lateness in the slow steps for it to be what slows these.
_ON_LATE_GPUS = 0.8
_IN_SLOW_STEPS = 0.8

# So many slow steps may lie equally far apart by chance.
_FEWEST_BY_SCHEDULE = 2

Condition = Callable[[Context, Finding, Finding], bool]


@dataclass(frozen=True)
class Merge:
    """One line of the table.

    Attributes:
        absorbing: kind that stays.
        absorbed: kind that is taken in.
        condition: whether the two are one story: (context, absorbing, absorbed).
        adds: what the story gains: one sentence (``merged`` of the absorbed kind), or ``all`` that it said and advised.
        counts: whether mending the root also saves what the absorbed finding counted.
    """

    absorbing: str
    absorbed: str
    condition: Condition
    adds: Literal["sentence", "all"] = "sentence"
    counts: bool = False


def _cause(finding: Finding) -> Cause:
    """The idle time that a finding about a waiting GPU counts."""
    cause = finding.rule.idle_cause
    assert cause is not None, f"{finding.kind} counts no cause of idle time"
    return cause


def explains_slow_steps(context: Context, root: Finding, outliers: Finding) -> bool:
    """The part of the slow steps that grew is the root's cause.

    Mending the root saves at least as much as evening out the steps, or the slow steps hold half of its loss.
    """
    cause = _cause(root)
    if outliers.cause != cause.id:
        return False
    if (root.saving_ps_per_step or 0.0) >= (outliers.saving_ps_per_step or 0.0):
        return True
    inside = total = 0
    for which, found in enumerate(_outliers(context)):
        for gpu in _gpus(context, which) if found is not None else ():
            lost = idle_per_step(context, gpu, cause)
            total += sum(lost)
            inside += sum(lost[step] for step in found.steps) if lost and found is not None else 0
    return total > 0 and inside >= _IN_OUTLIERS * total


def follows_an_empty_queue(context: Context, root: Finding, launches: Finding) -> bool:
    """Launching costs far less than the root, on the same GPUs and in the same steps.

    What empties the GPU's queue lays open the launches after it: without it the host would be ahead.
    """
    limits = context.thresholds
    if not set(launches.gpus) <= set(root.gpus):
        return False
    if (launches.share or 0.0) > limits.follows_loss * (root.share or 0.0):
        return False
    inside, total = _shared_steps(context, root.gpus, _cause(root), Cause.LAUNCH)
    return total == 0 or inside >= limits.follows_steps * total


def _shared_steps(context: Context, gpus: Sequence[GpuRef], root: Cause, other: Cause) -> tuple[int, int]:
    """(loss to ``other`` in the steps that ``root`` stopped, in all steps) on the given GPUs."""
    inside = total = 0
    wanted = set(gpus)
    for which in range(len(context.files)):
        for gpu in _gpus(context, which):
            steps = gpu.facts.steps
            if steps is None or gpu.ref not in wanted:
                continue
            roots, others = idle_per_step(context, gpu, root), idle_per_step(context, gpu, other)
            total += sum(others)
            inside += sum(
                lost
                for stop, lost, wall in zip(roots, others, steps.wall, strict=False)
                if stop > 0 and stop >= context.thresholds.stopped_step * wall
            )
    return inside, total


def _gpus(context: Context, which: int) -> list[Gpu]:
    """All GPUs of one file."""
    file = context.files[which]
    return [Gpu(file, which, index) for index in range(len(file.gpus))]


def _outliers(context: Context) -> list[Outliers | None]:
    """The outlying steps of each file."""
    limits = context.thresholds.of("step_outliers")
    return [find_outliers(context.files, which, context.job, limits) for which in range(len(context.files))]


def makes_the_gpu_late(context: Context, imbalance: Finding, stall: Finding) -> bool:
    """GPUs that keep the others waiting are stalled, hardly others, and that is why they are late.

    What the others lose to the same cause costs no step: they would wait for the late ones all the same.
    """
    expected = "late_input" if stall.kind == "input_bound" else "late_host"
    if imbalance.cause != expected:
        return False
    # Late by turns, all of them are the late ones.
    late, cause = set(imbalance.gpus or stall.gpus), _cause(stall)
    idle = {
        gpu.ref: left.account.idle_of(cause)
        for gpu in context.working_gpus
        if (left := unclaimed_idle(context, gpu)) is not None
    }
    total = sum(idle.get(gpu, 0) for gpu in stall.gpus)
    return sum(idle.get(gpu, 0) for gpu in stall.gpus if gpu in late) >= _ON_LATE_GPUS * total


def is_late_in_the_slow_steps(context: Context, imbalance: Finding, outliers: Finding) -> bool:
    """The culprits are late in the slow steps and hardly in others: that is what makes those slow."""
    late = set(imbalance.gpus)
    slow = {number for found in _outliers(context) if found is not None for number in found.numbers}

    def is_late(member: Member) -> bool:
        return ref(member.file, member.device) in late

    inside = total = 0.0
    for arrivals in find_arrivals(context.files, context.job):
        in_slow_steps, in_all = arrivals.lateness(is_late, sorted(slow))
        inside += in_slow_steps
        total += in_all
    return total > 0 and inside >= _IN_SLOW_STEPS * total


def communicates_every_so_often(context: Context, root: Finding, outliers: Finding) -> bool:
    """The slow steps are those that communicate, by schedule: every so many steps, as where gradients accumulate.

    What strikes by accident comes at no such rhythm, and remains a story of its own.
    """
    if outliers.cause != "communication" or (root.share or 0.0) < _IN_OUTLIERS * (outliers.share or 0.0):
        return False
    numbers = [sorted(found.numbers) for found in _outliers(context) if found is not None]
    gaps = [{later - earlier for earlier, later in pairwise(some)} for some in numbers]
    return any(gaps) and all(len(apart) <= 1 for apart in gaps) and max(map(len, numbers)) > _FEWEST_BY_SCHEDULE


def are_the_later_steps(context: Context, slower: Finding, outliers: Finding) -> bool:
    """The steps that stand out are those of the slower pace, and most of them: no accidents of their own."""
    first, count = int(slower.title.params["number"]), int(slower.explanation[0].params["count"])
    numbers = {number for found in _outliers(context) if found is not None for number in found.numbers}
    return min(numbers, default=-1) >= first and len(numbers) >= _IN_OUTLIERS * count


# What empties the queue, and lays open the launches after it.
_STALLS = tuple(rule.kind for rule in rules() if rule.idle_cause not in (None, Cause.LAUNCH))

# In this order: who is late decides whose story it is, then the slow steps, then the launches.
MERGES: tuple[Merge, ...] = (
    *(Merge("imbalance", kind, makes_the_gpu_late, adds="all") for kind in (*_STALLS, "launch_bound")),
    Merge("imbalance", "step_outliers", is_late_in_the_slow_steps),
    *(Merge(kind, "step_outliers", explains_slow_steps) for kind in (*_STALLS, "launch_bound")),
    Merge("slower_steps", "step_outliers", are_the_later_steps),
    Merge("communication_bound", "step_outliers", communicates_every_so_often),
    *(Merge(kind, "launch_bound", follows_an_empty_queue, counts=True) for kind in _STALLS),
)


def merge_findings(context: Context, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with those taken in that another one explains, in the order given."""
    left = list(findings)
    for merge in MERGES:
        for absorbed in [finding for finding in left if finding.kind == merge.absorbed]:
            root = next((f for f in left if f.kind == merge.absorbing and merge.condition(context, f, absorbed)), None)
            if root is not None:
                left.remove(absorbed)
                left[left.index(root)] = _joined(context, merge, root, absorbed)
    return left


def _joined(context: Context, merge: Merge, root: Finding, absorbed: Finding) -> Finding:
    limits = context.thresholds
    saving = root.saving_ps_per_step
    # A flat list: who compares two runs must find what is still there, however often it was taken in.
    parts = (*root.absorbed, replace(absorbed, absorbed=()), *absorbed.absorbed)
    if merge.counts:
        causes = (_cause(root), _cause(absorbed))
        gain = gain_of_causes(context, range(len(context.files)), *causes)
        saving = max(gain, saving or 0.0) if gain is not None else saving
    if merge.adds == "sentence":
        said = absorbed.explanation[0]
        sentence = Phrase(f"findings.{absorbed.kind}.merged", {**said.params, **absorbed.title.params})
        return replace(root, explanation=(*root.explanation, sentence), saving_ps_per_step=saving, absorbed=parts)
    half = limits.max_evidence // 2
    return replace(
        root,
        explanation=(*root.explanation, *absorbed.explanation),
        advice=(*absorbed.advice, *root.advice),
        evidence=(*root.evidence[: limits.max_evidence - min(half, len(absorbed.evidence))], *absorbed.evidence)[
            : limits.max_evidence
        ],
        saving_ps_per_step=saving,
        absorbed=parts,
    )
