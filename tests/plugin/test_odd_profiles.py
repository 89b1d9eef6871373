"""Profiles that can be read but hold little, nonsense or hostility: every route answers, and the numbers agree."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.xplane_writer import Space
from tests.cli.profiles import MS, session_file, training, write
from tests.plugin.test_routes import SESSION_ROUTES, Site

DAY_PS = 24 * 3600 * 10**12
LONG = "k" * 100_000
MARKUP = "<img src=x onerror=alert(1)>\x1b[31m\x00\u202e</script>"


def host_only() -> Space:
    space = Space()
    space.plane("/host:CPU").line(1, "python").event("work", 0, MS)
    return space


def planes_without_lines() -> Space:
    space = host_only()
    for gpu in range(4):
        space.plane(f"/device:GPU:{gpu}", gpu + 1)
    return space


def overlapping() -> Space:
    space = training(1)
    line = space.planes[0].lines[0]
    for index in range(20):
        line.event(f"over{index}", 2 * MS + index * MS // 2, 3 * MS)
    return space


def far_apart() -> Space:
    space = training(1)
    space.planes[0].lines[0].event("late", 8 * DAY_PS, MS)
    return space


def six_days() -> Space:
    space = training(1, marked=False)
    space.planes[0].lines[0].event("late", 6 * DAY_PS, MS)
    return space


def constants(data: bytes) -> list[str]:
    """What JSON has no notation for and Python writes all the same."""
    found: list[str] = []
    json.loads(data, parse_constant=found.append)
    return found


ODD: dict[str, Callable[[], Space]] = {
    "host_only": host_only,
    "planes_without_lines": planes_without_lines,
    "no_stats": lambda: training(stats=False),
    "no_steps": lambda: training(marked=False),
    "zero_durations": lambda: training(durations=[0, 0, MS]),
    "all_zero": lambda: training(durations=[0]),
    "negative_durations": lambda: training(durations=[-5, MS]),
    "overlapping": overlapping,
    "far_apart": far_apart,
    "six_days": six_days,
    "long_names": lambda: training(kernel=LONG, host_event=LONG),
    "markup": lambda: training(kernel=MARKUP, host_event=MARKUP, warnings=[MARKUP]),
    "nothing": Space,
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("lang", ["en", "es"])
def test_every_route_answers(tmp_path: Path, kind: str, lang: str):
    write(ODD[kind](), session_file(tmp_path, run=kind, session="s"))
    site = Site(tmp_path)
    diagnosis = site.session(f"diagnosis?lang={lang}", run=kind)
    if kind == "nothing":  # an empty file is no profile
        assert diagnosis.status_code == 422
        return
    assert diagnosis.status_code == 200, diagnosis.text
    for route in SESSION_ROUTES:
        answer = site.session(route, run=kind)
        # a profile without GPUs has no lane that could be asked about
        allowed = (200, 404) if "lane=0" in route and not diagnosis.json["devices"] else (200,)
        assert answer.status_code in allowed, (route, answer.text)
        if answer.mimetype == "application/json":
            assert constants(answer.data) == [], route
        assert len(answer.data) < 1_000_000, route
    meta = site.session("timeline/meta", run=kind).json
    assert len(meta["lanes"]) == len(diagnosis.json["devices"])


@pytest.mark.parametrize("kind", [kind for kind in ODD if kind not in ("nothing", "host_only", "planes_without_lines")])
def test_lanes_and_accounting_agree(tmp_path: Path, kind: str):
    write(ODD[kind](), session_file(tmp_path, run=kind, session="s"))
    site = Site(tmp_path)
    meta = site.session("timeline/meta", run=kind).json
    devices = site.session("diagnosis", run=kind).json["devices"]
    if meta["window"] is None or meta["window"]["end_ps"] <= meta["window"]["start_ps"]:
        assert all(not device["wall_ms"] for device in devices)
        return
    start, end = meta["window"]["start_ps"], meta["window"]["end_ps"]
    # One pixel over the whole window: each category's share in 255 parts, rounded up.
    bins = site.session(f"timeline/bins?start_ps={start}&end_ps={end}&width=1", run=kind).data
    lanes, categories, _ = struct.unpack_from("<III", bins)
    for lane in range(lanes):
        device = devices[lane]
        levels = dict(zip(meta["categories"], bins[12 + lane * categories :][:categories], strict=True))
        parts = {part: device[f"{part}_ms"] for part in ("compute", "communication", "transfer")}
        for category, time_ms in (parts | device["idle_by_cause_ms"]).items():
            exact = 255 * (time_ms or 0.0) / ((end - start) / 1e9)
            assert exact - 1e-6 <= levels[category] < exact + 1 + 1e-6, (lane, category)


def test_long_and_hostile_names_are_cut_and_whole(tmp_path: Path):
    write(training(kernel=LONG), session_file(tmp_path, run="long", session="s"))
    write(training(kernel=MARKUP), session_file(tmp_path, run="markup", session="s"))
    site = Site(tmp_path)
    long = site.session("kernels", run="long").json["rows"][0]["name"]
    assert len(long) == 4_000 and long.endswith("…")
    assert site.session("kernels", run="markup").json["rows"][0]["name"].startswith("<img src=x")
    at = site.session(f"timeline/at?lane=0&time_ps={5 * MS}", run="long").json
    assert at["kind"] == "event" and len(at["name"]) == 4_000
