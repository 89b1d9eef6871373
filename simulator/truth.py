"""What a simulated run really did, from the simulator's own clock and ledgers.

All times are picoseconds on the clock of the simulation, which is the written file's but for its time 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.device import Device, Work
from simulator.host import UNSEEN

Interval = tuple[int, int]
CATEGORIES = ("compute", "communication", "transfer")
IDLE_CAUSES = (
    "input",
    "launch",
    "sync",
    "compile",
    "checkpoint",
    "host_other",
    "allocator",
    "dependency",
    "peer",
    "kernel_gap",
    "queued",
    "no_evidence",
)


@dataclass(frozen=True)
class Fault:
    """A fault planted in the run, under the ids that a finding about it would carry.

    Attributes:
        kind, gpus, cause: as in a finding; no GPUs where the fault is about none in particular.
        culprit: parts of names of what is to blame (a stage of the input, an op, a function), any of ``a|b``.
    """

    kind: str
    gpus: tuple[int, ...]
    cause: str | None = None
    culprit: str = ""


@dataclass(frozen=True)
class Marker:
    """One training step as the host marked it."""

    number: int
    start: int
    end: int


@dataclass(frozen=True)
class IdlePiece:
    """A stretch in which a GPU had nothing to run, and why."""

    start: int
    end: int
    cause: str


@dataclass(frozen=True)
class KernelTotal:
    """All runs of one kernel on one GPU."""

    calls: int
    total_ps: int
    min_ps: int
    max_ps: int


@dataclass(frozen=True)
class Accounting:
    """Where a GPU's window went: compute + communication + transfer + idle = end - start."""

    gpu: int
    start: int
    end: int
    compute: int
    communication: int
    transfer: int
    idle: int
    idle_by_cause: dict[str, int]


@dataclass(frozen=True)
class GpuTruth:
    """One GPU.

    Attributes:
        events: (start, end, category, step, name) of everything it ran, by start.
        idle: from the start of the recording to the last event's end, by start.
        kernels: totals by kernel name, communication included, copies left out.
        step_starts, step_ends: per marked step, as the accounting defines a step: from the
            last compute or communication end of the step before to its own last one.
    """

    gpu: int
    events: tuple[tuple[int, int, str, int, str], ...]
    idle: tuple[IdlePiece, ...]
    kernels: dict[str, KernelTotal]
    step_starts: tuple[int, ...]
    step_ends: tuple[int, ...]


