"""Whatever a recording holds, it gets a diagnosis in words, and answers that JSON can write."""

from __future__ import annotations

import json
import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.diagnosis.telemetry_engine import diagnose_telemetry
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.plugin.telemetry_view import TelemetryView
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport, schema
from tb_gpu_doctor.telemetry.joining import newest
from tb_gpu_doctor.telemetry.recordings import HomeTelemetry
from tb_gpu_doctor.telemetry.series import (
    BatchPoint,
    BatchSweep,
    GpuFacts,
    GpuSeries,
    Recording,
    Span,
    StepTimes,
    Telemetry,
)

NAMES = [metric.id for metric in METRICS]
LIMITS = [
    "sm_clock_max_mhz", "slowdown_temperature_celsius", "gpu_max_temperature_celsius", "power_limit_default_watts",
    "memory_total_bytes", "allocator_limit_bytes", "pcie_generation_max", "pcie_width_max",
]  # fmt: skip
NUMBER = st.one_of(
    st.floats(0, 1e4),
    st.floats(-1e15, 1e15),
    st.sampled_from([0.0, 4.0, 8.0, 64.0, 96.0, 100.0, math.nan, math.inf, 1e300]),
)
LENGTH = st.integers(0, 60)
TIMES = st.integers(-(10**6), 10**6)


@st.composite
def series(draw: st.DrawFn, gpu: int) -> GpuSeries:
    count = draw(LENGTH)
    gaps = draw(st.lists(st.integers(1, 10**12), min_size=count, max_size=count))
    values: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=12)):
        if draw(st.booleans()):
            values[name] = np.full(count, draw(NUMBER))
        else:
            values[name] = np.array(draw(st.lists(NUMBER, min_size=count, max_size=count)), np.float64)
    limits = draw(st.dictionaries(st.sampled_from(LIMITS), st.floats(0, 1e12), max_size=8))
    facts = GpuFacts(
        draw(st.sampled_from([None, 0, gpu])),
        gpu,
        draw(st.sampled_from([None, "GPU-1", f"GPU-{gpu}"])),
        None,
        None,
        limits,
    )
    step = np.array(draw(st.lists(st.integers(-1, 10**9), min_size=count, max_size=count)), np.int64)
    return GpuSeries(f"gpu_doctor/n/gpu{gpu}", facts, np.cumsum(gaps).astype(np.int64), step, values)


@st.composite
def recordings(draw: st.DrawFn, number: int) -> Recording:
    count = draw(LENGTH)
    ints = st.lists(st.integers(-1, 10**12), min_size=count, max_size=count)
    columns = [np.array(draw(ints), np.int64) for _ in range(4)]
    profiled = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), np.bool_)
    spans = [
        Span(draw(st.sampled_from(["checkpoint", "validation", "profile", "x"])), draw(TIMES), draw(TIMES), draw(TIMES))
        for _ in range(draw(st.integers(0, 3)))
    ]
    gpus = [draw(series(gpu)) for gpu in range(draw(st.integers(0, 3)))]
    return Recording(
        f"gpu_doctor/n/process_{number}", draw(st.sampled_from(["n", "", "ñ\x1b"])), number, tuple(gpus), tuple(spans),
        StepTimes(columns[0], np.sort(columns[1]), columns[2], columns[3], profiled), {"a": None}, ("a note\x1b",),
        draw(st.booleans()), draw(st.sampled_from([None, True, False])),
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data())
def test_any_telemetry(data: st.DataObject) -> None:
    made = tuple(data.draw(recordings(number)) for number in range(data.draw(st.integers(0, 2))))
    sweep = BatchSweep(
        "", 5, (BatchPoint(1, None, math.inf, None, "oom"), BatchPoint(2, math.nan, 0.1, 3)), None, math.nan, 2
    )
    telemetry = Telemetry(made, (sweep,), ("a problem",))
    report = DiagnosisReport.of(diagnose_telemetry(telemetry))
    for lang in ("en", "es"):
        content = json.loads(report.to_json(lang))
        jsonschema.validate(content, schema())
        assert "\x1b" not in json.dumps(content, ensure_ascii=False)
    assert report.verdict != "ok"
    view = TelemetryView(HomeTelemetry(telemetry), newest(telemetry), report, Timeline((), (), [], []))
    answer = json.loads(to_json(view.answer("es")))
    assert len(answer["recordings"]) == len(made)
    for points in (2, 7):
        for one in json.loads(to_json(view.series(NAMES, None, points)))["series"]:
            assert len(one["unix_ms"]) == len(one["step"]) == len(one["mean"])
            assert not one["folded"] or len(one["mean"]) <= points
    assert json.loads(to_json(view.lanes(NAMES, 0, 10**12, 5, "en")))["lanes"] == []
    assert json.loads(to_json(view.sweeps()))["sweeps"][0]["points"][0]["samples_per_s"] is None
