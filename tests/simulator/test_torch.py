"""The simulated jobs of PyTorch: repeatable, well-formed Kineto, read back to what was simulated."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tb_gpu_doctor
from simulator.demo import demo_runs
from simulator.export import Recording, write
from simulator.kineto_writer import Process, kineto_json, packed
from simulator.models import resnet
from simulator.scenarios import START, SimulatedRun, new_devices, new_simulation
from simulator.tf_input import InputSpec
from simulator.tf_program import TfProgram, TfRun, framework_stats
from simulator.torch_models import gpt
from simulator.torch_program import TorchRun
from simulator.torch_scenarios import TORCH_SCENARIOS, SimulatedRank, TorchJob, pytorch_ddp, torch_job
from simulator.truth import Accounting as TrueAccounting
from simulator.truth import gpu_truth
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.trace_json import read_trace_json
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.conftest import DEMO_LOGS
from tests.stock_profiler import run_tool

RANKS = range(4)


@cache
def job(name: str) -> TorchJob:
    return TORCH_SCENARIOS[name]()


@cache
def content(rank: int) -> dict[str, Any]:
    found = json.loads(job("pytorch_ddp").ranks[rank].content())
    assert isinstance(found, dict)
    return found


def read(rank: SimulatedRank, folder: Path, name: str = "worker.pt.trace.json.gz") -> Trace:
    path = folder / name
    path.write_bytes(packed(rank.content()))
    return read_trace_json(str(path))


def xplane(rank: SimulatedRank, folder: Path) -> Path:
    """The same process as TensorFlow's profiler would have written it."""
    length = rank.truth.recorded[1] + 2_000_000_000
    space = write([rank.device], rank.threads, Recording("gpu-node-0", 10**18, length), lambda _work: {})
    path = folder / "gpu-node-0.xplane.pb"
    path.write_bytes(space.encode())
    return path


# -- the files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCH_SCENARIOS)
def test_the_committed_files_are_what_the_script_makes(name: str) -> None:
    made = job(name).files()
    committed = {str(path.relative_to(DEMO_LOGS)): path for path in (DEMO_LOGS / name).iterdir()}
    assert committed.keys() == made.keys(), "run python -m simulator.demo and commit demo_logs"
    for path, expected in made.items():
        found = committed[path].read_bytes()
        assert gzip.decompress(found) == gzip.decompress(expected)
        assert found[4:8] == bytes(4), "no time in the header"
        if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng packs the same content otherwise
            assert found == expected
    assert sum(path.stat().st_size for path in committed.values()) < 1_500_000


@pytest.mark.slow
def test_the_script_knows_all_runs() -> None:
    assert set(demo_runs()) == {path.name for path in DEMO_LOGS.iterdir() if path.is_dir()}
    assert demo_runs()["pytorch_ddp"]() == job("pytorch_ddp").files()


@pytest.mark.slow
def test_a_second_simulation_makes_the_same_bytes() -> None:
    assert pytorch_ddp().files() == job("pytorch_ddp").files()


@pytest.mark.parametrize("rank", RANKS)
def test_what_surrounds_the_events(rank: int) -> None:
    found = content(rank)
    assert found["schemaVersion"] == 1 and found["displayTimeUnit"] == "ms"
    info = found["distributedInfo"]
    assert (info["rank"], info["world_size"], info["backend"]) == (rank, 4, "nccl")
    assert [entry["numSms"] for entry in found["deviceProperties"]] == [108] * 4
    first = min(event["ts"] for event in found["traceEvents"] if event["ph"] == "X")
    when = found["baseTimeNanoseconds"] + round(first * 1000)
    assert 0 < when - job("pytorch_ddp").ranks[rank].process.start_unix_ns < 10**9
    names = Counter(event["name"] for event in found["traceEvents"])
    assert all(names[f"ProfilerStep#{20 + step}"] == 2 for step in range(6)), "on the host and on the GPU"
    (whole,) = (event for event in found["traceEvents"] if event.get("cat") == "Trace")
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert whole["ts"] <= first and whole["ts"] + whole["dur"] >= max(e["ts"] + e["dur"] for e in events) - 1e-3


@pytest.mark.parametrize("rank", RANKS)
def test_launches_come_before_what_they_launch(rank: int) -> None:
    events = content(rank)["traceEvents"]
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")]
    arrows: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("cat") == "ac2g":
            arrows.setdefault(event["id"], {})[event["ph"]] = event
    assert len({e["args"]["correlation"] for e in work}) == len(work) == len(arrows) > 800
    for event in work:
        call, arrow = calls[event["args"]["correlation"]], arrows[event["args"]["correlation"]]
        assert call["ts"] < event["ts"] and call["args"]["External id"] == event["args"]["External id"]
        assert (arrow["s"]["ts"], arrow["s"]["tid"]) == (call["ts"], call["tid"])
        assert (arrow["f"]["ts"], arrow["f"]["pid"], arrow["f"]["tid"]) == (event["ts"], rank, event["tid"])
    assert not {e["args"]["correlation"] for e in work} ^ {c for c, e in calls.items() if "Sync" not in e["name"]}


