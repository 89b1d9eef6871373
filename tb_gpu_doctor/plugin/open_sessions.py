"""Open the sessions that requests name: only those that the scan found, each analysed once.

What was analysed before comes from the cache at once; the rest is analysed in a process of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tb_gpu_doctor.errors import ProfileError, RequestError
from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.plugin.analyses import OWN_FAILURES, OWN_FAILURES_ON_FILES, Analyses, Progress, Report
from tb_gpu_doctor.plugin.logdir import FoundSession, Root, Scanner, shown_path
from tb_gpu_doctor.plugin.stalled_reads import STALL_S, within

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.plugin.session_view import SessionView
    from tb_gpu_doctor.traces.sessions import Session


SCAN_WAIT_S = 0.2
_MOST_RECALLED = 500

Analyse = Callable[["Session", Report], "SessionView"]


class NotReady(Exception):
    """The answer needs work that still runs."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress.state)
        self.progress = progress


class OpenSessions:
    """From the names in a request to a session's view.

    Args:
        logdir: knows the sessions; nothing outside its snapshot is opened.
        analyses: runs and caches the analyses.
        analyse: from a session to its view; None: from the cache, or in a process of its own.
    """

    def __init__(
        self, logdir: Scanner, analyses: Analyses[SessionView] | None = None, analyse: Analyse | None = None
    ) -> None:
        self._logdir = logdir
        self._analyses: Analyses[SessionView] = Analyses() if analyses is None else analyses
        self._analyse = analyse
        # What the cache knew of sessions that nobody has opened here, by key; None where it knew nothing.
        self._recalled: dict[str, str | None] = {}
        self._recalling = threading.Lock()

    def find(self, run: str, session: str) -> FoundSession:
        """The session of these names.

        Raises:
            RequestError: 404 where there is none, 422 for several that are no job.
            NotReady: the first scan still runs.
        """
        try:
            found = self._logdir.snapshot(refresh=False).find(run, session)
            if found is None:  # recorded a moment ago, or TensorBoard has just started
                snapshot = self._logdir.snapshot(wait_s=SCAN_WAIT_S)
                found = snapshot.find(run, session)
                if found is None and not snapshot.complete:
                    raise NotReady(Progress("queued"))
        except ProfileError as error:  # several sessions that are no job
            raise RequestError.about(error.with_path(run)) from None
        if found is None:
            name = f"{run}/{session}" if run else session
            raise RequestError(404, "unknown_session", path=name, name=name)
        return found

    def view(self, found: FoundSession, viewer: str = "") -> SessionView:
        """The view of a session, whose analysis is put into the queue unless it has been.

        Args:
            found: the session.
            viewer: who waits for it.

        Raises:
            RequestError: it failed.
            NotReady: it waits for its turn, or runs.
        """
        job = self._analyses.submit(found.key, found.owner, functools.partial(self._open, found), viewer)
        if job.error is not None:
            raise _failure(found, job.error)
        if job.result is None:
            raise NotReady(self._analyses.progress(job))
        return job.result

    def summary(self, found: FoundSession, report: Report) -> RunSummary:
        """A session's summary: of its view where that is there, else worked out now."""
        job = self._analyses.peek(found.key)
        if job is not None and job.result is not None:
            return job.result.summary
        return open_summary(dataclasses.replace(found.session, run=found.run), report)

    def verdicts(self, sessions: Sequence[FoundSession]) -> tuple[str | None, ...]:
        """The verdict of each session as far as it is known without any work; never waits.

        What the cache holds of sessions that nobody has opened here is looked up in the background.
        """
        known: list[str | None] = []
        unasked: list[FoundSession] = []
        for found in sessions:
            job = self._analyses.peek(found.key)
            if job is not None and job.result is not None:
                known.append(job.result.summary.verdict)
                continue
            known.append(self._recalled.get(found.key))
            if found.key not in self._recalled and self._analyse is None:
                unasked.append(found)
        if unasked and self._recalling.acquire(blocking=False):
            threading.Thread(target=self._recall, args=(unasked,), name="gpu-doctor-verdicts", daemon=True).start()
        return tuple(known)

    def _recall(self, sessions: Sequence[FoundSession]) -> None:
        from tb_gpu_doctor.api import ANSWER, SessionAnswer
        from tb_gpu_doctor.cache.remember import recalled

        try:
            if len(self._recalled) > _MOST_RECALLED:
                self._recalled.clear()  # of files that have changed since
            for found in sessions[:_MOST_RECALLED]:
                session = dataclasses.replace(found.session, run=found.run)
                look = functools.partial(recalled, session, ANSWER, SessionAnswer)
                kept = None
                if not _is_remote(session) and not session.problem:
                    with contextlib.suppress(ProfileError):  # its files do not answer
                        kept = within(STALL_S, session.path, look)
                self._recalled[found.key] = None if kept is None else kept.summary.verdict
        finally:
            self._recalling.release()

    def progress(self, found: FoundSession) -> Progress:
        """How far the analysis of a session has come, without beginning one."""
        job = self._analyses.peek(found.key)
        return self._analyses.progress(job) if job is not None else Progress()

    def cancel(self, found: FoundSession, viewer: str) -> None:
        """A viewer waits no longer; the analysis ends unless somebody else does."""
        self._analyses.cancel(found.key, viewer)

    def retry(self, found: FoundSession) -> None:
        """Let the next question begin a failed analysis anew."""
        self._analyses.retry(found.key)

    def _open(self, found: FoundSession, report: Report) -> SessionView:
        session = dataclasses.replace(found.session, run=found.run)  # by the name that the tab knows it
        if self._analyse is not None:
            return self._analyse(session, report)
        return open_view(session, found.root, report)


