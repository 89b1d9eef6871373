"""Steps of a recording that marks none.

The host comes first: it runs one function, one optimizer step or one outermost module call a step, and what those
launch belongs together, however often kernels repeat inside. Only where the host runs nothing of the kind the kernel
sequence decides: if the training did n steps, (nearly) every kernel name occurs a multiple of n times, and the names
that occur n times cut the sequence into equal pieces. Layers repeat like that as well, so something must say that a
piece is a step: the GPU waits between pieces, the host fetches a batch or reads a value once a piece, a copy comes in,
an optimizer runs. The confidence is the share of the pieces that are equal, kernel for kernel.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tb_gpu_doctor.analysis.callers import Causality, nearest_with
from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.lost_events import Launches
from tb_gpu_doctor.analysis.results import BoolArray, Steps
from tb_gpu_doctor.analysis.steps import Cuts, causal_step, made_steps, step_borders
from tb_gpu_doctor.traces.columns import PS_PER_US, CopyKind, EventClass, Int32, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

# What the host runs once a step, what says so most clearly first. An optimizer ends a step, the others begin one.
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_EXECUTIONS = (
    re.compile(r"^(?:train|test|predict)_function$"),
    _OPTIMIZER,
    re.compile(r"^nn\.Module: "),
    re.compile(r"^TSL:XlaModule:#hlo_module="),
    re.compile(
        r"^FunctionRun$|^PjitFunction\(|^(?:\w*PjRt|PJRT_|TfrtGpu|StreamExecutorGpu)\w*Execut\w*(?:::Execute\w*|_Execute)$"
    ),
)
# Calls of compiled functions are told apart by the call around them.
_NAMED_CALL = re.compile(r"^Eager(?:Local|Kernel)?Execute: ")
# Of the kernels' time so much must belong to steps.
_MOST = 0.5
# A first or last step with fewer launches than this share of the others' was cut off by the recording.
_WHOLE = 0.9
# A GPU is in use that runs this share of the kernels that the busiest runs.
_IN_USE = 0.2
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
# A wait between pieces is one if it is this much longer than nearly all waits inside them, and at least so long.
_LONGER, _NEARLY_EVERY, _SHORTEST = 2.0, 95, 5 * PS_PER_US
# What comes once a piece may be missing in this share of them.
_ONCE = 0.1
# Kernels that only a whole training step holds.
_UPDATE = re.compile(
    r"adam|lamb|adagrad|rmsprop|momentum|multi_tensor|(?<![a-z])sgd|gradient_?descent|optimizer|nll_?loss|cross_?entropy|xent",
    re.IGNORECASE,
)
# What the host does once a step and not once a layer.
_ONCE_A_STEP = {Kind.INPUT, Kind.SYNC}


def unmarked_steps(trace: Trace, launch: Int64, causes: Causality, launches: Launches) -> Steps | None:
    """Steps by what the host runs, else by what the kernels repeat; None where neither tells. Arguments as for
    `steps.find_steps`.
    """
    for pattern in _EXECUTIONS:
        steps = _executed(trace, launch, causes, launches, pattern)
        if steps is not None:
            return steps
    return _repeated(trace, launch)


def _executed(
    trace: Trace, launch: Int64, causes: Causality, launches: Launches, pattern: re.Pattern[str]
) -> Steps | None:
    host, events = trace.host_events, trace.device_events
    names, index = group(host.name)
    wanted = np.array([bool(pattern.match(trace.strings[i][:256])) for i in names.tolist()], np.bool_)
    if not wanted.any():
        return None
    rows = _outermost(causes, wanted[index])
    # functions that the input pipeline calls run as well, and are no steps
    fetching = np.array([kind_of(trace.strings[i]) == Kind.INPUT for i in names.tolist()], np.bool_)
    rows = rows[nearest_with(fetching[index], causes.parent)[rows] < 0]
    if not len(rows):
        return None
    ends = pattern is _OPTIMIZER
    cut = _cut_by_ends(trace, rows) if ends else _cut_by_starts(trace, launch, causes, launches, rows)
    if cut is None:
        return None
    steps = made_steps(trace, launch, causes, launches, cut[0])
    kernels = events.klass <= EventClass.COMMUNICATION
    inside = int(events.duration[kernels & (steps.event_step >= 0)].sum())
    if inside < _MOST * int(events.duration[kernels].sum()) or not steps.count:
        return None
    if not _on_all_gpus(trace, steps):
        return None
    complete = steps.complete & _whole(trace, launches, cut[0].start)
    if not complete.any():
        complete = steps.complete
    return replace(steps, complete=complete, confidence=1.0, cut_at=trace.strings[int(cut[1])])


def _on_all_gpus(trace: Trace, steps: Steps) -> bool:
    """Whether most executions led to work on every GPU in use: those of single replicas, or of the input, do not."""
    events = trace.device_events
    kernels = np.bincount(events.device[events.klass == EventClass.COMPUTE], minlength=len(trace.devices))
    used = kernels >= _IN_USE * kernels.max(initial=0)
    worked = (steps.end >= 0)[:, used].all(axis=1)
    return float(worked.mean()) >= _MOST


def _outermost(causes: Causality, is_one: BoolArray) -> Int64:
    """Rows of the executions that are no part of another: neither inside it nor caused by it on another thread."""
    rows = np.flatnonzero(is_one)
    around = causes.parent[rows]
    inside = (around >= 0) & (nearest_with(is_one, causes.parent)[np.maximum(around, 0)] >= 0)
    consumer = nearest_with(causes.producer >= 0, causes.parent)[rows]
    handed = np.flatnonzero(consumer >= 0)
    which = np.where(is_one, 0, -1).astype(np.int32)
    inside[handed] |= causal_step(causes.producer[consumer[handed]], causes, which) >= 0
    return np.asarray(rows[~inside], dtype=np.int64)


def _cut_by_ends(trace: Trace, rows: Int64) -> tuple[Cuts, int] | None:
    """Cuts where optimizers end, and the name of the one; of several the one that steps most often, and last."""
    host = trace.host_events
    best: tuple[int, int, int] | None = None
    for name, mine in rows_by(host.name[rows]):
        rank = (len(mine), int(host.end[rows[mine]].max()), name)
        best = rank if best is None or rank > best else best
    if best is None:
        return None
    end = np.sort(host.end[rows[host.name[rows] == best[2]]])
    begin = int(host.start.min()) if trace.recorded is None else trace.recorded[0]
    start = np.concatenate(([min(begin, int(end[0]))], end[:-1]))
    return _cuts(trace, start, end, np.full(len(host), -1, np.int32)), best[2]


def _cut_by_starts(
    trace: Trace, launch: Int64, causes: Causality, launches: Launches, rows: Int64
) -> tuple[Cuts, int] | None:
    """Cuts where executions begin, and their name: those of the name whose work takes the GPUs longest."""
    host, events = trace.host_events, trace.device_events
    which = np.full(len(host), -1, np.int32)
    which[rows] = np.arange(len(rows), dtype=np.int32)
    of_call = causal_step(launches.rows, causes, which)
    calls = np.bincount(of_call[of_call >= 0], minlength=len(rows))
    known = np.flatnonzero(launch >= 0)
    of_event = causal_step(launch[known], causes, which)
    took = np.bincount(of_event[of_event >= 0], events.duration[known[of_event >= 0]], minlength=len(rows))
    label = _labels(trace, causes, rows)
    if not took.any():  # nothing says what launched for whom: what came next did
        order = np.argsort(host.start[rows], kind="stable")
        at = np.searchsorted(host.start[rows][order], host.start[launch[known]], side="right") - 1
        took = np.bincount(order[at[at >= 0]], events.duration[known[at >= 0]], minlength=len(rows))
        calls = np.ones(len(rows), np.int64)
    by_label = {name: float(took[mine].sum()) for name, mine in rows_by(label)}
    if not by_label or not any(by_label.values()):
        return None
    chosen = max(by_label, key=by_label.__getitem__)
    picked = rows[(label == chosen) & (calls > 0)]
    if not len(picked):  # what launched the work is none of the calls that are known
        return None
    member, start = _replicas(host.thread[picked], host.start[picked])
    which[:] = -1
    which[picked] = member
    last = int(host.end[picked[member == len(start) - 1]].max())
    end = np.maximum(np.append(start[1:], last), start)
    return _cuts(trace, start, end, which), chosen


def _cuts(trace: Trace, start: Int64, end: Int64, step_of_row: np.ndarray) -> Cuts:
    return Cuts("inferred", np.arange(len(start), dtype=np.int64), start, end, step_of_row)


def _labels(trace: Trace, causes: Causality, rows: Int64) -> Int64:
    """Name ids that tell executions apart: their own, or that of the call that names the function."""
    host = trace.host_events
    names, index = group(host.name)
    named = np.array([bool(_NAMED_CALL.match(trace.strings[i][:64])) for i in names.tolist()], np.bool_)
    call = nearest_with(named[index], causes.parent)[rows]
    return np.where(call >= 0, host.name[np.maximum(call, 0)], host.name[rows]).astype(np.int64)


def _replicas(thread: np.ndarray, start: Int64) -> tuple[np.ndarray, Int64]:
    """(step of each execution, start of each step): threads that execute equally often run replicas of one step."""
    order = np.argsort(start, kind="stable")
    place = np.empty(len(start), np.int32)
    counts = [len(mine) for _, mine in rows_by(thread)]
    if len(counts) > 1 and len(set(counts)) == 1:
        for _, mine in rows_by(thread):
            place[mine[np.argsort(start[mine], kind="stable")]] = np.arange(counts[0], dtype=np.int32)
    else:
        place[order] = np.arange(len(start), dtype=np.int32)
    first = np.full(int(place.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, place, start)
    # replicas that overtake each other: a step begins no sooner than the one before it
    return place, np.maximum.accumulate(first)


def _whole(trace: Trace, launches: Launches, start: Int64) -> BoolArray:
    """All steps but a first and a last one with clearly fewer launches than the others."""
    found = np.ones(len(start), np.bool_)
    at = np.searchsorted(start, trace.host_events.start[launches.rows], side="right") - 1
    count = np.bincount(at[at >= 0], minlength=len(start))
    if len(start) >= MIN_STEPS:
        found[[0, -1]] = count[[0, -1]] >= _WHOLE * np.median(count[1:-1])
    return found


def _repeated(trace: Trace, launch: Int64) -> Steps | None:
    """Steps from the repeating kernel sequence, None when nothing repeats clearly enough, or when layers may repeat."""
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
    starts = begins[int(events.device[main[0]])]
    count = len(starts)
    if not _begins_a_step(trace, launch, main, np.flatnonzero(events.name[main] == name)):
        return None
    for device, begin in zip(trace.devices, begins, strict=True):
        if not len(begin) or abs(len(begin) - count) > 1:
            continue  # another sequence: no step of this GPU can be told
        rows = events.of_device(device.index)
        at = np.searchsorted(begin, events.start[rows], side="right") - 1
        at = np.where(at >= 0, at + _behind(begin, starts), -1)
        event_step[rows] = np.where(at < count, at, -1)
    ends = np.append(starts[1:], int(events.end[main].max()))
    first_border, last = step_borders(trace, event_step, starts)
    complete = _whole_inferred(trace, main, event_step, count)
    complete &= (last >= 0).any(axis=1)
    if np.count_nonzero(complete) < MIN_STEPS or starts[-1] <= starts[0]:
        return None  # too few, or all at one time: nothing that takes time repeats
    number = np.arange(count, dtype=np.int64)
    return Steps("inferred", number, starts, ends, complete, first_border, last, event_step, confidence)


def _behind(begin: Int64, starts: Int64) -> int:
    """Which step a GPU's first piece is, where it may have begun one sooner or later than the others."""
    ways = {}
    for first in (0, 1, -1):
        pairs = min(len(begin) + min(first, 0), len(starts) - max(first, 0))
        own, other = begin[max(-first, 0) :][:pairs], starts[max(first, 0) :][:pairs]
        ways[first] = float(np.median(np.abs(own - other))) if pairs > 0 else np.inf
    return min(ways, key=ways.__getitem__)


