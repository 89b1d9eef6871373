"""The analyses again, slowly: plain loops over plain numbers, written from the definitions.

Nothing here shares code with the package beyond the trace model and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_low

from tb_gpu_doctor.analysis.results import Category
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, HostEvents, Trace

Span = tuple[int, int]

CATEGORY_OF = {
    EventClass.COMPUTE: Category.COMPUTE,
    EventClass.COMMUNICATION: Category.COMMUNICATION,
    EventClass.COPY: Category.TRANSFER,
    EventClass.MEMSET: Category.TRANSFER,
}


def spans(trace: Trace, gpu: int, classes: Iterable[EventClass] = tuple(EventClass)) -> list[tuple[int, int, int]]:
    """(start, end, row) of a GPU's events."""
    events, wanted = trace.device_events, set(classes)
    return [
        (int(events.start[i]), int(events.start[i] + events.duration[i]), i)
        for i in range(len(events))
        if events.device[i] == gpu and EventClass(int(events.klass[i])) in wanted
    ]


def borders(times: Iterable[int], low: int, high: int) -> list[Span]:
    """[low, high) cut at every one of the times."""
    cuts = sorted({low, high, *(t for t in times if low < t < high)})
    return list(pairwise(cuts))


def accounting(trace: Trace, gpu: int, low: int, high: int) -> dict[Category, int]:
    """Where [low, high) went: between two borders nothing changes, so what runs at the first one counts."""
    all_spans = spans(trace, gpu)
    total = dict.fromkeys(Category, 0)
    for begin, end in borders((t for s in all_spans for t in s[:2]), low, high):
        running = [
            CATEGORY_OF[EventClass(int(trace.device_events.klass[row]))] for s, e, row in all_spans if s <= begin < e
        ]
        total[min(running, default=Category.IDLE)] += end - begin
    return total


def union(intervals: Iterable[Span], low: int, high: int) -> list[Span]:
    """Merged stretches of [low, high) that some interval covers."""
    given = list(intervals)
    return _stretches(given, low, high, covered=True)


def gaps(trace: Trace, gpu: int, low: int, high: int) -> list[Span]:
    """Stretches of [low, high) in which nothing runs."""
    return _stretches([s[:2] for s in spans(trace, gpu)], low, high, covered=False)


def _stretches(intervals: Sequence[Span], low: int, high: int, covered: bool) -> list[Span]:
    out: list[Span] = []
    for begin, end in borders((t for i in intervals for t in i), low, high):
        if any(s <= begin < e for s, e in intervals) != covered:
            continue
        if out and out[-1][1] == begin:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
    return out


def overlap(stretches: Iterable[Span], low: int, high: int) -> int:
    """How much of [low, high) disjoint stretches cover."""
    return sum(max(0, min(e, high) - max(s, low)) for s, e in stretches)


# -- host events ---------------------------------------------------------------------------


def ends(events: HostEvents) -> list[int]:
    return [int(s) + int(d) for s, d in zip(events.start, events.duration, strict=True)]


def enclosing(events: HostEvents) -> list[int]:
    """For each event the innermost other one of its thread that holds it: started last, ends first."""
    end = ends(events)
    out = []
    for i in range(len(events)):
        holders = [j for j in range(i) if events.thread[j] == events.thread[i] and end[j] >= end[i]]
        out.append(max(holders, default=-1))  # rows are sorted by start, longest first
    return out


def nearest_with(mark: Sequence[bool], parent: Sequence[int]) -> list[int]:
    out = []
    for i in range(len(parent)):
        row = i
        while row >= 0 and not mark[row]:
            row = parent[row]
        out.append(row)
    return out


def producer_of(events: HostEvents) -> list[set[int]]:
    """For each event the rows that may have caused it: of those with its (type, id) the last to start before."""
    out = []
    for i in range(len(events)):
        key = (events.consumer_type[i], events.consumer_id[i])
        found = [
            j
            for j in range(len(events))
            if events.consumer_type[i] >= 0
            and (events.producer_type[j], events.producer_id[j]) == key
            and events.start[j] <= events.start[i]
        ]
        latest = max((int(events.start[j]) for j in found), default=None)
        out.append({j for j in found if events.start[j] == latest})
    return out


def launches_of(trace: Trace, max_skew: int) -> list[set[int]]:
    """For each device event the host rows with its correlation id that did not start long after it had ended."""
    host, device = trace.host_events, trace.device_events
    out = []
    for i in range(len(device)):
        correlation = int(device.correlation[i])
        latest = int(device.start[i] + device.duration[i]) + max_skew
        out.append(
            {
                j
                for j in range(len(host))
                if correlation > 0 and host.correlation[j] == correlation and host.start[j] <= latest
            }
        )
    return out


def innermost_at(events: HostEvents, thread: int, instant: int) -> int:
    """The event of a thread that started last among those that run, the shortest of several; -1 for none."""
    end = ends(events)
    running = [i for i in range(len(events)) if events.thread[i] == thread and events.start[i] <= instant < end[i]]
    return max(running, default=-1)


# -- steps ---------------------------------------------------------------------------------


def step_borders(trace: Trace, event_step: Sequence[int], marker_start: Sequence[int]) -> list[dict[int, Span]]:
    """Per GPU {step: (start, end)}, by the definition: from the end of the last compute or communication event of
    the step before to the end of its own last one; the first from its marker, or from the end of
    the last earlier device event of any class.
    """
    out = []
    for gpu in range(len(trace.devices)):
        work = [
            (s, e, int(event_step[row]))
            for s, e, row in spans(trace, gpu, (EventClass.COMPUTE, EventClass.COMMUNICATION))
        ]
        steps: dict[int, Span] = {}
        border: int | None = None
        for step in sorted({k for _, _, k in work if k >= 0}):
            own = [(s, e) for s, e, k in work if k == step]
            begin = min(s for s, _ in own)
            if border is None:
                earlier = [e for s, e, row in spans(trace, gpu, tuple(EventClass)) if event_step[row] < 0 and s < begin]
                border = min(max([marker_start[step], *earlier]), begin)
            end = max([border, *(e for _, e in own)])
            steps[step] = (border, end)
            border = end
        out.append(steps)
    return out


# -- collectives ---------------------------------------------------------------------------


def lateness(groups: Sequence[Sequence[Sequence[Span]]]) -> list[tuple[list[int], list[int]]]:
    """(late, wait) per collective for groups[step][gpu] = its collectives in order.

    Late: start minus the median start of the others (the mean of the middle two, rounded down).
    Wait: until the last GPU has come, at most while the own kernel ran.
    """
    out = []
    for per_gpu in groups:
        for row in zip(*per_gpu, strict=True):
            starts = [s for s, _ in row]
            late = []
            for i, own in enumerate(starts):
                others = sorted(starts[:i] + starts[i + 1 :])
                low, high = median_low(others), others[len(others) // 2]
                late.append(own - (low + (high - low) // 2))
            out.append((late, [min(max(starts) - s, e - s) for s, e in row]))
    return out


def collectives(trace: Trace, gpu: int, low: int, high: int) -> list[int]:
    """Rows of the collective kernels that a GPU started in [low, high)."""
    events = trace.device_events
    return [
        row
        for s, _, row in spans(trace, gpu, (EventClass.COMMUNICATION,))
        if low <= s < high and events.copy_kind[row] == CopyKind.NONE
    ]