def _failure(found: FoundSession, error: ProfileError) -> RequestError:
    """The answer for an analysis that failed: 500 when it is our fault, 422 when it is the file's."""
    shown = shown_path(error.path or found.session.path, found.root)
    if error.code in OWN_FAILURES:
        return RequestError(500, error.code, path=shown)
    answer = RequestError.about(error.with_path(shown))
    if error.code in OWN_FAILURES_ON_FILES:
        answer.status = 500
    return answer


def open_view(session: Session, root: Root, report: Report) -> SessionView:
    """The view of a session.

    Args:
        session: by the name that the tab knows.
        root: what paths are shown below.
        report: called with a stage and the share of the work that is done.

    Raises:
        ProfileError: nothing in the session can be read.
    """
    from tb_gpu_doctor.cache.remember import recalled
    from tb_gpu_doctor.plugin.session_view import SessionView, kind_of
    from tb_gpu_doctor.plugin.worker_process import in_worker_process

    if _is_remote(session):
        return _view(session, root, report)
    kind = kind_of(shown_path(session.path, root))
    kept = within(STALL_S, session.path, lambda: recalled(session, kind, SessionView))
    return kept if kept is not None else in_worker_process(report, session.path, _view, session, root)


def open_summary(session: Session, report: Report) -> RunSummary:
    """The summary of a session; arguments and errors as of `open_view`."""
    from tb_gpu_doctor.api import ANSWER, SessionAnswer
    from tb_gpu_doctor.cache.remember import recalled
    from tb_gpu_doctor.comparing import summary_of_session
    from tb_gpu_doctor.plugin.worker_process import in_worker_process

    if _is_remote(session):
        return summary_of_session(session, report)
    kept = within(STALL_S, session.path, lambda: recalled(session, ANSWER, SessionAnswer))
    return kept.summary if kept is not None else in_worker_process(report, session.path, summary_of_session, session)


def _is_remote(session: Session) -> bool:
    """Whether files are fetched, with credentials and listings that only this process has."""
    paths = [session.path, *(file.path for file in session.files), *(home.folder for home in session.homes)]
    return any(is_remote(path) for path in paths)


def _view(session: Session, root: Root, report: Report) -> SessionView:
    from tb_gpu_doctor.plugin.session_view import analyse

    return analyse(session, report, lambda path: shown_path(path, root))
