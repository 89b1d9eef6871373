"""Telemetry beside a profile: why a slow GPU is slow, and figures that the profiler inflated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.api import span_of
from tb_gpu_doctor.diagnosis.engine import diagnose_files
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding, GpuRef
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.telemetry.joining import Joined, join, profile_span
from tb_gpu_doctor.telemetry.series import Recording, Telemetry, ToldNote
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.hosts import AnalysedFile
from tests.hosts import diagnosed as diagnosis_of
from tests.telemetry.build import S, recording, series, steps

COUNT = 200
HOST = "gpu-node-0"
SLOW = 1900 / 1.35


def profile_of(demo_logs: Path, run: str) -> AnalysedFile:
    (session,) = [s for s in find_sessions(str(demo_logs)).sessions if s.run == run and not s.is_telemetry]
    trace = read_trace(session.files[0])
    return AnalysedFile(HOST, trace, analyse(trace))


@pytest.fixture(scope="module")
def slow(demo_logs: Path) -> AnalysedFile:
    return profile_of(demo_logs, "slow_gpu")


@pytest.fixture(scope="module")
def launching(demo_logs: Path) -> AnalysedFile:
    return profile_of(demo_logs, "launch_bound")


def start_ns(profile: AnalysedFile) -> int:
    """The profile is taken 150 s after the monitor began."""
    assert profile.trace.wall_start_unix_ns is not None
    return profile.trace.wall_start_unix_ns - 150 * S


def told(profile: AnalysedFile, by_gpu: Mapping[int, Mapping[str, Any]], **everywhere: Any) -> Diagnosis:
    """The diagnosis with telemetry of four GPUs, some of them with other values."""
    gpus = [
        series(gpu, COUNT, host=HOST, start_ns=start_ns(profile), **{**everywhere, **by_gpu.get(gpu, {})})
        for gpu in range(4)
    ]
    return diagnosed(profile, recording(*gpus, host=HOST))


def diagnosed(profile: AnalysedFile, *recordings: Recording) -> Diagnosis:
    span = span_of(profile.facts)
    return diagnosis_of([profile], telemetry=join(Telemetry(recordings), [span]))


def imbalance(found: Diagnosis) -> Finding:
    (finding,) = [finding for finding in found.findings if finding.kind == "imbalance"]
    return finding


def since(row: int, value: Any, before: Any) -> np.ndarray:
    return np.where(np.arange(COUNT) >= row, value, before)


def kinds(found: Diagnosis) -> list[str]:
    return [finding.kind for finding in found.findings]


def test_without_telemetry_the_reason_stays_open(slow: AnalysedFile) -> None:
    found = diagnosis_of([slow])
    assert imbalance(found).cause == "slow_gpu" and found.telemetry is None
    assert "thermal" not in say(imbalance(found).title, "en")


@pytest.mark.parametrize(
    ("lang", "sentence"),
    [
        ("en", "GPU 2 is slow because it has been at its thermal limit since step 1,200"),
        ("es", "GPU 2 va lenta porque está en su límite térmico desde el paso 1.200"),
    ],
)
def test_heat_is_the_reason(slow: AnalysedFile, lang: str, sentence: str) -> None:
    hot = {
        "clock_event_reasons": since(120, 0x40, 0),
        "sm_clock_mhz": since(120, SLOW, 1900),
        "temperature_celsius": 91.0,
    }
    found = told(slow, {2: hot})
    finding = imbalance(found)
    assert say(finding.title, lang) == sentence
    # One story: the throttling is part of the imbalance, and work that is shared evenly need not be looked at.
    assert "thermal_throttle" not in kinds(found)
    assert [part.kind for part in imbalance(found).absorbed] == ["thermal_throttle"]
    assert finding.gpus == (GpuRef(HOST, 2),) and finding.severity == "critical"
    advice = [phrase.key for phrase in finding.advice]
    assert advice[0] == "findings.thermal_throttle.advice.cooling"
    assert not any("even_work" in key or "check_clocks" in key for key in advice)
    said = "\n".join(say(phrase, "en") for phrase in finding.explanation)
    assert "1,407 MHz, the others typically 1,900 MHz" in said and "91 °C, the others typically 65 °C" in said


def test_the_profile_in_a_stretch_of_heat_that_came_back(slow: AnalysedFile) -> None:
    rows = np.arange(COUNT)
    bits = np.where((rows < 20) | ((rows >= 140) & (rows < 160)), 0x40, 0)
    found = told(slow, {2: {"clock_event_reasons": bits, "sm_clock_mhz": np.where(bits > 0, SLOW, 1900)}})
    assert say(imbalance(found).title, "en").endswith("thermal limit since step 1,400")


def test_heat_at_another_time_is_not_the_reason(slow: AnalysedFile) -> None:
    hot = {"clock_event_reasons": since(180, 0x40, 0), "sm_clock_mhz": since(180, SLOW, 1900)}
    found = told(slow, {2: hot})
    assert "because" not in say(imbalance(found).title, "en") and "thermal_throttle" in kinds(found)


def test_heat_at_full_clock_is_not_the_reason(slow: AnalysedFile) -> None:
    found = told(slow, {2: {"clock_event_reasons": 0x40, "temperature_celsius": 92.0}})
    assert "because" not in say(imbalance(found).title, "en")


def test_heat_of_another_gpu_is_not_the_reason(slow: AnalysedFile) -> None:
    found = told(slow, {1: {"clock_event_reasons": 0x40, "sm_clock_mhz": SLOW}})
    assert "because" not in say(imbalance(found).title, "en") and "thermal_throttle" in kinds(found)


def test_heat_of_all_gpus_is_not_the_reason_for_one(slow: AnalysedFile) -> None:
    found = told(slow, {}, clock_event_reasons=0x40, sm_clock_mhz=1300.0)
    assert "because" not in say(imbalance(found).title, "en")
    (heat,) = [finding for finding in found.findings if finding.kind == "thermal_throttle"]
    assert len(heat.gpus) == 4


def test_a_lowered_power_limit_is_the_reason(slow: AnalysedFile) -> None:
    found = told(slow, {2: {"clock_event_reasons": 0x4, "sm_clock_mhz": SLOW, "power_limit_watts": 400.0}})
    finding = imbalance(found)
    assert "at its power limit since the recording began" in say(finding.title, "en")
    assert "power_throttle" not in kinds(found)
    assert "Power limit: 400 W, the others 700 W." in [say(phrase, "en") for phrase in finding.explanation]


def test_a_lower_clock_without_a_reason_is_told_as_such(slow: AnalysedFile) -> None:
    found = told(slow, {2: {"sm_clock_mhz": SLOW}})
    assert say(imbalance(found).title, "en") == "GPU 2 is slow because it runs at 1,407 MHz, the others at 1,900 MHz"


def test_equal_clocks_change_nothing(slow: AnalysedFile) -> None:
    assert imbalance(told(slow, {})).title == imbalance(diagnosis_of([slow])).title


def test_telemetry_of_another_time_is_not_used_and_that_is_said(slow: AnalysedFile) -> None:
    hot = series(2, COUNT, host=HOST, start_ns=start_ns(slow) - 3600 * S, clock_event_reasons=0x40, sm_clock_mhz=1000)
    found = diagnosed(slow, recording(hot, host=HOST))
    assert kinds(found) == kinds(diagnosis_of([slow]))
    assert found.telemetry is not None and found.telemetry.gpus == ()
    assert ["another time" in say(note, "en") for note in found.telemetry.notes] == [True]


def overhead_of(profile: AnalysedFile, ratio: float) -> Recording:
    """Steps of 4 ms; those within the profile take ``ratio`` times as long."""
    begin = start_ns(profile)
    # 150 s, then nine profiled steps, then as before.
    times = [0.004] * 37_500 + [0.004 * ratio] * 9 + [0.004] * 500
    return recording(
        *(series(gpu, COUNT, host=HOST, start_ns=begin) for gpu in range(2)), host=HOST,
        step_times=steps(times, start_ns=begin, profiled=range(37_500, 37_509)),
    )  # fmt: skip


@pytest.mark.parametrize(("ratio", "speaks"), [(1.05, False), (1.3, True)])
def test_an_expensive_profiler_marks_what_it_inflates(launching: AnalysedFile, ratio: float, speaks: bool) -> None:
    found = diagnosed(launching, overhead_of(launching, ratio))
    assert ("profiler_overhead" in kinds(found)) == speaks
    (finding,) = [finding for finding in found.findings if finding.kind == "launch_bound"]
    assert ("telemetry.inflated" in [phrase.key for phrase in finding.explanation]) == speaks
    if speaks:
        (about,) = [finding for finding in found.findings if finding.kind == "profiler_overhead"]
        assert about.is_about_profile and "1.30 times" in say(about.title, "en")
        # It says something of the profile, so it changes no verdict.
        assert found.verdict == diagnosed(launching, overhead_of(launching, 1.0)).verdict


def test_no_telemetry_no_overhead(launching: AnalysedFile) -> None:
    assert "profiler_overhead" not in kinds(diagnosis_of([launching], telemetry=Joined()))


def test_the_demo_says_it_from_its_own_telemetry(demo_logs: Path) -> None:
    import tb_gpu_doctor

    found = tb_gpu_doctor.diagnose(demo_logs, run="slow_gpu")
    assert found.findings[0].kind == "imbalance"
    sentence = "GPU 2 is slow because it has been at its thermal limit since step 1,200"
    assert found.to_dict("en")["findings"][0]["title"] == sentence
    assert (
        found.to_dict("es")["findings"][0]["title"]
        == "GPU 2 va lenta porque está en su límite térmico desde el paso 1.200"
    )
    telemetry = found.to_dict()["telemetry"]
    assert telemetry["simulated"] and [gpu["id"] for gpu in telemetry["gpus"]] == [0, 1, 2, 3]
    assert telemetry["recordings"] == ["slow_gpu/gpu_doctor/gpu-node-0/process"]


def test_a_profile_says_why_the_recording_beside_it_holds_no_gpu() -> None:
    note = ToldNote("recording.no_driver", {"reason": "RM has detected an NVML/RM version mismatch."})
    silent = dataclasses.replace(recording(host="host"), told=(note,))
    span = profile_span("host", ("host",), (0,), 0, (0, 10**12))
    joined = join(Telemetry((silent,)), [span])
    assert joined.gpus == () and joined.without_gpus == (silent,)
    found = diagnose_files((), telemetry=joined)
    assert any("different versions" in say(warning, "en") for warning in found.warnings if not isinstance(warning, str))
    elsewhere = join(Telemetry((dataclasses.replace(silent, host="other"),)), [span])
    assert elsewhere.without_gpus == ()
