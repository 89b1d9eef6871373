"""The whole pipeline behind one call: from a path to a diagnosis.

`diagnose` is for programs and the command; `diagnose_session` keeps what was computed on
the way, so that the tab's timeline comes from the same work.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tb_gpu_doctor.traces.errors import TraceError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tb_gpu_doctor.analysis.job import Job
    from tb_gpu_doctor.analysis.results import TraceAnalysis
    from tb_gpu_doctor.diagnosis.thresholds import Thresholds
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.traces.columns import Trace
    from tb_gpu_doctor.traces.sessions import Session, SessionScan

Progress = Callable[[str, float], None]
# Share of the whole work that is done when all files are read and analysed.
_FILES = 0.98


@dataclass(frozen=True)
class SessionResult:
    """A diagnosis with the traces and analyses it came from, one of each per readable file.

    ``failures`` are the files that could not be read, ``job`` what needs more than one of the files.
    """

    diagnosis: DiagnosisReport
    traces: tuple[Trace, ...]
    analyses: tuple[TraceAnalysis, ...]
    failures: tuple[TraceError, ...]
    job: Job


def diagnose(
    path: str | os.PathLike[str],
    run: str | None = None,
    session: str | None = None,
    progress: Progress | None = None,
) -> DiagnosisReport:
    """Say what is wrong with the training run that was profiled below ``path``.

    Args:
        path: a logdir, a run, a session folder or one file.
        run: TensorBoard run to look at; by default any.
        session: session to look at; by default the newest that can be read.
        progress: called with a stage and the share of the work that is done, 0..1.

    Raises:
        TraceError: nothing could be diagnosed; its ``code`` says why, its ``path`` where.
    """
    from tb_gpu_doctor.traces.sessions import find_sessions

    chosen = choose_session(find_sessions(os.fspath(path)), run, session)
    return diagnose_session(chosen, progress).diagnosis


def choose_session(scan: SessionScan, run: str | None = None, session: str | None = None) -> Session:
    """The newest session that fits, one that can be read before one that cannot.

    Raises:
        TraceError: ``nothing_found``, ``no_such_run`` or ``no_such_session``.
    """
    if not scan.sessions:
        if scan.problems:
            raise scan.problems[0]
        raise TraceError("nothing_found", scan.root, searched=list(scan.searched))
    found = list(scan.sessions)
    if run is not None:
        wanted = run.strip("/") if run not in (".", "./") else ""
        found = [candidate for candidate in found if candidate.run == wanted]
        if not found:
            runs = sorted({candidate.run or "." for candidate in scan.sessions})
            raise TraceError("no_such_run", scan.root, run=run, runs=_some(runs))
    if session is not None:
        names = sorted({candidate.session for candidate in found}, reverse=True)
        found = [candidate for candidate in found if candidate.session == session.rstrip("/")]
        if not found:
            raise TraceError("no_such_session", scan.root, session=session, sessions=_some(names))
    return next((candidate for candidate in found if candidate.problem is None), found[0])


def diagnose_session(
    session: Session,
    progress: Progress | None = None,
    thresholds: Thresholds | None = None,
    executor: Executor | None = None,
) -> SessionResult:
    """Decode, analyse and diagnose all files of a session; a broken one does not hide the others.

    Args:
        session: what to read.
        progress: called with a stage and the share of the work that is done, 0..1, in any thread.
        thresholds: another table than the default one.
        executor: what decodes and analyses the files, see `parallel.many_files.read_files`.

    Raises:
        TraceError: no file could be read; the first one's reason.
    """
    # Here, not above: what only lists sessions needs neither numpy nor the decoder.
    from tb_gpu_doctor.diagnosis.context import Context, HostProfile
    from tb_gpu_doctor.diagnosis.engine import diagnose_context
    from tb_gpu_doctor.diagnosis.thresholds import Thresholds
    from tb_gpu_doctor.parallel.many_files import read_files
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport

    report = progress or (lambda _stage, _fraction: None)
    report("reading", 0.0)
    outcomes = read_files(session.files, lambda stage, done: report(stage, _FILES * done), executor)
    read: list[tuple[str, Trace, TraceAnalysis]] = []
    failures: list[TraceError] = []
    for file, outcome in zip(session.files, outcomes, strict=True):
        if isinstance(outcome, TraceError):
            failures.append(outcome)
        else:
            read.append((file.host, *outcome))
    if not read:
        raise failures[0] if failures else TraceError("nothing_found", session.path, searched=[])
    report("diagnosing", _FILES)
    names = Counter(host for host, _, _ in read)
    profiles = [
        # Two files of one host have two clocks; their names tell them apart.
        HostProfile(host if names[host] == 1 and host else os.path.basename(trace.path), trace, analysis)
        for host, trace, analysis in read
    ]
    context = Context(tuple(profiles), thresholds or Thresholds())
    diagnosis = diagnose_context(context, run=session.run, session=session.session, failures=failures)
    report("diagnosing", 1.0)
    return SessionResult(
        diagnosis=DiagnosisReport.of(diagnosis),
        traces=tuple(trace for _, trace, _ in read),
        analyses=tuple(analysis for _, _, analysis in read),
        failures=tuple(failures),
        job=context.job,
    )


def _some(names: list[str], most: int = 10) -> list[str]:
    """Enough names to choose from, not a screenful."""
    return names if len(names) <= most else [*names[:most], "…"]
