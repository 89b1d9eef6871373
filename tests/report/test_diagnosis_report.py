"""The JSON follows its schema in every situation, in both languages, and holds no number that is not one."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.report.diagnosis_report import SCHEMA_PATH, DiagnosisReport, schema, to_dict, to_json
from tests.diagnosis.build import MS, arrivals, kernel, profile
from tests.hosts import AnalysedFile, diagnosed

DROPPED = "Detected GPU events dropped on H: 5 events dropped because total device(activity) events reaches max: 9"
PERMISSION = "Insufficient privilege to run libcupti (you need root permission)."

SCENARIOS: dict[str, Callable[..., list[AnalysedFile]]] = {
    "nothing": lambda **_: [],
    "healthy": lambda **o: [profile(4, **o)],
    "input": lambda **o: [profile(4, idle={Cause.INPUT: 0.4}, **o)],
    "input_some": lambda **o: [profile(4, idle=[{Cause.INPUT: 0.4}, {}, {}, {}], **o)],
    "input_no_steps": lambda **o: [profile(4, steps=0, idle={Cause.INPUT: 0.4}, **o)],
    "inferred": lambda **o: [profile(4, source="inferred", idle={Cause.INPUT: 0.4}, **o)],
    "launch": lambda **o: [profile(2, idle={Cause.LAUNCH: 0.2}, gaps_per_step=5, **o)],
    "launch_few": lambda **o: [profile(2, steps=8, idle={Cause.LAUNCH: 0.2}, **o)],
    "launch_no_steps": lambda **o: [profile(2, steps=0, idle={Cause.LAUNCH: 0.2}, gaps_per_step=50, **o)],
    "imbalance": lambda **o: [
        profile(3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01], **o)
    ],
    "imbalance_no_steps": lambda **o: [
        profile(3, steps=0, step_ms=1000, lateness=dataclasses.replace(
            arrivals([[0, 0, 30]] * 10), step=arrivals([[0, 0, 30]] * 10).step * 0 - 1),
            communication=[0.31, 0.31, 0.01], **o)
    ],
    "imbalance_compute": lambda **o: [
        profile(3, compute_per_step=[[60.0] * 10, [60.0] * 10, [90.0] * 10], communication=[0.35, 0.35, 0.05],
                kernel_counts=[100, 100, 200], **o)
    ],
    "idle_gpus": lambda **o: [profile(8, working=[1, 2, 3, 4], **o)],
    "occupancy": lambda **o: [
        profile(2, kernels=[kernel(f"k{limiter}{family}", occupancy=0.1, limiter=limiter, family=family,
                                   in_window_ms=100)
                            for limiter in ("registers", "shared_memory", "block_size", "blocks", None)
                            for family in ("other", "matmul")], **o)
    ],
    "underfilled": lambda **o: [profile(2, kernels=[kernel(sm_share=0.1)], **o)],
    "no_gpu": lambda **o: [profile(0, working=(), **o)],
    "no_gpu_error": lambda **o: [profile(0, working=(), errors=["No GPU detected."], **o)],
    "no_gpu_unknown": lambda **o: [profile(0, working=(), errors=["?"], **o)],
    "cupti_missing": lambda **o: [profile(0, working=(), errors=["Failed to load libcupti (is it?)"], **o)],
    "empty_planes": lambda **o: [profile(4, working=(), errors=[PERMISSION], **o)],
    "dropped": lambda **o: [profile(2, warnings=[DROPPED], notes=[Phrase("notes.implausible_times", {"count": 1}),
                                                                 Phrase("notes.negative_durations", {"count": 3}),
                                                                 Phrase("notes.never_heard_of", {"x": 1})], **o)],
    "short": lambda **o: [profile(2, steps=2, recorded_ms=1000, **o)],
    "unexplained": lambda **o: [profile(2, idle={Cause.NO_EVIDENCE: 0.7}, **o)],
    "sync": lambda **o: [profile(2, idle={Cause.SYNC: 0.7}, **o)],
    "two_hosts": lambda **o: [
        profile(2, label="a", idle={Cause.INPUT: 0.4}, **o), profile(2, label="b", working=(), **o)
    ],
    "two_hosts_no_gpu": lambda **o: [profile(2, label="a", **o), profile(0, label="b", working=(), **o)],
}  # fmt: skip
NO_BATCH = {"samples": None, "samples_per_s": None}
FRAMEWORKS = {"jax": ("PjitFunction(f)",), "tensorflow": ("EagerExecute",), "keras": ("EagerExecute", "keras/x"),
              "tf_data": ("Iterator::Map",), "unknown": ()}  # fmt: skip


def report(name: str, framework: str = "tensorflow", complete: bool = False) -> DiagnosisReport:
    made = SCENARIOS[name](names=FRAMEWORKS[framework], host_event="work")
    failures = [] if complete else [ProfileError("truncated", "/logs/x.xplane.pb", offset=3, missing_bytes=2)]
    return DiagnosisReport.of(diagnosed(made, run="r", session="s", failures=failures))


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_schema_in_the_docs_is_the_shipped_one() -> None:
    published = Path(__file__).resolve().parents[2] / "docs" / "diagnosis.schema.json"
    assert published.read_text(encoding="utf-8") == SCHEMA_PATH.read_text(encoding="utf-8")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_situation_follows_the_schema(name: str, framework: str) -> None:
    for lang in ("en", "es"):
        data = report(name, framework).to_dict(lang)
        jsonschema.Draft202012Validator(schema()).validate(data)
        assert data["language"] == lang
        assert all(math.isfinite(value) for value in numbers(data))
        for finding in data["findings"]:
            sentences = [finding["title"], finding["explanation"], *finding["advice"], finding["check"]]
            assert not [s for s in sentences if "findings." in s or "report." in s], "a key instead of a text"
            assert not [s for s in sentences if "unknown" in s.lower() or "desconocid" in s.lower()]
            assert len(finding["advice"]) >= 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_languages_differ_in_words_only(name: str) -> None:
    def facts(value: Any, key: str = "") -> Any:
        if key in ("title", "explanation", "advice", "check", "what", "language", "warnings", "incomplete"):
            return None
        if isinstance(value, dict):
            return {k: facts(v, k) for k, v in value.items()}
        return [facts(v) for v in value] if isinstance(value, list) else value

    made = report(name)
    english, spanish = made.to_dict("en"), made.to_dict("es")
    assert facts(english) == facts(spanish)
    for one, other in zip(english["findings"], spanish["findings"], strict=True):
        assert one["title"] != other["title"] and one["explanation"] != other["explanation"]
        assert len(one["advice"]) == len(other["advice"]) and one["check"] != other["check"]


def test_the_structure_is_the_promised_one() -> None:
    data = report("input").to_dict()
    assert list(data) == [
        "schema_version",
        "verdict",
        "language",
        "profile",
        "devices",
        "steps",
        "kernels",
        "findings",
        "telemetry",
        "whatif",
    ]
    assert data["schema_version"] == 1
    assert data["profile"] == {
        "run": "r", "session": "s", "hosts": ["worker0"], "format": "xplane", "window_ms": 1000.0, "recorded_ms": None,
        "incomplete": "1 of 2 files missing: x. What it holds could not be read.",
        "warnings": data["profile"]["warnings"],
    }  # fmt: skip
    device = data["devices"][0]
    assert (device["host"], device["id"], device["rank"], device["name"]) == ("worker0", 0, None, "Some GPU")
    assert (device["wall_ms"], device["idle_ms"], device["compute_ms"]) == (1000.0, 400.0, 600.0)
    assert device["idle_by_cause_ms"]["input"] == 400.0
    assert math.fsum(device["idle_by_cause_ms"].values()) == pytest.approx(device["idle_ms"])
    assert data["steps"] == {"count": 10, "source": "marked", "median_ms": 100.0, **NO_BATCH}
    finding = data["findings"][0]
    assert finding["kind"] == "input_bound" and finding["docs"] == "findings/input_bound"
    assert finding["share"] == pytest.approx(0.4) and finding["saving_ms_per_step"] == pytest.approx(40)
    evidence = finding["evidence"][0]
    assert (evidence["host"], evidence["gpu"], evidence["thread"], evidence["step"]) == ("worker0", 0, "python", 20)
    assert evidence["end_ms"] - evidence["start_ms"] == pytest.approx(40)


def test_unknown_is_null() -> None:
    data = report("no_gpu").to_dict()
    assert data["profile"]["window_ms"] is None and data["devices"] == []
    empty = report("empty_planes").to_dict()["devices"][0]
    assert empty["wall_ms"] is None and set(empty["idle_by_cause_ms"].values()) == {None}
    kinds = {f["kind"]: f for f in report("occupancy").to_dict()["findings"]}
    assert kinds["low_occupancy"]["saving_ms_per_step"] is None
    none = {"count": 0, "source": "none", "median_ms": None, **NO_BATCH}
    assert report("input_no_steps").to_dict()["steps"] == none


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_no_number_that_is_none_is_written(bad: float) -> None:
    made = report("input")
    finding = dataclasses.replace(made.findings[0], share=bad, saving_ps_per_step=bad)
    gpu = dataclasses.replace(made.gpus[0], occupancy=bad)
    data = to_dict(dataclasses.replace(made, findings=(finding,), gpus=(gpu,)))
    assert data["findings"][0]["share"] is None and data["findings"][0]["saving_ms_per_step"] is None
    assert data["devices"][0]["occupancy"] is None
    json.dumps(data, allow_nan=False)


def test_what_takes_the_certainty_away_comes_first_in_the_warnings() -> None:
    told = report("unexplained").to_dict()
    warnings = told["profile"]["warnings"]
    assert "does not show why" in warnings[0] and "missing: x." in warnings[1] and "x.xplane.pb" in warnings[2]
    assert any("70%" in finding["title"] + finding["explanation"] for finding in told["findings"])


@given(st.text(min_size=1, max_size=40), st.text(max_size=40))
def test_recorded_names_cannot_spoil_the_json(name: str, host_event: str) -> None:
    made = profile(1, kernels=[kernel(name, occupancy=0.1)], idle={Cause.INPUT: 0.4}, host_event=host_event, label=name,
                   errors=[name], thread=name)  # fmt: skip
    written = to_json(diagnosed([made], run=name, session=host_event), "es")
    assert written.isascii()
    data = json.loads(written)
    jsonschema.Draft202012Validator(schema()).validate(data)


def test_names_of_many_kilobytes_are_shortened() -> None:
    long = "k" * 100_000
    made = profile(1, kernels=[kernel(long, occupancy=0.1)], idle={Cause.INPUT: 0.4}, host_event=long, thread=long,
                   errors=[long])  # fmt: skip
    written = to_json(diagnosed([made]))
    assert len(written) < 60_000
    assert len(json.loads(written)["kernels"][0]["name"]) == 1000


def test_a_report_is_a_diagnosis() -> None:
    made = diagnosed([profile(1)])
    spoken = DiagnosisReport.of(made)
    assert isinstance(spoken, type(made))
    assert spoken.to_dict("es") == to_dict(made, "es")
    assert json.loads(spoken.to_json()) == spoken.to_dict()
    assert spoken.window == 1000 * MS


def test_samples_per_second_are_those_of_the_median_step() -> None:
    made = report("input")
    steps = dataclasses.replace(made.steps, samples=256)
    told = to_dict(dataclasses.replace(made, steps=steps))["steps"]
    assert (told["samples"], told["samples_per_s"]) == (256, pytest.approx(2_560))
    unknown = to_dict(dataclasses.replace(made, steps=dataclasses.replace(steps, median=None)))["steps"]
    assert unknown["samples_per_s"] is None
