"""A finished simulation as XPlane, in the dialect of the framework that was simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.device import Device, Kernel, Work
from simulator.engine import PS_PER_NS, us
from simulator.hardware import Gpu, active_blocks, theoretical_occupancy
from simulator.host import HostEvent, HostThread
from simulator.xplane_writer import Line, Plane, Ref, Space, StatValue, Unsigned

HOST_LINES_NS = 138_006
DEVICE_LINES_NS = 216_823

# A recording sees nothing in its first instants.
SETTLING = us(250)

WorkStats = Callable[[Work], dict[str, StatValue]]


@dataclass(frozen=True)
class Recorder:
    """How the profiler is set up.

    Attributes:
        markers: whether step markers are in the file.
        driver_threads: calls of the driver are on lines of their own, ``Host Threads/<tid>``.
        warnings: what the profiler complains of.
        dropped: share of the device events that it lost, the last ones of each stream.
        cut: which part of the run is recorded, from and to as shares of its length.
        skip: how many steps do not count; the recording begins within the last of them.
        hole: a part of the recording, from and to as shares of its length, whose device events it lost without a word;
            ``hole_gpu`` is the GPU that lost them (None: all).
        clock_ps: by how much the GPUs' clocks are ahead of the host's within the file; negative: early.
        runs_on_ps: how long it goes on recording when the training has ended.
    """

    markers: bool = True
    driver_threads: bool = False
    warnings: tuple[str, ...] = ()
    dropped: float = 0.0
    hole: tuple[float, float] = (0.0, 0.0)
    hole_gpu: int | None = None
    clock_ps: int = 0
    runs_on_ps: int = 0
    cut: tuple[float, float] = (0.0, 1.0)
    skip: int = 0


@dataclass(frozen=True)
class HostClock:
    """A host's clock and profiler beside those of the job's other hosts.

    Attributes:
        delay_ps: how much later than intended its profiler begins to record; negative: earlier.
        skew_ns: by how much its wall clock is ahead.
        drift_ppm: by how much it runs too fast, in millionths.
    """

    delay_ps: int = 0
    skew_ns: int = 0
    drift_ppm: float = 0.0


@dataclass(frozen=True)
class Recording:
    """What surrounds the events in a file.

    ``start_unix_ns`` is the wall clock when the simulation began; the file's time 0 is ``first_ps``
    after that, and ``length_ps`` its recorded time.
    """

    hostname: str
    start_unix_ns: int
    length_ps: int
    recorder: Recorder = Recorder()
    first_ps: int = 0
    clock: HostClock = HostClock()

    def at(self, time: int) -> int:
        """A time of the simulation on the file's clock, in whole nanoseconds."""
        passed = time - self.first_ps
        if not self.clock.drift_ppm:
            return passed
        return round(passed * (1 + self.clock.drift_ppm / 1e6) / PS_PER_NS) * PS_PER_NS

    def keeps(self, device: int, start: int, end: int) -> bool:
        """Whether the profiler kept a device event that it holds."""
        low, high = (self.first_ps + round(self.length_ps * share) for share in self.recorder.hole)
        return self.recorder.hole_gpu not in (None, device) or end <= low or start >= high

    def holds(self, start: int, end: int) -> bool:
        """Whether an event is in the file: what was open when the recording began or ended is not."""
        begun = self.first_ps + SETTLING if self.first_ps else 0
        return start >= begun and 0 <= end <= self.first_ps + self.length_ps


def kernel_details(kernel: Kernel, gpu: Gpu) -> str:
    """Registers, shared memory, grid and block in the current NVIDIA dialect."""
    grid, block = (",".join(map(str, size)) for size in (kernel.grid, kernel.block))
    return (
        f"regs:{kernel.registers} static_shared:{kernel.static_shared_bytes} "
        f"dynamic_shared:{kernel.dynamic_shared_bytes} grid:{grid} block:{block} "
        f"occ_pct:{occupancy_pct(kernel, gpu):g}"
    )


