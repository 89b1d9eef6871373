"""Every view on every demo run: what it shows against the server's own numbers, and what links keep of it."""

from __future__ import annotations

import csv
import io
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Frame

from tests.e2e import looks
from tests.e2e.visit import Visit, axe_violations, colours, picture, plot, shown_ms
from tests.tensorboard_server import TensorBoard

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]
RUNS = ("healthy", "input_bound", "launch_bound", "low_occupancy", "pytorch_ddp", "slow_gpu")
VIEWS = ("verdict", "timeline", "gaps", "steps", "gpus", "kernels", "input", "telemetry")
# Something that only shows once the view has its data.
PROOF = {
    "verdict": "#findings",
    "timeline": ".tl-foot li",
    "gaps": "#gaps table, #gaps .state.good",
    "steps": "#steps canvas",
    "gpus": "#collectives table, #collectives .state",
    "kernels": "#kernels tbody th",
    "input": "#input table, #input .state",
    "telemetry": "#telemetry table, #telemetry .state",
}


def tabs(frame: Frame) -> list[str]:
    return [tab.removeprefix("tab-") for tab in frame.locator("[role=tab]").evaluate_all("e => e.map(t => t.id)")]


@pytest.mark.parametrize("run", RUNS)
def test_every_view_shows_every_run(server: TensorBoard, visit: Start, run: str, tmp_path: Path):
    there = visit(server, color_scheme="light")
    frame = there.open_run(run)
    assert set(VIEWS) <= set(tabs(frame))
    complaints = []
    for view in tabs(frame):
        there.show(frame, run, view)
        frame.locator(PROOF.get(view, ".view")).first.wait_for()
        assert frame.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
        assert frame.get_by_role("alert").count() == 0, view
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        complaints.append(looks.complaint(frame, run, view, tmp_path))
    there.assert_clean()
    assert not any(complaints), "\n".join(filter(None, complaints))


@pytest.mark.parametrize(("view", "missing"), [("timeline", "canvas"), ("steps", "canvas"), ("kernels", "canvas, svg")])
def test_a_missing_chart_or_style_is_noticed(server: TensorBoard, visit: Start, view: str, missing: str):
    run = "slow_gpu"
    there = visit(server, color_scheme="light")
    frame = there.open_run(run, view)
    frame.locator(PROOF[view]).first.wait_for()
    with Image.open(looks.reference(run, view)) as expected:
        frame.evaluate(
            "missing => document.querySelectorAll(missing).forEach(e => e.style.visibility = 'hidden')", missing
        )
        assert looks.difference(looks.small(looks.screenshot(frame)), expected) > looks.TOLERANCE
        frame.evaluate("for (const sheet of document.styleSheets) sheet.disabled = true")
        assert looks.difference(looks.small(looks.screenshot(frame)), expected) > looks.TOLERANCE


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize(("run", "scheme"), [("input_bound", "light"), ("slow_gpu", "dark")])
def test_axe_finds_nothing_in_any_view(server: TensorBoard, visit: Start, run: str, scheme: str):
    there = visit(server, color_scheme=scheme)
    # A stretch is chosen and streams are shown, so that these parts are looked at too.
    frame = there.open_run(run, "timeline", selection="300~420", streams="0", find="nccl")
    for view in tabs(frame):
        there.show(frame, run, view)
        frame.locator(PROOF.get(view, ".view")).first.wait_for()
        frame.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        frame.evaluate("for (const b of document.querySelectorAll('.unfold[aria-expanded=false]')) b.click()")
        frame.wait_for_timeout(100)
        assert axe_violations(frame) == [], view
    there.assert_clean()


def test_the_views_fit_a_phone(server: TensorBoard, visit: Start):
    there = visit(server)
    there.page.set_viewport_size({"width": 400, "height": 800})
    frame = there.open_run("slow_gpu", "timeline", selection="300~420")
    for view in tabs(frame):
        there.show(frame, "slow_gpu", view)
        frame.locator(PROOF.get(view, ".view")).first.wait_for()
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    there.assert_clean()


