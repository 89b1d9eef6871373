"""Central monitoring: real receivers get the series by their names; one that is down costs nothing but itself."""

from __future__ import annotations

import http.server
import logging
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tb_gpu_doctor import GpuMonitor
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor import central as module
from tb_gpu_doctor.monitor.central import Central
from tb_gpu_doctor.monitor.notes import Notes

GPU = {
    "label": "gpu5",
    "nvml_index": 5,
    "uuid": "GPU-abc",
    "name": "NVIDIA H100",
    "limits": {"memory_total_bytes": 8e10},
}
NAN = float("nan")


def values(**known: float) -> dict[str, float]:
    return {**{metric.id: NAN for metric in METRICS}, **known}


class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps what is pushed; answers after a while where it is to be slow."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.slow_s = 0.0

    def Export(self, request: Any, context: Any) -> Any:
        time.sleep(self.slow_s)
        self.requests.append(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()

    @property
    def points(self) -> dict[str, list[tuple[dict[str, Any], float, str]]]:
        """By name of the metric: attributes, value, unit."""
        return points(self.requests[-1])


def points(request: Any) -> dict[str, list[tuple[dict[str, Any], float, str]]]:
    found: dict[str, list[tuple[dict[str, Any], float, str]]] = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        for point in (metric.gauge if metric.HasField("gauge") else metric.sum).data_points:
            told = {a.key: a.value.string_value or a.value.int_value for a in point.attributes}
            value = point.as_double if point.HasField("as_double") else point.as_int
            found.setdefault(metric.name, []).append((told, value, metric.unit))
    return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Collector, str]]:
    monkeypatch.setattr(module, "PUSH_S", 0.1)
    one, server = Collector(), grpc.server(futures.ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(one, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield one, f"http://127.0.0.1:{port}"
    server.stop(None)


def until(reached: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end:
        time.sleep(0.01)
    assert reached()


def fed(central: Central) -> None:
    central.latest.take(
        [GPU], [values(utilization_percent=80.0, power_watts=300.0, ecc_corrected=2.0, sm_clock_mhz=1980)]
    )
    for number in range(3):
        central.latest.step(number, 500_000_000, 32)


def test_a_collector_gets_the_series_by_the_conventions_for_hardware(collector: tuple[Collector, str]) -> None:
    receiver, endpoint = collector
    central = Central(endpoint, None, Notes(lambda note: None))
    fed(central)
    central.start("node7", {"number": 3, "of": 8})
    until(lambda: receiver.requests)
    found = receiver.points
    (told, value, unit) = found["hw.gpu.utilization"][0]
    assert (value, unit) == (pytest.approx(0.8), "1")
    assert told["hw.id"] == "GPU-abc" and told["hw.type"] == "gpu" and told["gpu_doctor.gpu.index"] == 5
    assert found["hw.power"][0][1:] == (300.0, "W")
    assert found["hw.gpu.memory.limit"][0][1:] == (8e10, "By")
    assert found["hw.errors"][0][0]["error.type"] == "corrected"
    assert found["gpu_doctor.gpu.sm_clock_mhz"][0][1:] == (1980.0, "MHz")
    assert found["gpu_doctor.training.steps"][0][1] == 3 and found["gpu_doctor.training.samples"][0][1] == 96
    assert "hw.temperature" not in found  # what the driver does not give is not made up
    resource = {a.key: a.value for a in receiver.requests[0].resource_metrics[0].resource.attributes}
    assert resource["host.name"].string_value == "node7" and resource["gpu_doctor.rank"].int_value == 3
    pushed = len(receiver.requests)
    central.stop()
    assert len(receiver.requests) > pushed, "the last values are pushed at the end"


@pytest.mark.slow
def test_over_http_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PUSH_S", 0.1)
    bodies: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    central = Central(f"http://127.0.0.1:{server.server_port}/v1/metrics", None, Notes(lambda note: None))
    fed(central)
    central.start("node7", None)
    until(lambda: bodies)
    central.stop()
    server.shutdown()
    assert points(metrics_service_pb2.ExportMetricsServiceRequest.FromString(bodies[0]))["hw.power"][0][1] == 300.0


@pytest.mark.slow
def test_a_collector_that_is_down_is_told_once_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PUSH_S", 0.1)
    monkeypatch.setattr(module, "PUSH_TIMEOUT_S", 0.2)
    notes: list[dict[str, Any]] = []
    central = Central("http://127.0.0.1:9", None, Notes(notes.append))
    with caplog.at_level(logging.WARNING):
        central.start("node7", None)
        until(lambda: notes)
        time.sleep(0.5)
        began = time.monotonic()
        central.stop()
    assert time.monotonic() - began < module.STOP_S + 1
    assert [note["key"] for note in notes] == ["recording.otlp_down"]
    assert [record.name for record in caplog.records if not record.name.startswith("tb_gpu_doctor")] == []


@pytest.mark.slow
def test_a_slow_collector_does_not_hold_up_training(
    collector: tuple[Collector, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, endpoint = collector
    receiver.slow_s = 30.0
    monkeypatch.setattr(module, "STOP_S", 0.3)
    longest = 0.0
    with GpuMonitor(tmp_path, 0.05, otlp=endpoint) as monitor:
        for number in range(100):
            began = time.monotonic()
            monitor.step(number)
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.005)
        ending = time.monotonic()
    assert longest < 0.2 and time.monotonic() - ending < 6.0


def test_prometheus_fetches_the_same_series(monkeypatch: pytest.MonkeyPatch) -> None:
    central = Central(None, 0, Notes(lambda note: None))
    fed(central)
    central.start("node7", {"number": 3, "of": 8, "local": 1})
    with urllib.request.urlopen(f"http://127.0.0.1:{central.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = {sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples}
    one = samples["gpu_doctor_gpu_utilization_percent"]
    assert (
        one.value == 80.0 and one.labels["gpu"] == "5" and one.labels["rank"] == "3" and one.labels["host"] == "node7"
    )
    assert samples["gpu_doctor_gpu_ecc_corrected_total"].value == 2.0
    assert samples["gpu_doctor_training_steps_total"].value == 3 and samples["gpu_doctor_training_step"].value == 2
    assert "gpu_doctor_gpu_temperature_celsius" not in samples
    central.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{central.port or 1}/metrics", timeout=1)


def test_a_port_that_is_taken_and_a_package_that_is_missing_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Central(None, 0, Notes(lambda note: None))
    first.start("node7", None)
    notes: list[dict[str, Any]] = []
    second = Central(None, first.port, Notes(notes.append))
    second.start("node7", None)
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.metrics", None)
    third = Central("http://127.0.0.1:9", None, Notes(notes.append))
    third.start("node7", None)
    first.stop()
    assert [note["key"] for note in notes] == ["recording.no_central", "recording.no_extra"]
    assert "tb-gpu-doctor[otlp]" in notes[1]["sentence"]


def test_nothing_is_imported_where_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry", "prometheus_client"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with GpuMonitor(tmp_path, 0.05) as monitor:
        assert monitor.recording


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus itself, Debian's package prometheus")
def test_prometheus_itself_takes_it(tmp_path: Path) -> None:
    central = Central(None, 0, Notes(lambda note: None))
    fed(central)
    central.start("node7", None)
    config = tmp_path / "prometheus.yml"
    targets = f"[{{job_name: gpu, static_configs: [{{targets: ['127.0.0.1:{central.port}']}}]}}]"
    config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: {targets}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}/api/v1/query?query=gpu_doctor_gpu_power_watts"

        def found() -> bool:
            try:
                with urllib.request.urlopen(address, timeout=5) as answer:
                    return b'"300"' in answer.read()
            except OSError:
                return False

        until(found, 30.0)
    finally:
        server.terminate()
        server.wait(20)
        central.stop()
