"""The whole pipeline behind one call: from a path to a diagnosis.

`answer_session` is what the command, the tab, comparisons and Python programs ask: what is kept of a session, from
the cache where its files are the same. `diagnose_session` is the work behind it; it also gives what was computed on
the way, so that the tab's timeline comes from the same work.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tb_gpu_doctor.errors import ProfileError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tb_gpu_doctor.analysis.facts import FileFacts
    from tb_gpu_doctor.analysis.file_columns import FileColumns
    from tb_gpu_doctor.analysis.job import Job
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.diagnosis.model import Diagnosis
    from tb_gpu_doctor.diagnosis.thresholds import Thresholds
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.telemetry.joining import Joined, ProfileSpan
    from tb_gpu_doctor.telemetry.recordings import HomeTelemetry
    from tb_gpu_doctor.traces.sessions import Session, SessionScan

Progress = Callable[[str, float], None]
# Share of the whole work that is done when all files are read and analysed.
_FILES = 0.98


# What a session's answer and the facts of its files are called in the cache.
ANSWER, FACTS = "answer", "facts"


@dataclass(frozen=True)
class SessionAnswer:
    """What is kept of a session: its diagnosis, and what comparisons need of it."""

    diagnosis: DiagnosisReport
    summary: RunSummary


@dataclass(frozen=True)
class SessionFacts:
    """The facts of a session's files, and the files that could not be read."""

    files: tuple[FileFacts, ...]
    failures: tuple[ProfileError, ...]


@dataclass(frozen=True)
class SessionResult:
    """A diagnosis with what it came from, one of each per readable file.

    Attributes:
        diagnosis: of the session.
        files: their facts, under the names that the diagnosis uses.
        columns: what can be drawn of the same files; empty where nobody wanted them.
        failures: the files that could not be read.
        job: what needs more than one of the files.
        telemetry: that of the nearest runs with any.
        joined: what of it belongs to these GPUs.
    """

    diagnosis: DiagnosisReport
    files: tuple[FileFacts, ...]
    columns: tuple[FileColumns, ...]
    failures: tuple[ProfileError, ...]
    job: Job
    telemetry: HomeTelemetry | None = None
    joined: Joined | None = None


def answer_session(
    session: Session, progress: Progress | None = None, executor: Executor | None = None
) -> SessionAnswer:
    """Diagnosis and summary of a session, remembered from the last time where its files are the same.

    Args:
        session: what to read.
        progress: called with a stage and the share of the work that is done, 0..1, in any thread.
        executor: as of `diagnose_session`.

    Raises:
        ProfileError: no file could be read; the first one's reason.
    """
    from tb_gpu_doctor.cache.remember import remembered

    def make() -> tuple[SessionAnswer, bool]:
        result = diagnose_session(session, progress, executor=executor)
        return answer_of(result, session), not result.failures

    return remembered(session, ANSWER, SessionAnswer, make)


def facts_of_session(session: Session, progress: Progress | None = None) -> SessionFacts:
    """The facts of a session's files, remembered from the last time where they are the same.

    Args:
        session: what to read; a profile.
        progress: as of `answer_session`.

    Raises:
        ProfileError: no file could be read; the first one's reason.
    """
    from tb_gpu_doctor.cache.remember import remembered

    answers: dict[str, object] = {}

    def make() -> tuple[SessionFacts, bool]:
        result = diagnose_session(session, progress)
        answers[ANSWER] = answer_of(result, session)
        return SessionFacts(result.files, result.failures), not result.failures

    return remembered(session, FACTS, SessionFacts, make, beside=lambda _facts: answers)


def answer_of(result: SessionResult, session: Session) -> SessionAnswer:
    """What is kept of a session that was diagnosed."""
    from tb_gpu_doctor.comparison.summarize import summarize
    from tb_gpu_doctor.telemetry.joining import Joined

    label = "/".join(part for part in (session.run, session.session) if part)
    label = label or os.path.basename(os.path.abspath(session.path))
    summary = summarize(result.diagnosis, result.files, result.job, result.joined or Joined(), label)
    return SessionAnswer(result.diagnosis, replace(summary, unread=len(result.failures)))


