"""A history as plain data, version 1: the structure that docs/history.md describes. Times are milliseconds."""

from __future__ import annotations

from typing import Any

from tb_gpu_doctor.analysis.step_parts import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE
from tb_gpu_doctor.comparison.history import Change, History, HistoryEntry
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
    }


def history_headline(history: History, lang: str) -> str:
    """The one sentence: where the first regression is, or that there is none."""
    first = history.first_regression
    if first is not None:
        sentence = text(
            "history.first",
            lang,
            session=entry_name(history.entries[first.entry]),
            change=first.point.change.value,
            low=first.point.change.low,
            high=first.point.change.high,
            confidence=first.point.confidence,
        )
        return _with_doubt(sentence, first, lang)
    compared = sum(entry.problem is None and entry.summary is not None for entry in history.entries)
    if compared < 2:
        return text("history.too_few", lang)
    return text("history.none", lang, count=compared)


def change_sentence(change: Change, history: History, lang: str) -> str:
    """One change in words."""
    sentence = text(
        "history.change",
        lang,
        session=entry_name(history.entries[change.entry]),
        metric=text(f"history.metrics.{change.metric}", lang),
        before=change.before,
        after=change.after,
        confidence=change.point.confidence,
    )
    return _with_doubt(sentence, change, lang)


def _with_doubt(sentence: str, change: Change, lang: str) -> str:
    """The sentence, and that one session alone stands for a level, if so."""
    if min(change.point.runs_before, change.point.runs_after) > 1:
        return sentence
    return sentence.rstrip(".") + ". " + text("history.one_run", lang)


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
    point = change.point
    return {
        "metric": change.metric,
        "session_index": change.entry,
        "is_regression": change.is_regression,
        "before_ms": change.before / PS_PER_MS,
        "after_ms": change.after / PS_PER_MS,
        "change": {"value": point.change.value, "low": point.change.low, "high": point.change.high},
        "confidence": point.confidence,
        "sessions_before": point.runs_before,
        "sessions_after": point.runs_after,
        "sentence": change_sentence(change, history, lang),
    }