@dataclass(frozen=True)
class Truth:
    """The truth of one run, on the simulator's clock.

    Attributes:
        scenario: name of the run.
        faults: what was planted; empty for a healthy run.
        markers: the marked steps.
        gpus: one entry per GPU.
        recorded: start and end of the recording, on the file's clock.
        zero: the file's time 0; recorded_steps: the first and past the last that are recorded whole (None: all).
        marked: whether the file shows the markers; without them the window is all that the GPUs did.
        whole: whether nothing is missing in the middle of the file, so that it shows where the time went.
    """

    scenario: str
    faults: tuple[Fault, ...]
    markers: tuple[Marker, ...]
    gpus: tuple[GpuTruth, ...]
    recorded: Interval
    marked: bool = True
    zero: int = 0
    recorded_steps: tuple[int, int] | None = None
    whole: bool = True

    @property
    def window(self) -> Interval:
        """The union of all recorded marked steps over the GPUs, or from their first to their last event."""
        if not self.marked:
            events = [event for gpu in self.gpus for event in gpu.events if event[0] >= self.zero]
            return min(event[0] for event in events), max(event[1] for event in events)
        first, last = self.recorded_steps or (0, len(self.markers))
        low, high = self.window_of(first, last)
        return max(low, self.markers[first].start), high

    @property
    def steps(self) -> int:
        """How many steps the window holds."""
        first, last = self.recorded_steps or (0, len(self.markers))
        return last - first

    def window_of(self, first: int, last: int) -> Interval:
        """The union of the marked steps [first, last) over the GPUs."""
        used = [gpu for gpu in self.gpus if gpu.events]
        return min(gpu.step_starts[first] for gpu in used), max(gpu.step_ends[last - 1] for gpu in used)

    def accounting(self, gpu: int, window: Interval | None = None) -> Accounting:
        """Where one GPU's window went, exactly (default: the window of all marked steps)."""
        start, end = window or self.window
        truth = self.gpus[gpu]
        covered: list[Interval] = []
        parts: dict[str, int] = {}
        for category in CATEGORIES:
            before = _length(covered)
            own = [(max(e[0], start), min(e[1], end)) for e in truth.events if e[2] == category]
            covered = union([*covered, *(i for i in own if i[1] > i[0])])
            parts[category] = _length(covered) - before
        causes = dict.fromkeys(IDLE_CAUSES, 0)
        for piece in truth.idle:
            causes[piece.cause] += max(0, min(piece.end, end) - max(piece.start, start))
        idle = end - start - _length(covered)
        causes["no_evidence"] += idle - sum(causes.values())  # after the GPU's last event
        return Accounting(gpu, start, end, idle=idle, idle_by_cause=causes, **parts)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merged intervals, by start."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def idle_pieces(work: Sequence[Work], recording_start: int) -> list[IdlePiece]:
    """Every gap of a GPU, cut by the reasons for which the work that ended it started so late.

    In the order of time: what the launching thread was doing until it called the launch,
    the launch itself until the GPU knew of it, the events it still had to wait for, another
    process that had the GPU, and then the GPU's own pause between two kernels.
    """
    pieces: list[IdlePiece] = []
    busy_until = computed_until = recording_start
    for item in work:
        if item.start > busy_until:
            cuts: list[tuple[int, int, str]] = []
            called = min(max(item.called, busy_until), item.start)
            if called > busy_until:
                cuts += _host_cuts(item, busy_until, called, computed_until)
            ready = min(max(item.ready, called), item.start)
            met = min(max(item.dependencies_met, ready), item.start)
            let_in = min(max(item.let_in, met), item.start)
            cuts += [(called, ready, "launch"), (ready, met, "dependency"), (met, let_in, "queued")]
            cuts.append((let_in, item.start, "kernel_gap"))
            pieces += [IdlePiece(*cut) for cut in cuts if cut[1] > cut[0]]
        busy_until = max(busy_until, item.end)
        if item.kernel.category != "communication":
            computed_until = max(computed_until, item.end)
    return pieces


# What the host does anyway; a synchronisation that drained the queue is what exposes it.
_HIDDEN_WORK = ("launch", "host_other", UNSEEN)


def _host_cuts(item: Work, start: int, called: int, computed_until: int) -> list[tuple[int, int, str]]:
    """What the host did in [start, called); after a sync that drained the queue its work counts as sync.

    The queue was empty from ``computed_until`` on, though a collective may have run on. What the
    host did without any event to show it is no evidence.
    """
    drained = item.thread.drained_at(computed_until, called)
    charged: list[tuple[int, int, str]] = []
    for low, high, cause in item.thread.causes(start, called):
        border = min(max(drained, low), high) if drained is not None and cause in _HIDDEN_WORK else high
        charged += [(low, border, "no_evidence" if cause == UNSEEN else cause), (border, high, "sync")]
    return [cut for cut in charged if cut[1] > cut[0]]


def gpu_truth(device: Device, markers: Sequence[Marker], recording_start: int) -> GpuTruth:
    """The truth of one GPU once the simulation has ended."""
    work = device.work
    if not work:
        return GpuTruth(device.index, (), (), {}, (), ())
    totals: dict[str, list[int]] = {}
    last: dict[int, int] = {}
    for item in work:
        if item.kernel.category != "transfer":
            totals.setdefault(item.kernel.name, []).append(item.end - item.start)
            last[item.step] = max(last.get(item.step, 0), item.end)
    ends = tuple(last[step] for step in range(len(markers)))
    earlier = [item.end for item in work if item.end <= ends[0] and item.step < 0]
    starts = (max([markers[0].start, *earlier]), *ends[:-1])
    return GpuTruth(
        device.index,
        tuple((i.start, i.end, i.kernel.category, i.step, i.kernel.name) for i in work),
        tuple(idle_pieces(work, recording_start)),
        {name: KernelTotal(len(all_), sum(all_), min(all_), max(all_)) for name, all_ in totals.items()},
        starts,
        ends,
    )