def choose_session(scan: SessionScan, run: str | None = None, session: str | Sequence[str] | None = None) -> Session:
    """The newest session that fits, one that can be read before one that cannot.

    Args:
        scan: of the logdir.
        run: by default any.
        session: its name, or ``RUN/SESSION``; several, as a list or with commas, are read as one job.

    Raises:
        ProfileError: ``nothing_found``, ``no_such_run``, ``no_such_session``; and what
            `traces.related.join_sessions` says of sessions that are no job.
    """
    from tb_gpu_doctor.traces.related import SEPARATOR, full_name, join_sessions, named_sessions

    if not scan.sessions:
        if scan.problems:
            raise scan.problems[0]
        raise ProfileError("nothing_found", scan.root, searched=list(scan.searched))
    found = list(scan.sessions)
    if run is not None:
        wanted = run.strip("/") if run not in (".", "./") else ""
        found = [candidate for candidate in found if candidate.run == wanted]
        if not found:
            runs = sorted({candidate.run or "." for candidate in scan.sessions})
            raise ProfileError("no_such_run", scan.root, run=run, runs=_some(runs))
    if session is None:
        return _first_readable(found)

    def find(name: str) -> Session | None:
        name = name.rstrip("/").removeprefix("./")
        fitting = [candidate for candidate in found if candidate.session == name]
        fitting = fitting or [candidate for candidate in scan.sessions if full_name(candidate) == name]
        return _first_readable(fitting) if fitting else None

    chosen: list[Session] = []
    names = [session] if isinstance(session, str) else list(session)
    for name in names:
        sessions = named_sessions(name, find)
        if sessions is None:
            known = sorted({candidate.session for candidate in found}, reverse=True)
            raise ProfileError("no_such_session", scan.root, session=name, sessions=_some(known))
        chosen += sessions
    return join_sessions(chosen, SEPARATOR.join(names))


def with_logs(session: Session, paths: Sequence[str], zone_s: int | None = None) -> Session:
    """The session with logs of nvidia-smi or DCGM that were recorded beside it.

    Args:
        session: a profile, or such a log itself.
        paths: of logs on this machine.
        zone_s: how far the clock of these logs, and of those that were found, is ahead of UTC.

    Raises:
        ProfileError: ``missing_path``, ``not_a_file``.
    """
    from tb_gpu_doctor.traces.log_heads import LogFile

    for path in paths:
        if not os.path.isfile(path):
            raise ProfileError("not_a_file" if os.path.exists(path) else "missing_path", path)
    named = {os.path.abspath(path) for path in paths}
    found = [log for log in session.logs if os.path.abspath(log.path) not in named]
    given = [LogFile(path, given=True) for path in paths]
    return replace(session, logs=tuple(replace(log, zone_s=zone_s) for log in (*given, *found)))


def _first_readable(sessions: Sequence[Session]) -> Session:
    return next((candidate for candidate in sessions if candidate.problem is None), sessions[0])


def diagnose_session(
    session: Session,
    progress: Progress | None = None,
    thresholds: Thresholds | None = None,
    executor: Executor | None = None,
    with_columns: bool = False,
) -> SessionResult:
    """Decode, analyse and diagnose all files of a session; a broken one does not hide the others.

    Args:
        session: what to read.
        progress: called with a stage and the share of the work that is done, 0..1, in any thread.
        thresholds: another table than the default one.
        executor: what decodes and analyses the files, see `parallel.many_files.read_files`.
        with_columns: whether what can be drawn of the files is wanted as well.

    Raises:
        ProfileError: no file could be read; the first one's reason.
    """
    # Here, not above: what only lists sessions needs neither numpy nor the decoder.
    from tb_gpu_doctor.diagnosis.context import Context
    from tb_gpu_doctor.diagnosis.engine import diagnose_context
    from tb_gpu_doctor.diagnosis.thresholds import Thresholds
    from tb_gpu_doctor.parallel.many_files import read_files
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport

    report = progress or (lambda _stage, _fraction: None)
    report("reading", 0.0)
    if session.is_telemetry:
        return _diagnose_telemetry(session, report, thresholds)
    outcomes = read_files(session.files, lambda stage, done: report(stage, _FILES * done), executor, with_columns)
    failures = tuple(outcome for outcome in outcomes if isinstance(outcome, ProfileError))
    pairs = zip(session.files, outcomes, strict=True)
    read = [(file.host, outcome) for file, outcome in pairs if not isinstance(outcome, ProfileError)]
    if not read:
        raise failures[0] if failures else ProfileError("nothing_found", session.path, searched=[])
    report("diagnosing", _FILES)
    files = _named([(host, outcome.facts) for host, outcome in read])
    recorded, joined = _telemetry_of(session, files)
    context = Context(files, thresholds or Thresholds(), joined)
    diagnosis = diagnose_context(context, run=session.run, session=session.session, failures=failures)
    diagnosis = _with_doubt(diagnosis, session, files)
    if joined.assumed:
        diagnosis = replace(diagnosis, warnings=(*diagnosis.warnings, *joined.assumed))
    report("diagnosing", 1.0)
    return SessionResult(
        diagnosis=DiagnosisReport.of(diagnosis),
        files=files,
        columns=tuple(outcome.columns for _, outcome in read if outcome.columns is not None),
        failures=failures,
        job=context.job,
        telemetry=recorded,
        joined=joined,
    )


