"""From two paths to a comparison: what the command and the tab call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tb_gpu_doctor.api import SessionResult
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.comparison.results import Comparison
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.traces.sessions import Session

Progress = Callable[[str, float], None]


def compare_paths(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    batches: Batches | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two runs.

    Args:
        before: a logdir, run, session folder, profile file or baseline file.
        after: the same of the other run.
        batches: global batch sizes where the runs did not record them.
        progress: called with a stage and the share of the work that is done, 0..1.

    Raises:
        TraceError: one of them cannot be read; ``path`` says which.
    """
    from tb_gpu_doctor.comparison.compare import compare

    report = progress or (lambda _stage, _fraction: None)
    first = summary_of_path(before, progress=lambda stage, done: report(stage, done / 2))
    second = summary_of_path(after, progress=lambda stage, done: report(stage, 0.5 + done / 2))
    return compare(first, second, batches)


def summary_of_path(
    path: str | os.PathLike[str],
    run: str | None = None,
    session: str | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """The summary of a baseline file, or of the newest session below a path.

    Raises:
        TraceError: it cannot be read.
    """
    from tb_gpu_doctor.comparison import baseline_file

    name = os.fspath(path)
    if baseline_file.is_baseline(name):
        return baseline_file.read(name)
    from tb_gpu_doctor.api import choose_session, diagnose_session
    from tb_gpu_doctor.traces.sessions import find_sessions

    chosen = choose_session(find_sessions(name), run, session)
    folder = os.path.basename(os.path.abspath(name)) if os.path.isdir(name) else ""
    folder = "" if folder == chosen.session else folder
    return summary_of_result(diagnose_session(chosen, progress), chosen, folder)


def summary_of_result(result: SessionResult, session: Session, folder: str = "") -> RunSummary:
    """The summary of a session that was diagnosed already; ``folder`` names a logdir whose runs have no name."""
    from tb_gpu_doctor.comparison.summarize import summarize
    from tb_gpu_doctor.telemetry.joining import Joined

    label = "/".join(part for part in (session.run, session.session) if part)
    if folder and not session.run:
        label = f"{folder}/{label}" if label else folder
    return summarize(
        result.diagnosis, result.traces, result.analyses, result.job, result.joined or Joined(), label or session.path
    )
