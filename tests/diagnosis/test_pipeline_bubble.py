"""Pipelines that wait as they fill and drain, played through microbatch by microbatch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis.small_traces import Recorder
from tests.analysis.test_job_collectives import with_arguments
from tests.hosts import AnalysedFile, diagnosed

MOVING = 5


class Pipeline:
    """All microbatches forward, then all backward, in each step; who sends and who receives meet. Microseconds."""

    def __init__(self, work: Sequence[int], microbatches: int, steps: int = 4) -> None:
        self.records = [Recorder() for _ in work]
        self.groups: list[list[str]] = [[] for _ in work]
        self.free = [0] * len(work)
        self.launched = 0
        for step in range(steps):
            begin = list(self.free)
            for _ in range(microbatches):
                for stage, time in enumerate(work):
                    if stage:
                        self.hand_on(stage - 1, stage)
                    self.compute(stage, time)
            for _ in range(microbatches):
                for stage, time in reversed(list(enumerate(work))):
                    if stage < len(work) - 1:
                        self.hand_on(stage + 1, stage)
                    self.compute(stage, time)
            for record, start, end in zip(self.records, begin, self.free, strict=True):
                record.step("main", step, start, end - 0.5)

    def launch(self, stage: int, start: int, end: int, **work: object) -> None:
        self.launched += 1
        self.records[stage].launch("main", start, start, end, self.launched, **work)  # type: ignore[arg-type]

    def compute(self, stage: int, time: int) -> None:
        self.launch(stage, self.free[stage], self.free[stage] + time)
        self.free[stage] += time

    def hand_on(self, sender: int, receiver: int) -> None:
        end = max(self.free[sender], self.free[receiver]) + MOVING
        for stage, name in ((sender, "send"), (receiver, "recv")):
            self.launch(stage, self.free[stage], end, stream=1, klass=EventClass.COMMUNICATION, name=name)
            self.groups[stage].append(str(sorted((sender, receiver))))
            self.free[stage] = end

    def traces(self) -> list[Trace]:
        made = []
        for rank, (record, groups) in enumerate(zip(self.records, self.groups, strict=True)):
            trace = with_arguments(record.trace(), groups, [1 << 20] * len(groups))
            stats = {name: stat for name, stat in trace.device_stats.items() if name != "collective"}
            made.append(dataclasses.replace(trace, device_stats=stats, rank=rank, world_size=len(self.records)))
        return made


def diagnosis_of(traces: Sequence[Trace]) -> Diagnosis:
    return diagnosed([AnalysedFile(f"host{i}", trace, analyse(trace)) for i, trace in enumerate(traces)])


def bubble(traces: Sequence[Trace]) -> Finding | None:
    return next((f for f in diagnosis_of(traces).findings if f.kind == "pipeline_bubble"), None)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (3, 3), (4, 4), (4, 6), (8, 8)])
def test_few_microbatches_leave_a_bubble(stages: int, microbatches: int) -> None:
    found = diagnosis_of(Pipeline([200] * stages, microbatches).traces())
    finding = found.findings[0]
    assert finding.kind == "pipeline_bubble"
    assert len(finding.gpus) == stages
    whole = (stages - 1) / (microbatches + stages - 1)
    assert finding.title.params["share"] == pytest.approx(whole, abs=0.06)
    enough = (stages - 1) / (5 * stages - 1)
    assert finding.share == pytest.approx(1 - (1 - whole) / (1 - enough), abs=0.06)
    counted = [phrase.params for phrase in finding.explanation if phrase.key.endswith("microbatches")]
    assert [params["count"] for params in counted] == [microbatches]
    assert not [other for other in found.findings if other.kind in ("communication_bound", "imbalance")]


def test_many_microbatches_leave_none() -> None:
    assert bubble(Pipeline([200] * 4, 16).traces()) is None


def test_waiting_for_a_slow_stage_is_no_bubble() -> None:
    found = diagnosis_of(Pipeline([200, 500, 200], 16).traces())
    assert [f.kind for f in found.findings if f.kind in ("pipeline_bubble", "communication_bound")] == [
        "communication_bound"
    ], "what is waited is still told"


def test_with_a_stage_missing_nobody_can_tell() -> None:
    traces = Pipeline([200] * 4, 4).traces()
    assert bubble(traces[:-1]) is None
    assert bubble([*traces[:-1], dataclasses.replace(traces[-1], rank=0)]) is None
