"""A history as plain data, version 1: the structure that docs/history.md describes. Times are milliseconds."""

from __future__ import annotations

from typing import Any

from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE, Interval
from tb_gpu_doctor.comparison.change_points import LEAST_SERIES
from tb_gpu_doctor.comparison.history import Change, Drift, History, HistoryEntry, NewestSessions
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean
from tb_gpu_doctor.traces.columns import PS_PER_MS

SCHEMA_VERSION = 1
MAX_NAME = 1_000


def history_dict(history: History, lang: str = "en") -> dict[str, Any]:
    """The history as JSON-ready data with texts in ``lang``."""
    lang = pick_language(lang)
    return {
        "schema_version": SCHEMA_VERSION,
        "language": lang,
        "headline": history_headline(history, lang),
        "confidence": CONFIDENCE,
        "parts": list(PART_IDS),
        "sessions": [_entry(entry, lang) for entry in history.entries],
        "changes": [_change(change, history, lang) for change in history.changes],
        "drift": _drift(history.drift),
        "newest": _newest(history.newest),
        "noticeable_change": history.noticeable,
        "lone_indices": list(history.lone),
    }


def history_headline(history: History, lang: str) -> str:
    """Where the first regression is, that there is none, or why that cannot be told; and the newest sessions."""
    sentence = _verdict(history, lang)
    newest = history.newest
    if newest is None:
        return sentence
    recent = text(
        "history.newest_one" if newest.count == 1 else "history.newest_some",
        lang,
        session=entry_name(history.entries[newest.entry]),
        count=newest.count,
        change=newest.change.value,
        low=newest.change.low,
        high=newest.change.high,
    )
    return f"{sentence} {recent}"


def _verdict(history: History, lang: str) -> str:
    first = history.first_regression
    count = history.compared
    if first is not None and first.change is not None:
        sentence = text(
            "history.first",
            lang,
            session=entry_name(history.entries[first.entry]),
            change=first.change.value,
            low=first.change.low,
            high=first.change.high,
        )
        return f"{sentence} {_place(first, history, lang)}"
    if not history.entries:
        return text("history.no_profiles", lang)
    if count < 2:
        return text("history.too_few", lang)
    if count < LEAST_SERIES:
        return text("history.cannot_tell", lang, count=count, least=LEAST_SERIES, side=LEAST_SERIES // 2)
    if history.drift is not None:
        before, after = history.drift.before, history.drift.after
        return text(
            "history.drift", lang, count=count, before=before, after=after, change=after / before - 1, third=count // 3
        )
    if history.noticeable is not None:
        return text("history.none", lang, count=count, noticeable=history.noticeable)
    return text("history.none_slower", lang, count=count)


def change_sentence(change: Change, history: History, lang: str) -> str:
    """One change in words."""
    sentence = text(
        "history.change",
        lang,
        session=entry_name(history.entries[change.entry]),
        metric=text(f"history.metrics.{change.metric}", lang),
        before=change.before,
        after=change.after,
    )
    return f"{sentence} {_place(change, history, lang)}"


def _place(change: Change, history: History, lang: str) -> str:
    """How sure the session is in which a change lies."""
    if change.earliest == change.latest:
        return text("history.place", lang, confidence=change.confidence)
    return text(
        "history.places",
        lang,
        confidence=change.confidence,
        earliest=entry_name(history.entries[change.earliest]),
        latest=entry_name(history.entries[change.latest]),
        certain=CONFIDENCE,
    )


def entry_name(entry: HistoryEntry) -> str:
    """Run and session as one path."""
    return clean("/".join(part for part in (entry.run, entry.session) if part), MAX_NAME)


def _entry(entry: HistoryEntry, lang: str) -> dict[str, Any]:
    summary = entry.summary
    data: dict[str, Any] = {
        "run": clean(entry.run, MAX_NAME),
        "session": clean(entry.session, MAX_NAME),
        "time_unix_s": entry.time_s,
        "problem": None if entry.problem is None else say(entry.problem, lang),
        "verdict": None,
        "step_ms": None,
        "steps": None,
        "parts_ms": None,
        "window_shares": None,
        "occupancy": None,
        "findings": [],
    }
    if summary is None:
        return data
    if summary.mean_ps is not None:
        data["step_ms"] = summary.mean_ps / PS_PER_MS
        data["parts_ms"] = [value / PS_PER_MS for value in summary.mean_parts.tolist()]
    data |= {
        "verdict": summary.verdict,
        "steps": summary.step_count,
        "window_shares": summary.window_parts.tolist(),
        "occupancy": summary.occupancy,
        "findings": [
            {"kind": finding.kind, "name": text(f"compare.kinds.{finding.kind}", lang), "severity": finding.severity}
            for finding in summary.findings
        ],
    }
    return data


def _change(change: Change, history: History, lang: str) -> dict[str, Any]:
    return {
        "metric": change.metric,
        "session_index": change.entry,
        "earliest_index": change.earliest,
        "latest_index": change.latest,
        "is_regression": change.is_regression,
        "before_ms": change.before / PS_PER_MS,
        "after_ms": change.after / PS_PER_MS,
        "change": None if change.change is None else _interval(change.change),
        "confidence": change.confidence,
        "sessions_before": change.sessions_before,
        "sessions_after": change.sessions_after,
        "sentence": change_sentence(change, history, lang),
    }


def _drift(drift: Drift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {"before_ms": drift.before / PS_PER_MS, "after_ms": drift.after / PS_PER_MS}


def _newest(newest: NewestSessions | None) -> dict[str, Any] | None:
    if newest is None:
        return None
    return {
        "session_index": newest.entry,
        "sessions": newest.count,
        "before_ms": newest.before / PS_PER_MS,
        "after_ms": newest.after / PS_PER_MS,
        "change": _interval(newest.change),
    }


def _interval(interval: Interval) -> dict[str, float]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}
