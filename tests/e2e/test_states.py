"""The tab where something is missing, broken, hostile, or behind a path prefix."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simulator.xplane_writer import Space
from tb_gpu_doctor.monitor.batch_measure import Point, fit
from tb_gpu_doctor.monitor.batch_size import BatchResult, write_sweep
from tests.cli.profiles import MS, session_file, training, write
from tests.e2e.visit import Visit, axe_violations, colours, picture
from tests.telemetry.recorded import Recorded
from tests.tensorboard_server import TensorBoard, tensorboard

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]
ENVIRONMENT = {
    "system": "Linux",
    "driver": {"version": "550.54.15", "gpus": []},
    "problems": [{"code": "no_gpu", "severity": "warning", "params": {}}],
}
# Seconds a step by batch size.
SWEEP = {16: 0.004 + 16e-4, 32: 0.004 + 32e-4, 64: 0.004 + 64e-4}
HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\x00\u202e</script>" + "k" * 100_000


@pytest.fixture(scope="module")
def broken_logdir(logdir: Path) -> Path:
    """The demo with damaged profiles beside it, all older than the others."""
    whole = next((logdir / "healthy").rglob("*.xplane.pb")).read_bytes()
    for run, content in {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "random": random.Random(1).randbytes(5_000),
        "text": b"not a profile\n",
        "<img src=x onerror=alert(1)>": whole[:1000],
    }.items():
        folder = logdir / run / "plugins" / "profile" / "2020_01_01_00_00_00"
        folder.mkdir(parents=True)
        (folder / "worker0.xplane.pb").write_bytes(content)
    for run, space in {
        "hostile": training(kernel=HOSTILE, host_event=HOSTILE, warnings=[HOSTILE]),
        "alien": far(),
    }.items():
        write(space, session_file(logdir, run=run, session="2020_01_01_00_00_00"))
    record(logdir / "recorded")
    host_only = training()
    del host_only.planes[:-1]
    write(host_only, session_file(logdir, run="host_only", session="2020_01_01_00_00_00"))
    return logdir


def record(logdir: Path) -> None:
    """Telemetry without any profile: an environment with a problem, and a sweep whose largest batch did not fit."""
    recorded = Recorded(logdir)
    recorded.writer.facts.append(("environment", ENVIRONMENT))
    for step in range(20):
        recorded.sample(step, power_watts=(300.0 + step, 310.0), temperature_celsius=(60.0, 61.0))
    recorded.write(last=True)
    points = [Point(size, size / seconds, seconds, peak_bytes=size << 20) for size, seconds in SWEEP.items()]
    points.append(Point(128, problem="out_of_memory"))
    write_sweep(BatchResult(tuple(points), fit(points), 32, None, "memory", True), str(logdir))


def far() -> Space:
    """A kernel of zero length, overlaps inside one stream, and one event six days after the others."""
    space = training(1, marked=False, durations=[0, 5 * MS])
    space.planes[0].lines[0].event("late", 6 * 24 * 3600 * 1000 * MS, MS)
    return space


@pytest.fixture(scope="module")
def prefixed(broken_logdir: Path) -> Iterator[TensorBoard]:
    """TensorBoard as it runs behind a proxy, under a path."""
    with tensorboard(f"--logdir={broken_logdir}", "--path_prefix=/team/x") as running:
        yield running


def expected_errors(there: Visit) -> list[str]:
    """The console without the browser's own line about each 4xx answer."""
    return [error for error in there.errors if "status of 422" not in error]


@pytest.mark.parametrize("run", ["empty", "random", "text"])
def test_a_broken_profile_says_what_is_wrong(prefixed: TensorBoard, visit: Start, run: str):
    there = visit(prefixed)
    frame = there.open(run=run, session="2020_01_01_00_00_00")
    alert = frame.get_by_role("alert").first
    alert.wait_for()
    assert "worker0.xplane.pb" in alert.inner_text()
    assert frame.get_by_role("alert").count() == 1
    assert frame.locator(".verdict").count() == 0
    assert expected_errors(there) == [] and there.foreign == []


