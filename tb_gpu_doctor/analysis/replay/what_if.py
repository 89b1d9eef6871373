"""How long a step would take had something taken less time: replays of a session's graphs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.kernel_patterns import ATTENTION, CONVOLUTION, MATMUL
from tb_gpu_doctor.analysis.replay.graph import HOST_PARTS, NO_WAIT, WAIT_NODE, ReplayGraph
from tb_gpu_doctor.analysis.replay.paths import HOST, MEETING, OTHER, STREAM, Followed, Nodes, follow
from tb_gpu_doctor.analysis.results import BoolArray, Cause, Float64
from tb_gpu_doctor.traces.columns import EventClass, Int64

# A replay that errs by more is not offered.
MOST_ERROR = 0.05
# A GPU whose kernels take this much longer than the others' median could be as fast as they.
_SLOWER = 1.03
# Ends of a normal distribution.
_Z = 1.96
# From so many steps on the first one is not counted.
_WARM = 3

Change = Literal[
    "no_input", "launches_free", "no_sync", "communication_twice", "communication_hidden", "late_gpu",
    "products_twice", "attention_twice", "copies_async", "no_checkpoint", "no_compilation", "no_host_work",
]  # fmt: skip
CHANGES: tuple[Change, ...] = (
    "no_input", "launches_free", "no_sync", "communication_twice", "communication_hidden", "late_gpu",
    "products_twice", "attention_twice", "copies_async", "no_checkpoint", "no_compilation", "no_host_work",
)  # fmt: skip
# What limits a step: where the longest path runs.
LIMITS = (
    "compute", "communication", "transfer", "kernel_gap", "sync", *(part.id for part in HOST_PARTS), "unknown",
)  # fmt: skip
_HOST_CHANGES: dict[Change, Cause] = {
    "no_input": Cause.INPUT,
    "launches_free": Cause.LAUNCH,
    "no_checkpoint": Cause.CHECKPOINT,
    "no_compilation": Cause.COMPILE,
    "no_host_work": Cause.HOST_OTHER,
}
_WORK = (
    ("compute", EventClass.COMPUTE), ("communication", EventClass.COMMUNICATION), ("transfer", EventClass.COPY),
    ("transfer", EventClass.MEMSET),
)  # fmt: skip
# Why nothing is offered.
Reason = Literal["no_steps", "no_launches", "error", "unmatched"]


@dataclass(frozen=True)
class Scenario:
    """One replay with changes.

    Attributes:
        changes: what is changed; none for the limit.
        step: predicted mean time of a step, picoseconds.
        low, high: its interval from the steps' scatter, None for fewer than three steps.
        limited_by: one of `LIMITS`, None for the limit itself.
        gain: how much shorter the mean of all replayed steps is, the first one included.
    """

    changes: tuple[Change, ...]
    step: float
    low: float | None
    high: float | None
    limited_by: str | None
    gain: float = 0.0


@dataclass(frozen=True)
class WhatIf:
    """The replays of a session.

    Attributes:
        offered: whether the replay is near enough to the record to say anything.
        reason: why it is not, None where it is.
        error: by how much the replay's steps differ from the recorded ones, of their mean; None without any replay.
        steps: how many were replayed.
        recorded: mean time of the replayed steps.
        limited_by: what limits them.
        scenarios: one for each change that matters here, by saving.
        limit: with only the computing of the slowest GPU; None where not offered.
    """

    offered: bool
    reason: Reason | None
    error: float | None
    steps: int
    recorded: float | None
    limited_by: str | None
    scenarios: tuple[Scenario, ...]
    limit: Scenario | None


def what_if(files: Sequence[FileFacts], job: Job, wanted: Sequence[Sequence[Change]] | None = None) -> WhatIf:
    """Replays of a session.

    Args:
        files: its files.
        job: what they have in common.
        wanted: combinations of changes; by default every single one.
    """
    replay = Replay.of(files, job)
    if isinstance(replay, str):
        return WhatIf(False, replay, None, 0, None, None, (), None)
    error = replay.error
    if error > MOST_ERROR:
        return WhatIf(False, "error", error, replay.count, float(replay.recorded.mean()), None, (), None)
    combinations = [(change,) for change in replay.possible()] if wanted is None else [tuple(some) for some in wanted]
    base = replay.scenario(())
    scenarios = [
        replay.scenario(changes) if replay.matters(changes) else replace(base, changes=tuple(changes))
        for changes in combinations
    ]
    if wanted is None:
        scenarios.sort(key=lambda one: one.step)
    limit = Scenario((), replay.limit, None, None, None)
    recorded = float(replay.recorded[replay.steady].mean())
    return WhatIf(True, None, error, replay.count, recorded, base.limited_by, tuple(scenarios), limit)


class Replay:
    """The graphs of a session joined at their collectives, ready to be followed with changes."""

    def __init__(self, files: Sequence[FileFacts], chosen: Sequence[int], job: Job) -> None:
        """Args: ``chosen`` are the files with graphs that meet, or one alone."""
        self.files, self.chosen = files, chosen
        graphs = [_graph(files[which]) for which in chosen]
        self.graphs = graphs
        sizes = [len(graph) for graph in graphs]
        low = np.concatenate(([0], np.cumsum(sizes)))
        self.spans = list(zip(low[:-1].tolist(), low[1:].tolist(), strict=True))

        def joined(name: str) -> Int64:
            return np.concatenate([np.array(getattr(graph, name), np.int64) for graph in graphs])

        def nodes(name: str) -> Int64:
            back = joined(name)
            return np.where(back > 0, np.arange(len(back)) - back, np.minimum(back - (name != "host"), -1))

        self.device, self.klass, self.family = joined("device"), joined("klass"), joined("family")
        self.duration, self.recorded_end = joined("duration"), joined("end")
        self.stream, self.stream_lag = nodes("stream"), joined("stream_lag")
        self.host, self.host_lag = nodes("host"), joined("host_lag")
        self.other, self.other_lag = nodes("other"), joined("other_lag")
        self.blocking, self.row = joined("blocking"), joined("row")
        parts = [[np.array(part, np.int64) for part in graph.parts] for graph in graphs]
        self.parts = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        self.file_of = np.repeat(np.arange(len(graphs)), sizes)
        self.met, self.members, wait, self.offset = self._meetings(job)
        self.moving = self.duration - wait
        # nodes of a file that are fixed in time move with its clock
        self.host_lag = np.where(self.host == NO_WAIT, self.host_lag + self.offset[self.file_of], self.host_lag)
        self.step, self.count = self._common_steps()
        self.borders = self._recorded_borders()
        self.recorded: Float64 = np.diff(self.borders).astype(np.float64)
        names = ("stream", "stream_lag", "host", "other", "other_lag", "met", "members")
        self.lists: dict[str, list[int]] = {name: getattr(self, name).tolist() for name in names}
        self.working: BoolArray = (self.klass <= EventClass.COMMUNICATION) & (self.row != WAIT_NODE)
        # the host's work for the first step was done before it began, so the first shows little of a change
        self.steady = slice(1 if self.count >= _WARM else 0, None)
        self.base = self._follow(())
        self.base_steps = self._step_times(self.base)

    @classmethod
    def of(cls, files: Sequence[FileFacts], job: Job) -> Replay | Reason:
        """The replay of a session, or why there is none."""
        able = [which for which, file in enumerate(files) if file.replay is not None]
        if not able:
            return "no_steps"
        if not all(_graph(files[which]).launched for which in able):
            return "no_launches"
        found = cls(files, able, job)
        return found if found.count >= 1 else "no_steps"

    @property
    def error(self) -> float:
        """Mean difference of the replayed steps from the recorded ones, of their mean."""
        return float(np.abs(self.base_steps - self.recorded).mean() / self.recorded.mean())

    @property
    def limit(self) -> float:
        """Mean time in which the slowest GPU computes in a step."""
        most = 0.0
        for which in self.chosen:
            for gpu in self.files[which].gpus:
                if gpu.steps is not None and len(gpu.steps.compute):
                    rows = [at for at in _graph(self.files[which]).steps if at < len(gpu.steps.compute)]
                    most = max(most, float(np.mean([gpu.steps.compute[at] for at in rows])))
        return most

    def possible(self) -> list[Change]:
        """The changes that change anything at all."""
        found: list[Change] = []
        for change in CHANGES:
            if change in _HOST_CHANGES:
                matters = bool(self.parts[HOST_PARTS.index(_HOST_CHANGES[change])].any())
            elif change == "no_sync":
                matters = bool((self.row == WAIT_NODE).any())
            elif change.startswith("communication"):
                matters = bool((self.klass == EventClass.COMMUNICATION).any())
            elif change == "copies_async":
                matters = bool((self.klass == EventClass.COPY).any())
            elif change == "late_gpu":
                matters = bool((self._slower() > 1).any())
            else:
                matters = bool(self._of_family(change).any())
            if matters:
                found.append(change)
        return found

    @cached_property
    def _critical(self) -> tuple[Int64, Int64]:
        """The longest path to the end of all, and what decided when each of its nodes began."""
        last = np.flatnonzero(self.working & (self.step >= 0))
        if not len(last):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        end = np.array(self.base.end, np.int64)
        path = self._path(self.base, int(last[np.argmax(end[last])]), -(1 << 62))[0]
        return path, np.array(self.base.by, np.int64)[path]

    def matters(self, changes: Sequence[Change]) -> bool:
        """Whether any of the changes shortens something on the longest path: else that stays as long as it is."""
        path, why = self._critical
        waits = self.row[path] == WAIT_NODE
        for change in changes:
            if change in _HOST_CHANGES:
                on_path = bool(self.parts[HOST_PARTS.index(_HOST_CHANGES[change])][path[why == HOST]].any())
            elif change == "no_sync":
                on_path = bool((waits & (why == OTHER)).any())
            elif change.startswith("communication"):
                on_path = bool(((self.klass[path] == EventClass.COMMUNICATION) & ~waits).any())
            elif change == "copies_async":
                on_path = bool(((self.klass[path] == EventClass.COPY) | (self.blocking[path] > 0)).any())
            elif change == "late_gpu":
                on_path = bool((self._slower()[path] > 1).any())
            else:
                on_path = bool(self._of_family(change)[path].any())
            if on_path:
                return True
        return False

    def scenario(self, changes: Sequence[Change]) -> Scenario:
        """A step with changes."""
        followed = self._follow(changes) if changes else self.base
        # what the replay does not explain of the recorded steps stays
        times = np.maximum(self.recorded - self.base_steps + self._step_times(followed), 0.0)
        times = np.maximum(times, self._floor(changes))
        gain = max(float((self.recorded - times).mean()), 0.0)
        times = times[self.steady]
        recorded = float(self.recorded[self.steady].mean())
        mean = min(float(times.mean()), recorded) if changes else recorded
        low = high = None
        if len(times) >= 3:
            half = _Z * float(times.std(ddof=1)) / len(times) ** 0.5
            low, high = max(mean - half, 0.0), mean + half
        return Scenario(tuple(changes), mean, low, high, self._limited_by(followed, changes), gain)

    def _follow(self, changes: Sequence[Change]) -> Followed:
        duration, host_lag, other = self.moving.copy(), self.host_lag.copy(), self.other
        sent = self.klass == EventClass.COMMUNICATION
        for change in changes:
            if change in _HOST_CHANGES:
                host_lag -= self.parts[HOST_PARTS.index(_HOST_CHANGES[change])]
            elif change == "no_sync":
                other = np.where(self.row == WAIT_NODE, -1, other)
            elif change == "communication_twice":
                duration = np.where(sent, duration // 2, duration)
            elif change == "communication_hidden":
                duration = np.where(sent, 0, duration)
            elif change == "copies_async":
                other = np.where(self.blocking > 0, -1, other)
                duration = np.where(self.klass == EventClass.COPY, 0, duration)
            elif change == "late_gpu":
                slower = self._slower()
                computing = self.klass == EventClass.COMPUTE
                duration = np.where(computing, (duration / slower).astype(np.int64), duration)
            else:
                duration = np.where(self._of_family(change), duration // 2, duration)
        same = self.lists
        return follow(
            Nodes(
                files=self.spans,
                duration=duration.tolist(),
                stream=same["stream"],
                stream_lag=same["stream_lag"],
                host=same["host"],
                host_lag=host_lag.tolist(),
                other=other.tolist(),
                other_lag=same["other_lag"],
                met=same["met"],
                members=same["members"],
            )
        )

    def _floor(self, changes: Sequence[Change]) -> float:
        """What a step takes at least: hidden work still has to be done by somebody."""
        busiest = 0.0
        for change, klass in (("communication_hidden", EventClass.COMMUNICATION), ("copies_async", EventClass.COPY)):
            if change in changes:
                mine = self.klass == klass
                lane = self.file_of[mine] * (int(self.device.max()) + 1) + self.device[mine]
                if len(lane):
                    total = np.bincount(lane, weights=self.moving[mine]).max() / max(self.count, 1)
                    if "communication_twice" in changes and klass == EventClass.COMMUNICATION:
                        total /= 2
                    busiest = max(busiest, float(total))
        return busiest

    def _of_family(self, change: Change) -> BoolArray:
        wanted = (MATMUL, CONVOLUTION) if change == "products_twice" else (ATTENTION,)
        names = self.graphs[0].families
        codes = [at for at, name in enumerate(names) if name in wanted]
        return np.isin(self.family, codes)

    def _slower(self) -> Float64:
        """How many times as long each node's GPU computes as the median one, 1 for those that are not slower."""
        lane = self.file_of * (int(self.device.max()) + 1) + self.device
        computing = self.klass == EventClass.COMPUTE
        total = np.bincount(lane[computing], weights=self.duration[computing], minlength=int(lane.max()) + 1)
        used = total > 0
        if np.count_nonzero(used) < 2:
            return np.ones(len(lane))
        typical = float(np.median(np.sort(total[used])[: -1 if np.count_nonzero(used) == 2 else None]))
        ratio = np.where(total > _SLOWER * typical, total / typical, 1.0)
        return np.asarray(ratio[lane], np.float64)

    def _meetings(self, job: Job) -> tuple[Int64, Int64, Int64, Int64]:
        """(collective of each node, how many meet in each, what each node waits there, clock offset of each file)."""
        met, wait = np.full(len(self.row), -1, np.int64), np.zeros(len(self.row), np.int64)
        offset = np.zeros(len(self.graphs), np.int64)
        if len(self.graphs) == 1:
            own = np.array(self.graphs[0].met, np.int64)
            return own, np.bincount(own[own >= 0]), np.array(self.graphs[0].met_wait, np.int64), offset
        lateness = job.lateness
        if lateness is None:
            return met, np.zeros(0, np.int64), wait, offset
        matched = lateness.collectives
        node_of: list[dict[int, int]] = []
        for graph, (base, _) in zip(self.graphs, self.spans, strict=True):
            node_of.append({row: base + at for at, row in enumerate(graph.row) if row >= 0})
        place = {which: at for at, which in enumerate(self.chosen)}
        members: list[int] = []
        for k in range(len(matched)):
            found = []
            for column in np.flatnonzero(matched.row[k] >= 0).tolist():
                at = place.get(int(matched.trace[column]))
                node = None if at is None else node_of[at].get(int(matched.row[k, column]))
                if node is not None:
                    found.append((node, int(lateness.wait[k, column])))
            if len(found) < 2:
                continue
            for node, waited in found:
                met[node], wait[node] = len(members), waited
            members.append(len(found))
        return met, np.array(members, np.int64), wait, _offsets(met, self.recorded_end, self.file_of, len(self.graphs))

    def _common_steps(self) -> tuple[Int64, int]:
        """(position of each node's step among those that all files have, -1 for none; how many)."""
        numbers = []
        for which, graph in zip(self.chosen, self.graphs, strict=True):
            steps = self.files[which].steps
            marked = steps.source == "marked" and len(set(steps.numbers)) == len(steps.numbers)
            numbers.append([steps.numbers[at] if marked else at for at in graph.steps])
        common = sorted(set(numbers[0]).intersection(*numbers[1:]))
        place = {number: at for at, number in enumerate(common)}
        self.steps_of = [[place.get(number, -1) for number in own] for own in numbers]
        known = zip(self.steps_of, self.graphs, strict=True)
        place_of = [np.array([*own, -1], np.int64)[np.array(graph.step, np.int64)] for own, graph in known]
        return np.concatenate(place_of), len(common)

    def _recorded_borders(self) -> Int64:
        """When the step before the first common one and each of them ended, on the first file's clock."""
        borders = np.full(self.count + 1, np.iinfo(np.int64).min)
        for which, (own, graph) in enumerate(zip(self.steps_of, self.graphs, strict=True)):
            ends = np.array(graph.borders, np.int64)
            ends = np.where(ends >= 0, ends + self.offset[which], np.iinfo(np.int64).min).max(axis=1)
            for at, place in enumerate(own):
                if place == 0:
                    borders[0] = max(borders[0], int(ends[at]))
                if place >= 0:
                    borders[place + 1] = max(borders[place + 1], int(ends[at + 1]))
        return borders

    def _step_times(self, followed: Followed) -> Float64:
        end = np.array(followed.end, np.int64)
        ends = np.full(self.count + 1, np.iinfo(np.int64).min)
        mine = (self.step >= 0) & self.working
        np.maximum.at(ends, self.step[mine] + 1, end[mine])
        ends[0] = self.borders[0]
        return np.diff(np.maximum.accumulate(ends)).astype(np.float64)

    def _limited_by(self, followed: Followed, changes: Sequence[Change]) -> str | None:
        """Where the longest path to the end of the last step spends most time within that step."""
        end = np.array(followed.end, np.int64)
        last = np.flatnonzero(self.working & (self.step == self.count - 1))
        if not len(last):
            return None
        earlier = end[self.working & (self.step < self.count - 1) & (self.step >= 0)]
        node, since = int(last[np.argmax(end[last])]), int(earlier.max()) if len(earlier) else int(self.borders[0])
        path, before = self._path(followed, node, since)
        removed = {_HOST_CHANGES[change] for change in changes if change in _HOST_CHANGES}
        spent = dict.fromkeys(LIMITS, 0)
        why = np.array(followed.by, np.int64)[path]
        began = np.where(before >= 0, end[np.maximum(before, 0)], end[path])
        is_wait = self.row[path] == WAIT_NODE
        own = np.where(is_wait, 0, np.minimum(self.moving[path], np.maximum(end[path] - began, 0)))
        for name, klass in _WORK:
            spent[name] += int(own[(self.klass[path] == klass) & ~is_wait].sum())
        rest = np.maximum(end[path] - own - began, 0)
        host = (why == HOST) & (before >= 0)
        for part, taken in zip(HOST_PARTS, self.parts, strict=True):
            share = np.where(host & (part not in removed), np.minimum(np.maximum(taken[path], 0), rest), 0)
            spent[part.id] += int(share.sum())
            rest = rest - share
        spent["unknown"] += int(rest[host].sum())
        spent["sync"] += int(rest[is_wait & (why == OTHER)].sum())
        spent["kernel_gap"] += int(rest[~host & ~(is_wait & (why == OTHER)) & (before >= 0)].sum())
        return max(spent, key=lambda name: spent[name])

    def _path(self, followed: Followed, node: int, since: int) -> tuple[Int64, Int64]:
        """(nodes of the longest path back from one that end after ``since``, what each waited for, -1 for nothing)."""
        nodes, before = [], []
        stream, host, other, end = self.lists["stream"], self.lists["host"], self.lists["other"], followed.end
        while node >= 0 and end[node] > since:
            if followed.by[node] == MEETING:
                node = followed.last[self.lists["met"][node]]
            why = followed.by[node]
            held = stream[node] if why == STREAM else host[node] if why == HOST else other[node] if why == OTHER else -1
            nodes.append(node)
            before.append(max(held, -1))
            node = held
        return np.array(nodes, np.int64), np.array(before, np.int64)


def _graph(file: FileFacts) -> ReplayGraph:
    assert file.replay is not None
    return file.replay


def _offsets(met: Int64, end: Int64, file_of: Int64, files: int) -> Int64:
    """What to add to each file's times: collectives end everywhere together, on the first file's clock."""
    offset, known = np.zeros(files, np.int64), {0}
    ends: list[dict[int, int]] = [{} for _ in range(files)]
    for node in np.flatnonzero(met >= 0).tolist():
        ends[int(file_of[node])][int(met[node])] = int(end[node])
    changed = True
    while changed and len(known) < files:
        changed = False
        for which in sorted(set(range(files)) - known):
            for other in sorted(known):
                shared = ends[which].keys() & ends[other].keys()
                if shared:
                    apart = [ends[other][k] + int(offset[other]) - ends[which][k] for k in shared]
                    offset[which] = int(np.median(apart))
                    known.add(which)
                    changed = True
                    break
    return offset
