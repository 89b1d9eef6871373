"""What people type into annotations, paths, settings and notes of a recording: no answer and no page repeats it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.plugin.test_routes import SESSION_ROUTES, Site
from tests.telemetry.recorded import Recorded
from tests.traces.kineto_files import kineto

SECRETS = (
    "hunter2", "AKIAIOSFODNN7EXAMPLE", "0123abcdSIGNED", "hf_abcdefghijklmnop", "ghp_0123456789abcdefABCD", "ann-marie",
    "eyJhbGciOiJIUzI1NiJ9", "sk-proj-0123456789",
)  # fmt: skip
NAMES = (
    "fetch s3://key:hunter2@bucket/data",
    "upload https://host/x?X-Amz-Signature=0123abcdSIGNED&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE",
    "/home/ann-marie/train.py(8): log_metrics",
    "login --token hf_abcdefghijklmnop",
    "push ghp_0123456789abcdefABCD",
    "C:\\Users\\ann-marie\\train.py(3): main",
    "call Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "wandb api_key=sk-proj-0123456789",
    "password: hunter2",
)
ROUTES = (
    *SESSION_ROUTES, "telemetry", "telemetry/series?metric=power_watts",
    "timeline/telemetry?metric=power_watts&start_ps=0&end_ps=99",
    "timeline/find?query=a&start_ps=0&end_ps=99999999999",
)  # fmt: skip


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Steps in which each named function keeps the GPU waiting; and a recording whose writer hid nothing."""
    trace = kineto(events=0)
    at = 10.0
    for number, name in enumerate(NAMES * 3):
        trace["traceEvents"] += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 100, "tid": 100, "ts": at,
             "dur": 9_000, "args": {}},
            {"ph": "X", "cat": "python_function", "name": name, "pid": 100, "tid": 100, "ts": at + 1, "dur": 5_000,
             "args": {}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": at + 5_010,
             "dur": 5, "args": {"correlation": number + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 5_020, "dur": 3_500,
             "args": {"device": 0, "stream": 7, "correlation": number + 1}},
        ]  # fmt: skip
        at += 9_010
    folder = tmp_path / "a" / "plugins" / "profile" / "s"
    folder.mkdir(parents=True)
    (folder / "worker0.pt.trace.json").write_text(json.dumps(trace))
    recorded = Recorded(tmp_path / "a", gpus=1)
    recorded.writer.facts.append(
        ("environment", {"settings": {"A": NAMES[0], "B": list(NAMES)}, "memory_growth": True})
    )
    recorded.writer.notes.append({"key": None, "params": {}, "sentence": NAMES[1]})
    recorded.writer.spans.append(("checkpoint", 5, 9, 3, NAMES[3]))
    for step in range(5):
        recorded.sample(step, power_watts=(100.0,))
    recorded.write(last=True)
    return tmp_path


def test_no_route_serves_one(logdir: Path) -> None:
    site = Site(logdir)
    told = ""
    for route in ROUTES:
        answer = site.session(route)
        assert answer.status_code in (200, 404, 400 if "telemetry" in route else 200), (route, answer.text)
        told += answer.text
    assert "log_metrics" in told and "fetch s3://bucket/data" in told
    assert [secret for secret in SECRETS if secret in told] == []


@pytest.mark.parametrize("lang", ["en", "es"])
def test_no_command_says_one(logdir: Path, lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = logdir / "report.html"
    for command in (["diagnose"], ["diagnose", "--json"], ["kernels"], ["history"], ["report", "-o", str(page)]):
        assert main([*command, str(logdir), "--lang", lang]) in (0, 1), command
    out, err = capsys.readouterr()
    assert "log_metrics" in out
    assert [secret for secret in SECRETS if secret in out + err + page.read_text(encoding="utf-8")] == []