def test_the_tabs_obey_the_arrow_keys(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("healthy")
    names = tabs(frame)
    frame.locator("#tab-verdict").focus()
    there.page.keyboard.press("ArrowRight")
    assert frame.evaluate("document.activeElement.id") == f"tab-{names[1]}"
    there.wait_until_shown(frame, "healthy", names[1])
    there.page.keyboard.press("End")
    there.wait_until_shown(frame, "healthy", names[-1])
    there.page.keyboard.press("ArrowRight")
    there.wait_until_shown(frame, "healthy", names[0])
    assert frame.locator("[role=tab][tabindex='0']").count() == 1


def copied_link(frame: Frame) -> str:
    """What "Copy link" puts into the clipboard, by the old way that plain http is left with."""
    frame.evaluate(
        """() => {
            Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });
            document.execCommand = command => {
                window.copied = document.activeElement.value;
                return command === 'copy';
            };
        }"""
    )
    frame.get_by_role("button", name="Copy link").click()
    frame.get_by_text("Copied").wait_for()
    return str(frame.evaluate("window.copied"))


def follow(there: Visit, link: str, run: str, view: str) -> Frame:
    there.page.goto("about:blank")  # else only the hash would change, and nothing be loaded
    there.page.goto(link)
    element = there.page.wait_for_selector("iframe[src*='gpu_doctor']", state="attached")
    assert element is not None
    frame = element.content_frame()
    assert frame is not None
    there.wait_until_shown(frame, run, view)
    return frame


def test_a_copied_link_shows_the_same_picture_to_others(server: TensorBoard, visit: Start):
    mine, yours = visit(server), visit(server, locale="es-ES")
    frame = mine.open_run(
        "input_bound", "timeline", range="300~420", selection="320~380", streams="0", find="nccl", mark="350~360|1|"
    )
    frame.locator(".range-panel .bar").first.wait_for()
    frame.get_by_text("72 hits").wait_for()
    # The stock Profiler writes its own address over ours, even from the background.
    mine.page.evaluate("history.replaceState(null, '', '?tool=trace_viewer#profile')")
    link = copied_link(frame)
    assert "trace_viewer" not in link
    other = follow(yours, link, "input_bound", "timeline")
    other.get_by_text("72 hits").wait_for()
    other.locator(".range-panel .bar").first.wait_for()
    for place in (".readout", ".range-readout", "h2"):
        assert other.locator(place).first.inner_text() == frame.locator(place).first.inner_text()
    for _ in range(20):
        if picture(frame) == picture(other):
            break
        other.wait_for_timeout(150)
    assert picture(frame) == picture(other)
    mine.assert_clean()
    yours.assert_clean()


def test_links_keep_what_each_view_is_about(server: TensorBoard, visit: Start):
    mine = visit(server)
    frame = mine.open_run("slow_gpu", "gaps")
    frame.get_by_label("Cause").select_option("launch")
    frame.locator("#gaps tbody button.choose").nth(2).click()
    story = frame.locator(".story").inner_text()
    mine.show(frame, "slow_gpu", "steps")
    frame.locator("#steps .filters select").select_option("2")
    mine.show(frame, "slow_gpu", "gpus")
    frame.get_by_label("Show", exact=True).select_option("compute")
    link = copied_link(frame)
    yours = visit(server)
    other = follow(yours, link, "slow_gpu", "gpus")
    assert other.get_by_label("Show", exact=True).input_value() == "compute"
    yours.show(other, "slow_gpu", "steps")
    assert other.locator("#steps .filters select").input_value() == "2"
    assert other.locator("#steps figure").count() == 1
    yours.show(other, "slow_gpu", "gaps")
    other.wait_for_function("text => document.querySelector('.story').innerText === text", arg=story)
    assert other.get_by_label("Cause").input_value() == "launch"
    yours.assert_clean()


def test_a_stretch_is_accounted_for(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    box = plot(frame).bounding_box()
    assert box is not None
    there.page.keyboard.down("Shift")
    there.page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 20)
    there.page.mouse.down()
    there.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20, steps=4)
    there.page.mouse.up()
    there.page.keyboard.up("Shift")
    frame.wait_for_function("() => parent.location.hash.includes('p.gpu_doctor.selection=')")
    frame.locator(".range-panel .bar").first.wait_for()
    start, end = (
        float(ms) * 1e9
        for ms in frame.evaluate("decodeURIComponent(parent.location.hash.match(/selection=([^&]*)/)[1])").split("~")
    )
    answer = there.api(
        "timeline/range", run="input_bound", session=there.session("input_bound"),
        start_ps=str(int(start)), end_ps=str(int(end)),
    )  # fmt: skip
    lane = answer["lanes"][0]["ms"]
    share = lane["compute"] / sum(lane.values())
    assert f"Compute {share:.0%}" in str(frame.locator(".range-panel .bar").first.get_attribute("aria-label"))
    there.assert_clean()