def _begins_a_step(trace: Trace, launch: Int64, main: Int64, at: Int64) -> bool:
    """Whether anything but the repetition itself says that the pieces are steps and not layers.

    Args:
        trace: the trace.
        launch: host row per device event.
        main: kernels of one GPU, in order.
        at: index into them of the first kernel of each piece.
    """
    events, host = trace.device_events, trace.host_events
    reached = np.maximum.accumulate(events.end[main])
    if _waits_more(np.append(0, events.start[main[1:]] - reached[:-1]), at):
        return True
    calls = launch[main]
    if (calls >= 0).all():
        if len(distinct(calls)) <= len(at) + 1:
            return True  # all kernels of a piece are launched at once, as one graph
        called = host.start[calls]
        if _waits_more(np.append(0, np.diff(called)), at) or _once_a_piece(trace, called[at]):
            return True
    names = distinct(events.name[main])
    updates = names[[bool(_UPDATE.search(trace.strings[i][:512])) for i in names.tolist()]]
    if len(updates) and _in_each(events.start[main[np.isin(events.name[main], updates)]], events.start[main[at]]):
        return True
    copies = (events.device == events.device[main[0]]) & np.isin(events.copy_kind, (CopyKind.H2D, CopyKind.D2H))
    return _in_each(events.start[copies], events.start[main[at]])


