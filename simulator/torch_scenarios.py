"""Simulated jobs of PyTorch: one file and one truth a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.device import Device
from simulator.hardware import A100, Gpu
from simulator.host import HostThread
from simulator.kineto_writer import Process, kineto_json, packed, zero_ps
from simulator.scenarios import START, new_devices, new_simulation
from simulator.torch_models import gpt
from simulator.torch_program import TorchProgram, TorchRun
from simulator.truth import Fault, Truth, gpu_truth

_HOST = "gpu-node-0"
# How far the clocks of the processes of one host lie apart.
_CLOCKS_NS = (0, 2_300, -1_700, 900, 3_100, -800, 1_500, -2_600)


@dataclass(frozen=True)
class SimulatedRank:
    """One process of a finished job.

    Attributes:
        device, threads: what it recorded.
        process: what surrounds that in its file.
        truth: of its one GPU, which is the first there; on the simulation's clock, which is ahead of the
            file's by ``zero_ps``.
    """

    device: Device
    threads: tuple[HostThread, ...]
    process: Process
    truth: Truth
    zero_ps: int

    def content(self) -> bytes:
        """Its file, unpacked."""
        return kineto_json([self.device], self.threads, self.process)


@dataclass(frozen=True)
class TorchJob:
    """A finished job: its ranks, what was planted, and where ``tensorboard_trace_handler`` put the files."""

    name: str
    ranks: tuple[SimulatedRank, ...]
    faults: tuple[Fault, ...]

    def path(self, rank: SimulatedRank) -> str:
        """Path of a rank's file below a logdir: the host, the process, and when it was written."""
        written = rank.process.start_unix_ns + rank.truth.recorded[1] // 1000 + 412_345_678
        return f"{self.name}/{_HOST}_{rank.process.number}.{written}.pt.trace.json.gz"

    def files(self) -> dict[str, bytes]:
        """All files by their path."""
        return {self.path(rank): packed(rank.content()) for rank in self.ranks}


def torch_job(
    name: str,
    start_unix_ns: int,
    run: TorchRun,
    *faults: Fault,
    seed: int = 0,
    ranks: int = 4,
    gpu: Gpu = A100,
    slow: Mapping[int, float] | None = None,
    first_process: int = 2_417,
) -> TorchJob:
    """Simulates a job of one host.

    Args:
        name: of the run.
        start_unix_ns: when it began.
        run: what every rank does.
        faults: what is planted in it.
        seed: of the simulation; equal arguments give equal files.
        ranks: processes, each with a GPU of its own.
        gpu: the model of all GPUs.
        slow: slowdown of some GPUs.
        first_process: process id of rank 0.
    """
    simulation = new_simulation(seed)
    devices = new_devices(simulation, ranks, gpu, dict(slow or {}))
    program = TorchProgram(simulation, devices, run, first_process)
    simulation.run()
    found = []
    for number, rank in enumerate(program.ranks):
        clock = start_unix_ns + _CLOCKS_NS[number % len(_CLOCKS_NS)]
        process = Process(rank.process, number, ranks, clock, [gpu] * ranks)
        gpus = (gpu_truth(rank.device, rank.markers, START),)
        end = max(event.end for thread in rank.threads for event in thread.events)
        truth = Truth(name, faults, tuple(rank.markers), gpus, (START, end))
        zero = zero_ps([rank.device], rank.threads, process)
        found.append(SimulatedRank(rank.device, tuple(rank.threads), process, truth, zero))
    return TorchJob(name, tuple(found), faults)


def pytorch_ddp() -> TorchJob:
    """Four ranks; the loader of rank 2 is late each step, and the three others wait for it inside NCCL."""
    run = TorchRun(steps=6, model=gpt(layers=6), loader_us={2: 16_000})
    fault = Fault("imbalance", (2,), "late_input", "DataLoader")
    return torch_job("pytorch_ddp", 1_772_353_263_204_117_905, run, fault, seed=16)


TORCH_SCENARIOS: dict[str, Callable[[], TorchJob]] = {"pytorch_ddp": pytorch_ddp}
