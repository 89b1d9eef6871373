"""The tab on the demo runs, beside the stock Profiler in a real TensorBoard, in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.visit import Visit, colours, picture, plot, shown_ms
from tests.tensorboard_server import TensorBoard

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]

EXPECTED = {
    "input_bound": {"input_bound"},
    "slow_gpu": {"imbalance"},
    "pytorch_ddp": {"imbalance"},
    "launch_bound": {"launch_bound"},
    "low_occupancy": {"low_occupancy", "underfilled_gpu"},
}


@pytest.mark.parametrize("run", EXPECTED)
def test_each_sick_run_shows_what_is_wrong_with_it(server: TensorBoard, visit: Start, run: str):
    there = visit(server)
    frame = there.choose_run(run)
    worst = there.diagnosis(run)["findings"][0]
    assert worst["kind"] in EXPECTED[run]
    card = frame.locator("article.card").first
    assert card.locator("h3").inner_text() == worst["title"]
    assert card.locator(".advice li").count() == len(worst["advice"]) > 0
    assert worst["check"]
    assert card.get_by_role("heading", name="How to verify").is_visible()
    assert worst["title"] in frame.locator(".verdict").inner_text()
    assert frame.locator("#accounting").is_visible()
    there.show(frame, run, "timeline")
    assert colours(frame) > 3
    there.show(frame, run, "kernels")
    assert frame.locator("#kernels tbody th").count() > 0
    there.assert_clean()


def test_the_healthy_run_is_called_healthy(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("healthy")
    assert there.diagnosis("healthy")["verdict"] == "ok"
    assert frame.locator(".verdict-ok h2").inner_text() == "This run is healthy"
    assert frame.locator("article.card-critical, article.card-warning").count() == 0
    there.assert_clean()


def test_the_slow_gpu_is_named_and_its_victims_are_not_blamed(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("slow_gpu")
    worst = there.diagnosis("slow_gpu")["findings"][0]
    assert len(worst["gpus"]) == 1
    assert f"GPU {worst['gpus'][0]['id']}" in frame.locator("article.card").first.inner_text()


def test_the_timeline_obeys_the_keyboard(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    whole, drawn = shown_ms(frame), picture(frame)
    plot(frame).focus()
    for _ in range(5):
        there.page.keyboard.press("w")
    frame.wait_for_function("() => parent.location.hash.includes('p.gpu_doctor.range=')")
    assert shown_ms(frame) == pytest.approx(whole * 0.7**5, rel=0.01)
    assert picture(frame) != drawn
    before = frame.locator(".readout").inner_text()
    there.page.keyboard.press("d")
    frame.wait_for_function("text => document.querySelector('.readout').innerText !== text", arg=before)
    there.page.keyboard.press("s")
    frame.wait_for_timeout(100)
    assert shown_ms(frame) == pytest.approx(whole * 0.7**4, rel=0.01)
    there.page.keyboard.press("0")
    frame.wait_for_timeout(300)
    assert shown_ms(frame) == pytest.approx(whole, rel=0.001)
    there.assert_clean()


def test_keys_work_as_soon_as_the_view_is_open(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound")
    frame.locator("#tab-timeline").click()
    plot(frame).wait_for()
    whole = shown_ms(frame)
    there.page.keyboard.press("w")
    frame.wait_for_function("() => parent.location.hash.includes('p.gpu_doctor.range=')")
    assert shown_ms(frame) == pytest.approx(whole * 0.7, rel=0.01)
    assert plot(frame).evaluate("element => document.activeElement === element")
    there.page.keyboard.press("s")
    frame.wait_for_timeout(100)
    assert shown_ms(frame) == pytest.approx(whole, rel=0.01)
    there.assert_clean()


def test_the_keyboard_reads_out_intervals(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    plot(frame).focus()
    there.page.keyboard.press("ArrowDown")
    there.page.keyboard.press("ArrowDown")
    there.page.keyboard.press(".")
    frame.wait_for_function(
        "() => [...document.querySelectorAll('[aria-live]')].some(e => e.innerText.startsWith('GPU 1,'))"
    )
    there.assert_clean()


def test_ctrl_and_wheel_zoom_where_the_pointer_is_and_the_plain_wheel_scrolls(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    plot(frame).scroll_into_view_if_needed()
    plot(frame).hover()
    whole = shown_ms(frame)
    there.page.mouse.wheel(0, 100)
    frame.wait_for_timeout(200)
    assert shown_ms(frame) == whole
    plot(frame).hover()
    there.page.keyboard.down("Control")
    there.page.mouse.wheel(0, -400)
    there.page.keyboard.up("Control")
    frame.wait_for_timeout(300)
    assert shown_ms(frame) < whole * 0.7
    there.assert_clean()


def test_the_pointer_is_told_what_it_rests_on(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    plot(frame).scroll_into_view_if_needed()
    box = plot(frame).bounding_box()
    assert box is not None
    there.page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 12)
    frame.wait_for_selector(".tip dd")
    assert "GPU 0" in frame.locator(".tip").inner_text()
    there.assert_clean()


def test_evidence_leads_to_the_place_in_the_timeline(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    whole = shown_ms(frame)
    there.show(frame, "input_bound", "verdict")
    evidence = there.diagnosis("input_bound")["findings"][0]["evidence"][0]
    frame.locator("article.card").first.locator(".evidence-actions button").first.click()
    there.wait_until_shown(frame, "input_bound", "timeline")
    # The interval itself in the middle, as much again on each side.
    assert shown_ms(frame) == pytest.approx(3 * (evidence["end_ms"] - evidence["start_ms"]), rel=0.05)
    assert shown_ms(frame) < whole
    assert plot(frame).is_visible()
    there.assert_clean()


def test_the_stock_profiler_opens_at_the_range_shown(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound", "timeline")
    link = frame.locator("#timeline a.action")
    link.wait_for()
    address = str(link.evaluate("link => link.href"))
    assert address.startswith(f"{server.url}data/plugin/profile/trace_viewer_index.html?")
    assert "view_start=" in address and "view_end=" in address and "input_bound" in address
    assert there.page.request.get(address).status == 200
    # The same viewer below the timeline, only when it is asked for.
    assert frame.locator("iframe").count() == 0
    frame.get_by_role("button", name="Show the stock trace viewer here").click()
    assert frame.locator("iframe").get_attribute("src") == address
    frame.get_by_role("button", name="Close the trace viewer").click()
    assert frame.locator("iframe").count() == 0
    there.assert_clean()


def test_the_kernel_table_sorts_and_filters(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("low_occupancy", "kernels")
    rows = there.api("kernels", run="low_occupancy", session=there.session("low_occupancy"))["rows"]
    names = frame.locator("#kernels tbody th")
    assert names.first.get_attribute("title").splitlines()[0] == rows[0]["name"]
    frame.locator("#kernels thead button", has_text="Calls").click()
    frame.wait_for_selector("#kernels th[aria-sort=descending], #kernels th[aria-sort=ascending]")
    filtered = rows[-1]["name"]
    frame.get_by_label("Filter").first.fill(filtered)
    frame.wait_for_function("name => document.querySelector('#kernels tbody th').title.startsWith(name)", arg=filtered)
    there.assert_clean()


def test_the_tab_speaks_spanish(server: TensorBoard, visit: Start):
    there = visit(server, locale="es-MX")
    frame = there.open(run="input_bound", session=there.session("input_bound"))
    frame.wait_for_selector(".verdict")
    spanish = there.diagnosis("input_bound", "es")["findings"][0]["title"]
    assert frame.locator("article.card h3").first.inner_text() == spanish
    assert frame.evaluate("document.documentElement.lang") == "es"
    there.assert_clean()


def test_documentation_opens_inside_the_tab(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("input_bound")
    frame.get_by_role("button", name="Learn more").first.click()
    frame.wait_for_selector("dialog[open] h1, dialog[open] h2, [role=dialog] h1, [role=dialog] h2")
    there.assert_clean()


def test_nvml_stands_under_the_timeline_and_says_that_it_is_simulated(server: TensorBoard, visit: Start):
    there = visit(server)
    frame = there.open_run("slow_gpu", "timeline")
    strip = frame.locator(".nvml")
    strip.wait_for()
    strip.get_by_text("Simulated values").wait_for()
    label = str(strip.locator("canvas").get_attribute("aria-label"))
    assert "SM clock" in label and "GPU 2: 1351 MHz" in label and "GPU 0: 1832 MHz" in label
    strip.get_by_role("combobox").select_option("power_watts")
    frame.wait_for_function("() => document.querySelector('.nvml canvas').ariaLabel.includes(' W')")
    there.assert_clean()
