"""The runs that can be simulated, each with what was planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator import jax_program, tf_program
from simulator.device import Device
from simulator.engine import PS_PER_NS, Simulation, ms
from simulator.export import SETTLING, HostClock, Recorder, Recording, WorkStats, write
from simulator.hardware import A100, H100, Gpu
from simulator.host import HostThread
from simulator.jax_models import tiny_ops, transformer, unfit_kernels
from simulator.jax_program import JaxProgram, JaxRun
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

    @property
    def hosts(self) -> tuple[SimulatedRun, ...]:
        """The files of the run, each with the truth about its GPUs: only this one."""
        return (self,)


@dataclass(frozen=True)
class SimulatedJob:
    """A finished run over several hosts: one file a host, each with a clock of its own.

    Attributes:
        hosts: the files that there are, each with the truth about its own GPUs.
        truth: that of the first host, with the faults of the job; a fault's GPUs are counted over all hosts.
    """

    name: str
    session: str
    hosts: tuple[SimulatedRun, ...]
    truth: Truth


def finish(
    name: str,
    session: str,
    start_unix_ns: int,
    devices: list[Device],
    threads: list[HostThread],
    markers: list[Marker],
    faults: tuple[Fault, ...],
    framework_stats: WorkStats,
    recorder: Recorder | None = None,
    hostname: str = "gpu-node-0",
    clock: HostClock | None = None,
) -> SimulatedRun:
    """File and truth of a simulation that has run to its end; of one of its hosts where there are several."""
    clock = clock or HostClock()
    recorder = recorder or Recorder()
    work_ends = [work.end for device in devices for work in device.work]
    end = max(markers[-1].end, *work_ends) + MARGIN + recorder.runs_on_ps
    first, last = (round(end * share / PS_PER_NS) * PS_PER_NS for share in recorder.cut)
    if recorder.skip:
        first = max(first, markers[recorder.skip - 1].start - SETTLING // 2)
    first = max(0, first + clock.delay_ps)
    recording = Recording(hostname, start_unix_ns, last - first, recorder, first, clock)
    space = write(devices, threads, recording, framework_stats)
    gpus = tuple(gpu_truth(device, markers, START) for device in devices)
    whole = [
        step
        for step, marker in enumerate(markers)
        if recording.holds(marker.start, max(gpu.step_ends[step] for gpu in gpus if gpu.events))
    ]
    truth = Truth(
        name,
        faults,
        tuple(markers),
        gpus,
        (0, last - first),
        recorder.markers,
        first,
        (whole[0], whole[-1] + 1),
        recorder.hole[0] == recorder.hole[1],
    )
    return SimulatedRun(name, session, recording.hostname, space, truth)


def new_simulation(seed: int) -> Simulation:
    """A clock that starts a millisecond after the recording, as no profiler records from the first instant."""
    simulation = Simulation(seed)
    simulation.now = START
    return simulation


def new_devices(
    simulation: Simulation, count: int, gpu: Gpu = H100, slow: dict[int, float] | None = None
) -> list[Device]:
    """Equal GPUs; ``slow`` gives the slowdown of some."""
    return [Device(simulation, index, gpu, (slow or {}).get(index, 1.0)) for index in range(count)]


def tf_run(name: str, when: tuple[str, int], devices: list[Device], run: TfRun, *faults: Fault) -> SimulatedRun:
    """Simulates a Keras training; ``when`` is the session's name and its epoch start in nanoseconds."""
    simulation = devices[0].simulation
    program = TfProgram(simulation, devices, run)
    simulation.run()
    return finish(name, *when, devices, program.threads, program.markers, faults, tf_program.framework_stats)


def jax_run(name: str, when: tuple[str, int], devices: list[Device], run: JaxRun, *faults: Fault) -> SimulatedRun:
    """Simulates a JAX training; ``when`` as for `tf_run`."""
    simulation = devices[0].simulation
    program = JaxProgram(simulation, devices, run)
    simulation.run()
    return finish(name, *when, devices, program.threads, program.markers, faults, jax_program.framework_stats)


def input_bound() -> SimulatedRun:
    """Four GPUs wait for a tf.data map that runs one call at a time."""
    devices = new_devices(new_simulation(seed=11), 4)
    run = TfRun(steps=9, plan=lambda replica: resnet(replica, scale=1.7), input=InputSpec(elements=48, map_us=2_900))
    when = ("2026_03_02_09_14_05", 1_772_442_845_123_456_789)
    return tf_run("input_bound", when, devices, run, Fault("input_bound", (0, 1, 2, 3)))


def slow_gpu() -> SimulatedRun:
    """GPU 2 runs its kernels 1.35 times slower; the three others wait for it inside NCCL."""
    devices = new_devices(new_simulation(seed=12), 4, slow={2: 1.35})
    fast_input = InputSpec(elements=12, map_us=2_900, parallelism=8, ready=2)
    run = TfRun(steps=9, plan=lambda replica: resnet(replica, scale=1.7), input=fast_input)
    when = ("2026_03_03_10_41_37", 1_772_534_497_481_516_234)
    return tf_run("slow_gpu", when, devices, run, Fault("imbalance", (2,), "slow_gpu"))


def launch_bound() -> SimulatedRun:
    """Two GPUs run thousands of tiny kernels faster than the host can launch them."""
    devices = new_devices(new_simulation(seed=13), 2, A100)
    run = JaxRun(steps=6, plan=tiny_ops, launch_us=4.4, thunk_us=2.6, copy_bytes=65_536)
    when = ("2026_03_04_08_20_11", 1_772_612_411_334_455_667)
    return jax_run("launch_bound", when, devices, run, Fault("launch_bound", (0, 1)))


def low_occupancy() -> SimulatedRun:
    """Two GPUs are busy all the time with kernels that leave most of each SM, or most SMs, empty."""
    devices = new_devices(new_simulation(seed=14), 2)
    run = JaxRun(steps=10, plan=unfit_kernels)
    when = ("2026_03_05_14_02_56", 1_772_719_376_219_008_123)
    faults = (Fault("low_occupancy", (0, 1), "registers"), Fault("underfilled_gpu", (0, 1)))
    return jax_run("low_occupancy", when, devices, run, *faults)


def healthy() -> SimulatedRun:
    """Four GPUs in balance, computing nearly all the time."""
    devices = new_devices(new_simulation(seed=15), 4)
    run = JaxRun(steps=8, plan=transformer, copy_bytes=4_194_304)
    when = ("2026_03_06_16_33_48", 1_772_814_828_765_432_109)
    return jax_run("healthy", when, devices, run)


SCENARIOS: dict[str, Callable[[], SimulatedRun]] = {
    "input_bound": input_bound,
    "slow_gpu": slow_gpu,
    "launch_bound": launch_bound,
    "low_occupancy": low_occupancy,
    "healthy": healthy,
}