def test_the_others_work_beside_broken_ones_and_under_a_prefix(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open_run("input_bound")
    assert frame.locator("article.card h3").first.inner_text() == there.diagnosis("input_bound")["findings"][0]["title"]
    there.show(frame, "input_bound", "timeline")
    assert colours(frame) > 3
    link = frame.locator("#timeline a.action")
    link.wait_for()
    address = str(link.evaluate("link => link.href"))
    assert address.startswith(f"{prefixed.url}data/plugin/profile/") and "%2Fteam%2Fx%2Fdata%2Fplugin" in address
    assert there.page.request.get(address).status == 200
    there.assert_clean()


def test_markup_in_a_run_name_is_text(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open(run="<img src=x onerror=alert(1)>", session="2020_01_01_00_00_00")
    frame.get_by_role("alert").first.wait_for()
    assert frame.locator("img").count() == 0
    assert "<img" in str(frame.get_by_role("combobox").first.input_value())
    assert expected_errors(there) == []


def test_hostile_names_stay_text_and_inside_the_page(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open_run("hostile")
    assert frame.locator("img").count() == 0
    for view in ("timeline", "gaps", "steps", "gpus", "kernels"):
        there.show(frame, "hostile", view)
        assert frame.locator("img").count() == 0
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    assert "<img src=x" in frame.locator("#kernels tbody th").first.inner_text()
    there.assert_clean()


def test_times_that_are_days_apart_still_draw(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    there.open_run("alien", "timeline")
    there.assert_clean()


def test_a_profile_without_gpus_says_what_to_do(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open(run="host_only", session="2020_01_01_00_00_00")
    frame.wait_for_selector(".verdict-cannot_tell")
    finding = there.diagnosis("host_only")["findings"][0]
    assert finding["kind"] == "no_gpu_plane"
    assert frame.locator("article.card h3").first.inner_text() == finding["title"]
    assert frame.locator(".state.good").count() == 0
    frame.locator("#tab-input").click()  # the host's part is there all the same
    frame.locator(".view[data-view=input] h2").first.wait_for()
    assert frame.locator("#tab-timeline").count() == 0 and frame.get_by_role("alert").count() == 0
    there.assert_clean()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_an_error(prefixed: TensorBoard, visit: Start, scheme: str):
    there = visit(prefixed, color_scheme=scheme)
    frame = there.open(run="random", session="2020_01_01_00_00_00")
    frame.get_by_role("alert").first.wait_for()
    assert axe_violations(frame) == []


@pytest.mark.usefixtures("axe")
def test_a_link_to_a_session_that_is_gone_says_so_and_offers_others(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open(run="gone", session="2019_01_01_00_00_00")
    frame.wait_for_selector(".notice")
    assert "gone/2019_01_01_00_00_00" in frame.locator(".notice").first.inner_text()
    assert frame.locator(".verdict").count() == 0
    assert axe_violations(frame) == []
    frame.locator(".choices button").first.click()
    frame.wait_for_selector(".verdict")
    assert frame.locator(".notice").count() == 0
    there.assert_clean()


@pytest.fixture(scope="module")
def empty_logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def empty(empty_logdir: Path) -> Iterator[TensorBoard]:
    with tensorboard(f"--logdir={empty_logdir}") as running:
        yield running


@pytest.mark.usefixtures("axe")
def test_an_empty_logdir_says_what_was_searched_and_how_to_record(empty: TensorBoard, visit: Start):
    there = visit(empty)
    frame = there.open()
    frame.wait_for_selector(".empty")
    text = frame.locator(".empty").inner_text()
    assert "plugins/profile/*/*.xplane.pb" in text and "jax.profiler.trace" in text
    assert "tensorboard_trace_handler" in text and "GpuMonitor" in text
    assert axe_violations(frame) == []
    there.assert_clean()


def test_a_reload_updates_a_rewritten_run_without_losing_the_view(
    empty: TensorBoard, empty_logdir: Path, visit: Start, demo_logs: Path
):
    profiles = {run: next((demo_logs / run).rglob("*.xplane.pb")) for run in ("healthy", "launch_bound")}
    target = empty_logdir / "live" / "plugins" / "profile" / "2026_01_01_00_00_00" / "node.xplane.pb"
    target.parent.mkdir(parents=True)
    target.write_bytes(profiles["healthy"].read_bytes())
    there = visit(empty)
    while not there.api("sessions")["sessions"]:
        there.page.wait_for_timeout(200)
    frame = there.open_run("live", "timeline", range="10~20")
    shown, drawn = frame.locator(".readout").inner_text(), picture(frame)
    target.write_bytes(profiles["launch_bound"].read_bytes())
    with there.page.expect_request(lambda request: "timeline/meta" in request.url):
        there.page.locator(".reload-button").first.click()
    for _ in range(100):
        if picture(frame) != drawn:
            break
        frame.wait_for_timeout(100)
    assert picture(frame) != drawn
    there.wait_until_shown(frame, "live", "timeline")
    assert frame.locator(".readout").inner_text() == shown
    there.show(frame, "live", "verdict")
    assert there.diagnosis("live")["findings"][0]["kind"] == "launch_bound"
    there.assert_clean()


@pytest.mark.usefixtures("axe")
def test_telemetry_alone_shows_batch_sizes_and_the_environment(prefixed: TensorBoard, visit: Start):
    there = visit(prefixed)
    frame = there.open(run="recorded", session="telemetry", view="telemetry")
    frame.locator("#telemetry table").wait_for()
    batch = frame.locator("#batch").inner_text()
    assert "Recommended: 32" in batch and "A step takes 4.00 ms plus 100 µs a sample" in batch
    assert "Size 128 failed: out of memory" in batch and frame.locator("#batch tbody tr").count() == 4
    environment = frame.locator("#environment")
    assert "Warning" in environment.inner_text() and "550.54.15" in environment.inner_text()
    assert "lspci" in environment.locator("pre").first.inner_text()
    assert "held back" in frame.locator("#telemetry").inner_text()
    frame.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    assert axe_violations(frame) == []
    assert expected_errors(there) == [] and there.foreign == []
