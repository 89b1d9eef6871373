"""The server's answers about stretches of a timeline, as files that the tab's tests read as well.

A report of one file has no server: the tab works the same answers out of what the report keeps
(`frontend/src/api/snapshot`). So what is kept, the questions and the answers lie in `tests/golden/timeline`; here the
server must give exactly these answers, and `frontend/test/golden.test.ts` asks the tab's own code. After a change of
either side's answers: ``RENEW_GOLDEN=1 pytest tests/plugin/test_timeline_golden.py``, and look at the difference.
"""

from __future__ import annotations

import base64
import json
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.analysis.job import Meetings
from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.plugin import html_report
from tb_gpu_doctor.plugin.gaps_view import GapsView
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.plugin.timeline_range import RangeView
from tb_gpu_doctor.traces.columns import device_events
from tests.plugin.examples import CAUSES, analysis_of, busy_picture, gaps_of, trace_of

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "timeline"
NAMES = ("gemm", "gemm_bias", "ncclAllReduce", "Memcpy DtoH", "relu")
LENGTH = 900
BORDERS = (40, 300, 520, 860)


def _view(seed: int, devices: int) -> Any:
    """A job of a few hundred picoseconds: work of all kinds, idle time of several causes, waiting, steps."""
    chance = random.Random(seed)
    rows = sorted(
        (device, start, min(chance.randrange(1, 60), LENGTH - start), chance.choice((0, 0, 0, 1, 2, 3)))
        for device in range(devices)
        for start in (chance.randrange(40, LENGTH - 1) for _ in range(14))
    )
    device, start, duration, klass = (list(column) for column in zip(*rows, strict=True))
    events = device_events(
        len(rows), device=device, start=start, duration=duration, klass=klass, stream=device,
        name=[{0: chance.choice((0, 1, 4)), 1: 2}.get(kind, 3) for kind in klass],
    )  # fmt: skip
    found = []
    for index in range(devices):
        picture = busy_picture(events, index, LENGTH)
        busy = [time for time, shown in enumerate(picture) if shown >= 0]
        low = busy[0]
        while low < busy[-1]:
            if picture[low] >= 0:
                low += 1
                continue
            high = next(time for time in range(low, LENGTH) if picture[time] >= 0)
            cuts = sorted(chance.choice((0, high - low, chance.randint(0, high - low))) for _ in range(CAUSES - 1))
            found.append((index, low, high, np.diff([0, *cuts, high - low]).tolist()))
            low = high
    gaps = gaps_of(*([gap[part] for gap in found] for part in range(4)))  # type: ignore[arg-type]
    trace, analysis = trace_of(events, devices, NAMES), analysis_of(events, gaps, devices, BORDERS)
    timeline = Timeline([trace], [analysis], ["worker0"], ["worker0"])
    meetings = {}
    for index in range(devices):
        here = events.of_device(index)
        mine = [row for row in range(here.start, here.stop) if events.klass[row] == 1]
        wait = [chance.randint(0, int(events.duration[row])) for row in mine]
        meetings[0, index] = Meetings(np.array(mine, np.int64), np.array(wait, np.int64), np.zeros(len(mine), np.int64))
    job: Any = SimpleNamespace(meetings=meetings)
    return SimpleNamespace(
        timeline=timeline,
        meta_json=to_json(timeline.meta()),
        ranges=RangeView([trace], job, timeline),
        gaps=GapsView(timeline),
    )


def _pixels(view: Any) -> int:
    """How many bins are kept, all of them equally wide: what is worked out of them is then no more than rounded up."""
    start, end = html_report._extent(view)
    return max(pixels for pixels in range(1, 200) if (end - start) % pixels == 0)


def _kept(view: Any, has_intervals: bool) -> dict[str, Any]:
    """What a report keeps of the timeline; without intervals what it keeps where there are too many."""
    kept = {"timeline/meta": view.meta_json, "gaps": to_json(view.gaps.answer())}
    for name, (start, end), width in html_report._blocks(view, _pixels(view)):
        kept[f"timeline/bins{name}"] = view.timeline.bins(start, end, width)
        kept[f"timeline/waits{name}"] = view.ranges.wait_bins(start, end, width)
    if has_intervals:
        kept |= html_report._events(view) or {}
        kept |= html_report._streams(view) or {}
    binary = ("timeline/bins", "timeline/waits", "timeline/events")
    return {
        name: _text(answer) if name.startswith(binary) else json.loads(answer) for name, answer in sorted(kept.items())
    }