def test_gaps_and_kernels_are_found_one_after_another(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline", find="allreduce")
    frame.get_by_text("72 hits").wait_for()
    seen = []
    for _ in range(3):
        frame.get_by_label("Next hit").click()
        frame.wait_for_function(
            "seen => { const m = parent.location.hash.match(/mark=([^&]*)/); return m && !seen.includes(m[1]); }",
            arg=seen,
        )
        seen.append(frame.evaluate("parent.location.hash.match(/mark=([^&]*)/)[1]"))
    starts = [float(mark.split("~")[0]) for mark in seen]
    assert starts == sorted(starts) and len(set(starts)) == 3
    plot(frame).focus()
    there.page.keyboard.press("n")
    frame.wait_for_function("seen => !seen.includes(parent.location.hash.match(/mark=([^&]*)/)[1])", arg=seen)
    there.assert_clean()


def test_a_step_and_a_gap_lead_to_the_timeline(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "steps")
    answer = there.api("steps", run="input_bound", session=there.session("input_bound"))
    frame.locator("#steps tbody button.choose").first.click()
    there.wait_until_shown(frame, "input_bound", "timeline")
    step = answer["steps"][0]
    assert shown_ms(frame) <= 3.01 * (step["end_ps"] - step["start_ps"]) / 1e9
    there.show(frame, "input_bound", "gaps")
    frame.get_by_role("button", name="Show in the timeline").click()
    there.wait_until_shown(frame, "input_bound", "timeline")
    assert colours(frame) > 1
    there.assert_clean()


def test_tables_and_charts_are_saved(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("slow_gpu", "steps")
    answer = there.api("steps", run="slow_gpu", session=there.session("slow_gpu"))
    with there.page.expect_download() as table:
        frame.get_by_role("button", name="CSV").click()
    text = Path(table.value.path()).read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(answer["gpus"]) * len(answer["steps"])
    for row in rows:
        gpu = next(i for i, each in enumerate(answer["gpus"]) if row["GPU"] == f"GPU {each['gpu']}")
        column = next(i for i, each in enumerate(answer["steps"]) if str(each["number"]) == row["Step"])
        assert float(row["wall_ms"]) == pytest.approx(answer["wall_ps"][gpu][column] / 1e9)
        assert sum(float(row[f"{part}_ms"]) for part in answer["parts_ps"]) == pytest.approx(float(row["wall_ms"]))
    with there.page.expect_download() as image:
        frame.get_by_role("button", name="PNG").first.click()
    content = Path(image.value.path()).read_bytes()
    assert content.startswith(b"\x89PNG") and struct.unpack(">II", content[16:24])[0] > 1000
    assert image.value.suggested_filename.startswith("slow_gpu-") and len(content) > 3000
    there.assert_clean()
