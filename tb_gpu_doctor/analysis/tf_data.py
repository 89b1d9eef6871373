"""tf.data pipelines: which events belong to which stage, what each stage costs, and which one sets the pace.

Iterators name their whole path (``Iterator::Root::Prefetch::Batch``), so the stages are in the names; ids tell apart
pipelines that look alike. A stage that works in the background shows twice: on the thread that takes its elements,
where its event is a wait, and on its own thread below a ``…Produce`` event. The functions it calls run on the thread
pool, in events that carry the call's id.

A stage that runs where its elements are taken costs its own time there. A background stage costs what its threads
work: its function's calls, or the time below its Produce events. What limits the pipeline is a unit of work that cannot
go faster: the calls of one stage, as many at once as it may make, or all stages that share one thread. The unit with
the most work per thing it does at once is the slowest, and inside it the stage with the largest part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tb_gpu_doctor.analysis import input_stages as names
from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import nearest_with
from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage, Path, StageRole
from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import NO_STAT, HostEvents, Int64, SparseStat, Trace
from tb_gpu_doctor.traces.grouping import distinct, group

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


# A prefetch only waits; what it waits for is the stage behind it.
_NEVER_LIMITING = ("glue", "feed", "prefetch")
# Work below this share of the stretch limits nothing.
_LEAST_LOAD = 0.002


@dataclass(frozen=True)
class Found:
    """A pipeline, and the rows of the events in which elements were taken from it (sorted by start)."""

    pipeline: InputPipeline
    fetches: Int64


@dataclass(frozen=True)
class _Cost:
    """One stage over the stretch.

    ``overhead`` is what calling its function costs the thread that does so; ``owner`` the background
    stage on whose thread it runs, -1: on its consumer's.
    """

    stage: InputStage
    overhead: int
    owner: int


def tf_data_pipelines(trace: Trace, events: TfDataEvents, low: int, high: int) -> list[Found]:
    """The pipelines of a trace over the stretch [low, high)."""
    reader = _Reader(trace, events, low, high)
    members: dict[int, list[int]] = {}
    for stage, key in enumerate(events.stages):
        members.setdefault(key.pipeline, []).append(stage)
    feeders = {p: m for p, m in members.items() if any(reader.role(s) == "feed" for s in m)}
    hosts = {p: m for p, m in members.items() if p not in feeders}
    if len(feeders) and len(hosts) == 1:  # every GPU's own little pipeline takes from the one on the host
        ((number, stages),) = hosts.items()
        fed = [s for m in feeders.values() for s in m]
        return [reader.pipeline(number, stages, fed)]
    return [reader.pipeline(p, m, []) for p, m in members.items()]


class _Reader:
    def __init__(self, trace: Trace, events: TfDataEvents, low: int, high: int) -> None:
        self.trace, self.events, self.low, self.high = trace, events, low, high
        host = trace.host_events
        stage_of_row = np.full(len(host), -1, np.int64)
        stage_of_row[events.rows] = events.row_stage
        stage_of_row[events.produce] = events.produce_stage
        self.stage_of_row = stage_of_row
        is_produce = np.zeros(len(host), np.bool_)
        is_produce[events.produce] = True
        self.piece_stage = stage_of_row[events.pieces.rows]
        self.piece_produce = is_produce[events.pieces.rows]
        self.owner_produce = is_produce[np.maximum(events.row_owner, 0)] & (events.row_owner >= 0)
        self.children: dict[int, list[int]] = {}
        for stage in range(len(events.stages)):
            self.children.setdefault(events.parent(stage), []).append(stage)
        self.budget: int | None = None

    def role(self, stage: int) -> StageRole:
        return names.role_of(self.events.stages[stage].path)

    # -- one pipeline ----------------------------------------------------------------------

    def pipeline(self, number: int, stages: list[int], feeders: list[int]) -> Found:
        """Everything about one pipeline; ``feeders``: the stages that hand its elements to the GPUs."""
        events = self.events
        budgets = self._stat("cpu_budget", self._rows([*stages, *feeders]))
        self.budget = int(budgets[-1]) if len(budgets) else None
        order = [*self._in_order(feeders), *self._in_order(stages)]
        costs: dict[int, _Cost] = {}
        for stage in order:
            costs[stage] = self._cost(stage, costs)
        costs, units = self._units(order, costs)
        length = max(self.high - self.low, 1)
        limiting = units[0][1] if units and units[0][0] >= _LEAST_LOAD * length else None
        roots = [s for s in (feeders or stages) if len(events.stages[s].path) == 1]
        fetches = self._fetches(roots)
        begun = fetches[(self.trace.host_events.start[fetches] >= self.low)]
        begun = begun[self.trace.host_events.start[begun] < self.high]
        sizes = trace_stat(self.trace, "element_size", fetches)
        work = sum(c.stage.busy + c.overhead for s, c in costs.items() if s not in feeders)
        result = InputPipeline(
            source="tf_data",
            start=self.low,
            end=self.high,
            stages=tuple(costs[s].stage for s in order),
            limiting=None if limiting is None else order.index(limiting),
            fetches=len(begun),
            fetch_time=intervals.exact_sum(self._clipped(self.trace.host_events.start[fetches], self._ends(fetches))),
            consumers=tuple(distinct(self.trace.host_events.thread[fetches].astype(np.int64)).tolist()),
            element_bytes=int(np.median(sizes)) if len(sizes) else None,
            prefetched=self._prefetched(order, costs, bool(feeders)),
            cpu_budget=self.budget,
            cpu_share=work / (length * self.budget) if self.budget else None,
            waited=(0,) * len(self.trace.devices),
        )
        return Found(result, fetches)

    def _in_order(self, stages: list[int]) -> list[int]:
        """Consumer first, each stage followed by those behind it."""
        found: list[int] = []
        wanted = set(stages)

        def visit(stage: int) -> None:
            found.append(stage)
            for child in self.children.get(stage, []):
                visit(child)

        for stage in stages:
            if self.events.parent(stage) not in wanted:
                visit(stage)
        return found

    def _prefetched(self, order: list[int], costs: dict[int, _Cost], fed: bool) -> bool:
        for stage in order:
            found = costs[stage].stage
            if found.role != "glue":
                return fed or found.background
        return False

    # -- one stage -------------------------------------------------------------------------

    def _cost(self, stage: int, above: dict[int, _Cost]) -> _Cost:
        events, host = self.events, self.trace.host_events
        path = events.stages[stage].path
        mine = events.row_stage == stage
        rows = events.rows[mine]
        produce = events.produce[events.produce_stage == stage]
        calls = np.flatnonzero(events.calls.stage == stage)
        background = bool(len(calls)) or self._is_background(stage, len(produce))
        piece = self.piece_stage == stage
        taking = piece & ~self.piece_produce
        making = piece & self.piece_produce
        overhead = 0
        waited = intervals.exact_sum(self._pieces(taking)) if background else 0
        if len(calls):
            start, end = events.calls.start[calls], events.calls.end[calls]
            overhead = intervals.exact_sum(self._pieces(making))
            threads = host.thread[events.call_rows[events.call_row_stage == stage]]
            own_start, own_end, begun_time = start, end, end - start
            begun = start
        else:
            # What a background stage did may not be recorded; a remote one works in other processes.
            used = making if background and self.role(stage) != "remote" else taking
            own_start, own_end = events.pieces.start[used], events.pieces.end[used]
            elements = produce if background and len(produce) else self._outermost(rows)
            threads = host.thread[elements]
            begun = host.start[elements]
            begun_time = self._own_time(used, elements)
            start, end = begun, host.end[elements]
        unseen = background and not len(calls) and not len(produce) and self.role(stage) != "remote"
        inside = (begun >= self.low) & (begun < self.high)
        busy = intervals.exact_sum(self._clipped(own_start, own_end))
        settings = self._rows([stage])
        parallelism = self._stat("parallelism", settings)
        buffer = self._stat("buffer_limit", settings)
        tuned = self._stat("autotune", settings)
        by_time = np.argsort(own_start, kind="stable")
        wall = intervals.measure(
            intervals.clip(intervals.union(own_start[by_time], own_end[by_time]), self.low, self.high)
        )
        found = InputStage(
            name=path[-1],
            path="::".join(path),
            role=self.role(stage),
            calls=int(np.count_nonzero(inside)),
            busy=busy,
            wall=wall,
            per_element=float(np.mean(begun_time[inside])) if inside.any() and not unseen else None,
            parallelism=int(parallelism[-1]) if len(parallelism) else None,
            concurrency=_most_at_once(start, end),
            autotuned=self.trace.strings[int(tuned[-1])] == "true" if len(tuned) else None,
            buffer=int(buffer[-1]) if len(buffer) else None,
            background=background,
            threads=tuple(distinct(threads.astype(np.int64)).tolist()),
            waited=waited,
            utilization=0.0,
            calls_python=stage in events.python or self.role(stage) == "python",
        )
        return _Cost(found, overhead, self._owner(stage, above))

    def _is_background(self, stage: int, produced: int) -> bool:
        """Whether it works on threads of its own: as its inputs' events show, else by its name."""
        taken = np.isin(self.events.row_stage, self.children.get(stage, []))
        owners = self.events.row_owner[taken]
        inside = int(np.count_nonzero(self.stage_of_row[owners[(owners >= 0) & ~self.owner_produce[taken]]] == stage))
        if inside or produced:
            return produced > inside
        return bool(names.BACKGROUND.match(self.events.stages[stage].path[-1]))

    def _owner(self, stage: int, above: dict[int, _Cost]) -> int:
        over = self.events.parent(stage)
        if over < 0 or over not in above:
            return -1
        return over if above[over].stage.background else above[over].owner

    def _outermost(self, rows: Int64) -> Int64:
        """Without events that the same stage encloses."""
        at = np.searchsorted(self.events.rows, rows)
        owner = self.events.row_owner[at]
        same = (owner >= 0) & ~self.owner_produce[at]
        same &= self.stage_of_row[np.maximum(owner, 0)] == self.events.row_stage[at]
        return rows[~same]

    def _own_time(self, pieces: np.ndarray, elements: Int64) -> Int64:
        """Own time of each element: its event's pieces, and those of the same stage's events inside it."""
        found = np.zeros(len(elements), np.int64)
        if not len(elements):
            return found
        owners = self.events.pieces.rows[pieces]
        at = np.maximum(np.searchsorted(elements, owners, side="right") - 1, 0)
        np.add.at(found, at, (self.events.pieces.end - self.events.pieces.start)[pieces])
        return found

    # -- what limits -----------------------------------------------------------------------

    def _units(self, order: list[int], costs: dict[int, _Cost]) -> tuple[dict[int, _Cost], list[tuple[float, int]]]:
        """The stages with their utilization, and (load, stage to blame) of every unit of work, slowest first."""
        length = max(self.high - self.low, 1)
        units: list[tuple[float, int]] = []
        unseen: list[tuple[float, int]] = []
        shared: dict[int, list[tuple[int, int]]] = {}
        at_once: dict[int, int] = {}
        share: dict[int, float] = {}
        for stage in order:
            cost = costs[stage]
            found = cost.stage
            if found.background and np.any(self.events.calls.stage == stage):
                allowed = self._allowed(found)
                share[stage] = found.busy / allowed
                units.append((share[stage], stage))
                shared.setdefault(stage, []).append((cost.overhead, stage))
            elif found.background:
                shared.setdefault(stage, []).append((found.busy, stage))
            else:
                shared.setdefault(cost.owner, []).append((found.busy, stage))
                at_once[cost.owner] = max(at_once.get(cost.owner, 1), found.concurrency)
            if found.background and found.waited and not found.busy and not self.children.get(stage):
                unseen.append((float(found.waited), stage))  # what happens behind it was not recorded
        for owner, parts in shared.items():
            many = at_once.get(owner, 1)
            if owner >= 0 and names.INTERLEAVE.search(costs[owner].stage.name):
                many = max(many, self._allowed(costs[owner].stage))
            for busy, stage in parts:
                share.setdefault(stage, busy / many)
            guilty = [p for p in parts if not self._starts_python(p[1])]
            blame = [p for p in guilty if costs[p[1]].stage.role not in _NEVER_LIMITING]
            if blame:
                working = sum(busy for busy, stage in parts if costs[stage].stage.role != "feed")
                units.append((working / many, max(blame)[1]))
        units += unseen
        units.sort(key=lambda unit: -unit[0])
        done = {}
        for stage, cost in costs.items():
            used = min(share.get(stage, 0.0) / length, 1.0)
            done[stage] = _Cost(_with_utilization(cost.stage, used), cost.overhead, cost.owner)
        return done, units

    def _starts_python(self, stage: int) -> bool:
        """Whether it is the part of ``Dataset.from_generator`` that starts the generator below it."""
        return any(self.role(child) == "python" for child in self.children.get(stage, []))

    def _allowed(self, stage: InputStage) -> int:
        """How many elements it may work on at once: never more than the cores, unless more were seen."""
        seen = max(stage.concurrency, 1)
        if stage.parallelism is None or stage.parallelism < 1:
            return seen
        return min(stage.parallelism, max(self.budget or stage.parallelism, seen))

    # -- small things ----------------------------------------------------------------------

    def _rows(self, stages: list[int]) -> Int64:
        return self.events.rows[np.isin(self.events.row_stage, stages)]

    def _stat(self, name: str, rows: Int64) -> Int64:
        """Recorded values in the order of time."""
        by_time = rows[np.argsort(self.trace.host_events.start[rows], kind="stable")]
        return trace_stat(self.trace, name, by_time)

    def _fetches(self, roots: Iterable[int]) -> Int64:
        rows = distinct(self.events.fetch[np.isin(self.events.row_stage, list(roots))])
        return rows[np.argsort(self.trace.host_events.start[rows], kind="stable")]

    def _ends(self, rows: Int64) -> Int64:
        return self.trace.host_events.end[rows]

    def _pieces(self, which: np.ndarray) -> Int64:
        return self._clipped(self.events.pieces.start[which], self.events.pieces.end[which])

    def _clipped(self, start: Int64, end: Int64) -> Int64:
        return np.asarray(np.maximum(np.minimum(end, self.high) - np.maximum(start, self.low), 0), dtype=np.int64)


def trace_stat(trace: Trace, name: str, rows: Int64) -> Int64:
    """The recorded values of a stat among ``rows``, in their order."""
    values = trace.host_stats.get(name, NO_STAT).at(rows)
    return np.asarray(values[values >= 0], dtype=np.int64)  # -1 leaves it to tf.data; less is no setting


def _with_utilization(stage: InputStage, value: float) -> InputStage:
    return InputStage(**{**stage.__dict__, "utilization": value})


def _most_at_once(start: Int64, end: Int64) -> int:
    """The most intervals that overlap at one instant."""
    long = end > start
    start, end = start[long], end[long]
    if not len(start):
        return 0
    time = np.concatenate((end, start))  # at one instant ends come first
    change = np.concatenate((np.full(len(end), -1), np.ones(len(start), np.int64)))
    return int(np.cumsum(change[np.argsort(time, kind="stable")]).max())