def occupancy_pct(kernel: Kernel, gpu: Gpu) -> float:
    """Theoretical occupancy in per cent."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    return 100.0 * theoretical_occupancy(gpu, kernel.registers, shared, threads)


def _suggestion(kernel: Kernel, gpu: Gpu) -> tuple[int, int]:
    """The block size with the highest occupancy (the largest one), and the grid that fills the GPU with it."""
    shared = kernel.static_shared_bytes + kernel.dynamic_shared_bytes
    best = max(range(32, 1025, 32), key=lambda t: (theoretical_occupancy(gpu, kernel.registers, shared, t), t))
    return active_blocks(gpu, kernel.registers, shared, best) * gpu.sm_count, best


class _DeviceStats:
    """The stats that depend on the kernel alone, computed once per kernel."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._known: dict[Kernel, dict[str, StatValue]] = {}

    def of(self, kernel: Kernel, device: int) -> dict[str, StatValue]:
        known = self._known.get(kernel)
        if known is None:
            known = self._known[kernel] = self._copy(kernel, device) if kernel.copy else self._kernel(kernel)
        return known

    def _copy(self, kernel: Kernel, device: int) -> dict[str, StatValue]:
        memory = "pinned" if kernel.pinned else "pageable"
        source, target = (memory, "device") if kernel.copy == "H2D" else ("device", memory)
        asynchronous = int(not kernel.blocking)
        details = f"kind_src:{source} kind_dst:{target} size:{kernel.copy_bytes} dest:{device} async:{asynchronous}"
        return {"memcpy_details": details}

    def _kernel(self, kernel: Kernel) -> dict[str, StatValue]:
        grid_size, block_size = _suggestion(kernel, self._gpu)
        return {
            "theoretical_occupancy_pct": occupancy_pct(kernel, self._gpu),
            "occupancy_min_grid_size": grid_size,
            "occupancy_suggested_block_size": block_size,
            "kernel_details": Ref(kernel_details(kernel, self._gpu)),
        }


def write(
    devices: Sequence[Device],
    threads: Sequence[HostThread],
    recording: Recording,
    framework_stats: WorkStats,
) -> Space:
    """The XSpace of a run; ``framework_stats`` gives the dialect's own stats of a device event."""
    space = Space(hostnames=(recording.hostname,), warnings=recording.recorder.warnings)
    for device in devices:
        _device_plane(space, device, framework_stats, recording)
    host = space.plane("/host:CPU")
    for number, thread in enumerate(sorted(threads, key=lambda thread: thread.name)):
        events = [event for event in thread.events if recording.holds(event.start, event.end)]
        if not recording.recorder.markers:
            events = [event for event in events if "step_num" not in event.stats]
        calls: list[HostEvent] = []
        if recording.recorder.driver_threads:
            calls = [event for event in events if "correlation_id" in event.stats]
            events = [event for event in events if "correlation_id" not in event.stats]
        _host_line(host, thread.line_id, thread.name, events, recording)
        if calls:
            _host_line(host, 1_083 + number, f"Host Threads/{1_083 + number}", calls, recording)
    start_ns = recording.start_unix_ns + recording.first_ps // PS_PER_NS + recording.clock.skew_ns
    space.plane(
        "Task Environment",
        stats={
            "profile_start_time": Unsigned(start_ns),
            "profile_stop_time": Unsigned(start_ns + recording.length_ps // PS_PER_NS),
        },
    )
    return space


def _host_line(host: Plane, line_id: int, name: str, events: Sequence[HostEvent], recording: Recording) -> None:
    line = host.line(line_id, name, HOST_LINES_NS, name)
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        _event(line, event.name, recording.at(event.start), recording.at(event.end), event.stats)


def _event(line: Line, name: str, start: int, end: int, stats: dict[str, StatValue]) -> None:
    line.event(name, start - line.timestamp_ns * PS_PER_NS, end - start, stats)


def _device_plane(space: Space, device: Device, framework_stats: WorkStats, recording: Recording) -> None:
    gpu = device.gpu
    plane = space.plane(
        f"/device:GPU:{device.index}",
        device.index,
        {
            "device_vendor": "Nvidia",
            "gpu_device_name": gpu.name,
            "clock_rate": Unsigned(gpu.clock_khz),
            "core_count": Unsigned(gpu.sm_count),
            "memory_bandwidth": Unsigned(gpu.memory_bandwidth_bytes_per_s),
            "memory_size": Unsigned(gpu.memory_size_bytes),
            "compute_cap_major": Unsigned(gpu.compute_capability[0]),
            "compute_cap_minor": Unsigned(gpu.compute_capability[1]),
        },
    )
    kernel_stats = _DeviceStats(gpu)
    context = f"$${device.index + 1}"
    for stream in device.streams:
        finished = [
            work
            for work in stream.history
            if recording.holds(work.start, work.end) and recording.keeps(device.index, work.start, work.end)
        ]
        finished = finished[: round(len(finished) * (1 - recording.recorder.dropped))]
        if not finished:
            continue
        line = plane.line(stream.line_id, stream.name, DEVICE_LINES_NS)
        for work in finished:
            stats: dict[str, StatValue] = {
                "correlation_id": Unsigned(work.correlation),
                "context_id": context,
                **kernel_stats.of(work.kernel, device.index),
                **framework_stats(work),
            }
            if work.graph is not None:
                graph, node = work.graph
                stats |= {"cuda_graph_id": Unsigned(graph), "cuda_graph_node_id": Unsigned(node)}
            start, end = (recording.at(time) + recording.recorder.clock_ps for time in (work.start, work.end))
            _event(line, work.kernel.name, start, end, stats)
