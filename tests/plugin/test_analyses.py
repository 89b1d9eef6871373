""""""

from __future__ import annotations

import gc
import threading
import time
import weakref
from dataclasses import dataclass

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin import analyses
from tb_gpu_doctor.plugin.analyses import MAX_FAILURES, Analyses, Job, Progress, Report

WAIT_S = 20


@dataclass
class Sized:
    size_bytes: int
    name: str = ""


def done(job: Job[Sized]) -> Job[Sized]:
    assert job.finished.wait(WAIT_S)
    return job


def settled(worker: Analyses[Sized], *keys: str) -> dict[str, bool]:
    """Which keys are still cached, once the worker has nothing left to do."""
    done(worker.submit("last", "last", lambda report: Sized(0)))
    return {key: worker.peek(key) is not None for key in keys}


def test_twenty_threads_that_ask_at_once_cost_one_analysis():
    calls, barrier, answers = [], threading.Barrier(20), []
    release = threading.Event()

    def run(report: Report) -> Sized:
        calls.append(threading.current_thread())
        release.wait(WAIT_S)
        return Sized(1)

    worker: Analyses[Sized] = Analyses()

    def ask() -> None:
        barrier.wait(WAIT_S)
        answers.append(worker.submit("key", "place", run))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    release.set()
    assert len({id(job) for job in answers}) == 1
    assert done(answers[0]).result == Sized(1)
    assert len(calls) == 1 and calls[0].daemon


def test_progress_never_falls_and_ends_at_one():
    seen = []
    worker: Analyses[Sized] = Analyses()

    def run(report: Report) -> Sized:
        for stage, fraction in (("reading", 0.1), ("decoding", 0.5), ("analysing", 0.3), ("diagnosing", 7.0)):
            report(stage, fraction)
            seen.append(worker.peek("key").progress)
        return Sized(1)

    job = done(worker.submit("key", "place", run))
    assert [progress.stage for progress in seen] == ["reading", "decoding", "analysing", "diagnosing"]
    assert [progress.progress for progress in seen] == [0.1, 0.5, 0.5, 1.0]
    assert job.progress.to_dict() == {"state": "done", "stage": "diagnosing", "progress": 1.0}
    assert Progress().to_dict()["state"] == "unknown"


def test_failures_are_kept_with_their_reason():
    calls = []

    def run(report: Report) -> Sized:
        calls.append(1)
        report("decoding", 0.4)
        raise ProfileError("truncated", "/logs/a.xplane.pb", offset=12)

    worker: Analyses[Sized] = Analyses()
    job = done(worker.submit("key", "place", run))
    assert worker.submit("key", "place", run) is job
    assert job.error is not None and job.error.code == "truncated" and job.result is None
    assert job.progress.to_dict() == {"state": "failed", "stage": "decoding", "progress": 0.4}
    assert len(calls) == 1


@pytest.mark.parametrize(("raised", "code"), [(MemoryError(), "out_of_memory"), (ZeroDivisionError(), "internal")])
def test_a_crash_becomes_an_answer_and_the_worker_lives_on(raised: Exception, code: str):
    def run(report: Report) -> Sized:
        raise raised

    worker: Analyses[Sized] = Analyses(workers=1)
    job = done(worker.submit("key", "place", run))
    assert job.error is not None and job.error.code == code
    assert done(worker.submit("next", "place2", lambda report: Sized(1))).result == Sized(1)


@pytest.mark.parametrize(
    ("raised", "again"),
    [(MemoryError(), True), (ProfileError("worker_died", "/logs/a", reason="SIGKILL"), True), (KeyError("x"), True),
     (ProfileError("truncated", "/logs/a", offset=3), False)],
)  # fmt: skip
def test_what_was_not_the_files_fault_is_tried_again(monkeypatch: pytest.MonkeyPatch, raised: Exception, again: bool):
    def run(report: Report) -> Sized:
        raise raised

    worker: Analyses[Sized] = Analyses(workers=1)
    job = done(worker.submit("key", "place", run))
    assert worker.submit("key", "place", lambda report: Sized(1)) is job, "not at once"
    monkeypatch.setattr(analyses, "RETRY_S", 0.0)
    job.finished_at -= 0.01
    assert (done(worker.submit("key", "place", lambda report: Sized(1))).result == Sized(1)) is again


@pytest.mark.parametrize("alive", [0, 1])
def test_an_analysis_without_a_thread_is_no_job_that_nobody_does(monkeypatch: pytest.MonkeyPatch, alive: int):
    worker: Analyses[Sized] = Analyses(workers=1 + alive)
    for _ in range(alive):
        done(worker.submit("first", "place1", lambda report: Sized(1)))

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        if not alive:
            with pytest.raises(RuntimeError):
                worker.submit("key", "place", lambda report: Sized(2))
            assert worker.peek("key") is None
        else:
            assert done(worker.submit("key", "place", lambda report: Sized(2))).result == Sized(2)
    assert done(worker.submit("key", "place", lambda report: Sized(2))).result == Sized(2)


