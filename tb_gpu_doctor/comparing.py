"""From two paths to a comparison: what the command and the tab call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.compare import Batches, Comparison
    from tb_gpu_doctor.comparison.history import History
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.traces.sessions import Session

Progress = Callable[[str, float], None]


def compare_paths(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    batches: Batches | None = None,
    progress: Progress | None = None,
    names: tuple[str | None, str | None] = (None, None),
) -> Comparison:
    """Compare two runs.

    Args:
        before: a logdir, run, session folder, profile file or baseline file.
        after: the same of the other run.
        batches: global batch sizes where the runs did not record them.
        progress: called with a stage and the share of the work that is done, 0..1.
        names: what to call the two, by default by run and session.

    Raises:
        ProfileError: one of them cannot be read; ``path`` says which.
    """
    from tb_gpu_doctor.comparison.compare import compare

    report = progress or (lambda _stage, _fraction: None)
    first = summary_of_path(before, progress=lambda stage, done: report(stage, done / 2))
    second = summary_of_path(after, progress=lambda stage, done: report(stage, 0.5 + done / 2))
    if first.label == second.label and not any(names):
        names = _apart(os.fspath(before), os.fspath(after))
    first, second = (replace(run, label=name or run.label) for run, name in zip((first, second), names, strict=True))
    return compare(first, second, batches)


def _apart(before: str, after: str) -> tuple[str | None, str | None]:
    """What tells two paths apart: their ends, from the last part on in which they differ; None for the same path."""
    from tb_gpu_doctor.files.addresses import is_remote, shown

    parts = [
        (shown(path) if is_remote(path) else os.path.abspath(path).replace(os.sep, "/")).split("/")
        for path in (before, after)
    ]
    if parts[0] == parts[1]:
        return None, None
    for count in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(found[-count:]) for found in parts]
        if ends[0] != ends[1]:
            return ends[0], ends[1]
    return None, None


def summary_of_path(
    path: str | os.PathLike[str],
    run: str | None = None,
    session: str | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """The summary of a baseline file, or of a session below a path: the newest, or those named, read as one job.

    Raises:
        ProfileError: it cannot be read.
    """
    from tb_gpu_doctor.comparison import baseline_file

    name = os.fspath(path)
    if baseline_file.is_baseline(name):
        return baseline_file.read(name)
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.files.addresses import local_path
    from tb_gpu_doctor.files.system import files_at
    from tb_gpu_doctor.traces.sessions import find_sessions

    name = local_path(name)
    chosen = choose_session(find_sessions(name), run, session)
    files = files_at(name)
    folder = os.path.basename(files.abspath(name)) if files.isdir(name) else ""
    folder = "" if folder == chosen.session else folder
    summary = summary_of_session(chosen, progress)
    return replace(summary, label=_label(chosen, folder))


def summary_of_session(session: Session, progress: Progress | None = None) -> RunSummary:
    """The summary of a session, remembered from the last time where its files are the same.

    Raises:
        ProfileError: it cannot be read.
    """
    from tb_gpu_doctor.api import answer_session

    return answer_session(session, progress).summary


def _label(session: Session, folder: str = "") -> str:
    """Run and session; ``folder`` names a logdir whose runs have no name."""
    label = "/".join(part for part in (session.run, session.session) if part)
    if folder and not session.run:
        label = f"{folder}/{label}" if label else folder
    return label or os.path.basename(os.path.abspath(session.path))


def history_of_path(
    path: str | os.PathLike[str],
    run: str | None = None,
    last: int = 50,
    progress: Progress | None = None,
) -> History:
    """How the sessions below a path went over time.

    Args:
        path: a logdir or a run.
        run: TensorBoard run to look at; by default all of them.
        last: how many sessions, the newest.
        progress: called with a stage and the share of the work that is done, 0..1.

    Raises:
        ProfileError: there is no session, no such run, or nothing that could be read.
    """
    from tb_gpu_doctor.api import choose_session
    from tb_gpu_doctor.comparison.history import HistoryEntry, build_history
    from tb_gpu_doctor.diagnosis.model import Phrase
    from tb_gpu_doctor.errors import ProfileError
    from tb_gpu_doctor.traces.sessions import find_sessions

    report = progress or (lambda _stage, _fraction: None)
    scan = find_sessions(os.fspath(path))
    chosen = choose_session(scan, run)  # for its clear errors
    sessions = [session for session in scan.sessions if not session.is_telemetry]
    if run is not None:
        sessions = [session for session in sessions if session.run == chosen.run]
    entries = []
    failure = None
    for index, session in enumerate(sessions[:last]):
        base, part = index / min(last, len(sessions)), 1 / min(last, len(sessions))

        def share(stage: str, done: float, base: float = base, part: float = part) -> None:
            report(stage, base + part * done)

        problem = None
        summary = None
        try:
            summary = summary_of_session(session, share)
        except ProfileError as error:
            problem = Phrase("history.problems.unreadable", {"reason": error})
            failure = failure or error
        entries.append(HistoryEntry(session.run, session.session, session.recorded_unix_s, summary, problem))
    if failure is not None and all(entry.summary is None for entry in entries):
        raise failure
    return build_history(entries)
