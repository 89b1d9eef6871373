"""What is missing in a file: recordings from which events are taken away, and nothing else is said to be missing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis.small_traces import US, Recorder, traces

STEPS, KERNELS = 10, 8


def training(gpus: int = 1, marked: bool = True, launches: bool = True) -> Recorder:
    """Ten marked steps of eight launches of 100 us a GPU; every kernel runs 40 us after its launch for 90 us."""
    record, correlation = Recorder(gpus=gpus), 0
    for step in range(STEPS):
        at = 1_000 * step
        for gpu in range(gpus):
            if marked:
                record.step(f"thread/{gpu}", step + 5, at, at + 950)
            for k in range(KERNELS):
                correlation += 1
                last = k == KERNELS - 1
                work = {"klass": EventClass.COMMUNICATION, "name": "ncclDevKernel_AllReduce"} if last else {}
                call = at + 10 + 100 * k
                if launches:
                    record.call(f"thread/{gpu}", "cudaLaunchKernel", call, call + 4, correlation)
                record.work(call + 40, call + 130, correlation if launches else -1, gpu=gpu, **work)
    record.recorded = (0, 1_000 * STEPS)
    return record


def without(record: Recorder, lost: set[int]) -> Trace:
    record.device_rows = [row for row in record.device_rows if row["correlation"] not in lost]
    return record.trace()


@pytest.mark.slow
@given(st.sets(st.integers(1, STEPS * KERNELS), max_size=40))
@settings(max_examples=60)
def test_what_was_taken_away_is_counted_and_its_steps_are_named(taken: set[int]) -> None:
    result = analyse(without(training(), taken))
    # work of the last launches may have run after the end: within one and a half times its longest way
    end, way = 1_000 * STEPS, 130 if taken != set(range(1, STEPS * KERNELS + 1)) else 0
    called = {c: 1_000 * ((c - 1) // KERNELS) + 10 + 100 * ((c - 1) % KERNELS) for c in taken}
    kept = [c for c in range(1, STEPS * KERNELS + 1) if c not in taken]
    cut = {c for c in taken if c > max(kept, default=0) and called[c] + 1.5 * way >= end}
    gone = taken - cut
    if not gone:
        assert result.lost is None
        return
    assert result.lost is not None
    assert (result.lost.lost, result.lost.launches) == (len(gone), STEPS * KERNELS)
    assert result.lost.steps == tuple(sorted({(c - 1) // KERNELS + 5 for c in taken}))
    lacking = {(c - 1) // KERNELS for c in taken}
    assert [bool(c) for c in result.steps.complete] == [step not in lacking for step in range(STEPS)]


@pytest.mark.parametrize(
    ("lost", "place"),
    [(range(1, 21), "begin"), (range(30, 50), "middle"), (range(41, 75), "end"), (range(1, 80, 3), "throughout")],
)
def test_where_the_hole_is(lost: range, place: str) -> None:
    # a hole up to the end: the last launches alone may have run later, the others belong to it
    taken = set(lost) | (set(range(75, 81)) if place == "end" else set())
    found = analyse(without(training(), taken)).lost
    assert found is not None and [gpu.place for gpu in found.gpus] == [place]


def test_the_gpu_that_lacks_its_work_is_named() -> None:
    record = training(gpus=4)
    of_gpu = {row["correlation"] for row in record.device_rows if row["device"] == 2}
    found = analyse(without(record, {c for c in of_gpu if c > 160})).lost
    assert found is not None
    assert [(gpu.device, gpu.launches, gpu.place) for gpu in found.gpus] == [(2, 80, "end")]


def test_a_gap_in_which_lost_work_may_have_run_has_no_evidence() -> None:
    whole, holed = analyse(training().trace()), analyse(without(training(), {20, 21}))
    idle = [result.accounting[0].idle_by_cause for result in (whole, holed)]
    # two kernels of 90 us and three gaps of 10 us
    assert idle[1][Cause.NO_EVIDENCE] - idle[0][Cause.NO_EVIDENCE] == 210 * US
    assert idle[0][Cause.LAUNCH] - idle[1][Cause.LAUNCH] == 30 * US


@pytest.mark.parametrize("lost", [range(25, 41), range(33, 41), range(35, 42)])
def test_a_step_behind_a_hole_is_not_as_long_as_the_hole(lost: range) -> None:
    """Where work in front of a step was lost nobody knows when it began: no sooner than its own first work."""
    whole, holed = analyse(training().trace()), analyse(without(training(), set(lost)))
    usual = int(whole.steps.durations()[3])
    assert holed.steps.count >= 7
    assert max(holed.steps.durations().tolist()) <= usual
    assert sum(duration < usual for duration in holed.steps.durations().tolist()) <= 2


def test_the_last_launches_may_run_after_the_end_unless_somebody_waited_for_them() -> None:
    record = training()
    record.recorded = (0, 9_900)
    assert analyse(without(record, {80})).lost is None
    record.call("thread/0", "cudaDeviceSynchronize", 9_800, 9_850)
    found = analyse(without(record, {80})).lost
    assert found is not None and found.lost == 1


def test_copies_of_memory_that_profilers_do_not_record_and_queries_are_no_launches() -> None:
    record = training()
    for i in range(40):
        record.call("thread/0", "cudaMemsetAsync", 200 * i, 200 * i + 2, 1_000 + i)
        record.call("thread/0", "cudaEventQuery", 200 * i + 3, 200 * i + 4, 2_000 + i)
    assert analyse(record.trace()).lost is None


def test_what_is_launched_into_a_graph_is_not_lost() -> None:
    record = training()
    record.call("thread/0", "cudaStreamBeginCapture", 953, 954)
    record.call("thread/0", "cudaLaunchKernel", 955, 957, 5_000)
    record.call("thread/0", "cudaStreamEndCapture", 960, 961)
    assert analyse(record.trace()).lost is None
    record.call("thread/0", "cudaLaunchKernel", 970, 972, 5_001)
    found = analyse(record.trace()).lost
    assert found is not None and found.lost == 1


def test_without_launches_a_gpu_that_lacks_the_collectives_of_its_silence_has_lost_events() -> None:
    for low, high, place in ((0, 3_000, "begin"), (4_000, 7_000, "middle"), (7_000, 10_000, "end")):
        record = training(gpus=3, marked=False, launches=False)
        unit = record.unit
        record.device_rows = [
            row for row in record.device_rows if row["device"] != 1 or not low * unit <= row["start"] < high * unit
        ]
        found = analyse(record.trace()).lost
        assert found is not None and found.lost == 0
        assert [(gpu.device, gpu.place) for gpu in found.gpus] == [(1, place)]
    assert analyse(training(gpus=3, marked=False, launches=False).trace()).lost is None


def test_a_gpu_that_rests_while_the_others_compute_has_lost_nothing() -> None:
    record = training(gpus=2, marked=False, launches=False)
    for i in range(30):
        record.work(10_100 + 100 * i, 10_190 + 100 * i, gpu=0)
    assert analyse(record.trace()).lost is None


@given(traces())
def test_any_trace_is_judged(trace: Trace) -> None:
    result = analyse(trace)
    if result.lost is not None:
        assert 0 <= result.lost.lost <= result.lost.launches
        assert result.lost.gpus and set(result.lost.steps) <= set(result.steps.number.tolist())