def test_collectives_say_how_much_they_move() -> None:
    for rank in RANKS:
        reduced = [e for e in content(rank)["traceEvents"] if e.get("cat") == "kernel" and "nccl" in e["name"]]
        assert len(reduced) == 18
        for event in reduced:
            args = event["args"]
            assert args["Collective name"] == "allreduce" and args["dtype"] == "BFloat16"
            assert args["In msg nelems"] == args["Out msg nelems"] == 8_388_608
            assert json.loads(args["Process Group Ranks"]) == [0, 1, 2, 3] and args["Group size"] == 4


@pytest.mark.parametrize("rank", RANKS)
def test_lines_nest_and_streams_run_one_thing_at_a_time(rank: int) -> None:
    lines: dict[tuple[Any, Any, bool], list[tuple[int, int]]] = {}
    for event in content(rank)["traceEvents"]:
        if event["ph"] == "X" and event["cat"] not in ("gpu_user_annotation", "Trace"):
            start = round(event["ts"] * 1000)
            key = event["pid"], event["tid"], event["cat"] in ("kernel", "gpu_memcpy")
            lines.setdefault(key, []).append((start, start + round(event["dur"] * 1000)))
    assert len(lines) == 4  # two threads, two streams
    for (_, _, is_stream), spans in lines.items():
        spans.sort(key=lambda span: (span[0], -span[1]))
        if is_stream:
            assert all(one[1] <= other[0] for one, other in pairwise(spans))
            continue
        open_until: list[int] = []
        for start, end in spans:
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


# -- read back -------------------------------------------------------------------------------------


def parts_of(truth: TrueAccounting) -> tuple[int, ...]:
    return truth.end - truth.start, truth.compute, truth.communication, truth.transfer, truth.idle


def parts(found: TraceAnalysis, device: int = 0) -> tuple[int, ...]:
    one = found.accounting[device]
    return one.wall, one.compute, one.communication, one.transfer, one.idle


@pytest.mark.parametrize("rank", RANKS)
def test_the_accounting_is_the_simulators(rank: int, tmp_path: Path) -> None:
    simulated = job("pytorch_ddp").ranks[rank]
    trace = read(simulated, tmp_path)
    assert (trace.format, trace.rank, trace.world_size) == ("kineto", rank, 4) and trace.notes == ()
    found = analyse(trace)
    assert found.window is not None
    assert (found.window.start, found.window.end) == tuple(t - simulated.zero_ps for t in simulated.truth.window)
    truth = simulated.truth.accounting(0)
    assert parts(found) == parts_of(truth)
    for cause in Cause:
        ours, real = found.accounting[0].idle_of(cause), truth.idle_by_cause[cause.id]
        assert ours / truth.end == pytest.approx(real / truth.end, abs=0.002), cause
    gpu = simulated.truth.gpus[0]
    assert found.steps.source == "marked" and found.steps.number.tolist() == list(range(20, 26))
    assert (found.steps.start[:, 0] + simulated.zero_ps).tolist() == list(gpu.step_starts)
    assert (found.steps.end[:, 0] + simulated.zero_ps).tolist() == list(gpu.step_ends)
    events = [(start - simulated.zero_ps, end - simulated.zero_ps) for start, end, *_ in gpu.events]
    assert sorted(zip(trace.device_events.start.tolist(), trace.device_events.end.tolist(), strict=True)) == events


def test_the_loader_of_one_rank_is_blamed() -> None:
    report = tb_gpu_doctor.diagnose(DEMO_LOGS / "pytorch_ddp").to_dict()
    assert report["verdict"] == "critical" and len(report["devices"]) == 4
    first, *others = report["findings"]
    assert (first["kind"], first["cause"]) == ("imbalance", "late_input")
    assert [gpu["id"] for gpu in first["gpus"]] == [2]
    assert sorted(gpu["id"] for gpu in first["victims"]) == [0, 1, 3]
    assert all(finding["severity"] == "info" for finding in others)
    fault = job("pytorch_ddp").faults[0]
    assert fault.culprit in first["explanation"]
    # the cost, by simulating the job without the fault
    healthy = torch_job("healthy", 10**18, TorchRun(steps=6, model=gpt(layers=6)), seed=16)
    wall, without = (
        (t.window[1] - t.window[0]) / 6e9 for t in (job("pytorch_ddp").ranks[0].truth, healthy.ranks[0].truth)
    )
    assert first["saving_ms_per_step"] == pytest.approx(wall - without, rel=0.05)


