"""The generator of big files, at small sizes, against TensorFlow's parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.large_xplane import GPUS, Shape, generate, main
from tests.simulator.test_scenarios import stats
from tests.simulator.test_xplane_writer import parse


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device_events", "host_events"), [(20_003, 21_000), (20_003, 9_000), (40, 100), (30_000, 30_000)]
)
def test_counts_and_causality(tmp_path: Path, device_events: int, host_events: int) -> None:
    path = tmp_path / "big.xplane.pb"
    size = generate(path, Shape(device_events, host_events))
    assert size == path.stat().st_size
    space = parse(path.read_bytes())
    devices = [plane for plane in space.planes if plane.name.startswith("/device:GPU:")]
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    assert len(devices) == GPUS
    assert [len(plane.lines) for plane in devices] == [5] * GPUS
    assert sum(len(line.events) for plane in devices for line in plane.lines) == device_events
    assert sum(len(line.events) for line in host.lines) == max(host_events, 0)
    started: dict[int, int] = {}
    for plane in devices:
        for line in plane.lines:
            check_order(line)
            for event in line.events:
                known = stats(plane, event)
                assert plane.event_metadata[event.metadata_id].name
                assert known["correlation_id"] not in started
                started[known["correlation_id"]] = line.timestamp_ns * 1000 + event.offset_ps
                assert 5 <= len(known) + ("memcpy_details" in known) * 2 <= 10
    launched = 0
    for line in host.lines:
        check_order(line)
        for event in line.events:
            correlation = stats(host, event).get("correlation_id")
            if correlation is not None:
                launched += 1
                assert line.timestamp_ns * 1000 + event.offset_ps < started[correlation]
    assert launched == min(device_events, host_events - (1 + GPUS) * Shape(device_events, host_events).steps)


def check_order(line: Any) -> None:
    end = 0
    for event in line.events:
        assert event.offset_ps >= end
        end = event.offset_ps + event.duration_ps


def test_the_same_seed_makes_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        arguments = ["--device-events", "5000", "--host-events", "5000", "--seed", str(seed), "--out", str(path)]
        assert main(arguments) == 0
    first, second, third = (path.read_bytes() for path in files)
    assert first == second != third


def test_a_file_beyond_the_fixed_widths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too many"):
        generate(tmp_path / "x", Shape(1_000_000_000, 1))
