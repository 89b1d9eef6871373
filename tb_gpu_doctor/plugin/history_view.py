"""The answers of ``compare`` and ``history``: sessions side by side, from summaries that are small enough to keep."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tb_gpu_doctor.errors import ProfileError, RequestError
from tb_gpu_doctor.plugin.analyses import PASSING_FAILURES, Analyses, Progress, Report
from tb_gpu_doctor.plugin.logdir import FoundSession, Scanner
from tb_gpu_doctor.plugin.open_sessions import SCAN_WAIT_S, NotReady
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.texts import languages

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.compare import Batches
    from tb_gpu_doctor.comparison.history import History
    from tb_gpu_doctor.comparison.summary import RunSummary
    from tb_gpu_doctor.traces.sessions import Session

# Of about a hundred kilobytes each; the cache on disk has more of them.
MAX_SUMMARIES = 128
# Sessions that one history looks at, the newest.
MAX_SESSIONS = 100


class Summaries:
    """Summaries by place, each of what lies there now; the least recently used are forgotten."""

    def __init__(self, limit: int = MAX_SUMMARIES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[str, RunSummary]] = OrderedDict()

    def get(self, owner: str, key: str) -> RunSummary | None:
        """The summary of a place whose content has this key, None where there is none."""
        with self._lock:
            kept = self._kept.get(owner)
            if kept is None or kept[0] != key:
                return None
            self._kept.move_to_end(owner)
            return kept[1]

    def put(self, owner: str, key: str, summary: RunSummary) -> None:
        """Keep a summary instead of that of earlier content."""
        with self._lock:
            self._kept[owner] = (key, summary)
            self._kept.move_to_end(owner)
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)


class HistoryView:
    """The answers of a history in each language; the summaries that they were made of need not be kept for them.

    Attributes:
        is_provisional: whether a session is missing that may be read the next time.
    """

    def __init__(self, history: History) -> None:
        from tb_gpu_doctor.report.history_report import history_dict

        self._answers = {lang: to_json(history_dict(history, lang)) for lang in languages()}
        reasons = [entry.problem.params.get("reason") for entry in history.entries if entry.problem is not None]
        self.is_provisional = any(
            isinstance(reason, ProfileError) and reason.code in PASSING_FAILURES for reason in reasons
        )

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        return sum(map(len, self._answers.values()))

    def answer(self, lang: str) -> bytes:
        """The answer of ``history``."""
        return self._answers[lang]


class Histories:
    """Histories of the logdir's runs, made in the background and kept.

    Args:
        logdir: knows the sessions.
        summarize: diagnoses a session; raises `ProfileError` where it cannot be read.
    """

    def __init__(self, logdir: Scanner, summarize: Callable[[FoundSession, Report], RunSummary]) -> None:
        self._logdir = logdir
        self._summarize = summarize
        self._summaries = Summaries()
        self._analyses: Analyses[HistoryView] = Analyses(max_results=8, workers=1)

    def view(self, run: str | None, viewer: str = "") -> HistoryView:
        """The history of the newest sessions of a run, or of the whole logdir.

        Raises:
            RequestError: 404 where there are none, 500 where it failed.
            NotReady: it is being made.
        """
        snapshot = self._logdir.snapshot(wait_s=SCAN_WAIT_S)
        named = [one for one in snapshot.sessions if run in (None, one.run)]
        found = [one for one in named if not one.session.is_telemetry]
        if named and not found and snapshot.complete:
            return without_profiles()
        if not found:
            if not snapshot.complete:
                raise NotReady(Progress("queued"))
            raise RequestError(404, "unknown_session", path=run or "", name=run or "")
        newest = found[:MAX_SESSIONS]
        key = "\n".join(one.key for one in newest)
        owner = "all" if run is None else f"run {run}"
        job = self._analyses.submit(
            key, owner, lambda report: build(newest, self._summaries, self._summarize, report), viewer
        )
        if job.error is not None:
            raise RequestError(500, job.error.code, path="")
        if job.result is None:
            raise NotReady(self._analyses.progress(job))
        return job.result


def without_profiles() -> HistoryView:
    """The history of what holds telemetry only: it says so."""
    from tb_gpu_doctor.comparison.history import build_history

    return HistoryView(build_history([]))


def compare_answer(before: RunSummary, after: RunSummary, batches: Batches, lang: str) -> bytes:
    """The answer of ``compare``; the last few are kept, since the tab asks again when it is shown."""
    return _compared(_Pair(before, after), batches.before, batches.after, lang)


class _Pair:
    """Two summaries that are equal to themselves only: their arrays cannot be hashed."""

    def __init__(self, before: RunSummary, after: RunSummary) -> None:
        self.before, self.after = before, after

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pair) and other.before is self.before and other.after is self.after

    def __hash__(self) -> int:
        return hash((id(self.before), id(self.after)))


@functools.lru_cache(maxsize=16)
def _compared(pair: _Pair, batch_before: int | None, batch_after: int | None, lang: str) -> bytes:
    from tb_gpu_doctor.comparison.compare import Batches, compare
    from tb_gpu_doctor.report.comparison_report import comparison_dict

    return to_json(comparison_dict(compare(pair.before, pair.after, Batches(batch_before, batch_after)), lang))


def build(
    found: Sequence[FoundSession],
    summaries: Summaries,
    summarize: Callable[[FoundSession, Report], RunSummary],
    report: Report,
) -> HistoryView:
    """Summarize the sessions that no summary is known of, and look for changes; runs in a background thread.

    Args:
        found: sessions of the logdir.
        summaries: those that are known; new ones are added.
        summarize: diagnoses a session; raises `ProfileError` where it cannot be read.
        report: called with a stage and the share of the work that is done.
    """
    from tb_gpu_doctor.comparison.history import HistoryEntry, build_history
    from tb_gpu_doctor.diagnosis.model import Phrase

    entries = []
    for index, one in enumerate(found):
        base, part = index / len(found), 1 / len(found)

        def share(stage: str, done: float, base: float = base, part: float = part) -> None:
            report(stage, base + part * done)

        problem = None
        summary = summaries.get(one.owner, one.key)
        if summary is None:
            try:
                summary = summarize(one, share)
                summaries.put(one.owner, one.key, summary)
            except ProfileError as error:
                problem = Phrase("history.problems.unreadable", {"reason": error})
        session: Session = one.session
        entries.append(HistoryEntry(one.run, session.session, session.recorded_unix_s, summary, problem))
    return HistoryView(build_history(entries))
