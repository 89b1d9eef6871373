"""tf.data's host events of one trace: which stage of which pipeline each belongs to, and its own time.

Iterators name their whole path (``Iterator::Root::Prefetch::Batch``), so the stages are in the names. Ids
tell pipelines apart that look alike. A stage that works in the background shows twice: on the thread
that takes its elements, where its event is a wait, and on its own thread below a ``…Produce`` event. The
functions that it calls run on the thread pool, in events that carry the call's id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tb_gpu_doctor.analysis import input_names as names
from tb_gpu_doctor.analysis.host_tree import nearest_with
from tb_gpu_doctor.analysis.input_names import Path
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import NO_STAT, HostEvents, Int64, SparseStat, Trace
from tb_gpu_doctor.traces.grouping import group

_MAX_CLIMB = 64
# Beyond these a file is none that tf.data wrote, or nobody could read the result: rarer stages are left out.
_MAX_PATHS, _MAX_DEPTH, _MAX_PIPELINES, _MAX_STAGES = 256, 48, 64, 2_000


@dataclass(frozen=True)
class StageKey:
    """A stage: the pipeline's number and the stage's path."""

    pipeline: int
    path: Path


@dataclass(frozen=True)
class Pieces:
    """Stretches in which an event of a stage ran and none that it encloses; `rows` own them."""

    rows: Int64
    start: Int64
    end: Int64


@dataclass(frozen=True)
class Calls:
    """Calls of stages' functions on the thread pool: from the first event of each to the last one's end."""

    stage: Int64
    start: Int64
    end: Int64


@dataclass
class TfDataEvents:
    """All of it.

    Attributes:
        stages: every stage, ancestors included that no event shows.
        rows: iterator events, ``row_stage`` their stages, ``row_owner`` the enclosing iterator or Produce event.
        produce: Produce events, ``produce_stage`` their stages (-1 unknown).
        pieces: own time of both kinds of events.
        calls: function calls in the background; ``call_rows`` and ``call_row_stage`` their events.
        python: stages whose functions call Python.
        fetch: for each iterator event the fetch that encloses it, else itself.
    """

    stages: list[StageKey]
    rows: Int64
    row_stage: Int64
    row_owner: Int64
    produce: Int64
    produce_stage: Int64
    pieces: Pieces
    calls: Calls
    call_rows: Int64
    call_row_stage: Int64
    python: frozenset[int]
    fetch: Int64
    index: dict[StageKey, int] = field(default_factory=dict)

    def parent(self, stage: int) -> int:
        """The stage that takes this one's elements, -1 for the first one."""
        key = self.stages[stage]
        above = names.parent_path(key.path)
        return self.index[StageKey(key.pipeline, above)] if above else -1


def read_tf_data(trace: Trace, parent: Int64) -> TfDataEvents | None:
    """The events of tf.data, None where there are none; ``parent`` as `host_tree.enclosing`."""
    if names.ITERATOR.encode() not in trace.strings.blob:
        return None
    host = trace.host_events
    used, inverse = group(host.name)
    texts = [trace.strings[i] for i in used.tolist()]
    paths: dict[Path, int] = {}
    path_index = np.full(len(texts), -1, np.int64)
    for at, text in enumerate(texts):
        path = names.path_of(text) if text.startswith(names.ITERATOR) else ()
        if 0 < len(path) <= _MAX_DEPTH:
            path_index[at] = paths.setdefault(path, len(paths))
    row_path = _most_used(path_index[inverse])
    rows = np.flatnonzero(row_path >= 0)
    if not len(rows):
        return None

    def marked(matches: list[bool]) -> BoolArray:
        return np.array(matches, np.bool_)[inverse]

    is_produce = marked([bool(names.PRODUCE.match(t)) for t in texts])
    nearest = nearest_with((row_path >= 0) | is_produce, parent)
    pipeline = _pipelines(trace, rows, row_path[rows], list(paths))
    found = _Stages(list(paths))
    row_stage = found.of(pipeline, row_path[rows])
    if len(found.keys) > _MAX_STAGES:
        return None
    produce = np.flatnonzero(is_produce)
    owner = np.where(parent >= 0, nearest[np.maximum(parent, 0)], -1)
    stage_of_row = np.full(len(host), -1, np.int64)
    stage_of_row[rows] = row_stage
    inside = np.flatnonzero((owner[rows] >= 0) & is_produce[np.maximum(owner[rows], 0)])
    above = np.array([found.parent(s) for s in range(len(found.keys))], np.int64)
    stage_of_row[owner[rows[inside]]] = above[row_stage[inside]]
    pieces = _own_pieces(host, np.flatnonzero((row_path >= 0) | is_produce), owner)
    is_run = marked([t.startswith(names.RUN_PREFIX) for t in texts])
    is_async = marked([t.startswith(names.RUN_ASYNC) for t in texts])
    is_process = marked([t in names.PROCESS for t in texts])
    calls = _read_calls(trace, stage_of_row, owner, is_run, is_async, is_process)
    is_python = marked([bool(names.PYTHON_FUNCTION.search(t)) for t in texts])
    python = _python_stages(trace, parent, stage_of_row, owner, is_run, is_process, is_python)
    fetching = nearest_with(marked([bool(names.GET_NEXT.match(t)) for t in texts]), parent)[rows]
    return TfDataEvents(
        stages=found.keys,
        rows=rows,
        row_stage=row_stage,
        row_owner=owner[rows],
        produce=produce,
        produce_stage=stage_of_row[produce],
        pieces=pieces,
        calls=calls[0],
        call_rows=calls[1],
        call_row_stage=calls[2],
        python=python,
        fetch=np.where(fetching >= 0, fetching, rows),
        index=found.index,
    )