@pytest.mark.slow
def test_without_the_fault_the_job_is_healthy(tmp_path: Path) -> None:
    healthy = torch_job("healthy", 1_772_353_263_204_117_905, TorchRun(steps=6, model=gpt(layers=6)), seed=16)
    for path, made in healthy.files().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(made)
    report = tb_gpu_doctor.diagnose(tmp_path).to_dict()
    assert [f["kind"] for f in report["findings"] if f["severity"] != "info"] == [] and report["verdict"] == "ok"


# -- one run in three formats ----------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_is_the_same_in_every_format(rank: int, tmp_path: Path) -> None:
    simulated = job("pytorch_ddp").ranks[rank]
    kineto = read(simulated, tmp_path)
    as_xplane = xplane(simulated, tmp_path)
    export = tmp_path / "gpu-node-0.trace.json.gz"
    export.write_bytes(packed(run_tool(as_xplane, "trace_viewer")))
    traces = [kineto, read_xplane(str(as_xplane)), read_trace_json(str(export))]
    assert [trace.format for trace in traces] == ["kineto", "xplane", "trace_json"]
    agree(traces)


def test_a_training_of_tensorflow_is_the_same_in_every_format(tmp_path: Path) -> None:
    """Four GPUs in one process."""
    simulation = new_simulation(seed=5)
    devices = new_devices(simulation, 3, slow={1: 1.3})
    fast = InputSpec(elements=12, map_us=2_900, parallelism=8, ready=2)
    run = TfRun(steps=5, plan=lambda replica: resnet(replica, blocks=4), input=fast)
    program = TfProgram(simulation, devices, run)
    simulation.run()
    end = max(work.end for device in devices for work in device.work)
    for thread in program.threads:  # Kineto has no links from a marker's thread to those that launch for it
        thread.events = [event for event in thread.events if "step_num" not in event.stats]
    space = write(devices, program.threads, Recording("host", 10**18, end + 1_000_000), framework_stats)
    as_xplane = tmp_path / "host.xplane.pb"
    as_xplane.write_bytes(space.encode())
    as_export = tmp_path / "host.trace.json.gz"
    as_export.write_bytes(packed(run_tool(as_xplane, "trace_viewer")))
    process = Process(77, 0, 1, 1_772_353_263_204_117_905, [device.gpu for device in devices])
    as_kineto = tmp_path / "host.pt.trace.json.gz"
    as_kineto.write_bytes(packed(kineto_json(devices, program.threads, process)))
    traces = [read_trace_json(str(as_kineto)), read_xplane(str(as_xplane)), read_trace_json(str(as_export))]
    found = agree(traces)
    for device in devices:
        truth = gpu_truth(device, program.markers, START)
        assert found.accounting[device.index].compute <= sum(kernel.total_ps for kernel in truth.kernels.values())


def agree(traces: list[Trace]) -> TraceAnalysis:
    """All formats give one accounting, one set of steps, and launches at equal distances."""
    found = [analyse(trace) for trace in traces]
    first = found[0]
    for trace, other in zip(traces[1:], found[1:], strict=True):
        for device in range(len(first.accounting)):
            assert parts(other, device) == parts(first, device)
            ours, theirs = first.accounting[device], other.accounting[device]
            for cause in Cause:
                assert ours.idle_of(cause) == pytest.approx(theirs.idle_of(cause), abs=0.002 * ours.wall), cause
        shift = int(trace.device_events.start[0] - traces[0].device_events.start[0])
        assert (trace.device_events.start - shift).tolist() == traces[0].device_events.start.tolist()
        assert trace.device_events.duration.tolist() == traces[0].device_events.duration.tolist()
        assert trace.device_events.klass.tolist() == traces[0].device_events.klass.tolist()
        assert trace.device_events.copy_kind.tolist() == traces[0].device_events.copy_kind.tolist()
        assert (other.steps.start - shift).tolist() == first.steps.start.tolist()
        assert (other.steps.end - shift).tolist() == first.steps.end.tolist()
    return first


def test_runs_of_one_process_need_no_job() -> None:
    run = torch_job("single", 10**18, TorchRun(steps=2, model=gpt(layers=3)), ranks=1)
    assert "distributedInfo" not in json.loads(run.ranks[0].content())
    assert isinstance(run, TorchJob) and not isinstance(run, SimulatedRun)
