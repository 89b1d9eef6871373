"""A finished simulation as XPlane, in the dialect of the framework that was simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.device import Device, Kernel, Work
from simulator.engine import PS_PER_NS
from simulator.hardware import Gpu, active_blocks, theoretical_occupancy
from simulator.host import HostThread
from simulator.xplane_writer import Line, Ref, Space, StatValue, Unsigned

HOST_LINES_NS = 138_006
DEVICE_LINES_NS = 216_823

WorkStats = Callable[[Work], dict[str, StatValue]]


@dataclass(frozen=True)
class Recording:
    """What surrounds the events in a file.

    ``start_unix_ns`` is the wall clock at the file's time 0; ``length_ps`` its recorded time.
    """

    hostname: str
    start_unix_ns: int
    length_ps: int


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
        source, target = ("pageable", "device") if kernel.copy == "H2D" else ("device", "pageable")
        details = f"kind_src:{source} kind_dst:{target} size:{kernel.copy_bytes} dest:{device} async:1"
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
    space = Space(hostnames=(recording.hostname,))
    for device in devices:
        _device_plane(space, device, framework_stats)
    host = space.plane("/host:CPU")
    for thread in sorted(threads, key=lambda thread: thread.name):
        line = host.line(thread.line_id, thread.name, HOST_LINES_NS, thread.name)
        for event in sorted(thread.events, key=lambda event: (event.start, -event.end)):
            if 0 <= event.end <= recording.length_ps:  # what is still open at the end is not recorded
                _event(line, event.name, event.start, event.end, event.stats)
    space.plane(
        "Task Environment",
        stats={
            "profile_start_time": Unsigned(recording.start_unix_ns),
            "profile_stop_time": Unsigned(recording.start_unix_ns + recording.length_ps // PS_PER_NS),
        },
    )
    return space


def _event(line: Line, name: str, start: int, end: int, stats: dict[str, StatValue]) -> None:
    line.event(name, start - line.timestamp_ns * PS_PER_NS, end - start, stats)


def _device_plane(space: Space, device: Device, framework_stats: WorkStats) -> None:
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
        finished = [work for work in stream.history if work.end >= 0]
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
            _event(line, work.kernel.name, work.start, work.end, stats)