def _text(answer: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(answer).decode()}


def _questions(view: Any, has_intervals: bool) -> list[dict[str, Any]]:
    """Questions with the server's answers: [route, parameters, answer]."""
    start, end = html_report._extent(view)
    stretches = [(start, end), (start - 20, start + 75), (301, 302), (390, 640), (end - 100, end + 40), (end, end + 9)]
    asked: list[tuple[str, dict[str, Any], Any]] = []
    for low, high in stretches if has_intervals else [(start, end)]:
        stretch = {"start_ps": low, "end_ps": high}
        asked.append(("timeline/range", stretch, view.ranges.accounting(low, high)))
    if not has_intervals:
        for route, answer in (("bins", view.timeline.bins), ("waits", view.ranges.wait_bins)):
            asked.append(
                (
                    f"timeline/{route}",
                    {"start_ps": start, "end_ps": end, "width": _pixels(view)},
                    answer(start, end, _pixels(view)),
                )
            )
        return [_question(*each) for each in asked]
    lanes = [None, *range(view.timeline.lane_count)]
    for low, high in stretches:
        stretch = {"start_ps": low, "end_ps": high}
        asked.append(("timeline/events", stretch | {"limit": 1000}, view.timeline.events(low, high, 1000)))
        asked.append(("timeline/events", stretch | {"limit": 3}, view.timeline.events(low, high, 3)))
        for query in ("gemm", "BIAS ge", "nothing", " "):
            for lane in lanes[:2]:
                for last in (0, 1):
                    params = stretch | {"query": query, "limit": 4, "last": last} | _named(lane)
                    asked.append(("timeline/find", params, view.ranges.find(query, low, high, 4, lane, bool(last))))
    for time in (start - 1, 150, 301, 500, 777, end):
        for lane in lanes:
            for back in (0, 1):
                for shortest in (1, 20):
                    params = {"time_ps": time, "back": back, "shortest_ps": shortest} | _named(lane)
                    asked.append(("timeline/next_gap", params, view.ranges.next_gap(time, bool(back), shortest, lane)))
    for lane in range(view.timeline.lane_count):
        for time in range(start - 1, end + 20, 23):
            asked.append(("timeline/at", {"lane": lane, "time_ps": time}, view.timeline.at(lane, time)))
    for cause in ("", *CAUSE_IDS[:4]):
        for lane in lanes:
            params = ({"cause": cause} if cause else {}) | _named(lane)
            index = CAUSE_IDS.index(cause) if cause else None
            asked.append(("gaps", params | {"limit": 200}, view.gaps.answer(200, index, lane)))
    return [_question(*each) for each in asked]


def _named(lane: int | None) -> dict[str, int]:
    return {} if lane is None else {"lane": lane}


def _question(route: str, params: dict[str, Any], answer: Any) -> dict[str, Any]:
    shown = _text(answer) if isinstance(answer, bytes) else json.loads(to_json(answer))
    return {"route": route, "params": params, "answer": shown}


@pytest.mark.parametrize(
    ("name", "seed", "devices", "has_intervals"),
    [("one_gpu", 1, 1, True), ("two_gpus", 2, 2, True), ("three_gpus", 5, 3, True), ("bins_alone", 3, 2, False)],
)
def test_the_server_answers_as_written_down(name: str, seed: int, devices: int, has_intervals: bool):
    view = _view(seed, devices)
    found = {"kept": _kept(view, has_intervals), "questions": _questions(view, has_intervals)}
    lines = [json.dumps(question, separators=(",", ":")) for question in found["questions"]]
    text = (
        '{"kept":'
        + json.dumps(found["kept"], separators=(",", ":"))
        + ',\n"questions":[\n'
        + ",\n".join(lines)
        + "\n]}\n"
    )
    path = GOLDEN / f"{name}.json"
    if os.environ.get("RENEW_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8")) == found