def _most_used(path: Int64) -> Int64:
    """The path of each row, -1 where it is not among those that occur most."""
    counts = np.bincount(path[path >= 0])
    if len(counts) <= _MAX_PATHS:
        return path
    kept = np.zeros(len(counts) + 1, np.bool_)
    kept[np.argsort(-counts, kind="stable")[:_MAX_PATHS]] = True
    return np.where(kept[path], path, -1)


class _Stages:
    """Numbers stages as they are met, with the ancestors that their paths name."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.keys: list[StageKey] = []
        self.index: dict[StageKey, int] = {}

    def of(self, pipeline: Int64, path: Int64) -> Int64:
        codes, inverse = group(pipeline * len(self.paths) + path)
        numbers = [self._add(int(c) // len(self.paths), self.paths[int(c) % len(self.paths)]) for c in codes.tolist()]
        return np.array(numbers, np.int64)[inverse]

    def parent(self, stage: int) -> int:
        key = self.keys[stage]
        above = names.parent_path(key.path)
        return self.index[StageKey(key.pipeline, above)] if above else -1

    def _add(self, pipeline: int, path: Path) -> int:
        above = names.parent_path(path)
        if above:
            self._add(pipeline, above)
        key = StageKey(pipeline, path)
        if key not in self.index:
            self.index[key] = len(self.keys)
            self.keys.append(key)
        return self.index[key]


def _pipelines(trace: Trace, rows: Int64, path: Int64, paths: list[Path]) -> Int64:
    """A number for each iterator event, equal within a pipeline.

    Iterators name the one that takes their elements (``parent_id``). Files without that are told
    apart by the path's first part. Pipelines of the same shape are one: replicas, epochs, or
    parts of one whose first iterator the recording cut off.
    """
    ident = trace.host_stats.get("id", NO_STAT).at(rows)
    above = trace.host_stats.get("parent_id", NO_STAT).at(rows)
    if not (above != -1).any():
        return _by_first_part(path, paths)
    known = dict(zip(ident.tolist(), above.tolist(), strict=True))

    def top(number: int) -> int:
        for _ in range(_MAX_CLIMB):
            over = known.get(number, -1)
            if over == -1:
                break
            number = over
        return number

    codes, inverse = group(ident)
    tops = np.array([top(int(c)) for c in codes.tolist()], np.int64)
    component = group(tops[inverse])[1]
    return _merged(component, path, paths)


def _by_first_part(path: Int64, paths: list[Path]) -> Int64:
    firsts: dict[str, int] = {}
    return np.array([firsts.setdefault(p[0], len(firsts)) for p in paths], np.int64)[path]


def _merged(component: Int64, path: Int64, paths: list[Path]) -> Int64:
    """Components that are one pipeline, under one number."""
    shape: dict[int, set[Path]] = {}
    codes = group(component * len(paths) + path)[0]
    for code in codes.tolist():
        shape.setdefault(code // len(paths), set()).add(paths[code % len(paths)])
    target = {c: c for c in shape}
    whole: list[int] = []
    # The largest first: what is part of a larger one joins it.
    for c in sorted(shape, key=lambda c: (-len(shape[c]), c)):
        rooted = min(len(p) for p in shape[c]) == 1
        for other in whole:
            if shape[c] <= shape[other] or (not rooted and _continues(shape[c], shape[other])):
                target[c] = other
                shape[other] |= shape[c]
                break
        else:
            whole.append(c)
            if len(whole) > _MAX_PIPELINES:
                return _by_first_part(path, paths)
    return np.array([target[c] for c in range(max(shape) + 1)], np.int64)[component]


def _continues(part: set[Path], whole: set[Path]) -> bool:
    """Whether a part without its first iterator fits below a pipeline's stages."""
    if any(names.role_of(p) == "feed" for p in whole):
        return False
    first = min(part, key=len)
    return any(first[: len(p)] == p for p in whole)