def test_the_least_recently_used_results_go_first():
    worker: Analyses[Sized] = Analyses(max_results=3, workers=1)
    for key in "abc":
        done(worker.submit(key, key, lambda report: Sized(1)))
    worker.submit("a", "a", lambda report: Sized(1))
    assert settled(worker, "a", "b", "c") == {"a": True, "b": False, "c": True}


def test_results_are_bounded_by_bytes_but_the_newest_stays():
    worker: Analyses[Sized] = Analyses(max_bytes=100, workers=1)
    for key, size in (("a", 60), ("b", 60)):
        done(worker.submit(key, key, lambda report, size=size: Sized(size)))
    assert settled(worker, "a", "b") == {"a": False, "b": True}
    done(worker.submit("huge", "huge", lambda report: Sized(10_000)))
    assert worker.peek("huge") is not None


def test_failures_are_bounded_too():
    def run(report: Report) -> Sized:
        raise ProfileError("truncated")

    worker: Analyses[Sized] = Analyses(workers=1)
    for index in range(MAX_FAILURES + 5):
        done(worker.submit(str(index), str(index), run))
    kept = settled(worker, *map(str, range(MAX_FAILURES + 5)))
    assert sum(kept.values()) <= MAX_FAILURES
    assert kept[str(MAX_FAILURES + 4)] and not kept["0"]


def test_a_rewritten_profile_replaces_its_older_self():
    worker: Analyses[Sized] = Analyses(workers=1)
    done(worker.submit("old", "place", lambda report: Sized(1)))
    done(worker.submit("new", "place", lambda report: Sized(2)))
    assert settled(worker, "old", "new") == {"old": False, "new": True}


def test_a_queued_analysis_of_older_content_is_never_run():
    release, ran = threading.Event(), []

    def slow(report: Report) -> Sized:
        release.wait(WAIT_S)
        return Sized(1)

    def note(name: str):
        return lambda report: ran.append(name) or Sized(1)

    worker: Analyses[Sized] = Analyses(workers=1)
    running = worker.submit("slow", "other", slow)
    while running.progress.state != "running":
        pass
    worker.submit("old", "place", note("old"))
    newest = worker.submit("new", "place", note("new"))
    release.set()
    done(newest)
    assert ran == ["new"] and worker.peek("old") is None


def test_a_forgotten_result_is_freed():
    worker: Analyses[Sized] = Analyses(max_results=1, workers=1)
    job = done(worker.submit("a", "a", lambda report: Sized(1)))
    gone = weakref.ref(job.result)
    del job
    settled(worker)
    gc.collect()
    assert gone() is None


def test_a_failure_keeps_nothing_of_the_file_alive() -> None:
    worker: Analyses[Sized] = Analyses()
    kept: list[weakref.ref[object]] = []

    class Content:
        """What an analysis holds while it fails."""

    def fail(_report: Report) -> Sized:
        content = Content()
        kept.append(weakref.ref(content))
        try:
            raise ValueError("inside")
        except ValueError as error:
            raise ProfileError("cut_off", "a") from error

    job = worker.submit("key", "owner", fail)
    assert job.finished.wait(10)
    gc.collect()
    assert job.error is not None and job.error.code == "cut_off" and kept[0]() is None


def test_a_cancelled_analysis_stops_and_asking_again_starts_anew() -> None:
    started, goes_on, ends = threading.Event(), threading.Event(), []

    def run(report: Report) -> Sized:
        started.set()
        goes_on.wait(WAIT_S)
        try:
            report("decoding", 0.5)
        except Exception:  # what takes failures of one file for outcomes must not take this
            ends.append("swallowed")
        ends.append("went on")
        return Sized(1)

    worker: Analyses[Sized] = Analyses(workers=1)
    first = worker.submit("key", "place", run)
    assert started.wait(WAIT_S)
    queued = worker.submit("other", "elsewhere", run)
    assert worker.cancel("key") and worker.cancel("other") and not worker.cancel("key")
    assert worker.peek("key") is None and worker.peek("other") is None
    again = worker.submit("key", "place", lambda report: Sized(2))
    goes_on.set()
    assert done(first).result is None and first.error is None and first.progress.state == "unknown"
    assert done(again).result == Sized(2)
    assert not ends and not queued.finished.is_set(), "what was queued never runs"
    assert not worker.cancel("key"), "what is done cannot be stopped"


def test_a_helpers_thread_is_not_stopped() -> None:
    worker: Analyses[Sized] = Analyses(workers=1)
    reported, cancelled = threading.Event(), threading.Event()

    def run(report: Report) -> Sized:
        def help_out() -> None:
            cancelled.wait(WAIT_S)
            report("decoding", 0.5)
            reported.set()

        threading.Thread(target=help_out).start()
        assert reported.wait(WAIT_S)
        report("analysing", 0.6)
        return Sized(1)

    job = worker.submit("key", "place", run)
    while job.thread is None:
        time.sleep(0.001)
    assert worker.cancel("key")
    cancelled.set()
    assert done(job).result is None and reported.is_set()


