"""The same series for central monitoring: pushed by OpenTelemetry, or to be fetched as Prometheus text.

Both read the latest sample from memory, in threads of the SDK and the client library. Nothing waits for an endpoint:
one that is down or slow loses its own values, and nothing else. What may be missing is imported only where it is asked
for: the extras ``[otlp]`` and ``[prometheus]``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tb_gpu_doctor import __version__
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor.notes import LOG, Notes, never_raises

# Seconds from one push to the next, unless OTEL_METRIC_EXPORT_INTERVAL says otherwise.
PUSH_S = 10.0
# One attempt to push; the next one begins after it.
PUSH_TIMEOUT_S = 10.0
# How long the end of training waits for the last push.
STOP_S = 2.0


@dataclass(frozen=True)
class Now:
    """The latest values.

    Attributes:
        gpus: facts and values by metric id of each GPU.
        step: the last training step, None before the first.
        steps, seconds, samples: counted since the monitor began.
        step_seconds: length of the last step.
    """

    gpus: tuple[tuple[Mapping[str, Any], Mapping[str, float]], ...] = ()
    step: int | None = None
    steps: int = 0
    seconds: float = 0.0
    samples: int = 0
    step_seconds: float | None = None


class Latest:
    """Holds what is now; told by the sampler and by training, read by exporters."""

    def __init__(self) -> None:
        self._gpus: tuple[tuple[Mapping[str, Any], Mapping[str, float]], ...] = ()
        self._steps: tuple[int | None, int, float, int, float | None] = (None, 0, 0.0, 0, None)

    def take(self, facts: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, float]]) -> None:
        """Take a sample of all GPUs."""
        self._gpus = tuple(zip(facts, rows, strict=False))

    def step(self, number: int, duration_ns: int, samples: int) -> None:
        """A step ended."""
        _, steps, seconds, counted, _ = self._steps
        self._steps = (number, steps + 1, seconds + duration_ns / 1e9, counted + max(0, samples), duration_ns / 1e9)

    def read(self) -> Now:
        """What is now."""
        return Now(self._gpus, *self._steps)


@dataclass(frozen=True)
class _Named:
    """A metric of the table by OpenTelemetry's conventions for hardware.

    Attributes:
        name, unit: as the conventions have them.
        scale: from the table's unit to that one.
        counter: whether it only grows.
        attributes: beside those of the GPU.
    """

    name: str
    unit: str
    scale: float = 1.0
    counter: bool = False
    attributes: tuple[tuple[str, str], ...] = ()


_CONVENTIONS: dict[str, _Named] = {
    "utilization_percent": _Named("hw.gpu.utilization", "1", 0.01),
    "memory_used_bytes": _Named("hw.gpu.memory.usage", "By"),
    "power_watts": _Named("hw.power", "W"),
    "energy_joules": _Named("hw.energy", "J", counter=True),
    "temperature_celsius": _Named("hw.temperature", "Cel", attributes=(("hw.sensor_location", "gpu"),)),
    "memory_temperature_celsius": _Named("hw.temperature", "Cel", attributes=(("hw.sensor_location", "memory"),)),
    "fan_percent": _Named("hw.fan.speed_ratio", "1", 0.01),
    "ecc_corrected": _Named("hw.errors", "{error}", counter=True, attributes=(("error.type", "corrected"),)),
    "ecc_uncorrected": _Named("hw.errors", "{error}", counter=True, attributes=(("error.type", "uncorrected"),)),
    "nvlink_receive_bytes": _Named("hw.gpu.io", "By", counter=True, attributes=(("network.io.direction", "receive"),)),
    "nvlink_send_bytes": _Named("hw.gpu.io", "By", counter=True, attributes=(("network.io.direction", "transmit"),)),
}
_UNITS = {
    "bytes": "By", "bytes_per_s": "By/s", "percent": "%", "mhz": "MHz", "celsius": "Cel", "watts": "W", "seconds": "s",
}  # fmt: skip


def _named(metric_id: str, counter: bool) -> _Named:
    """The metric's name: the conventions', else its own below ``gpu_doctor.gpu``."""
    if metric_id in _CONVENTIONS:
        return _CONVENTIONS[metric_id]
    unit = next((unit for end, unit in _UNITS.items() if metric_id.endswith(end)), "1")
    return _Named(f"gpu_doctor.gpu.{metric_id}", unit, counter=counter)


class _Quiet(logging.Filter):
    """Keeps the SDK's complaints about this monitor's endpoint out of the log: the notes tell it once."""

    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.here, "exporting", False)


class Otlp:
    """Pushes to a collector, by the SDK's own exporter and from its own thread.

    Args:
        endpoint: ``http://collector:4317`` for gRPC; port 4318, or a path, for HTTP.
        latest: what to push.
        notes: told once when the endpoint does not answer, and once when it does again.
        resource: who pushes.
    """

    def __init__(self, endpoint: str, latest: Latest, notes: Notes, resource: Mapping[str, Any]) -> None:
        self._endpoint, self._latest, self._notes, self._resource = endpoint, latest, notes, dict(resource)
        self._provider: Any = None
        self._quiet = _Quiet()
        self._down = False

    def start(self) -> None:
        """Begin to push.

        Raises:
            ImportError: the extra ``[otlp]`` is not installed.
            Exception: the SDK does not take the endpoint.
        """
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        exporter = self._exporter()
        self._watch(exporter)
        told = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL")
        reader = PeriodicExportingMetricReader(exporter, None if told else PUSH_S * 1e3, PUSH_TIMEOUT_S * 1e3)
        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME", "gpu_doctor"), **self._resource}
        )
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        self._instruments(self._provider.get_meter("tb_gpu_doctor", __version__))

    def stop(self) -> None:
        """Push what is left, if that is quick."""
        provider, self._provider = self._provider, None
        if provider is None:
            return
        thread = threading.Thread(target=self._shut_down, args=(provider,), name="gpu-doctor-otlp", daemon=True)
        thread.start()
        thread.join(STOP_S)

    def _shut_down(self, provider: Any) -> None:
        self._quiet.here.exporting = True
        with contextlib.suppress(Exception):
            provider.shutdown(timeout_millis=STOP_S * 1e3)

    def _exporter(self) -> Any:
        scheme, _, rest = self._endpoint.partition("://")
        address, _, path = rest.partition("/")
        if address.endswith(":4318") or path:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

            self._silence("opentelemetry.exporter.otlp.proto.http.metric_exporter")
            return HttpExporter(
                endpoint=self._endpoint if path else f"{self._endpoint.rstrip('/')}/v1/metrics",
                timeout=PUSH_TIMEOUT_S,
            )
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        self._silence("opentelemetry.exporter.otlp.proto.grpc.exporter")
        return GrpcExporter(endpoint=self._endpoint, insecure=scheme != "https", timeout=PUSH_TIMEOUT_S)

    def _silence(self, logger: str) -> None:
        for name in (logger, "opentelemetry.sdk.metrics._internal.export"):
            logging.getLogger(name).addFilter(self._quiet)

    def _watch(self, exporter: Any) -> None:
        """Have the exporter tell what becomes of each push."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        push = exporter.export

        def export(*args: Any, **kwargs: Any) -> Any:
            self._quiet.here.exporting = True
            try:
                result = push(*args, **kwargs)
            except Exception as error:
                self._tell(False, str(error))
                return MetricExportResult.FAILURE
            finally:
                self._quiet.here.exporting = False
            self._tell(result is MetricExportResult.SUCCESS, "")
            return result

        exporter.export = export

    def _tell(self, went: bool, reason: str) -> None:
        if went != self._down:
            return
        self._down = not went
        self._notes.tell("otlp_again" if went else "otlp_down", endpoint=self._endpoint, reason=reason or "no answer")

    def _instruments(self, meter: Any) -> None:
        groups: dict[str, list[tuple[str, _Named]]] = {}
        for metric in METRICS:
            named = _named(metric.id, metric.counter)
            groups.setdefault(named.name, []).append((metric.id, named))
        for name, members in groups.items():
            make = meter.create_observable_counter if members[0][1].counter else meter.create_observable_gauge
            if name == "hw.gpu.memory.usage":
                make = meter.create_observable_up_down_counter
            make(name, [self._of_gpus(members)], members[0][1].unit)
        limit = [("memory_total_bytes", _Named("hw.gpu.memory.limit", "By"))]
        meter.create_observable_up_down_counter("hw.gpu.memory.limit", [self._of_gpus(limit, limits=True)], "By")
        for name, unit, counter, read in _TRAINING:
            make = meter.create_observable_counter if counter else meter.create_observable_gauge
            make(f"gpu_doctor.training.{name}", [self._of_training(read)], unit)

    def _of_gpus(self, members: Sequence[tuple[str, _Named]], limits: bool = False) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def observe(options: Any) -> Iterator[Any]:
            for facts, values in self._latest.read().gpus:
                source = facts.get("limits", {}) if limits else values
                for metric, named in members:
                    value = source.get(metric)
                    if value is not None and value == value:
                        yield Observation(value * named.scale, {**_attributes(facts), **dict(named.attributes)})

        return observe

    def _of_training(self, read: Callable[[Now], float | None]) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def observe(options: Any) -> Iterator[Any]:
            value = read(self._latest.read())
            if value is not None:
                yield Observation(value)

        return observe


