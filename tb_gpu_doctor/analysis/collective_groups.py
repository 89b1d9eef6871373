"""Which GPUs of a file are one communicator, where the file names none: those whose collectives end together.

XPlane knows no communicators. In a program that is parallel in two ways, over tensors and over data, the same op
runs on all GPUs, but in groups of its own: {0, 1} and {2, 3}, say. Taken for one collective of four, each group
would seem to wait for the other. GPUs of one file share a clock, and a collective ends on all its GPUs at nearly
the same time: GPUs that hardly ever end together are not of one group.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tb_gpu_doctor.analysis.collective_kinds import NEEDS_ALL
from tb_gpu_doctor.analysis.collective_matching import Events
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import PS_PER_US, Int64
from tb_gpu_doctor.traces.grouping import distinct

# Ends of one collective lie this close together, at the most of its shortest participant's time.
_TOGETHER = 50 * PS_PER_US
_TOGETHER_SHARE = 0.1
# So many collectives of a kind must be seen to tell.
_FEWEST = 5
# Of those, what part must end together.
_MOSTLY = 0.5
# The n-th of a kind may be another GPU's n-th but so many, where the profiler has lost some on both. So many in a row
# must end together then, since by chance some do; and at the beginning or the end of the recording, before or behind
# what was lost, so many of the same number, since groups that run in step are as far apart from first to last.
_MOST_LOST = 4
_IN_A_ROW = 3
_AT_AN_END = 5


def split_groups(events: Events, trace_of: Int64, names: tuple[str, ...]) -> tuple[Events, tuple[str, ...]] | None:
    """The events with a lane for each group; None where all that one lane holds ends together.

    Groups of several GPUs of one file stay in that file; a GPU that is alone in its file meets those with its
    place in the other files, if any.

    Args:
        events: in the order that `Events` says.
        trace_of: the file of each participant.
        names: of the lanes.
    """
    lane = events.lane.copy()
    new_names = list(names)
    place = _places(trace_of)
    unnamed = np.array([not name for name in names])
    asked = unnamed[events.lane] & np.isin(events.kind, NEEDS_ALL)
    if len(np.unique(trace_of)) == len(trace_of):
        return None  # one GPU a file: nobody's ends can be compared
    order = np.flatnonzero(asked)[np.argsort(events.key[asked], kind="stable")]
    borders = np.flatnonzero(np.diff(events.key[order])) + 1
    for rows in np.split(order, borders) if len(order) else []:
        groups: dict[tuple[int, ...], int] = {}
        for trace in distinct(trace_of[events.part[rows]]).tolist():
            mine = rows[trace_of[events.part[rows]] == trace]
            found = _groups(events, mine)
            if len(found) < 2:
                continue
            for members in found:
                name = (-1, int(place[members[0]])) if len(members) == 1 else (trace, *members)
                if name not in groups:
                    groups[name] = len(new_names)
                    new_names.append("")
                lane[rows[np.isin(events.part[rows], members)]] = groups[name]
    if len(new_names) == len(names):
        return None
    moved = dataclasses.replace(events, lane=lane)
    return moved.only(np.lexsort((moved.start, moved.key, moved.lane, moved.step, moved.part))), tuple(new_names)


def _places(trace_of: Int64) -> Int64:
    """How many participants of the same file stand before each."""
    return np.array(
        [np.count_nonzero(trace_of[:index] == own) for index, own in enumerate(trace_of.tolist())], np.int64
    )


def _groups(events: Events, rows: Int64) -> list[list[int]]:
    """The participants of one file's collectives of one kind, by who ends together; one group where nobody can tell.

    The n-th of a kind on one GPU is compared with the n-th on the others: whether these are one is the question. Where
    both have lost some, stretches of theirs are compared with what comes a few before or after.
    """
    parts, counts = np.unique(events.part[rows], return_counts=True)
    if len(parts) < 2 or counts.min() != counts.max() or counts[0] < _FEWEST:
        return [parts.tolist()]
    rows = rows[np.lexsort((events.start[rows], events.part[rows]))]
    end, start = (times[rows].reshape(len(parts), -1).T for times in (events.end, events.start))
    near = np.maximum(_TOGETHER, _TOGETHER_SHARE * (end - start).min(axis=1))[:, None]
    linked = np.stack([np.mean(np.abs(end - end[:, [i]]) <= near, axis=0) >= _MOSTLY for i in range(len(parts))])
    for i, j in np.argwhere(~linked).tolist():
        linked[i, j] = linked[j, i] = np.mean(_together_in_stretches(end[:, i], end[:, j], near[:, 0])) >= _MOSTLY
    return [parts[group].tolist() for group in _components(linked)]


def _together_in_stretches(own: Int64, other: Int64, near: Int64) -> BoolArray:
    """Which of a GPU's collectives are part of a stretch that ends together with one of another's, shape (n,)."""
    count = len(own)
    found = np.zeros(count, np.bool_)
    usual = np.abs(own - other) <= near
    if not (usual[:_AT_AN_END].all() or usual[-_AT_AN_END:].all()):
        return found
    for ahead in range(-_MOST_LOST, _MOST_LOST + 1):
        low, high = max(0, -ahead), min(count, count - ahead)
        if high - low < _IN_A_ROW:
            continue
        same = np.abs(own[low:high] - other[low + ahead : high + ahead]) <= near[low:high]
        whole: BoolArray = np.all(np.lib.stride_tricks.sliding_window_view(same, _IN_A_ROW), axis=1)
        for step in range(_IN_A_ROW):
            found[low + step : low + step + len(whole)] |= whole
    return found


def _components(linked: BoolArray) -> list[BoolArray]:
    left = np.ones(len(linked), np.bool_)
    found = []
    while left.any():
        group = np.zeros(len(linked), np.bool_)
        group[int(np.argmax(left))] = True
        while True:
            grown = group | linked[group].any(axis=0)
            if (grown == group).all():
                break
            group = grown
        found.append(group)
        left &= ~group
    return found
