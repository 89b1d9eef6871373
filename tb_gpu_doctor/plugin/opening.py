"""Open a session for the tab: from the cache at once, else analysed in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tb_gpu_doctor.files.names import is_remote

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.plugin.scanner import Root
    from tb_gpu_doctor.plugin.session_view import SessionView
    from tb_gpu_doctor.traces.sessions import Session

Report = Callable[[str, float], None]


def open_view(session: Session, root: Root, report: Report) -> SessionView:
    """The view of a session.

    Args:
        session: by the name that the tab knows.
        root: what paths are shown below.
        report: called with a stage and the share of the work that is done.

    Raises:
        TraceError: nothing in the session can be read.
    """
    from tb_gpu_doctor.cache.remember import recalled
    from tb_gpu_doctor.plugin.apart import apart
    from tb_gpu_doctor.plugin.session_view import SessionView, kind_of

    if _is_remote(session):
        return _view(session, root, report)
    kept = recalled(session, kind_of(_shown(session.path, root)), SessionView)
    return kept if kept is not None else apart(report, session.path, _view, session, root)


def open_summary(session: Session, report: Report) -> RunSummary:
    """The summary of a session; arguments and errors as of `open_view`."""
    from tb_gpu_doctor.cache.remember import recalled
    from tb_gpu_doctor.comparing import SUMMARY, summary_of_session
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.plugin.apart import apart

    if _is_remote(session):
        return summary_of_session(session, report)
    kept = recalled(session, SUMMARY, RunSummary)
    return kept if kept is not None else apart(report, session.path, summary_of_session, session)


def _is_remote(session: Session) -> bool:
    """Whether files are fetched, with credentials and listings that only this process has."""
    paths = [session.path, *(file.path for file in session.files), *(home.folder for home in session.homes)]
    return any(is_remote(path) for path in paths)


def _view(session: Session, root: Root, report: Report) -> SessionView:
    from tb_gpu_doctor.plugin.session_view import analyse

    return analyse(session, report, lambda path: _shown(path, root))


def _shown(path: str, root: Root) -> str:
    from tb_gpu_doctor.plugin.scanner import shown_path

    return shown_path(path, root)
