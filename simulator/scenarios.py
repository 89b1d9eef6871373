"""The runs that can be simulated, each with what was planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator import tf_program
from simulator.device import Device
from simulator.engine import Simulation, ms
from simulator.export import Recording, WorkStats, write
from simulator.hardware import H100, Gpu
from simulator.host import HostThread
from simulator.models import resnet
from simulator.tf_input import InputSpec
from simulator.tf_program import TfProgram, TfRun
from simulator.truth import Fault, Marker, Truth, gpu_truth
from simulator.xplane_writer import Space

START = ms(1.0)
MARGIN = ms(2.0)


@dataclass(frozen=True)
class SimulatedRun:
    """A finished run: the file, where the Profiler would have put it, and the truth."""

    name: str
    session: str
    hostname: str
    space: Space
    truth: Truth

    @property
    def path(self) -> str:
        """Path of the file below a logdir."""
        return f"{self.name}/plugins/profile/{self.session}/{self.hostname}.xplane.pb"


def finish(
    name: str,
    session: str,
    start_unix_ns: int,
    devices: list[Device],
    threads: list[HostThread],
    markers: list[Marker],
    faults: tuple[Fault, ...],
    framework_stats: WorkStats,
) -> SimulatedRun:
    """File and truth of a simulation that has run to its end."""
    end = max(markers[-1].end, *(work.end for device in devices for work in device.work)) + MARGIN
    recording = Recording("gpu-node-0", start_unix_ns, end)
    space = write(devices, threads, recording, framework_stats)
    truth = Truth(
        name,
        faults,
        tuple(markers),
        tuple(gpu_truth(device, markers, START) for device in devices),
        (0, end),
    )
    return SimulatedRun(name, session, recording.hostname, space, truth)


def _simulation(seed: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.now = START
    return simulation


def _devices(simulation: Simulation, count: int, gpu: Gpu = H100, slow: dict[int, float] | None = None) -> list[Device]:
    return [Device(simulation, index, gpu, (slow or {}).get(index, 1.0)) for index in range(count)]


def input_bound() -> SimulatedRun:
    """Four GPUs wait for a tf.data map that runs one call at a time."""
    simulation = _simulation(seed=11)
    devices = _devices(simulation, 4)
    run = TfRun(steps=9, plan=lambda replica: resnet(replica, scale=1.7), input=InputSpec(elements=48, map_us=2_900))
    program = TfProgram(simulation, devices, run)
    simulation.run()
    return finish(
        "input_bound",
        "2026_03_02_09_14_05",
        1_772_442_845_123_456_789,
        devices,
        program.threads,
        program.markers,
        (Fault("input_bound", (0, 1, 2, 3)),),
        tf_program.framework_stats,
    )


SCENARIOS: dict[str, Callable[[], SimulatedRun]] = {"input_bound": input_bound}
