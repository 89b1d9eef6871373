"""A history of sessions for its readers: the sentences that all forms share, JSON, and text for a terminal.

The JSON, version 1, has the structure that docs/history.md describes; its times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.bootstrap import CONFIDENCE
from tb_gpu_doctor.comparison.change_points import LEAST_SERIES
from tb_gpu_doctor.comparison.history import Change, Drift, History, HistoryEntry, NewestSessions
from tb_gpu_doctor.documents import milliseconds, plain
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.report.terminal import Column, print_hanging, print_table
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean, duration, listing, percent

SCHEMA_VERSION = 1
MAX_NAME = 1_000
_BAR = 20
_IDLE = [PART_IDS.index(cause) for cause in CAUSE_IDS]
_WAITING = PART_IDS.index("communication_wait")


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


def history_dict(history: History, lang: str = "en") -> dict[str, Any]:
    """The history as JSON-ready data with texts in ``lang``."""
    lang = pick_language(lang)
    return plain(
        {
            "schema_version": SCHEMA_VERSION,
            "language": lang,
            "headline": history_headline(history, lang),
            "confidence": CONFIDENCE,
            "parts": list(PART_IDS),
            "sessions": [_entry_document(entry, lang) for entry in history.entries],
            "changes": [_change_document(change, history, lang) for change in history.changes],
            "drift": history.drift and _levels(history.drift),
            "newest": _newest_document(history.newest),
            "noticeable_change": history.noticeable,
            "lone_indices": history.lone,
        }
    )


def _entry_document(entry: HistoryEntry, lang: str) -> dict[str, Any]:
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
        data["step_ms"] = milliseconds(summary.mean_ps)
        data["parts_ms"] = [milliseconds(value) for value in summary.mean_parts.tolist()]
    data |= {
        "verdict": summary.verdict,
        "steps": summary.step_count,
        "window_shares": summary.window_parts.tolist(),
        "occupancy": summary.occupancy,
        "findings": [
            {"kind": finding.kind, "name": text(f"findings.{finding.kind}.name", lang), "severity": finding.severity}
            for finding in summary.findings
        ],
    }
    return data


def _change_document(change: Change, history: History, lang: str) -> dict[str, Any]:
    return {
        "metric": change.metric,
        "session_index": change.entry,
        "earliest_index": change.earliest,
        "latest_index": change.latest,
        "is_regression": change.is_regression,
        **_levels(change),
        "change": change.change,
        "confidence": change.confidence,
        "sessions_before": change.sessions_before,
        "sessions_after": change.sessions_after,
        "sentence": change_sentence(change, history, lang),
    }


def _levels(moved: Change | Drift | NewestSessions) -> dict[str, float | None]:
    return {"before_ms": milliseconds(moved.before), "after_ms": milliseconds(moved.after)}


def _newest_document(newest: NewestSessions | None) -> dict[str, Any] | None:
    if newest is None:
        return None
    return {
        "session_index": newest.entry,
        "sessions": newest.count,
        **_levels(newest),
        "change": newest.change,
    }


def print_history(history: History, console: Console, lang: str = "en") -> None:
    """Print a history; sentences are wrapped at the console's width."""
    lang = pick_language(lang)
    for line in _above(history, lang):
        print_hanging(line, console)
    if history.entries:
        _print_sessions(history, console, lang)


def _above(history: History, lang: str) -> Iterator[Text]:
    yield Text(history_headline(history, lang), style=_style(history))
    if history.changes:
        yield Text()
        yield Text(text("history.sections.changes", lang), style="bold underline")
        for change in history.changes:
            yield Text("- " + change_sentence(change, history, lang), style="red" if change.is_regression else "green")
    if history.entries:
        yield Text()
        yield Text(text("history.sections.sessions", lang), style="bold underline")


def _print_sessions(history: History, console: Console, lang: str) -> None:
    """A line a session, with a bar as long as its step and what is to be said of it."""
    marked = {change.entry for change in history.changes if change.metric == "step"}
    longest = max((entry.summary.mean_ps or 0.0 for entry in history.entries if entry.summary), default=0.0)
    rows: list[tuple[str | Text, ...]] = []
    for index, entry in enumerate(history.entries):
        name = Text(entry_name(entry)).append(_remark(entry, lang), style="dim")
        if index in history.lone:
            name.append("  " + text("history.lone", lang), style="dim")
        bar = Text(_bar(entry, longest), style="blue" if entry.problem is None else "dim")
        rows.append((Text("▶" if index in marked else "", style="bold"), *_cells(entry, lang), bar, name))
    heads = [text(f"history.columns.{name}", lang) for name in ("step", "idle", "waiting")]
    columns = [Column(""), *(Column(head, is_number=True) for head in heads), Column("", spare=1), Column("")]
    print_table(columns, rows, console, indent=1, wraps=True, head_style="dim")


def _style(history: History) -> str:
    if history.first_regression is not None:
        return "bold red"
    newest, drift = history.newest, history.drift
    slower = (newest is not None and newest.after > newest.before) or (drift is not None and drift.after > drift.before)
    return "bold yellow" if slower else "bold"


def _cells(entry: HistoryEntry, lang: str) -> tuple[str, str, str]:
    summary = entry.summary
    if summary is None:
        return "-", "-", "-"
    step = "-" if summary.mean_ps is None else duration(summary.mean_ps, lang)
    if summary.window_ps <= 0:
        return step, "-", "-"
    idle, waiting = float(summary.window_parts[_IDLE].sum()), float(summary.window_parts[_WAITING])
    return step, percent(idle, lang), percent(waiting, lang)


def _bar(entry: HistoryEntry, longest: float) -> str:
    mean = entry.summary.mean_ps if entry.summary is not None else None
    return "" if not mean or longest <= 0 else "█" * max(1, round(_BAR * mean / longest))


def _remark(entry: HistoryEntry, lang: str) -> str:
    if entry.summary is None:
        reason = say(entry.problem, lang) if entry.problem is not None else ""
        return "  " + text("history.unread", lang, reason=reason)
    serious = [f for f in entry.summary.findings if f.severity != "info"]
    names = listing([text(f"findings.{kind}.name", lang) for kind in dict.fromkeys(f.kind for f in serious)], lang)
    remark = f"  {names}" if names else ""
    if entry.problem is not None:
        remark += "  " + text("history.left_out", lang, reason=say(entry.problem, lang))
    return remark
