"""Hooks of own training loops: times, marks, spans, collections, memory, and what must never happen."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any

import pytest

from tb_gpu_doctor.monitor import step_hooks as steps_module
from tb_gpu_doctor.monitor.frameworks import AllocatorReading, Frameworks
from tb_gpu_doctor.monitor.step_hooks import StepHooks
from tests.monitor.memory import MemoryRecorder


@pytest.fixture
def recorder() -> MemoryRecorder:
    return MemoryRecorder()


def test_a_step_includes_the_wait_for_its_batch_and_no_span(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    begun, ended, validated = [], [], []
    for number in range(3):
        time.sleep(0.04)  # fetching the batch
        begun.append(time.monotonic_ns())
        with hooks.train_step(number, batch_size=32):
            time.sleep(0.01)
        ended.append(time.monotonic_ns())
        with hooks.span("validation"):
            time.sleep(0.1)
        validated.append(time.monotonic_ns())
    # Nothing is known of what was before the first one.
    expected = [ended[0] - begun[0], ended[1] - validated[0], ended[2] - validated[1]]
    assert [step.duration_ns for step in recorder.steps] == pytest.approx(expected, abs=15e6)
    assert {step.samples for step in recorder.steps} == {32}
    assert [(kind, step) for kind, _, _, step, _ in recorder.spans] == [("validation", n) for n in range(3)]
    lengths = [end - start for _, start, end, *_ in recorder.spans]
    assert lengths == pytest.approx([after - before for before, after in zip(ended, validated, strict=True)], abs=15e6)


def test_a_span_inside_a_step_and_a_span_inside_a_span(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    with hooks.train_step(), hooks.span("checkpoint", "weights"), hooks.span("validation"):
        time.sleep(0.2)
    assert recorder.steps[0].duration_ns < 0.2e9
    assert [(kind, note) for kind, *_, note in recorder.spans] == [("checkpoint", "weights")]


def test_steps_number_themselves(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    assert hooks.step == -1
    for given in (None, None, 10, None):
        with hooks.train_step(given):
            pass
    assert recorder.numbers == [0, 1, 10, 11] and hooks.step == 11


def test_an_exception_passes_through_and_the_step_does_not_count(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    with pytest.raises(StopIteration), hooks.train_step(0):
        next(iter(()))
    with pytest.raises(KeyboardInterrupt), hooks.train_step(0):
        raise KeyboardInterrupt
    with hooks.train_step(0):
        pass
    assert recorder.numbers == [0]


@pytest.mark.slow
def test_collections_are_spans(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    hooks.start()
    hooks.start()
    try:
        assert gc.callbacks.count(hooks._collections.seen) == 1
        cycles: list[Any] = []
        for _ in range(200_000):
            cycle: list[Any] = []
            cycle.append(cycle)
            cycles.append(cycle)
        with hooks.train_step(7):
            del cycles, cycle
            gc.collect()
        collections = [span for span in recorder.spans if span[0] == "garbage_collection"]
        assert collections and collections[-1][3:] == (7, "generation 2")
        assert all(end - start >= steps_module.MIN_COLLECTION_NS for _, start, end, *_ in collections)
    finally:
        hooks.close()
    assert hooks._collections.seen not in gc.callbacks


def test_hooks_that_nobody_holds_watch_no_more(recorder: MemoryRecorder) -> None:
    before = len(gc.callbacks)
    hooks = StepHooks(recorder)
    hooks.start()
    assert len(gc.callbacks) == before + 1
    del hooks
    gc.collect()
    assert len(gc.callbacks) == before


def test_a_collection_in_the_middle_of_recording_cannot_block() -> None:
    """The recorder holds its lock, allocates, and so starts a collection on the same thread."""

    class Locked(MemoryRecorder):
        lock = threading.Lock()

        def step(self, *arguments: Any, **options: Any) -> None:
            with self.lock:
                gc.collect()
                time.sleep(0.002)
                super().step(*arguments, **options)

        def span(self, *arguments: Any, **options: Any) -> None:
            assert self.lock.acquire(timeout=5), "deadlock"
            self.lock.release()
            super().span(*arguments, **options)

    recorder = Locked()
    hooks = StepHooks(recorder)
    hooks.start()
    try:
        hooks._collections.seen("start", {})
        time.sleep(0.002)
        hooks._collections.seen("stop", {"generation": 1})
        with hooks.train_step():
            pass
    finally:
        hooks.close()
    assert "garbage_collection" in recorder.kinds()


def test_a_forked_child_records_nothing_and_closes_nothing(recorder: MemoryRecorder) -> None:
    hooks = StepHooks(recorder)
    pid = os.fork()
    if pid == 0:
        with hooks.train_step(0):
            pass
        hooks.close()
        os._exit(len(recorder.steps))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with hooks.train_step(0):
        pass
    assert recorder.numbers == [0]


def test_failures_are_told_once_and_go_no_further(recorder: MemoryRecorder) -> None:
    class Fails:
        name = "tensorflow"

        def mark(self, step: int) -> Any:
            raise RuntimeError("no marks today")

        def allocator(self) -> Any:
            raise RuntimeError("no memory today")

    hooks = StepHooks(recorder)
    hooks.frameworks.loaded = lambda: (Fails(),)  # type: ignore[assignment,method-assign,return-value]
    hooks.frameworks.training = lambda: Fails()  # type: ignore[assignment,method-assign,return-value]
    for _ in range(5):
        with hooks.train_step():
            pass
    assert recorder.numbers == list(range(5))
    assert len(recorder.notes) == 2 and "no marks today" in recorder.notes[0]


def test_memory_is_read_once_a_second_at_most(recorder: MemoryRecorder) -> None:
    class Counts:
        name = "jax"
        asked = 0

        def mark(self, step: int) -> Any:
            return type("Mark", (), {"recorded": False, "close": lambda self: None})()

        def allocator(self) -> Any:
            self.asked += 1
            yield AllocatorReading(3, 10, 20, 40)

    counts = Counts()
    hooks = StepHooks(recorder)
    hooks.frameworks.loaded = lambda: (counts,)  # type: ignore[assignment,method-assign,return-value]
    hooks.frameworks.training = lambda: counts  # type: ignore[assignment,method-assign,return-value]
    for _ in range(100):
        with hooks.train_step():
            pass
    assert counts.asked == 1 and recorder.allocators == [(3, 10, 20, 40)]
    hooks._allocator_asked = time.monotonic_ns() - 2 * steps_module.ALLOCATOR_EVERY_NS
    with hooks.train_step():
        pass
    assert counts.asked == 2


def test_frameworks_are_never_imported_only_found() -> None:
    with pytest.raises(ValueError, match="tensorflow, jax, torch"):
        Frameworks("mxnet")
    tf = pytest.importorskip("tensorflow")
    found = Frameworks("tensorflow")
    assert [framework.name for framework in found.loaded()] == ["tensorflow"]
    training = found.training()
    assert training is not None and list(training.allocator()) == []  # no GPU, no figures
    mark = training.mark(3)
    assert not mark.recorded
    mark.close()
    training.synchronize()
    assert Frameworks("jax").loaded() == () or tf is not None