class Line:
    """A queue behind one analysis that runs until it is let go."""

    def __init__(self) -> None:
        self.worker: Analyses[Sized] = Analyses(workers=1)
        self.ran: list[str] = []
        self._go = threading.Event()
        self.first = self.worker.submit("first", "first", self._wait, "somebody")
        while self.first.progress.state != "running":
            time.sleep(0.001)

    def _wait(self, report: Report) -> Sized:
        while not self._go.wait(0.005):
            report("reading", 0.1)
        return Sized(1)

    def ask(self, key: str, viewer: str) -> Job[Sized]:
        job = self.worker.submit(key, key, lambda _report: self.ran.append(key) or Sized(1), viewer)
        time.sleep(0.001)  # clocks may be coarse
        return job

    def let_go(self) -> None:
        self._go.set()


def test_of_one_viewer_the_newest_wish_comes_first_and_nobody_waits_for_anothers_pile() -> None:
    line = Line()
    jobs = [line.ask(f"pile {number}", "greedy") for number in range(50)]
    mine = line.ask("mine", "patient")
    newest = line.ask("newest", "greedy")
    assert line.worker.progress(mine).ahead == 0 and line.worker.progress(newest).ahead == 1
    assert line.worker.progress(jobs[0]).to_dict() == {
        "state": "queued", "stage": "reading", "progress": 0.0, "ahead": 51, "queued": 52
    }  # fmt: skip
    line.let_go()
    done(jobs[0])
    assert line.ran == ["mine", "newest", *(f"pile {number}" for number in reversed(range(50)))]


def test_what_somebody_looks_at_now_comes_before_what_was_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "NOW_S", 0.05)
    line = Line()
    left = line.ask("left", "one")
    time.sleep(0.1)
    looked_at = line.ask("looked at", "two")
    assert line.worker.progress(looked_at).ahead == 0 and line.worker.progress(left).ahead == 1
    line.ask("left", "one")  # it is looked at again
    assert line.worker.progress(left).ahead == 0


def test_what_nobody_waits_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    forgotten, wanted = line.ask("forgotten", "one"), line.ask("wanted", "two")
    forgotten.waiting["one"] -= analyses.LEASE_S + 1
    line.let_go()
    assert done(wanted).result == Sized(1) and line.ran == ["wanted"]
    assert line.worker.peek("forgotten") is None and not forgotten.finished.is_set()
    assert done(line.ask("forgotten", "one")).result == Sized(1), "asking starts it anew"


def test_work_that_nobody_waits_for_makes_room_when_others_wait() -> None:
    line = Line()
    line.first.waiting["somebody"] -= analyses.LEASE_S + 1
    time.sleep(0.05)
    assert line.first.progress.state == "running", "alone it may go on"
    assert done(line.ask("wanted", "two")).result == Sized(1)
    assert line.first.finished.is_set() and line.first.result is None


@pytest.mark.slow
def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyses, "MAX_QUEUED", 5)
    line = Line()
    for number in range(2000):
        line.ask(f"pile {number}", "greedy")
    mine = line.ask("mine", "patient")
    assert line.worker.progress(mine).to_dict() | {"stage": ""} == {
        "state": "queued", "stage": "", "progress": 0.0, "ahead": 1, "queued": 5
    }, "behind what the other one looks at now, and nothing else of it"  # fmt: skip
    assert len(line.worker._queue) == 5 and len(line.worker._jobs) == 6
    line.let_go()
    done(mine)
    settled(line.worker)
    assert len(line.ran) == 5


def test_one_viewers_cancel_does_not_end_what_another_waits_for() -> None:
    line = Line()
    line.worker.submit("first", "first", line._wait, "another")
    queued = line.ask("queued", "somebody")
    line.ask("queued", "another")
    for key in ("first", "queued"):
        assert not line.worker.cancel(key, "somebody") and line.worker.peek(key) is not None
    assert not line.first.cancelled
    assert line.worker.cancel("queued", "another") and line.worker.peek("queued") is None
    assert line.worker.cancel("first", "another")
    assert done(line.first).result is None and not queued.finished.is_set()


def test_a_failure_is_tried_again_when_somebody_says_so() -> None:
    def fail(_report: Report) -> Sized:
        raise ProfileError("truncated", "a", offset=3)

    worker: Analyses[Sized] = Analyses(workers=1)
    failed = done(worker.submit("key", "place", fail))
    assert worker.submit("key", "place", lambda _report: Sized(1)) is failed
    assert worker.retry("key") and not worker.retry("key")
    again = done(worker.submit("key", "place", lambda _report: Sized(1)))
    assert again.result == Sized(1) and not worker.retry("key"), "what is done stays"