def _own_pieces(host: HostEvents, rows: Int64, owner: Int64) -> Pieces:
    """For each event the stretches that no event of ``rows`` inside it covers."""
    start, end = host.start, host.end
    inner = rows[owner[rows] >= 0]
    inner = inner[np.argsort(owner[inner], kind="stable")]
    above = owner[inner]
    first = np.append(np.ones(len(inner[:1]), np.bool_), above[1:] != above[:-1])
    last = np.append(above[1:] != above[:-1], np.ones(len(inner[:1]), np.bool_))
    before = np.where(first, start[above], np.roll(end[inner], 1))
    tail = start[rows]
    tail[np.searchsorted(rows, above[last])] = end[inner[last]]
    owners = np.concatenate((above, rows))
    low, high = np.concatenate((before, tail)), np.concatenate((start[inner], end[rows]))
    keep = high > low
    return Pieces(owners[keep], low[keep], high[keep])


def _read_calls(
    trace: Trace, stage_of_row: Int64, owner: Int64, is_run: BoolArray, is_async: BoolArray, is_process: BoolArray
) -> tuple[Calls, Int64, Int64]:
    """Function calls that background stages made, and the events in which they ran."""
    none = np.zeros(0, np.int64)
    idents = trace.host_stats.get("id", NO_STAT)
    stage, ident = _runs(idents, stage_of_row, owner, is_run & is_async)
    rows = np.flatnonzero(is_process)
    mine = idents.at(rows)
    at = np.minimum(np.searchsorted(ident, mine), max(len(ident) - 1, 0))
    hit = (ident[at] == mine) & (mine != -1) if len(ident) else np.zeros(len(rows), np.bool_)
    if not hit.any():
        return Calls(none, none, none), none, none
    rows, at = rows[hit], at[hit]
    host = trace.host_events
    call, inverse = group(at)
    start = np.full(len(call), np.iinfo(np.int64).max)
    end = np.full(len(call), np.iinfo(np.int64).min)
    np.minimum.at(start, inverse, host.start[rows])
    np.maximum.at(end, inverse, host.end[rows])
    return Calls(stage[call], start, end), rows, stage[at]


def _runs(idents: SparseStat, stage_of_row: Int64, owner: Int64, wanted: BoolArray) -> tuple[Int64, Int64]:
    """(stage, id) of the events that call a function, sorted by id; those of no stage are left out."""
    rows = np.flatnonzero(wanted)
    stage = np.where(owner[rows] >= 0, stage_of_row[np.maximum(owner[rows], 0)], -1)
    ident = idents.at(rows)
    keep = (stage >= 0) & (ident != -1)
    stage, ident = stage[keep], ident[keep]
    order = np.argsort(ident, kind="stable")
    return stage[order], ident[order]


def _python_stages(
    trace: Trace,
    parent: Int64,
    stage_of_row: Int64,
    owner: Int64,
    is_run: BoolArray,
    is_process: BoolArray,
    is_python: BoolArray,
) -> frozenset[int]:
    """Stages whose functions run Python code."""
    if not is_python.any():
        return frozenset()
    idents = trace.host_stats.get("id", NO_STAT)
    stage, ident = _runs(idents, stage_of_row, owner, is_run)
    around = nearest_with(is_process, parent)[np.flatnonzero(is_python)]
    mine = idents.at(around[around >= 0])
    if not len(ident):
        return frozenset()
    at = np.minimum(np.searchsorted(ident, mine), len(ident) - 1)
    return frozenset(stage[at][(ident[at] == mine) & (mine != -1)].tolist())
