"""The pages behind the findings: found, complete in both languages, true to the thresholds, safe to ask for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor import docs_pages
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

KINDS = {
    "checkpoint_stall", "compile_stall", "step_outliers", "sync_stall",
    "cpu_contention", "op_placement", "communication_bound", "clock_skew", "serialized_kernels", "transfer_bound",
    "dropped_events", "empty_gpu_plane", "idle_gpus", "imbalance", "input_bound", "launch_bound",
    "thermal_throttle", "power_throttle", "memory_headroom", "memory_pressure", "low_utilization", "gpu_shared",
    "pcie_degraded", "profiler_overhead",
    "low_occupancy", "no_gpu_plane", "no_steps", "short_profile", "underfilled_gpu",
    "tensor_cores_unused",
}  # fmt: skip
PAGES = docs_pages.list_pages()
T = Thresholds()


def code_blocks(markdown: str) -> list[str]:
    """Fenced code without comments, which are translated."""
    blocks = re.findall(r"^```(?:python|bash|cpp)\n(.*?)^```", markdown, re.DOTALL | re.MULTILINE)
    return [re.sub(r"(?m)\s*#.*$", "", block) for block in blocks]


def test_there_is_a_page_for_each_kind() -> None:
    assert {f"findings/{kind}" for kind in KINDS} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_shape(page: str) -> None:
    english, spanish = docs_pages.read_page(page, "en"), docs_pages.read_page(page, "es")
    assert english != spanish
    for level in ("# ", "## "):
        headings = [sum(line.startswith(level) for line in text.splitlines()) for text in (english, spanish)]
        assert headings[0] == headings[1] == (1 if level == "# " else 5)
    assert code_blocks(english) == code_blocks(spanish)
    assert english.count("\n- ") == spanish.count("\n- ")


def test_the_translations_are_complete() -> None:
    folder = docs_pages.docs_root() / "findings"
    assert {path.name for path in folder.glob("*.md")} == {path.name for path in folder.glob("es/*.md")}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("lang", ["en", "es"])
def test_python_examples_are_python(page: str, lang: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", docs_pages.read_page(page, lang), re.DOTALL | re.MULTILINE)
    for block in blocks:
        compile(block, page, "exec")


@pytest.mark.parametrize(
    ("kind", "shares"),
    [
        ("input_bound", (T.input_warning, T.input_critical)),
        ("launch_bound", (T.launch_warning, T.launch_critical)),
        ("sync_stall", (T.sync_warning, T.sync_critical)),
        ("transfer_bound", (T.transfer_warning, T.transfer_critical)),
        ("op_placement", (T.placement_warning, T.placement_critical)),
        ("cpu_contention", (T.contention_warning, T.contention_critical)),
        ("compile_stall", (T.compile_warning, T.compile_critical)),
        ("checkpoint_stall", (T.checkpoint_warning, T.checkpoint_critical)),
        ("step_outliers", (T.outliers_warning, T.outliers_critical, T.outlier_min_confidence)),
        ("imbalance", (T.imbalance_warning, T.imbalance_critical)),
        ("imbalance", (T.imbalance_often, T.imbalance_explained)),
        ("communication_bound", (T.communication_warning, T.communication_critical)),
        ("idle_gpus", (T.idle_gpus_critical,)),
        ("low_occupancy", (T.kernel_min_share, T.occupancy_low, T.occupancy_warning)),
        ("underfilled_gpu", (T.kernel_min_share, T.underfilled_info, T.underfilled_warning)),
        ("tensor_cores_unused", (T.tensor_cores_info, T.tensor_cores_warning, T.tensor_cores_unknown)),
        ("short_profile", (T.min_window_coverage,)),
        ("thermal_throttle", (T.throttle_warning, T.throttle_critical, T.unequal_clock)),
        ("power_throttle", (T.throttle_warning, T.throttle_critical)),
        ("memory_headroom", (T.memory_low,)),
        ("memory_pressure", (T.memory_high, T.leak_grown)),
        ("low_utilization", (T.utilization_warning, T.utilization_critical)),
        ("gpu_shared", (T.shared_time, T.shared_memory)),
        ("pcie_degraded", (T.link_traffic,)),
    ],
)
def test_the_pages_name_the_thresholds_in_force(kind: str, shares: tuple[float, ...]) -> None:
    for lang in ("en", "es"):
        text = docs_pages.read_page(f"findings/{kind}", lang)
        for share in shares:
            assert re.search(rf"\b{share * 100:g} %", text), f"{kind} ({lang}) does not name {share * 100:g} %"


def test_an_unknown_language_falls_back_to_english() -> None:
    english = docs_pages.read_page("findings/input_bound", "en")
    for lang in ("fr", "", "..", "es/..", "/"):
        assert docs_pages.read_page("findings/input_bound", lang) == english


@pytest.mark.parametrize(
    "page", ["", "findings", "findings/", "findings/../findings/imbalance", "../LICENSE", "findings/nope",
             "findings/es/imbalance", "findings/imbalance.md", "FINDINGS/imbalance", "findings/imbalance\n", "\0"],
)  # fmt: skip
def test_only_listed_pages_are_served(page: str) -> None:
    with pytest.raises(KeyError):
        docs_pages.read_page(page, "en")


@given(st.text(), st.text())
def test_whatever_is_asked_for_is_a_page_or_a_key_error(page: str, lang: str) -> None:
    try:
        assert docs_pages.read_page(page, lang).startswith("# ")
    except KeyError:
        assert page not in PAGES
