"""What a step would take without what costs time: as plain data and as a table for a terminal, with bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from tb_gpu_doctor.analysis.replay.what_if import Scenario, WhatIf
from tb_gpu_doctor.documents import milliseconds, plain
from tb_gpu_doctor.report.terminal import Column, print_table
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import duration, percent

_BAR = 24


def as_dict(found: WhatIf, lang: str = "en") -> dict[str, Any]:
    """JSON-ready data with texts in ``lang``: ``whatif`` of ``diagnosis.schema.json``."""
    return plain(
        {
            "replay": {
                "offered": found.offered,
                "reason": found.reason,
                "error": found.error,
                "explanation": note(found, lang),
                "steps": found.steps,
            },
            "recorded_ms": milliseconds(found.recorded),
            "limited_by": found.limited_by,
            "scenarios": [_scenario(one, found, lang) for one in found.scenarios],
            "limit_ms": None if found.limit is None else milliseconds(found.limit.step),
        }
    )


def _scenario(one: Scenario, found: WhatIf, lang: str) -> dict[str, Any]:
    return {
        "changes": list(one.changes),
        "title": title(one, lang),
        "step_ms": milliseconds(one.step),
        "low_ms": milliseconds(one.low),
        "high_ms": milliseconds(one.high),
        "saving_ms": milliseconds((found.recorded or 0.0) - one.step),
        "limited_by": one.limited_by,
    }


def note(found: WhatIf, lang: str) -> str:
    """How far the replay can be trusted, or why there is none."""
    if found.offered:
        return text("what_if.error", lang, error=found.error, steps=found.steps)
    return text(f"what_if.reasons.{found.reason}", lang, error=found.error)


def title(one: Scenario, lang: str) -> str:
    """What is changed, in words."""
    if not one.changes:
        return text("what_if.limit", lang)
    return " + ".join(text(f"what_if.changes.{change}", lang) for change in one.changes)


def rows(found: WhatIf, lang: str) -> list[tuple[str, str, str, str, str, float]]:
    """Step, interval, saving, what limits it, title and share of the recorded step: of the record, replays, limit."""
    recorded = found.recorded
    if not found.offered or not recorded:
        return []
    limits = "" if found.limited_by is None else text(f"what_if.limits.{found.limited_by}", lang)
    table = [(duration(recorded, lang), "", "", limits, text("what_if.recorded", lang), 1.0)]
    last = () if found.limit is None else (found.limit,)
    for one in (*found.scenarios, *last):
        between = (
            "" if one.low is None or one.high is None else f"{duration(one.low, lang)} – {duration(one.high, lang)}"
        )
        limits = "" if one.limited_by is None else text(f"what_if.limits.{one.limited_by}", lang)
        gained = max(recorded - one.step, 0.0) / recorded
        saving = f"−{percent(gained, lang)}" if gained >= 0.005 else "–"
        table.append((duration(one.step, lang), between, saving, limits, title(one, lang), one.step / recorded))
    return table


def print_what_if(found: WhatIf, console: Console, lang: str) -> None:
    """Print the recorded step beside its replays, and how far they can be trusted."""
    shown = rows(found, lang)
    if shown:
        heads: Sequence[Column] = (
            Column(""),
            Column(text("what_if.heads.step", lang), is_number=True),
            Column(text("what_if.heads.saving", lang), is_number=True),
            Column(text("what_if.heads.interval", lang), spare=2),
            Column(text("what_if.heads.limit", lang), spare=1),
            Column(text("what_if.heads.change", lang)),
        )
        lines = []
        for step, interval, saving, limits, name, share in shown:
            bar = Text("█" * max(1, round(_BAR * min(share, 1.0))), style="green" if share < 1 else "")
            lines.append((bar, step, saving, interval, limits, name))
        print_table(heads, lines, console)
        console.print()
    console.print(Text(note(found, lang)))
