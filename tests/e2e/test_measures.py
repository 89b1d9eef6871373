"""Kernels, input and telemetry in the browser: what they say against the server's numbers, and what links keep."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Frame, Locator

from tests.e2e.test_views import copied_link, follow
from tests.e2e.visit import Visit
from tests.tensorboard_server import TensorBoard

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]


def chart(frame: Frame, title: str) -> Locator:
    """The part of a chart that takes the keyboard."""
    return frame.locator(f".plot-box[aria-label^={title!r}]")


def read_out(frame: Frame, there: Visit, title: str, key: str = "ArrowRight") -> str:
    """What the chart says of the mark that a key leads to."""
    spoken = frame.locator("figure").filter(has=chart(frame, title)).locator("[aria-live]")
    before = spoken.inner_text()
    chart(frame, title).focus()
    # A chart that has just appeared is drawn a moment later: only then is there something to walk over.
    for _ in range(30):
        there.page.keyboard.press(key)
        frame.wait_for_timeout(40)
        if (text := spoken.inner_text()) not in ("", before):
            return str(text)
    raise AssertionError(f"{title}: nothing is read out")


def answer(there: Visit, run: str, route: str, **params: str) -> Any:
    return there.api(route, run=run, session=there.session(run), **params)


def test_the_kernels_tell_what_limits_each(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("low_occupancy", "kernels")
    table = answer(there, "low_occupancy", "kernels", by="kernel")
    # the families of the bars are those of the server
    device = table["devices"][0]
    largest = max(device["families_ms"].values()) / sum(device["families_ms"].values())
    assert f"({largest:.0%})" in read_out(frame, there, "Kernel time by kind of work")
    # a dot of the scatter, then a row of the table, is the kernel whose staircase is shown
    read_out(frame, there, "Time against occupancy")
    there.page.keyboard.press("Enter")
    frame.wait_for_function("() => parent.location.hash.includes('kernel_id=')")
    row = next(row for row in table["rows"] if row["limiter"] and row["family"] != "communication")
    frame.locator("#kernels tbody button.choose", has_text=row["name"][:20]).first.click()
    frame.wait_for_timeout(500)  # the address follows a moment later
    frame.wait_for_function("() => !document.querySelector('.view .stale')")
    number = frame.evaluate("decodeURIComponent(parent.location.hash).match(/kernel_id=(\\d+)/)?.[1]")
    frame.wait_for_function("() => document.querySelectorAll('.staircases canvas').length === 3")
    staircase = answer(there, "low_occupancy", "kernels/staircase", kernel=number or str(row["id"]))
    story = frame.locator("#kernel-chosen").inner_text()
    for step in staircase["next"]:
        assert f"occupancy {step['occupancy']:.0%}" in story
    there.assert_clean()


def test_the_tree_leads_to_kernels_and_the_table_is_saved(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("slow_gpu", "kernels", kernel_by="gpu")
    rows = answer(there, "slow_gpu", "kernels", by="gpu")["rows"]
    with there.page.expect_download() as shown:
        frame.locator("#kernels .data-table button.save").click()
    with there.page.expect_download() as whole:
        frame.locator("#kernels .data-table a[download]").click()
    for download in (shown, whole):
        text = Path(download.value.path()).read_text(encoding="utf-8-sig")
        table = list(csv.DictReader(io.StringIO(text)))
        assert len(table) == len(rows)
        assert sum(float(row["total_ms"]) for row in table) == pytest.approx(sum(row["total_ms"] for row in rows))
    nodes = answer(there, "slow_gpu", "kernels/tree")["nodes"]
    at = -1
    while children := [i for i, node in enumerate(nodes) if node["parent"] == at]:
        parts = frame.locator("#kernel-tree tbody button.choose")
        assert parts.count() <= len(children) and parts.first.inner_text()[:12] == (nodes[children[0]]["name"][:12])
        if not any(node["parent"] == children[0] for node in nodes):
            break
        parts.first.click()
        at = children[0]
        frame.wait_for_function(
            "depth => document.querySelectorAll('.crumbs button').length === depth + 1",
            arg=len(frame.locator(".crumbs button").all()) - 1,
        )
    assert at >= 0 and nodes[children[0]]["kind"] == "kernel"
    frame.locator("#kernel-tree tbody button.choose").first.click()
    frame.wait_for_function(
        "name => document.querySelector('#kernel-chosen h4').title === name", arg=nodes[children[0]]["name"]
    )
    there.assert_clean()


def test_the_stage_that_sets_the_pace_is_marked(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "input")
    pipeline = answer(there, "input_bound", "input")["pipelines"][0]
    limiting = pipeline["stages"][pipeline["limiting"]]["name"]
    assert f"{limiting} sets the pace" in frame.locator("#input").inner_text()
    # the graph, by the keyboard: from the source to the training
    spoken = [read_out(frame, there, "From the source to the training", "Home")]
    for _ in pipeline["stages"]:
        spoken.append(read_out(frame, there, "From the source to the training", "ArrowLeft"))
    assert spoken[0].startswith("Training")
    assert [text for text in spoken if text.startswith(limiting) and "sets the pace" in text]
    marked = frame.locator("#input tbody tr", has_text="sets the pace")
    assert marked.count() == 1 and limiting in marked.inner_text()
    frame.get_by_role("button", name="Show the gaps caused by input").click()
    there.wait_until_shown(frame, "input_bound", "gaps")
    assert frame.get_by_label("Cause").input_value() == "input"
    # a loader that nobody waited for is not blamed
    frame = there.open_run("pytorch_ddp", "input")
    assert "sets the pace" in frame.locator("#input").inner_text()
    frame.locator("#input .filters select").select_option("1")
    frame.wait_for_function("() => document.querySelector('#input').innerText.includes('holds up nobody')")
    assert "sets the pace" not in frame.locator("#input table").inner_text()
    there.assert_clean()


def drag(there: Visit, frame: Frame) -> None:
    power = chart(frame, "Power")
    power.scroll_into_view_if_needed()
    box = power.bounding_box()
    assert box is not None
    there.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    there.page.mouse.down()
    there.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 70, steps=4)
    there.page.mouse.up()
    frame.wait_for_function("() => parent.location.hash.includes('telemetry_range=')")
    start, end = (
        float(part)
        for part in frame.evaluate(
            "decodeURIComponent(parent.location.hash.match(/telemetry_range=([^&]*)/)[1])"
        ).split("~")
    )
    recording = answer(there, "slow_gpu", "telemetry")["recordings"][0]
    whole = recording["end_unix_ms"] - recording["start_unix_ms"]
    assert end - start == pytest.approx(0.25 * whole * box["width"] / (box["width"] - 76), rel=0.03)
    frame.get_by_role("button", name="Show all").click()
    frame.wait_for_function("() => !parent.location.hash.includes('telemetry_range=')")


def test_telemetry_names_the_throttled_gpu(server: TensorBoard, visit: Start):
    mine = visit(server)
    frame = mine.open_run("slow_gpu", "telemetry")
    text = frame.locator("#telemetry").inner_text()
    assert "Simulated" in text and "GPU 2 held back its clock because of heat" in text and "steps 1200 to 1699" in text
    assert "GPU 2" in read_out(frame, mine, "What happened when")
    # what is read out is what was recorded
    series = answer(mine, "slow_gpu", "telemetry/series", metric="temperature_celsius")["series"]
    spoken = read_out(frame, mine, "Temperature", "End")
    for number, one in enumerate(series):
        assert f"GPU {number}: {one['mean'][-1]:g} °C" in spoken
    drag(mine, frame)
    # another metric, the axis of steps and a part of the time, in a link
    frame.get_by_text("Choose metrics").click()
    frame.get_by_label("Energy").check()
    chart(frame, "Energy").wait_for()
    frame.get_by_label("Axis").select_option("step")
    frame.get_by_label("Zoom in").click()
    frame.wait_for_function("() => parent.location.hash.includes('telemetry_range=')")
    frame.wait_for_function("() => !document.querySelector('.view .stale')")
    link = copied_link(frame)
    spoken = read_out(frame, mine, "Energy", "End")
    yours = visit(server)  # only now: a browser draws little of what stands behind another page
    other = follow(yours, link, "slow_gpu", "telemetry")
    chart(other, "Energy").wait_for()
    assert other.get_by_label("Axis").input_value() == "step"
    assert read_out(other, yours, "Energy", "End") == spoken
    mine.assert_clean()
    yours.assert_clean()
