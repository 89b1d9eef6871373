"""Which steps stand out, by how much, on which GPUs, and which part of them grew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.slow_steps import PARTS, Outliers, find_outliers, outlying
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tests.analysis.small_traces import Recorder
from tests.diagnosis.loops import COMPUTE, host, loop, microseconds
from tests.hosts import AnalysedFile, context_of, diagnosed

T = Thresholds()


def only(*recorders: Recorder) -> Finding:
    made = [host(recorder, f"host{i}") for i, recorder in enumerate(recorders)]
    (found,) = [finding for finding in diagnosed(made).findings if finding.kind == "step_outliers"]
    return found


def outliers_of(made: AnalysedFile) -> Outliers | None:
    context = context_of(made)
    return find_outliers(context.files, 0, context.job, T.of("step_outliers"))


@given(st.lists(st.integers(1, 1_000), max_size=30))
def test_outlying_steps_by_the_definition(durations: list[int]) -> None:
    found = outlying(np.array(durations, np.int64), T.of("step_outliers")).tolist()
    if len(durations) < T.of("step_outliers").min_steps:
        assert found == []
        return
    middle = sorted(durations)
    median = (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2
    apart = sorted(abs(value - median) for value in durations)
    spread = (apart[(len(apart) - 1) // 2] + apart[len(apart) // 2]) / 2
    wanted = [i for i, v in enumerate(durations) if v > median + 3.5 * 1.4826 * spread and v > 1.25 * median]
    assert found == wanted


def test_a_slow_computation() -> None:
    finding = only(loop(steps=12, gpus=2, compute={4: 2.0, 8: 2.0}))
    assert finding.cause == "compute" and finding.severity == "warning"
    assert [item.step for item in finding.evidence] == [104, 104, 108, 108]
    assert [gpu.id for gpu in finding.gpus] == [0, 1]
    # Two steps of 16 ms beside ten of 8 ms.
    assert finding.share == pytest.approx(16 / 112, rel=0.01)
    assert finding.saving_ps_per_step == pytest.approx(microseconds(2 * COMPUTE / 12), rel=0.01)
    said = next(p for p in finding.explanation if p.key == "findings.step_outliers.explanation")
    assert said.params["numbers"] == (104, 108) and said.params["count"] == 2
    assert finding.advice[0].key == "findings.step_outliers.advice.check_clocks"


def test_a_pause_of_the_host_is_named() -> None:
    def rotate(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step == 5:
            recorder.call("python", "$train.py:88 rotate_logs", free - 2_000, launch - 5)

    (told,) = [found for found in diagnosed([host(loop(rotate, {5: 20_000.0}, steps=12))]).findings if found.absorbed]
    assert told.kind == "host_bound", "one story: the work that makes the step slow"
    (finding,) = told.absorbed
    assert finding.kind == "step_outliers" and finding.cause == "host_other"
    busiest = next(p for p in finding.explanation if p.key == "findings.step_outliers.busiest")
    assert busiest.params["names"][0] == "$train.py:88 rotate_logs"


def test_only_the_gpu_whose_own_work_grew_is_to_blame() -> None:
    recorder = Recorder(gpus=2)
    now = 100.0
    for step in range(12):
        recorder.step("python", step, now - 5, now + 20)
        own = 4_000 * (4 if step == 6 else 1)
        for gpu, length in ((0, 4_000), (1, own)):
            number = 1 + 4 * step + 2 * gpu
            recorder.launch("python", now + gpu, now + 8, now + 8 + length, number, gpu=gpu)
            recorder.call("python", "cuLaunchKernel", now + 10 + gpu, now + 11 + gpu, number + 1)
            end = now + 8 + max(own, 4_000)
            recorder.work(now + 8 + length, end + 100, number + 1, gpu=gpu, klass=1, name="ncclDevKernel_AllReduce")  # type: ignore[arg-type]
        now = end + 108
    made = host(recorder)
    found = outliers_of(made)
    assert found is not None
    assert found.numbers == (6,) and found.devices == (1,)
    parts = dict(zip(PARTS, found.parts, strict=True))
    assert parts["compute"] == pytest.approx(microseconds(12_000), rel=0.01)
    assert sum(parts.values()) == pytest.approx(sum(found.excess), rel=0.02)


def test_a_small_loss_too_few_steps_and_equal_steps_are_no_finding() -> None:
    for recorder in (
        loop(steps=12),
        loop(steps=T.of("step_outliers").min_steps - 1, compute={4: 3.0}),
        loop(steps=60, compute={4: 1.5}),  # half a step in sixty
        loop(steps=12, compute={4: 1.2}),
    ):
        assert "step_outliers" not in [f.kind for f in diagnosed([host(recorder)]).findings]


def test_hosts_that_are_slow_together_are_one_finding() -> None:
    finding = only(loop(steps=12, compute={4: 3.0}), loop(steps=12, compute={4: 2.5}))
    assert [gpu.host for gpu in finding.gpus] == ["host0", "host1"]
    assert finding.share == pytest.approx(2 / 14, rel=0.01)


def test_inferred_steps_count_only_when_they_look_alike() -> None:
    import dataclasses

    made = host(loop(steps=12, compute={4: 3.0}))
    for confidence, found in ((None, False), (0.8, False), (0.95, True)):
        steps = dataclasses.replace(made.analysis.steps, source="inferred", confidence=confidence)
        inferred = AnalysedFile("h", made.trace, dataclasses.replace(made.analysis, steps=steps))
        assert (outliers_of(inferred) is not None) == found
