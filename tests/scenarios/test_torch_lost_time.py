"""Time lost beside the work in PyTorch's loops: kind and cause stand first, and the saving is near the truth."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from simulator.items import Allocation, HostWork
from simulator.kineto_writer import packed
from simulator.torch_models import gpt
from simulator.torch_program import TorchRun
from simulator.torch_scenarios import SimulatedRank, torch_job
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.device_clock import on_host_clock
from tb_gpu_doctor.analysis.facts import file_facts
from tb_gpu_doctor.diagnosis.engine import diagnose_files
from tb_gpu_doctor.diagnosis.model import Diagnosis
from tb_gpu_doctor.traces.trace_json import read_trace_json

pytestmark = pytest.mark.slow

AHEAD = TorchRun(steps=8, model=gpt(layers=2, buckets=1), look=False)
LOOKING = replace(AHEAD, look=True)
EXTRA_US = 4_000.0


def simulated(run: TorchRun) -> SimulatedRank:
    return torch_job("lost_time", 1_772_353_263_204_117_905, run, seed=5, ranks=1).ranks[0]


def step_ps(rank: SimulatedRank) -> float:
    low, high = rank.truth.window
    return (high - low) / rank.truth.steps


@cache
def plain_step_us() -> float:
    return step_ps(simulated(AHEAD)) / 1e6


def diagnosed(rank: SimulatedRank, folder: Path) -> Diagnosis:
    path = folder / "worker.pt.trace.json.gz"
    path.write_bytes(packed(rank.content()))
    trace = on_host_clock(read_trace_json(str(path)))
    return diagnose_files([file_facts(trace, analyse(trace), "worker")])


def busy(*names: str) -> HostWork:
    return HostWork(names, plain_step_us() + EXTRA_US, "host_other")


def planted(name: str) -> tuple[TorchRun, TorchRun]:
    """The run with the fault, and the same without it."""
    after = HostWork(("train.py(131): log_metrics",), EXTRA_US, "host_other")
    return {
        "allocator": (replace(AHEAD, allocation=Allocation("cudaFree", EXTRA_US)), AHEAD),
        "two_values": (replace(LOOKING, values=2, own=after), AHEAD),
        "own_code": (replace(AHEAD, own=busy("train.py(88): log_metrics")), AHEAD),
        "garbage": (replace(AHEAD, own=busy("train.py(41): loop", "<built-in function collect>")), AHEAD),
        "unseen": (replace(AHEAD, own=busy()), AHEAD),
    }[name]


@pytest.mark.parametrize(
    ("name", "kind", "cause"),
    [
        ("allocator", "allocator_stall", None),
        ("two_values", "sync_stall", None),
        ("own_code", "host_bound", "own_code"),
        ("garbage", "host_bound", "garbage_collection"),
        ("unseen", "unexplained_idle", None),
    ],
)
def test_the_planted_fault_is_named_first(name: str, kind: str, cause: str | None, tmp_path: Path) -> None:
    run, without = planted(name)
    rank = simulated(run)
    loud = [f for f in diagnosed(rank, tmp_path).findings if f.severity in ("warning", "critical")]
    first = loud[0]
    assert (first.kind, first.cause) == (kind, cause), [f.kind for f in loud]
    assert first.saving_ps_per_step is not None
    saved = step_ps(rank) - step_ps(simulated(without))
    assert first.saving_ps_per_step == pytest.approx(saved, rel=0.25)


def test_without_a_fault_nothing_is_said(tmp_path: Path) -> None:
    assert not [f for f in diagnosed(simulated(AHEAD), tmp_path).findings if f.severity != "info"]
