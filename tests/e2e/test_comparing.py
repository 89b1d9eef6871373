"""Compare and History on a logdir with a past: what they show against the server's own numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.comparison.test_kernel_changes import wider
from tests.e2e.visit import Visit, axe_violations
from tests.regressing import GOOD, RUN, write_regressing
from tests.tensorboard_server import TensorBoard, tensorboard

pytestmark = pytest.mark.browser
Start = Callable[..., Visit]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TensorBoard, list[str]]]:
    logdir: Path = tmp_path_factory.mktemp("past")
    names = write_regressing(logdir)
    with tensorboard(f"--logdir={logdir}") as running:
        yield running, names


def test_a_comparison_says_what_the_server_says(past: tuple[TensorBoard, list[str]], visit: Start):
    server, names = past
    there = visit(server)
    frame = there.open(run=RUN, session=names[-1], view="compare", compare_with=f"{RUN}~{names[0]}")
    there.wait_until_shown(frame, RUN, "compare")
    answer = there.api(
        "compare", before_run=RUN, before_session=names[0], after_run=RUN, after_session=names[-1]
    )  # fmt: skip
    assert answer["outcome"] == "slower"
    assert frame.locator("[data-outcome]").get_attribute("data-outcome") == "slower"
    assert answer["headline"] in frame.locator(".verdict").inner_text()
    for obstacle in answer["obstacles"]:
        assert obstacle in frame.locator("[role=note]").inner_text()
    low, high = answer["change"]["low"], answer["change"]["high"]
    picture = str(frame.get_by_role("application", name="Time per step").get_attribute("aria-label"))
    assert f"between +{low:.0%} and +{high:.0%}" in picture
    loud = [f for f in answer["findings"] if f["change"] not in ("unchanged", "cannot_tell")]
    cards = frame.locator("#compare .cards > .card")
    assert cards.first.get_attribute("data-change") == loud[0]["change"] == "new"
    # Each finding leads to its page.
    cards.first.get_by_role("button").click()
    frame.locator("dialog[open] h1").wait_for()
    there.page.keyboard.press("Escape")
    # Turned around it is faster, and the link says so.
    frame.get_by_role("button", name="Swap before and after").click()
    frame.locator("[data-outcome=faster]").wait_for()
    frame.wait_for_function("() => parent.location.hash.includes('p.gpu_doctor.compare_as=before')")
    there.assert_clean()


def test_batches_make_it_a_comparison_per_sample(past: tuple[TensorBoard, list[str]], visit: Start):
    server, names = past
    there = visit(server)
    # Without a choice the session before is held against it.
    frame = there.open(run=RUN, session=names[-1], view="compare")
    there.wait_until_shown(frame, RUN, "compare")
    assert frame.get_by_role("combobox", name="Compare with").input_value().endswith(names[-2])
    frame.get_by_label("Batch before").fill("32")
    frame.get_by_label("Batch before").press("Enter")
    frame.get_by_label("Batch after").fill("64")
    frame.get_by_label("Batch after").press("Enter")
    frame.get_by_role("heading", name="Time per sample").wait_for()
    frame.locator("[data-outcome=faster]").wait_for()
    frame.get_by_role("combobox", name="Compare with").click()
    frame.get_by_role("combobox", name="Compare with").fill(names[1])
    there.page.keyboard.press("Enter")
    # The batches were of the session before.
    frame.get_by_role("heading", name="Time per step").wait_for()
    frame.locator("[data-outcome=slower]").wait_for()
    assert frame.get_by_label("Batch before").input_value() == ""
    there.assert_clean()


def test_two_batches_tell_which_one_fills_the_gpu(tmp_path: Path, visit: Start):
    names = [f"2026_05_0{day}_02_00_00" for day in (1, 2)]
    for name, batch in zip(names, (8, 16), strict=True):
        folder = tmp_path / "wide" / "plugins" / "profile" / name
        folder.mkdir(parents=True)
        (folder / "trainer.xplane.pb").write_bytes(wider(batch).space.encode())
    with tensorboard(f"--logdir={tmp_path}") as server:
        there = visit(server)
        frame = there.open(
            run="wide", session=names[1], view="compare", compare_with=f"wide~{names[0]}", batch_before="8",
            batch_after="16",
        )  # fmt: skip
        there.wait_until_shown(frame, "wide", "compare")
        answer = there.api(
            "compare", before_run="wide", before_session=names[0], after_run="wide", after_session=names[1],
            batch_before="8", batch_after="16",
        )  # fmt: skip
        sentences = [entry["sentence"] for entry in answer["grids"]["kernels"]]
        assert sentences and "From a batch of 44 on each gets a block" in sentences[0]
        assert frame.locator("[data-grids] > li").all_inner_texts() == sentences
        assert frame.get_by_role("heading", name=answer["grids"]["title"]).is_visible()
        there.assert_clean()


def test_kernels_are_searched_and_saved(past: tuple[TensorBoard, list[str]], visit: Start):
    server, names = past
    there = visit(server)
    frame = there.open(
        run=RUN, session=names[-1], view="compare", compare_with=f"{RUN}~{names[0]}", compare_find="nccl"
    )
    there.wait_until_shown(frame, RUN, "compare")
    answer = there.api(
        "compare", before_run=RUN, before_session=names[0], after_run=RUN, after_session=names[-1]
    )  # fmt: skip
    wanted = [kernel for kernel in answer["kernels"] if "nccl" in kernel["name"].lower()]
    table = frame.locator(".data-table", has=frame.get_by_label("Find kernel"))
    assert wanted
    expect(table.locator("tbody tr")).to_have_count(len(wanted))
    with there.page.expect_download() as download:
        table.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    assert [float(row["change_ms"]) for row in rows] == [kernel["difference_ms"] for kernel in wanted]
    there.assert_clean()


def test_history_marks_the_regression_and_leads_to_the_comparison(past: tuple[TensorBoard, list[str]], visit: Start):
    server, names = past
    there = visit(server)
    frame = there.open(run=RUN, session=names[-1], view="history")
    there.wait_until_shown(frame, RUN, "history")
    answer = there.api("history", run=RUN)
    assert answer["changes"][0]["session_index"] == GOOD
    assert answer["headline"] in frame.locator("#history").inner_text()
    for change in answer["changes"]:
        assert change["sentence"] in frame.locator(".changes").inner_text()
    assert frame.locator("#history tbody tr").count() == len(names)
    # By the keyboard: the first session of the trend, opened beside the shown one.
    frame.get_by_role("application", name="Mean step of each session").focus()
    there.page.keyboard.press("ArrowRight")
    there.page.keyboard.press("Enter")
    frame.get_by_role("heading", name=f"{RUN}/{names[0]}").wait_for()
    frame.get_by_role("button", name="Compare with the shown session").click()
    there.wait_until_shown(frame, RUN, "compare")
    assert frame.locator("[data-outcome]").get_attribute("data-outcome") == "slower"
    there.show(frame, RUN, "history")
    frame.get_by_role("button", name="Open it").click()
    frame.wait_for_function("s => document.querySelector('[role=combobox]').value.endsWith(s)", arg=names[0])
    there.wait_until_shown(frame, RUN)
    there.assert_clean()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_are_accessible_fit_a_phone_and_speak_spanish(
    past: tuple[TensorBoard, list[str]], visit: Start, scheme: str
):
    server, names = past
    there = visit(server, color_scheme=scheme)
    frame = there.open(
        run=RUN, session=names[-1], view="compare", compare_with=f"{RUN}~{names[0]}", lang="es",
        history_session=f"{RUN}~{names[1]}",
    )  # fmt: skip
    there.wait_until_shown(frame, RUN, "compare")
    frame.get_by_role("heading", name="Más lento").wait_for()
    frame.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
    assert axe_violations(frame) == []
    there.show(frame, RUN, "history")
    frame.get_by_role("button", name="Comparar con la sesión mostrada").wait_for()
    assert axe_violations(frame) == []
    there.page.set_viewport_size({"width": 400, "height": 800})
    for view in ("history", "compare"):
        there.show(frame, RUN, view)
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
    there.assert_clean()


def test_a_link_to_what_is_not_here_says_so(past: tuple[TensorBoard, list[str]], visit: Start):
    server, names = past
    there = visit(server)
    frame = there.open(run=RUN, session=names[0], view="compare", compare_with="gone~2020_01_01_00_00_00")
    there.wait_until_shown(frame, RUN, "compare")
    frame.get_by_text("gone/2020_01_01_00_00_00").wait_for()
    assert frame.get_by_role("combobox", name="Compare with").count() == 1
    there.assert_clean()
