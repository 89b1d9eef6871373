"""What Python programs call: the commands as functions, with results that speak.

    >>> import tb_gpu_doctor
    >>> diagnosis = tb_gpu_doctor.diagnose("demo_logs/input_bound")
    >>> print(diagnosis.findings[0].severity)
    critical

Each raises a `DoctorError`, with a code, a path and parameters, where it cannot do what was asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tb_gpu_doctor.public_results import CheckResult, Comparison, Diagnosis, History

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tb_gpu_doctor.comparison.check import Limits
    from tb_gpu_doctor.traces.sessions import Session, SessionScan

Path = str | os.PathLike[str]
Progress = Callable[[str, float], None]


def diagnose(
    path: Path | Session,
    run: str | None = None,
    session: str | Sequence[str] | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    lang: str = "en",
) -> Diagnosis:
    """Say what is wrong with the training run that was profiled below ``path``.

        >>> diagnose("demo_logs", run="slow_gpu").findings[0].gpus
        (GpuRef(host='gpu-node-0', id=2, rank=None, machine=''),)

    Args:
        path: a logdir, a run, a session folder, one file, or a session of `find_sessions`.
        run: TensorBoard run to look at; by default any.
        session: session to look at; by default the newest that can be read. Several, as a list or with commas,
            are read as one job.
        progress: called with a stage and the share of the work that is done, 0..1, in any thread.
        executor: what decodes and analyses the files, by default processes of this machine where they pay.
        lang: language of sentences, ``en`` or ``es``.

    Raises:
        ProfileError: nothing could be diagnosed; its ``code`` says why, its ``path`` where.
    """
    from tb_gpu_doctor.api import answer_session, choose_session

    chosen = path
    if isinstance(chosen, (str, os.PathLike)):
        chosen = choose_session(find_sessions(chosen), run, session)
    return Diagnosis(answer_session(chosen, progress, executor).diagnosis, chosen, lang)


def find_sessions(path: Path) -> SessionScan:
    """The sessions below (or at) ``path``, newest first.

        >>> sorted(session.run for session in find_sessions("demo_logs").sessions)[:2]
        ['healthy', 'input_bound']

    Raises:
        ProfileError: ``path`` itself cannot be read; problems below it are in the result.
    """
    from tb_gpu_doctor.traces import sessions

    return sessions.find_sessions(os.fspath(path))


def compare(
    before: Path,
    after: Path,
    batch_before: int | None = None,
    batch_after: int | None = None,
    progress: Progress | None = None,
    lang: str = "en",
) -> Comparison:
    """Say whether a change helped, by how much, and where the time went.

        >>> change = compare("demo_logs/input_bound", "demo_logs/healthy").change
        >>> change is not None and change.value < 0
        True

    Args:
        before: a logdir, run, session folder, profile file or baseline file.
        after: the same of the other run.
        batch_before: global batch size, where the run did not record it.
        batch_after: the same of the other run.
        progress: called with a stage and the share of the work that is done, 0..1.
        lang: language of sentences.

    Raises:
        DoctorError: one of them cannot be read; ``path`` says which.
    """
    from tb_gpu_doctor.comparing import compare_paths
    from tb_gpu_doctor.comparison.compare import Batches

    return Comparison(compare_paths(before, after, Batches(batch_before, batch_after), progress), lang)


def check(
    path: Path,
    baseline: Path | None = None,
    limits: Limits | Path | None = None,
    run: str | None = None,
    session: str | Sequence[str] | None = None,
    batch: int | None = None,
    batch_baseline: int | None = None,
    lang: str = "en",
) -> CheckResult:
    """Judge a run by limits and, where one is given, by a baseline; what cannot be told never passes.

        >>> check("demo_logs/healthy", baseline="demo_logs/healthy").passed
        True

    Args:
        path: what to check, as of `diagnose`.
        baseline: what to compare it with, as of `compare`; by default the one that the file of limits names, if any.
        limits: `Limits`, or a TOML file with some (``docs/check.md``); by default those that fit everybody. Unlike the
            command, this takes no file that it was not given.
        run: as of `diagnose`.
        session: as of `diagnose`.
        batch: global batch size, where the run did not record it.
        batch_baseline: the same of the baseline.
        lang: language of sentences.

    Raises:
        DoctorError: one of them cannot be read; ``path`` says which.
    """
    from tb_gpu_doctor.comparing import summary_of_path
    from tb_gpu_doctor.comparison import check as checking
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.diagnosis.rule import kinds

    if limits is None:
        limits = checking.Limits()
    elif isinstance(limits, (str, os.PathLike)):
        limits = checking.read_limits(os.fspath(limits), kinds())
    baseline = baseline if baseline is not None else limits.baseline
    before = None if baseline is None else summary_of_path(baseline)
    after = summary_of_path(path, run, session)
    return CheckResult(checking.check(after, limits, before, Batches(batch_baseline, batch)), lang)


def history(
    path: Path, run: str | None = None, last: int = 50, progress: Progress | None = None, lang: str = "en"
) -> History:
    """How the sessions below a path went over time, and where a regression first appears.

        >>> history("demo_logs", run="healthy").first_regression is None
        True

    Args:
        path: a logdir or a run.
        run: TensorBoard run to look at; by default all of them.
        last: how many sessions, the newest.
        progress: called with a stage and the share of the work that is done, 0..1.
        lang: language of sentences.

    Raises:
        ProfileError: there is no session, or no such run.
    """
    from tb_gpu_doctor.comparing import history_of_path

    return History(history_of_path(path, run, last, progress), lang)
