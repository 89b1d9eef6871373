"""A history for a terminal: the sentence, then a line a session with a bar as long as its step."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.history import History, HistoryEntry
from tb_gpu_doctor.report.hanging import print_hanging
from tb_gpu_doctor.report.history_json import change_sentence, entry_name, history_headline
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import duration, listing, percent

_BAR = 20
_IDLE = [PART_IDS.index(cause) for cause in CAUSE_IDS]
_WAITING = PART_IDS.index("communication_wait")


def print_history(history: History, console: Console, lang: str = "en") -> None:
    """Print a history; sentences are wrapped at the console's width."""
    for line in _lines(history, pick_language(lang)):
        print_hanging(line, console)


def _lines(history: History, lang: str) -> Iterator[Text]:
    yield Text(history_headline(history, lang), style=_style(history))
    if history.changes:
        yield Text()
        yield Text(text("history.sections.changes", lang), style="bold underline")
        for change in history.changes:
            yield Text("- " + change_sentence(change, history, lang), style="red" if change.is_regression else "green")
    if not history.entries:
        return
    yield Text()
    yield Text(text("history.sections.sessions", lang), style="bold underline")
    marked = {change.entry for change in history.changes if change.metric == "step"}
    longest = max((entry.summary.mean_ps or 0.0 for entry in history.entries if entry.summary), default=0.0)
    heads = [text(f"history.columns.{name}", lang) for name in ("step", "idle", "waiting")]
    rows = [_cells(entry, lang) for entry in history.entries]
    widths = [max([cell_len(head), *(cell_len(row[at]) for row in rows)]) for at, head in enumerate(heads)]
    yield Text("   " + "  ".join(_right(head, width) for head, width in zip(heads, widths, strict=True)), style="dim")
    for index, (entry, row) in enumerate(zip(history.entries, rows, strict=True)):
        line = Text(" ▶ " if index in marked else "   ", style="bold")
        line.append("  ".join(_right(cell, width) for cell, width in zip(row, widths, strict=True)))
        line.append("  ").append(_bar(entry, longest).ljust(_BAR), style="blue" if entry.problem is None else "dim")
        line.append("  " + entry_name(entry))
        line.append(_remark(entry, lang), style="dim")
        if index in history.lone:
            line.append("  " + text("history.lone", lang), style="dim")
        yield line


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
    names = listing([text(f"compare.kinds.{kind}", lang) for kind in dict.fromkeys(f.kind for f in serious)], lang)
    remark = f"  {names}" if names else ""
    if entry.problem is not None:
        remark += "  " + text("history.left_out", lang, reason=say(entry.problem, lang))
    return remark


def _right(value: str, width: int) -> str:
    return " " * (width - cell_len(value)) + value
