"""Steps of a profile that marks none: the kernel sequence repeats once a step.

If the training did n steps, (nearly) every kernel name occurs a multiple of n times, and the names
that occur n times cut the sequence into equal pieces. Of several such n the choice must take neither the
layers inside a step nor two steps at once for one; the confidence is the share of the pieces that
are equal, kernel for kernel.
"""

from __future__ import annotations

import re

import numpy as np

from tb_gpu_doctor.analysis.results import Steps
from tb_gpu_doctor.analysis.step_borders import step_borders
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

MIN_STEPS = 3
_MAX_STEPS = 20_000
# Share of the distinct kernel names whose count must be a multiple of the number of steps.
_MULTIPLES = 0.85
# Share of the pieces that must be equal.
MIN_CONFIDENCE = 0.6
# From this share on the pieces count as all equal; and they must hold this share of the kernels.
_NEARLY_ALL = 0.98
_MIN_COVERAGE = 0.5
_MAX_CANDIDATES = 32
_MAX_COUNTS = 16
# Host events that run one step's worth of work each.
_EXECUTION = re.compile(
    r"^(?:FunctionRun$|PjitFunction\(|PjRt\w*LoadedExecutable::Execute$|PJRT_LoadedExecutable_Execute$)"
)


def infer_steps(trace: Trace) -> Steps | None:
    """Steps from the repeating kernel sequence, None when nothing repeats clearly enough."""
    events = trace.device_events
    kernels = np.flatnonzero((events.klass == EventClass.COMPUTE) & (events.copy_kind == CopyKind.NONE))
    if not len(kernels):
        return None
    main = max((kernels[rows] for _, rows in rows_by(events.device[kernels])), key=len)
    found = _cut_name(trace, main)
    if found is None:
        return None
    name, confidence = found
    event_step = np.full(len(events), -1, np.int32)
    begins = []
    for device in trace.devices:
        rows = events.of_device(device.index)
        first = np.flatnonzero(events.name[rows] == name) + rows.start
        first = first[events.klass[first] == EventClass.COMPUTE]
        begins.append(events.start[first])
    count = max(len(begin) for begin in begins)
    main_begin = begins[int(events.device[main[0]])]
    starts = main_begin[:count]
    for device, begin in zip(trace.devices, begins, strict=True):
        if len(begin) != count:
            continue  # another sequence: no step of this GPU can be told
        rows = events.of_device(device.index)
        at = np.searchsorted(begin, events.start[rows], side="right") - 1
        event_step[rows] = at
    ends = np.append(starts[1:], int(events.end[main].max()))
    first_border, last = step_borders(trace, event_step, starts)
    complete = _complete(trace, main, event_step, count)
    complete &= (last >= 0).any(axis=1)
    if np.count_nonzero(complete) < MIN_STEPS or starts[-1] <= starts[0]:
        return None  # too few, or all at one time: nothing that takes time repeats
    number = np.arange(count, dtype=np.int64)
    return Steps("inferred", number, starts, ends, complete, first_border, last, event_step, confidence)


def _cut_name(trace: Trace, main: Int64) -> tuple[int, float] | None:
    """(name id that starts each step, confidence) from the kernels of one GPU.

    A count that is also the number of executions that the host asked for comes first. Else the
    largest count whose pieces are (nearly) all equal: pieces of layers differ where a step ends.
    """
    events = trace.device_events
    names, index = group(events.name[main])
    counts = np.bincount(index)
    # the wait in front of a step belongs to it: cut where the GPU usually waits longest
    wait = np.zeros(len(main), np.int64)
    wait[1:] = events.start[main[1:]] - np.maximum.accumulate(events.end[main])[:-1]
    asked = _executions(trace)
    best: tuple[bool, bool, int, int, float] | None = None
    for steps in _step_counts(counts):
        cut, confidence, coverage = _best_cut(index, np.flatnonzero(counts == steps), wait)
        if confidence < MIN_CONFIDENCE or coverage < _MIN_COVERAGE:
            continue
        rank = (steps in asked, confidence >= _NEARLY_ALL, steps, cut, confidence)
        if best is None or rank > best:
            best = rank
    return None if best is None else (int(names[best[3]]), best[4])


def _best_cut(index: Int64, candidates: Int64, wait: Int64) -> tuple[int, float, float]:
    """(name, confidence, share of the kernels behind the first cut) of the best name to cut at."""
    best = (0.0, -1.0, 0, 0.0)
    for candidate in candidates[:_MAX_CANDIDATES].tolist():
        at = np.flatnonzero(index == candidate)
        confidence = _equal_pieces(index, at)
        rank = (round(confidence, 2), float(np.median(wait[at])), candidate, 1 - at[0] / len(index))
        best = max(best, rank)
    return best[2], best[0], best[3]


def _executions(trace: Trace) -> frozenset[int]:
    """How often the host ran each function or executable, in all and per working GPU, give or take one."""
    host = trace.host_events
    names, index = group(host.name)
    gpus = max(len(distinct(trace.device_events.device)), 1)
    found = set()
    for name, count in zip(names.tolist(), np.bincount(index).tolist() if len(host) else [], strict=True):
        if _EXECUTION.match(trace.strings[name][:256]):
            for times in (count, count // gpus if count % gpus == 0 else count):
                found |= {times - 1, times, times + 1}
    return frozenset(found)


def _step_counts(counts: Int64) -> list[int]:
    """Numbers of steps of which nearly every count is a multiple, give or take one step's worth; largest first."""
    found = []
    for steps in sorted(set(counts.tolist()), reverse=True):
        if not MIN_STEPS <= steps <= _MAX_STEPS:
            continue
        per_step = np.round(counts / steps)
        fits = (per_step >= 1) & (np.abs(counts - per_step * steps) <= np.maximum(per_step, 1))
        if float(fits.mean()) >= _MULTIPLES:
            found.append(int(steps))
    return found[:_MAX_COUNTS]


def _equal_pieces(index: Int64, at: Int64) -> float:
    """Share of the pieces between cuts that hold the most usual sequence."""
    # A sum of products of name and position numbers stands for a sequence; wrap-around does no harm.
    weight = (index + 1) * np.int64(0x9E3779B97F4A7C1)
    pieces = np.repeat(np.arange(len(at)), np.diff(at, append=len(index)))
    position = np.arange(at[0], len(index)) - at[pieces]
    with np.errstate(over="ignore"):
        terms = (weight[at[0] :] ^ (position * np.int64(0x2545F4914F6CDD1D))) * np.int64(0x5851F42D4C957F2D)
        sums = np.zeros(len(at), np.int64)
        np.add.at(sums, pieces, terms)
    # the last piece may be cut off by the end of the recording
    values, which = group(sums[:-1] if len(sums) > MIN_STEPS else sums)
    return float(np.bincount(which).max() / len(which)) if len(values) else 0.0


def _complete(trace: Trace, main: Int64, event_step: Int32, count: int) -> np.ndarray:
    """All steps but a last one that is shorter than the others."""
    of_step = np.bincount(event_step[main][event_step[main] >= 0], minlength=count)
    complete = np.ones(count, np.bool_)
    complete[-1] = of_step[-1] >= np.median(of_step)
    return complete
