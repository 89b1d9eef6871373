"""The demo runs: repeatable, well-formed, and with the fault that was planted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simulator.demo import main
from simulator.export import occupancy_pct
from simulator.hardware import H100
from simulator.host import Interruption
from simulator.jax_models import unfit_kernels
from simulator.jax_program import JaxRun
from simulator.scenarios import SCENARIOS, jax_run, new_devices, new_simulation
from simulator.truth import Accounting
from tests.conftest import DEMO_LOGS
from tests.simulator.runs import NAMES, encoded, parsed, simulated


def shares(name: str) -> list[dict[str, float]]:
    truth = simulated(name).truth
    return [share_of(truth.accounting(gpu.gpu)) for gpu in truth.gpus]


def share_of(found: Accounting) -> dict[str, float]:
    wall = found.end - found.start
    parts = {"compute": found.compute, "communication": found.communication, "transfer": found.transfer}
    return {key: value / wall for key, value in {**parts, "idle": found.idle, **found.idle_by_cause}.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_committed_file_is_what_the_script_makes(name: str) -> None:
    path = DEMO_LOGS / simulated(name).path
    assert path.read_bytes() == encoded(name), "run python -m simulator.demo and commit demo_logs"


@pytest.mark.slow
def test_the_demo_logdir_holds_these_runs_and_stays_small() -> None:
    files = sorted(DEMO_LOGS.rglob("*.xplane.pb"))
    assert files == sorted(DEMO_LOGS / simulated(name).path for name in NAMES)
    assert sum(path.stat().st_size for path in files) < 10_000_000


@pytest.mark.parametrize("name", ["low_occupancy", "slow_gpu"])
def test_a_second_simulation_makes_the_same_bytes(name: str) -> None:
    assert SCENARIOS[name]().space.encode() == encoded(name)


@pytest.mark.slow
def test_the_script_writes_a_logdir(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.demo.SCENARIOS", {"low_occupancy": SCENARIOS["low_occupancy"]})
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / simulated("low_occupancy").path).read_bytes() == encoded("low_occupancy")


def test_input_bound_waits_for_input() -> None:
    for gpu in shares("input_bound"):
        assert 0.40 < gpu["input"] < 0.50
        assert gpu["idle"] - gpu["input"] < 0.01


def test_slow_gpu_keeps_the_others_waiting() -> None:
    gpus = shares("slow_gpu")
    assert [gpu["communication"] > 0.2 for gpu in gpus] == [True, True, False, True]
    assert all(gpu["idle"] < 0.01 for gpu in gpus)
    compute = [gpu["compute"] for gpu in gpus]
    assert compute[2] / compute[0] == pytest.approx(1.35, rel=0.01)


def test_launch_bound_waits_for_launches() -> None:
    for gpu in shares("launch_bound"):
        assert gpu["launch"] > 0.5
        assert gpu["idle"] - gpu["launch"] < 0.02


def test_low_occupancy_is_busy_with_kernels_that_do_not_fill_the_gpu() -> None:
    for gpu in shares("low_occupancy"):
        assert gpu["compute"] > 0.95
    details: Counter[str] = Counter()
    for plane, _, event, stats in device_events(parsed("low_occupancy")):
        if "kernel_details" in stats and "nccl" not in plane.event_metadata[event.metadata_id].name:
            details[stats["kernel_details"]] += event.duration_ps
    total = sum(details.values())
    low = sum(time for text, time in details.items() if float(text.split("occ_pct:")[1]) < 25)
    small = sum(time for text, time in details.items() if int(text.split("grid:")[1].split(",")[0]) < 132)
    assert low / total > 0.5
    assert small / total > 0.2


def test_healthy_computes() -> None:
    for gpu in shares("healthy"):
        assert gpu["compute"] > 0.92
    assert not simulated("healthy").truth.faults


def device_events(space: Any) -> list[tuple[Any, Any, Any, dict[str, Any]]]:
    """Plane, line, event and stats of everything that ran on GPUs."""
    rows = []
    for plane in space.planes:
        if plane.name.startswith("/device:GPU:"):
            rows += [(plane, line, event, stats(plane, event)) for line in plane.lines for event in line.events]
    return rows


def stats(plane: Any, event: Any) -> dict[str, Any]:
    found = {}
    for stat in event.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        found[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if kind == "ref_value" else value
        )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_its_launch_before_it(name: str) -> None:
    space = parsed(name)
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    calls: dict[int, int] = {}
    for line in host.lines:
        for event in line.events:
            correlation = stats(host, event).get("correlation_id")
            if correlation is not None:
                assert correlation not in calls
                calls[correlation] = line.timestamp_ns * 1000 + event.offset_ps
    started = {}
    for _, line, event, known in device_events(space):
        assert known["correlation_id"] not in started
        started[known["correlation_id"]] = line.timestamp_ns * 1000 + event.offset_ps
    assert started.keys() == calls.keys()
    assert all(started[key] > calls[key] for key in calls)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_says_what_the_truth_says(name: str) -> None:
    truth = simulated(name).truth
    found: dict[int, list[tuple[int, int, str]]] = {gpu.gpu: [] for gpu in truth.gpus}
    for plane, line, event, known in device_events(parsed(name)):
        start = line.timestamp_ns * 1000 + event.offset_ps
        found[plane.id].append((start, start + event.duration_ps, plane.event_metadata[event.metadata_id].name))
        assert ("memcpy_details" in known) != ("kernel_details" in known)
    for gpu in truth.gpus:
        assert sorted(found[gpu.gpu]) == sorted((start, end, text) for start, end, _, _, text in gpu.events)


@pytest.mark.parametrize("name", NAMES)
def test_streams_run_one_thing_at_a_time_and_threads_nest(name: str) -> None:
    for plane in parsed(name).planes:
        for line in plane.lines:
            if not plane.name.startswith("/device:GPU:"):
                check_nesting(line)
                continue
            ends = 0
            for event in line.events:
                assert event.offset_ps >= ends
                ends = event.offset_ps + event.duration_ps


def check_nesting(line: Any) -> None:
    open_until: list[int] = []
    for event in line.events:
        start, end = event.offset_ps, event.offset_ps + event.duration_ps
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], line.name
        open_until.append(end)


@pytest.mark.parametrize("name", NAMES)
def test_collectives_end_together(name: str) -> None:
    truth = simulated(name).truth
    ends = [[event[1] for event in gpu.events if event[2] == "communication"] for gpu in truth.gpus]
    assert ends[0]
    assert all(other == ends[0] for other in ends)


@pytest.mark.parametrize("name", NAMES)
def test_causes_cross_threads_by_producer_and_consumer(name: str) -> None:
    host = next(plane for plane in parsed(name).planes if plane.name == "/host:CPU")
    produced, consumed, marked = set(), set(), []
    for line in host.lines:
        for event in line.events:
            known = stats(host, event)
            if "_p" in known:
                produced.add((known["_pt"], known["_p"]))
            if "_c" in known:
                consumed.add((known["_ct"], known["_c"]))
            if "step_num" in known:
                assert known["_r"] == 1
                marked.append((known["step_num"], line.timestamp_ns * 1000 + event.offset_ps, event.duration_ps))
    assert consumed
    assert consumed <= produced
    assert marked == [(m.number, m.start, m.end - m.start) for m in simulated(name).truth.markers]


def test_occupancy_in_the_file_is_the_formula() -> None:
    expected = {"loop_advect_stencil_fusion": 12.5, "input_histogram_reduce_fusion": 12.5, "wrapped_cumsum_scan": 75.0}
    for item in unfit_kernels(1):
        if getattr(item, "name", None) in expected:
            assert occupancy_pct(item, H100) == expected[item.name]  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize(("cause", "events"), [("checkpoint", ("ModelCheckpoint", "SaveV2:SaveV2")), ("compile", ())])
def test_an_interruption_is_charged_to_its_cause(cause: str, events: tuple[str, ...]) -> None:
    interruption = Interruption(step=2, events=events, millis=80.0, cause=cause, every=3)
    devices = new_devices(new_simulation(5), 2)
    run = JaxRun(steps=7, plan=lambda: unfit_kernels(2), ahead=1, interruptions=(interruption,))
    truth = jax_run("interrupted", ("2026_01_01_00_00_00", 1), devices, run).truth
    for gpu in truth.gpus:
        found = truth.accounting(gpu.gpu).idle_by_cause[cause]
        # twice 80 ms, less what the GPU still had to do when Python turned to it
        assert 0.9 * 160e9 < found <= 160e9
