"""Steps and windows: recordings whose true steps are known by construction, and hand-made corner cases."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Steps, Window
from tb_gpu_doctor.analysis.steps import MAX_CELLS
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, Trace, device_events, host_events
from tests.analysis import brute_force
from tests.analysis.small_traces import STREAMS_PER_GPU, US, Recorder, traces
from tests.real_traces import XPLANE_FOLDERS, real_trace


@dataclass
class Known:
    """A recording and the step of each launch, -1 for work before the first step."""

    record: Recorder
    step_of: dict[int, int] = field(default_factory=dict)
    markers: list[tuple[int, int]] = field(default_factory=list)


@st.composite
def recordings(draw: st.DrawFn) -> Known:
    """A host that marks steps and launches ahead of GPUs that lag behind, in order on each stream."""
    known = Known(Recorder(gpus=draw(st.integers(1, 3)), unit=draw(st.sampled_from((1, 1000, US)))))
    record, free = known.record, {}
    at = draw(st.integers(0, 20))
    first = draw(st.integers(0, 50))
    for step in range(-1, draw(st.integers(1, 5))):
        length = draw(st.integers(30, 60))
        thread = "python"
        marker = {"step_num": first + step, "is_root": 1}
        how = draw(st.sampled_from(("inside", "handed over", "by time"))) if step >= 0 else "by time"
        if step >= 0:
            known.markers.append((at, at + length))
            record.call("python", "train", at, at + length, **marker)
        if how == "handed over":
            record.call("python", "Execute", at + 1, at + 2, producer_type=3, producer_id=step)
            # runs on after the marker's end: containment in time would fail
            thread = "py_xla_execute/1"
            record.call(thread, "EnqueueExecution", at + 3, at + length + 25, consumer_type=3, consumer_id=step)
        elif how == "by time":
            thread = "tf_Compute/9"
        calls = sorted(draw(st.lists(st.integers(4, length - 2), max_size=8)))
        if how == "handed over":
            calls = [c + draw(st.sampled_from((0, 20))) for c in calls]
        for call in sorted(calls):
            correlation = len(known.step_of) + 1
            known.step_of[correlation] = step
            gpu, stream = draw(st.integers(0, record.gpus - 1)), draw(st.integers(0, 2))
            begin = max(at + call + draw(st.integers(0, 30)), free.get((gpu, stream), 0))
            end = free[gpu, stream] = begin + draw(st.integers(0, 40))
            klass = (EventClass.COMPUTE, EventClass.COMMUNICATION, EventClass.COPY)[stream]
            record.call(thread, "cuLaunchKernel", at + call, at + call + 1, correlation)
            record.work(begin, end, correlation, gpu=gpu, stream=stream, klass=klass)
        at += length + draw(st.integers(26, 40))
    if draw(st.booleans()):
        record.recorded = (0, draw(st.integers(at // 2, at + 10)))
    return known


@given(recordings())
def test_known_steps_are_found(known: Known) -> None:
    trace = known.record.trace()
    result = analyse(trace)
    steps, events, unit = result.steps, trace.device_events, known.record.unit
    assert steps.source == "marked"
    assert steps.marker_start.tolist() == [s * unit for s, _ in known.markers]
    assert steps.marker_end.tolist() == [e * unit for _, e in known.markers]
    assert (np.diff(steps.number) == 1).all()
    expected = [known.step_of[c] for c in events.correlation.tolist()]
    assert steps.event_step.tolist() == expected
    borders = brute_force.step_borders(trace, expected, steps.marker_start.tolist())
    for gpu, own in enumerate(borders):
        for step in range(len(known.markers)):
            start, end = int(steps.start[step, gpu]), int(steps.end[step, gpu])
            assert (start, end) == own.get(step, (-1, -1))
    low, high = trace.recorded or (-1, 10**18)
    whole = [
        low <= s * unit and e * unit <= high and any(step in own for own in borders)
        for step, (s, e) in enumerate(known.markers)
    ]
    assert steps.complete.tolist() == whole
    assert steps.count == sum(whole)
    used = [own[step] for own in borders for step in range(len(whole)) if whole[step] and step in own]
    if used and max(e for _, e in used) > min(s for s, _ in used):
        assert result.window == Window(min(s for s, _ in used), max(e for _, e in used))
        walls = []
        for step in np.flatnonzero(steps.complete).tolist():
            of_step = [own[step] for own in borders if step in own]
            walls.append(max(e for _, e in of_step) - min(s for s, _ in of_step))
        assert steps.durations().tolist() == walls


@given(traces())
def test_any_trace_gives_sound_steps(trace: Trace) -> None:
    result = analyse(trace)
    steps = result.steps
    count, gpus = len(steps.number), len(trace.devices)
    assert steps.start.shape == steps.end.shape == (count, gpus)
    assert len(steps.event_step) == len(trace.device_events)
    assert ((steps.event_step >= -1) & (steps.event_step < max(count, 1))).all()
    assert steps.source in (("marked", "inferred") if count else ("none",))
    borders = brute_force.step_borders(trace, steps.event_step.tolist(), steps.marker_start.tolist())
    for gpu, own in enumerate(borders):
        for step in range(count):
            assert (int(steps.start[step, gpu]), int(steps.end[step, gpu])) == own.get(step, (-1, -1))
    events = trace.device_events
    whole = [step for step in range(count) if steps.complete[step]]
    used = [own[step] for own in borders for step in whole if step in own]
    marked = (min(s for s, _ in used), max(e for _, e in used)) if used else (0, 0)
    if (steps.source == "marked" or steps.cut_at is not None) and marked[1] > marked[0]:
        assert result.window == Window(*marked)
    elif len(events) and events.end.max() > events.start.min():
        assert result.window == Window(int(events.start.min()), int(events.end.max()))
    else:
        assert result.window is None
    for step in whole:
        if trace.recorded is not None and steps.source == "marked":
            assert trace.recorded[0] <= steps.marker_start[step] <= steps.marker_end[step] <= trace.recorded[1]


def steps_of(record: Recorder) -> Steps:
    return analyse(record.trace()).steps


def test_function_run_alone_marks_no_step_and_still_is_one() -> None:
    record = Recorder()
    for i in range(3):
        record.call("python", "FunctionRun", 100 * i, 100 * i + 50, is_root=1)
        record.launch("python", 100 * i + 5, 100 * i + 10, 100 * i + 40, i + 1)
    result = analyse(record.trace())
    assert (result.steps.source, result.steps.cut_at, result.steps.count) == ("inferred", "FunctionRun", 3)
    assert result.window == Window(0, 240 * US)


def test_keras_3_marks_batches_without_the_root_flag() -> None:
    record = Recorder()
    for i in range(3):
        record.call("python", "Profiled batch", 100 * i, 100 * i + 50, step_num=i + 7)
        record.launch("python", 100 * i + 5, 100 * i + 10, 100 * i + 40, i + 1)
    steps = steps_of(record)
    assert (steps.source, steps.number.tolist(), steps.count) == ("marked", [7, 8, 9], 3)


def test_a_numbered_event_without_the_root_flag_is_no_step() -> None:
    record = Recorder()
    record.call("python", "CheckpointManager", 0, 50, step_num=3)
    record.launch("python", 5, 10, 40, 1)
    assert steps_of(record).source == "none"


def test_nested_markers_count_once() -> None:
    record = Recorder()
    for i in range(4):
        record.step("python", i, 100 * i, 100 * i + 90, name="train")
        if i < 3:
            record.step("python", 10 + i, 100 * i + 5, 100 * i + 80, name="TraceContext")
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 60, i + 1)
    assert steps_of(record).number.tolist() == [0, 1, 2, 3]


def test_replicas_that_mark_one_step_on_several_threads_share_it() -> None:
    record = Recorder(gpus=2)
    for i in range(3):
        for gpu in range(2):
            record.step(f"replica/{gpu}", i, 100 * i + 3 * gpu, 100 * i + 80 + 3 * gpu)
            record.launch(f"replica/{gpu}", 100 * i + 10, 100 * i + 20, 100 * i + 60, 1 + 2 * i + gpu, gpu=gpu)
    steps = steps_of(record)
    assert steps.number.tolist() == [0, 1, 2]
    assert steps.marker_end.tolist() == [83 * US, 183 * US, 283 * US]
    assert (steps.end == np.array([[60, 60], [160, 160], [260, 260]]) * US).all()


def test_the_device_lags_behind_its_markers() -> None:
    """Launched within the first 30 us of each marker, run by a GPU that is one step behind."""
    record = Recorder()
    for i in range(4):
        record.step("python", i, 100 * i, 100 * i + 30)
        record.launch("python", 100 * i + 5, 100 * i + 95, 100 * i + 190, i + 1)
    steps = steps_of(record)
    assert steps.event_step.tolist() == [0, 1, 2, 3]
    assert (steps.end[:, 0] // US).tolist() == [190, 290, 390, 490]
    assert (steps.start[:, 0] // US).tolist() == [0, 190, 290, 390]


def test_each_step_owns_the_wait_in_front_of_it() -> None:
    record = Recorder()
    record.step("python", 0, 0, 50)
    record.launch("python", 1, 10, 50, 1)
    record.call("python", "IteratorGetNext", 50, 500)
    record.step("python", 1, 500, 550)
    record.launch("python", 501, 510, 550, 2)
    result = analyse(record.trace())
    assert (result.steps.start[:, 0] // US).tolist() == [0, 50]
    assert (result.summaries[0].idle_per_step // US).tolist() == [10, 460]


def test_copies_do_not_move_borders() -> None:
    record = Recorder()
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 1, 100 * i + 10, 100 * i + 50, 1 + 2 * i)
        record.launch(
            "python", 100 * i + 2, 100 * i + 60, 100 * i + 70, 2 + 2 * i,
            stream=1, klass=EventClass.COPY, copy_kind=CopyKind.H2D,
        )  # fmt: skip
    assert (steps_of(record).end[:, 0] // US).tolist() == [50, 150, 250]


def test_the_first_step_starts_after_earlier_work_that_lasts_longer_than_its_marker() -> None:
    record = Recorder()
    record.launch("python", -50, -40, 30, 9)
    record.step("python", 0, 0, 90)
    record.launch("python", 10, 40, 80, 1)
    steps = steps_of(record)
    assert steps.event_step.tolist() == [-1, 0]
    assert (steps.start[0, 0] // US, steps.end[0, 0] // US) == (30, 80)


def test_work_after_the_last_step_stays_outside() -> None:
    record = Recorder()
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 60, i + 1)
    record.launch("python", 2000, 2010, 2100, 9)
    result = analyse(record.trace())
    assert result.steps.event_step.tolist() == [0, 1, 2, -1]
    assert result.window == Window(0, 260 * US)


def test_a_step_that_began_before_the_recording_is_not_complete() -> None:
    record = Recorder(recorded=(0, 1000))
    for i, start in enumerate((-30, 70, 170)):
        record.step("python", i, start, start + 90)
        record.launch("python", start + 40, start + 45, start + 80, i + 1)
    result = analyse(record.trace())
    assert result.steps.complete.tolist() == [False, True, True]
    assert result.steps.count == 2
    assert result.window == Window(50 * US, 250 * US)


def test_a_step_that_outlasts_the_recording_is_not_complete() -> None:
    record = Recorder(recorded=(0, 255))
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 50, i + 1)
    assert steps_of(record).complete.tolist() == [True, True, False]


def test_a_step_whose_launches_never_reached_the_recording_is_not_complete() -> None:
    record = Recorder()
    correlation = 0
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        for k in range(4):
            correlation += 1
            at = 100 * i + 10 + 15 * k
            record.call("python", "cuLaunchKernel", at, at + 1, correlation)
            if i < 2 or k == 0:
                record.work(at + 5, at + 10, correlation)
    result = analyse(record.trace())
    assert result.steps.complete.tolist() == [True, True, False]
    assert result.window == Window(0, 165 * US)


def test_synchronisations_with_correlation_ids_cut_no_step_off() -> None:
    record = Recorder()
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 60, 1 + i)
        record.call("python", "cuStreamSynchronize", 100 * i + 20, 100 * i + 61, 100 + i)
    assert steps_of(record).complete.tolist() == [True, True, True]


def test_a_gpu_that_sits_out_a_step() -> None:
    record = Recorder(gpus=2)
    for i in range(3):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 60, 1 + i)
        if i != 1:
            record.launch("python", 100 * i + 11, 100 * i + 20, 100 * i + 50, 11 + i, gpu=1)
    steps = steps_of(record)
    assert (steps.start[:, 1] // US).tolist() == [0, -1, 50]
    assert steps.start[1, 1] == steps.end[1, 1] == -1
    assert (steps.durations() // US).tolist() == [60, 100, 210]


def test_groups_of_the_profiler_tie_launches_to_steps() -> None:
    record = Recorder()
    for i in range(2):
        record.call("python", "train", 100 * i, 100 * i + 30, step_num=i, is_root=1, group=40 + i)
        # launched by a thread without causal links, after the next marker has started
        record.call("executor", "cuLaunchKernel", 100 * i + 105, 100 * i + 106, 1 + i, group=40 + i)
        record.work(100 * i + 110, 100 * i + 120, 1 + i)
    assert steps_of(record).event_step.tolist() == [0, 1]


def test_work_without_a_launch_belongs_where_its_stream_was() -> None:
    record = Recorder()
    for i in range(2):
        record.step("python", i, 100 * i, 100 * i + 90)
        record.launch("python", 100 * i + 10, 100 * i + 20, 100 * i + 40, 1 + i)
        record.work(100 * i + 50, 100 * i + 60)
    assert steps_of(record).event_step.tolist() == [0, 0, 1, 1]


def test_asynchronous_dispatch_runs_past_the_next_marker() -> None:
    """JAX: the Python thread is two steps ahead of the thread that launches; containment in time would fail."""
    record = Recorder()
    for i in range(4):
        record.step("python", i, 20 * i, 20 * i + 10)
        record.call("python", "Execute", 20 * i + 1, 20 * i + 9, producer_type=4, producer_id=i)
        at = 100 * i + 50
        record.call("py_xla_execute/1", "EnqueueExecution", at, at + 90, consumer_type=4, consumer_id=i)
        record.launch("py_xla_execute/1", at + 10, at + 20, at + 80, 1 + i)
    assert steps_of(record).event_step.tolist() == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_the_real_files_mark_no_steps(folder: str) -> None:
    trace = real_trace(folder)
    result = analyse(trace)
    assert result.steps.source != "marked"
    if result.steps.cut_at is None:
        assert result.window == Window(*trace.device_events.extent())


def test_steps_of_more_gpus_than_fit_in_memory_are_refused() -> None:
    record = Recorder(gpus=1_024)
    for step in range(MAX_CELLS // 1_024 + 1):
        record.step("python", step, step * 10, step * 10 + 9)
    with pytest.raises(ProfileError, match="too_many_events"):
        analyse(record.trace())


@pytest.mark.slow
def test_tens_of_thousands_of_steps_end_in_seconds() -> None:
    count, unit = 50_000, 100 * US
    start = np.arange(count, dtype=np.int64) * unit
    correlation = np.arange(2 * count, dtype=np.int64) + 1
    record = Recorder(gpus=2)
    record.work(0, 1, klass=EventClass.COMMUNICATION, name="ncclDevKernel_AllReduce")
    record.call("python", "cuLaunchKernel", 0, 1)
    record.call("python", "train", 0, 1)
    trace = record.trace()
    kernel, launch, step = (record.string(name) for name in ("ncclDevKernel_AllReduce", "cuLaunchKernel", "train"))
    trace = replace(
        trace,
        device_events=device_events(
            4 * count,
            device=np.repeat([0, 1, 0, 1], count),
            stream=np.repeat([0, STREAMS_PER_GPU, 0, STREAMS_PER_GPU], count),
            start=np.concatenate((start + 20 * US, start + 21 * US, start + 40 * US, start + 40 * US)),
            duration=np.full(4 * count, 5 * US),
            name=np.full(4 * count, kernel),
            klass=np.repeat([EventClass.COMMUNICATION, EventClass.COMPUTE], 2 * count),
            correlation=np.concatenate((correlation, correlation)),
        ),
        host_events=host_events(
            3 * count,
            thread=np.zeros(3 * count, np.int32),
            start=np.concatenate((start, start + US, start + 2 * US)),
            duration=np.concatenate((np.full(count, 99 * US), np.full(2 * count, US // 2))),
            name=np.repeat([step, launch, launch], count),
            step_num=np.concatenate((np.arange(count), np.full(2 * count, -1))),
            is_root=np.repeat([1, 0, 0], count),
            correlation=np.concatenate((np.full(count, -1), correlation)),
        ),
    )
    began = time.process_time()
    found = analyse(trace)
    assert time.process_time() - began < 10  # masks over all events for each step take minutes
    assert found.steps.count == count and found.lateness is not None
    assert len(found.lateness.start) == count and (found.lateness.wait[:, 0] == US).all()


def test_a_gpu_that_has_begun_one_more_inferred_step_harms_nobody() -> None:
    record = Recorder(gpus=2)
    for gpu, steps in enumerate((10, 11)):
        for i in range(steps):
            for k in range(3 if i < 10 else 1):
                at = 100 * i + 20 * k
                record.work(at, at + 15, gpu=gpu, name=f"k{k}")
    analyse(record.trace())


def test_processes_that_share_a_file_mark_the_same_steps_however_far_apart() -> None:
    """The second process is more than a step behind, and launches its backward pass on a thread without markers."""
    record = Recorder(gpus=2)
    for process in range(2):
        for step in range(4):
            at = 100 * step + 130 * process
            correlation = 100 * process + 10 * step
            record.step(f"{process} python", step + 5, at, at + 100)
            record.launch(f"{process} python", at + 5, at + 10, at + 30, correlation + 1, gpu=process)
            record.launch(f"{process} autograd", at + 60, at + 65, at + 90, correlation + 2, gpu=process)
    steps = steps_of(record)
    assert steps.number.tolist() == [5, 6, 7, 8]
    assert steps.event_step.tolist() == [0, 0, 1, 1, 2, 2, 3, 3] * 2


def test_the_same_numbers_on_another_thread_later_are_other_steps() -> None:
    record = Recorder()
    for run in range(2):
        for step in range(3):
            at = 1_000 * run + 100 * step
            record.step(f"python/{run}", step, at, at + 90)
            record.launch(f"python/{run}", at + 5, at + 10, at + 80, 1 + 10 * run + step)
    assert steps_of(record).number.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("lost", "numbers"), [(4, [0, 1, 2, 3, 4]), (2, [0, 1, 2, 3, 4]), (0, [1, 2, 3, 4])])
def test_a_step_whose_marker_is_lost_is_no_part_of_the_one_before_it(lost: int, numbers: list[int]) -> None:
    record = Recorder()
    for step in range(5):
        if step != lost:
            record.step("python", step, 100 * step, 100 * step + 99)
        for k in range(4):
            at = 100 * step + 20 * k + 2
            record.launch("python", at, at + 3, at + 18, 1 + 4 * step + k)
    steps = steps_of(record)
    assert steps.number.tolist() == numbers
    begun = 4 if lost == 0 else 0  # launched before the first marker
    assert steps.event_step.tolist() == [-1] * begun + [i for i in range(len(numbers)) for _ in range(4)]
    assert [bool(c) for c in steps.complete] == [i < len(numbers) - (lost == 4) for i in range(len(numbers))]


def test_work_between_markers_that_hold_only_a_part_of_the_step_is_the_steps() -> None:
    record = Recorder()
    for step in range(5):
        record.step("python", step, 100 * step, 100 * step + 30)
        for k in range(4):
            at = 100 * step + 20 * k + 2
            record.launch("python", at, at + 3, at + 18, 1 + 4 * step + k)
    assert steps_of(record).number.tolist() == [0, 1, 2, 3, 4]