def _waits_more(wait: Int64, at: Int64) -> bool:
    """Whether the waits in front of the pieces stand out of those inside them."""
    inner = np.delete(wait, np.append(0, at))
    border = float(np.median(wait[at[at > 0]])) if (at > 0).any() else 0.0
    usual = float(np.percentile(inner, _NEARLY_EVERY)) if len(inner) else 0.0
    return border >= max(_LONGER * usual, _SHORTEST)


def _in_each(time: Int64, begin: Int64) -> bool:
    """Whether something happens in nearly each of the pieces."""
    piece = np.searchsorted(begin, time, side="right")
    return len(distinct(piece[piece > 0])) >= (1 - _ONCE) * len(begin)


def _once_a_piece(trace: Trace, begin: Int64) -> bool:
    """Whether the host fetches input or waits for the GPU as often as there are pieces, once in each."""
    host = trace.host_events
    names, index = group(host.name)
    piece = np.searchsorted(begin, host.start, side="right")
    counts = np.bincount(index, weights=piece > 0)
    for which in np.flatnonzero(np.abs(counts - len(begin)) <= 1 + _ONCE * len(begin)).tolist():
        if kind_of(trace.strings[int(names[which])]) in _ONCE_A_STEP and _in_each(host.start[index == which], begin):
            return True
    return False


