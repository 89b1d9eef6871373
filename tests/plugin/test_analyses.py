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