_TRAINING: tuple[tuple[str, str, bool, Callable[[Now], float | None]], ...] = (
    ("step", "1", False, lambda now: now.step),
    ("steps", "{step}", True, lambda now: now.steps),
    ("samples", "{sample}", True, lambda now: now.samples),
    ("seconds", "s", True, lambda now: now.seconds),
    ("step_duration", "s", False, lambda now: now.step_seconds),
)


def _attributes(facts: Mapping[str, Any]) -> dict[str, str | int]:
    """A GPU by the conventions, and by the driver's number."""
    told: dict[str, str | int] = {
        "hw.id": str(facts.get("uuid") or facts.get("label") or ""),
        "hw.type": "gpu",
        "hw.name": str(facts.get("label") or ""),
        "hw.model": str(facts.get("name") or ""),
        "hw.vendor": "NVIDIA",
        "gpu_doctor.gpu.index": int(facts.get("nvml_index") or 0),
    }
    return told


class Prometheus:
    """Answers a Prometheus that asks, with the official client's server and in its threads.

    Args:
        port: where it listens; 0 for any that is free.
        latest: what to answer.
        labels: who answers.
    """

    def __init__(self, port: int, latest: Latest, labels: Mapping[str, str]) -> None:
        self.port = port
        self._latest, self._labels = latest, dict(labels)
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen.

        Raises:
            ImportError: the extra ``[prometheus]`` is not installed.
            OSError: the port is not free.
        """
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self._server, self._thread = start_http_server(self.port, registry=registry)
        self.port = self._server.server_port

    def stop(self) -> None:
        """Listen no longer."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def describe(self) -> list[Any]:
        """Nothing before there is a sample; the client asks so as to find names that are taken."""
        return []

    def collect(self) -> Iterator[Any]:
        """All series now, as the client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._latest.read()
        names = [*self._labels, "gpu", "uuid", "model"]
        for metric in METRICS:
            kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
            family = kind(f"gpu_doctor_gpu_{metric.id}", metric.tag, labels=names)
            for facts, values in now.gpus:
                value = values.get(metric.id)
                if value is not None and value == value:
                    who = (str(facts.get("nvml_index", "")), str(facts.get("uuid") or ""), str(facts.get("name") or ""))
                    family.add_metric([*self._labels.values(), *who], value)
            yield family
        for name, _, counter, read in _TRAINING:
            value = read(now)
            if value is not None:
                kind = CounterMetricFamily if counter else GaugeMetricFamily
                family = kind(f"gpu_doctor_training_{name}", f"training/{name}", labels=list(self._labels))
                family.add_metric(list(self._labels.values()), value)
                yield family


class Central:
    """Both ways of one monitor; whatever goes wrong is one note. No method raises.

    Args:
        otlp: endpoint, None for none.
        prometheus_port: None for none.
        notes: takes what goes wrong.
    """

    def __init__(self, otlp: str | None, prometheus_port: int | None, notes: Notes) -> None:
        self.latest = Latest()
        self._notes = notes
        self._endpoint, self._port = otlp, prometheus_port
        self._running: list[Otlp | Prometheus] = []

    def failed(self, part: str, error: Exception) -> None:
        """One note."""
        LOG.debug("%s failed", part, exc_info=error)
        if isinstance(error, ImportError):
            self._notes.tell("no_extra", extra=part, reason=str(error))
        else:
            self._notes.tell("no_central", way=part, reason=str(error) or type(error).__name__)

    def start(self, host: str, rank: Mapping[str, int] | None) -> None:
        """Begin; called once, in training's thread, since what is imported must be whole before anybody forks."""
        who = {"host": host, "process": str(os.getpid()), "rank": "" if rank is None else str(rank["number"])}
        self._start_otlp(who)
        self._start_prometheus(who, 0 if rank is None else rank.get("local", 0))

    @never_raises("otlp")
    def _start_otlp(self, who: Mapping[str, str]) -> None:
        if self._endpoint is not None:
            resource: dict[str, Any] = {"host.name": who["host"], "process.pid": os.getpid()}
            if who["rank"]:
                resource["gpu_doctor.rank"] = int(who["rank"])
            way = Otlp(str(self._endpoint), self.latest, self._notes, resource)
            way.start()
            self._running.append(way)

    @never_raises("prometheus")
    def _start_prometheus(self, who: Mapping[str, str], local: int) -> None:
        if self._port is not None:
            # Each process of a host answers for itself.
            port = int(self._port) + local if self._port else 0
            way = Prometheus(port, self.latest, who)
            way.start()
            self._running.append(way)

    @property
    def port(self) -> int | None:
        """Where Prometheus may ask; None while it may not."""
        return next((way.port for way in self._running if isinstance(way, Prometheus)), None)

    @never_raises("stop")
    def stop(self) -> None:
        """End; takes two seconds at most."""
        running, self._running = self._running, []
        for way in running:
            way.stop()