def _cut_name(trace: Trace, main: Int64) -> tuple[int, float] | None:
    """(name id that starts each step, confidence) from the kernels of one GPU.

    The largest count whose pieces are (nearly) all equal: pieces of layers differ where a step ends.
    """
    events = trace.device_events
    names, index = group(events.name[main])
    counts = np.bincount(index)
    # the wait in front of a step belongs to it: cut where the GPU usually waits longest
    wait = np.zeros(len(main), np.int64)
    wait[1:] = events.start[main[1:]] - np.maximum.accumulate(events.end[main])[:-1]
    best: tuple[bool, int, int, float] | None = None
    for steps in _step_counts(counts):
        cut, confidence, coverage = _best_cut(index, np.flatnonzero(counts == steps), wait)
        if confidence < MIN_CONFIDENCE or coverage < _MIN_COVERAGE:
            continue
        rank = (confidence >= _NEARLY_ALL, steps, cut, confidence)
        if best is None or rank > best:
            best = rank
    return None if best is None else (int(names[best[2]]), best[3])


def _best_cut(index: Int64, candidates: Int64, wait: Int64) -> tuple[int, float, float]:
    """(name, confidence, share of the kernels behind the first cut) of the best name to cut at."""
    best = (0.0, -1.0, 0.0, 0)
    for candidate in candidates[:_MAX_CANDIDATES].tolist():
        at = np.flatnonzero(index == candidate)
        confidence = _equal_pieces(index, at)
        # where nothing waits, the cut that leaves least in front of it
        best = max(best, (round(confidence, 2), float(np.median(wait[at])), 1 - at[0] / len(index), candidate))
    return best[3], best[0], best[2]


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


def _whole_inferred(trace: Trace, main: Int64, event_step: Int32, count: int) -> np.ndarray:
    """All steps but a last one that is shorter than the others."""
    of_step = np.bincount(event_step[main][event_step[main] >= 0], minlength=count)
    complete = np.ones(count, np.bool_)
    complete[-1] = of_step[-1] >= np.median(of_step)
    return complete
