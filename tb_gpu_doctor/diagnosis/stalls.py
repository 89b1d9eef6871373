"""What stops a step: how many, how long, how regularly, and which wait of the host is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tb_gpu_doctor.analysis.idle_facts import Wait
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import Context, WorkingGpu
from tb_gpu_doctor.diagnosis.losses import IdleLoss, idle_loss, idle_per_step, ranked, unclaimed_idle, worst_event
from tb_gpu_doctor.diagnosis.model import Evidence, Phrase

_MAX_NUMBERS = 6


@dataclass(frozen=True)
class Stops:
    """How often one GPU was stopped, the one that lost most.

    Attributes:
        count: stops, one per step at most.
        steps: complete steps in all, None without steps.
        numbers: recorded numbers of the first stopped steps.
        typical, longest: lost time of one stop in picoseconds.
        every: steps from one stop to the next where that is always the same, of three at least; None otherwise.
        only_first: the first step of several is the only one that was stopped.
    """

    count: int
    steps: int | None
    numbers: tuple[int, ...]
    typical: float
    longest: int
    every: int | None
    only_first: bool


@dataclass(frozen=True)
class Stall:
    """The GPUs that one cause stops, what holds them up, and how often.

    Attributes:
        loss: who loses how much.
        name, thread: of the host event behind most of it.
        stops: of the GPU that loses most.
        facts: what sentences need of all that.
    """

    loss: IdleLoss
    name: str
    thread: str
    stops: Stops
    facts: dict[str, object]


def find_stall(context: Context, cause: Cause, threshold: float) -> Stall | None:
    """Who is stopped by ``cause`` for at least ``threshold`` of the window; None for nobody, or if no event tells."""
    loss = idle_loss(context, cause, threshold)
    worst = None if loss is None else worst_event(context, loss.gpus, cause)
    if loss is None or worst is None:
        return None
    stops = find_stops(context, loss.gpus, cause)
    facts: dict[str, object] = {
        "gpus": context.names(loss.refs),
        "share": loss.share,
        "count": stops.count,
        "steps": stops.steps,
        "numbers": stops.numbers,
        "typical": stops.typical,
        "longest": stops.longest,
        "every": stops.every,
        "name": worst[0],
        "thread": worst[1],
    }
    return Stall(loss, worst[0], worst[1], stops, facts)


def find_stops(context: Context, gpus: Sequence[WorkingGpu], cause: Cause) -> Stops:
    """The stops of the GPU that lost most time to ``cause``; it must have lost some."""

    def lost(gpu: WorkingGpu) -> int:
        idle = unclaimed_idle(context, gpu)
        return 0 if idle is None else idle.account.idle_of(cause)

    worst = max(gpus, key=lost)
    times = idle_per_step(context, worst, cause)
    if times:
        return _by_step(context, worst, times)
    idle = unclaimed_idle(context, worst)
    stops = None if idle is None else idle.of(cause).stops
    if stops is None:
        return Stops(0, None, (), 0.0, 0, None, False)
    return Stops(stops.count, None, (), stops.typical, stops.longest, None, False)


def _by_step(context: Context, gpu: WorkingGpu, lost: Sequence[int]) -> Stops:
    limits, steps = context.thresholds, gpu.facts.steps
    assert steps is not None
    stopped = [
        step
        for step, (time, wall) in enumerate(zip(lost, steps.wall, strict=True))
        if time > 0 and time >= limits.stopped_step * wall
    ]
    if not stopped:  # spread so thinly that no single step was stopped by it
        stopped = [step for step, time in enumerate(lost) if time == max(lost)]
    apart = {second - first for first, second in pairwise(stopped)}
    times = [lost[step] for step in stopped]
    return Stops(
        count=len(stopped),
        steps=len(lost),
        numbers=tuple(gpu.file.steps.numbers[step] for step in stopped[:_MAX_NUMBERS]),
        typical=float(median(times)),
        longest=max(times),
        # any two have one distance; from three on an equal one is a rhythm
        every=apart.pop() if len(apart) == 1 and len(stopped) > 2 else None,
        only_first=len(lost) >= limits.min_complete_steps and stopped == [0],
    )


@dataclass(frozen=True)
class WaitSummary:
    """What is behind most of the waits of the host that emptied the GPU's queue.

    Attributes:
        name: name of the wait.
        thread: where it happens most.
        caller: Python frame or framework op that asked for it, None when not recorded.
        frame: the user's own code around it, None when not recorded.
        work: what the host did after it most of the time, None when nothing was recorded.
        located: part of the examined loss for which a wait was found.
    """

    name: str
    thread: str
    caller: str | None
    frame: str | None
    work: str | None
    located: float


def summarise_waits(context: Context, gpus: Sequence[WorkingGpu]) -> WaitSummary | None:
    """The wait that costs most, by name; None when no wait was found at all."""
    examined = 0
    by_name: dict[str, list[Wait]] = {}
    for gpu in gpus:
        idle = unclaimed_idle(context, gpu)
        if idle is None or idle.waits is None:
            continue
        examined += idle.waits.examined
        for wait in idle.waits.by_name:
            by_name.setdefault(wait.name, []).append(wait)
    if not by_name:
        return None
    times = {name: sum(wait.time for wait in waits) for name, waits in by_name.items()}
    worst = max(times, key=times.__getitem__)
    threads: dict[str, int] = {}
    works: dict[str, int] = {}
    for wait in by_name[worst]:
        for thread, time in wait.threads:
            threads[thread] = threads.get(thread, 0) + time
        for work, time in wait.works:
            works[work] = works.get(work, 0) + time
    longest = max(by_name[worst], key=lambda wait: wait.longest)
    return WaitSummary(
        name=worst,
        thread=max(threads, key=threads.__getitem__),
        caller=None if longest.caller == longest.frame else longest.caller,
        frame=longest.frame,
        work=max(works, key=works.__getitem__) if works else None,
        located=sum(times.values()) / examined,
    )


def wait_evidence(context: Context, gpus: Sequence[WorkingGpu]) -> tuple[Evidence, ...]:
    """The costliest gaps: one of every GPU first, then the others; each names the wait and what followed."""
    found = []
    for gpu in gpus:
        idle, items = unclaimed_idle(context, gpu), []
        for gap in idle.waits.worst if idle is not None and idle.waits is not None else ():
            what: str | Phrase = Phrase("report.evidence.after_wait_unknown")
            if gap.name is not None:
                what = gap.name
                if gap.work is not None:
                    what = Phrase("report.evidence.after_wait", {"wait": gap.name, "work": gap.work})
            host, number = gpu.ref.host, gpu.ref.id
            items.append((gap.charge, Evidence(host, number, gap.start, gap.end, gap.thread, gap.step, what)))
        found.append(items)
    return ranked(found, context.thresholds.max_evidence)