def _named(read: Sequence[tuple[str, FileFacts]]) -> tuple[FileFacts, ...]:
    """The files by their hosts; two files of one host have two clocks, and their own names tell them apart."""
    count = Counter(host for host, _ in read)
    return tuple(file.named(host if count[host] == 1 and host else os.path.basename(file.path)) for host, file in read)


def _with_doubt(diagnosis: Diagnosis, session: Session, files: Sequence[FileFacts]) -> Diagnosis:
    """The diagnosis of sessions that were joined, with a warning where their files deny that they are one job."""
    from tb_gpu_doctor.diagnosis.model import Phrase
    from tb_gpu_doctor.traces.related import recorded_apart

    if len({os.path.dirname(file.path) for file in session.files}) < 2:
        return diagnosis
    apart = recorded_apart([(file.wall_start_unix_ns, file.declared) for file in files])
    if apart is None:
        return diagnosis
    return replace(diagnosis, warnings=(Phrase("report.recorded_apart", {"apart": apart}), *diagnosis.warnings))


def _telemetry_of(session: Session, files: Sequence[FileFacts]) -> tuple[HomeTelemetry | None, Joined]:
    """What was recorded beside a profile, and what of it belongs to the profile's GPUs."""
    from tb_gpu_doctor.telemetry.joining import Joined, join
    from tb_gpu_doctor.telemetry.recordings import read_homes

    if not session.homes and not session.logs:
        return None, Joined()
    by_path = {os.path.abspath(file.path): file.host for file in session.files}
    spans = [span_of(file, by_path.get(os.path.abspath(file.path), "")) for file in files]
    found: tuple[HomeTelemetry | None, Joined] = (None, Joined())
    if session.homes:
        recorded = read_homes(session.homes)
        found = recorded, replace(join(recorded.telemetry, spans), words=recorded.by_run())
    if session.logs:
        from tb_gpu_doctor.telemetry.log_recordings import join_logs, together

        found = together(found, join_logs(session.logs, spans))
    return found


def span_of(file: FileFacts, file_host: str = "") -> ProfileSpan:
    """What joining with telemetry needs of one file; ``file_host`` is the host that its name tells."""
    from tb_gpu_doctor.telemetry.joining import profile_span

    numbers = [gpu.device.id for gpu in file.gpus]
    bounds = file.declared if file.declared is not None else file.worked
    uuids = [gpu.device.uuid for gpu in file.gpus]
    return profile_span(
        file.label, (file_host, file.host), numbers, file.wall_start_unix_ns, bounds, uuids if any(uuids) else ()
    )


def _diagnose_telemetry(session: Session, report: Progress, thresholds: Thresholds | None) -> SessionResult:
    """A diagnosis from telemetry alone."""
    from tb_gpu_doctor.analysis.job import analyse_job
    from tb_gpu_doctor.diagnosis.model import Phrase
    from tb_gpu_doctor.diagnosis.telemetry_engine import diagnose_telemetry
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.telemetry.joining import newest
    from tb_gpu_doctor.telemetry.recordings import read_homes

    assumed: list[Phrase] = []
    if session.homes:
        recorded = read_homes(session.homes)
    else:
        from tb_gpu_doctor.telemetry.log_recordings import logs_alone

        logs = logs_alone(session.logs)
        recorded = logs.home()
        assumed = [phrase for phrases in logs.said.values() for phrase in phrases]
    report("diagnosing", _FILES)
    joined = replace(newest(recorded.telemetry), words=recorded.by_run())
    problems = [Phrase.recorded(sentences) for sentences in recorded.spoken_problems()]
    problems += [phrase for index, phrase in enumerate(assumed) if phrase not in assumed[:index]]
    diagnosis = diagnose_telemetry(
        joined, run=session.run, session=session.session, thresholds=thresholds, problems=problems
    )
    report("diagnosing", 1.0)
    return SessionResult(DiagnosisReport.of(diagnosis), (), (), (), analyse_job(()), recorded, joined)


def _some(names: list[str], limit: int = 10) -> list[str]:
    """Enough names to choose from, not a screenful."""
    return names if len(names) <= limit else [*names[:limit], "…"]
