"""tf.data pipelines: what each stage costs and which one sets the pace.

A stage that runs where its elements are taken costs its own time there. A background stage costs
what its threads work: its function's calls, or the time below its Produce events. What limits
is a unit of work that cannot go faster: the calls of one stage, as many at once as it may, or
all stages that share one thread. The unit with the most work per thing it does at once is the slowest,
and inside it the stage with the largest part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis import input_names as names
from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.input_results import InputPipeline, InputStage, StageRole
from tb_gpu_doctor.analysis.tf_data_events import TfDataEvents
from tb_gpu_doctor.traces.columns import NO_STAT, Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct

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
