"""Telemetry of the demo runs: what the companion writer would have recorded beside their profiles.

The real monitor records it, over a stand-in for NVIDIA's driver that plays one scenario a run, at the scenario's own
time. It fits the profiles: the GPU that is slow there is hot here, the GPUs that wait for input are idle, and
the profile was taken while the monitor ran.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from simulator.nvml_stub import LoadedStub, build
from simulator.nvml_stub.record import SpanAt, StepAt, Training, record

GIB = 1 << 30
HOST = "gpu-node-0"
# Of the slow GPU's run: it is the longest, and a demo is small.
_INTERVAL_S = 5.0
H100 = """\
gpu * name NVIDIA H100 80GB HBM3
gpu * memory_total 85028765696
gpu * memory_reserved 553648128
gpu * sm_clock_max 1980
gpu * memory_clock_max 2619
gpu * memory_clock 2619
gpu * shutdown_temperature 95
gpu * slowdown_temperature 90
gpu * gpu_max_temperature 87
gpu * power_limit 700
gpu * power_default 700
gpu * power_min 200
gpu * power_max 700
gpu * pcie_generation 5
gpu * pcie_generation_max 5
gpu * pcie_width 16
gpu * pcie_width_max 16
"""
A100 = """\
gpu * name NVIDIA A100-SXM4-80GB
gpu * memory_total 85095874560
gpu * memory_reserved 553648128
gpu * sm_clock_max 1410
gpu * memory_clock_max 1593
gpu * memory_clock 1593
gpu * shutdown_temperature 92
gpu * slowdown_temperature 89
gpu * gpu_max_temperature 85
gpu * power_limit 400
gpu * power_default 400
gpu * power_min 100
gpu * power_max 400
gpu * pcie_generation 4
gpu * pcie_generation_max 4
gpu * pcie_width 16
gpu * pcie_width_max 16
"""


@dataclass(frozen=True)
class DemoTelemetry:
    """One run's telemetry.

    Attributes:
        scenario: what the driver plays.
        training: the process; its clock meets the profile's.
    """

    scenario: str
    training: Training


def _head(count: int, gpu: str) -> str:
    return f"gpus {count}\ndriver 550.54.15 (simulated)\n{gpu}"


def _steps(
    durations: Iterable[tuple[int, float]], first_s: float, samples: int, pauses: Mapping[int, float]
) -> list[StepAt]:
    """Steps from 0 on, (how many, seconds each); ``pauses``: seconds without steps after one."""
    found, now, number = [], first_s, 0
    for count, length in durations:
        for _ in range(count):
            # Steps are never quite equal; a fixed ripple keeps the bytes the same.
            lasting = length * (1.0 + 0.004 * ((number * 7) % 11 - 5) / 5)
            now += lasting
            found.append(StepAt(number, now, lasting, samples))
            now += pauses.get(number, 0.0)
            number += 1
    return found


def _profiled(steps: Sequence[StepAt], first: int, count: int) -> list[StepAt]:
    return [replace(step, profiled=True) if first <= step.number < first + count else step for step in steps]


def _started(steps: Sequence[StepAt], first: int, profile_start_ns: int, profile_lead_s: float) -> int:
    """Unix nanoseconds of the scenario's zero, so that step ``first`` begins ``profile_lead_s`` into the profile."""
    step = next(step for step in steps if step.number == first)
    return profile_start_ns - round((step.end_s - step.duration_s - profile_lead_s) * 1e9)


def _allocator(
    count: int, used: float, peak: float, limit: float
) -> Callable[[float], list[tuple[int, int, int, int | None]]]:
    """Constant need on every GPU, after the first seconds."""

    def at(time_s: float) -> list[tuple[int, int, int, int | None]]:
        share = min(1.0, max(0.0, (time_s - 4.0) / 4.0))
        return [(gpu, int(used * share), int(peak * share), int(limit)) for gpu in range(count)]

    return at


def slow_gpu() -> DemoTelemetry:
    """GPU 2 reaches its thermal limit at step 1,200; from then on all steps take 1.35 times as long.

    The profile is of steps 20 to 28 of the second epoch, so they are 1,520 to 1,528 of the training.
    """
    epoch, first = 1500, 1520
    # The sample that first sees the limit comes just behind the end of step 1,200.
    begin = 8.0 + _INTERVAL_S - (8.0 + 1200 * 0.0820 + 0.1130) % _INTERVAL_S
    pauses = {epoch - 1: 3.0}
    steps = _profiled(_steps([(1200, 0.0820), (500, 0.1107)], begin, 256, pauses), first, 9)
    hot = steps[1200].end_s - steps[1200].duration_s
    end = steps[-1].end_s + 4.0
    spans = [
        SpanAt("checkpoint", steps[n].end_s, steps[n].end_s + 3.0, n, f"epoch {n // epoch + 1}")
        for n in pauses
        if n < len(steps)
    ]
    profile_end = steps[first + 8].end_s
    spans.append(SpanAt("profile", steps[first].end_s - steps[first].duration_s, profile_end, first, "on request"))
    spans.sort(key=lambda span: span.end_s)
    scenario = _head(4, H100) + "\n".join(
        [
            f"gpu * utilization 0:0 7.9:0 8:98 {end - 4:.1f}:98 {end - 3:.1f}:0",
            "gpu * memory_utilization 0:0 8:41",
            "gpu * memory_used 0:6.0e8 4:8.0e10",
            f"gpu * temperature 0:41 8:45 60:63 {end:.0f}:65",
            f"gpu * power 0:118 8:540 {hot:.1f}:548 {hot + 4:.1f}:455 {end:.0f}:452",
            f"gpu * sm_clock 0:1980 8:1845 {end:.0f}:1830",
            "gpu * reasons 0:0x1 8:0",
            "gpu * pcie_rx 0:0 8:9.0e8",
            "gpu * pcie_tx 0:0 8:1.1e8",
            f"gpu 2 temperature 0:48 8:55 60:79 {hot:.1f}:87 {hot + 20:.1f}:88 {end:.0f}:88",
            f"gpu 2 sm_clock 0:1980 8:1845 {hot - 0.5:.1f}:1830 {hot:.1f}:1350 {end:.0f}:1352",
            f"gpu 2 power 0:125 8:548 {hot:.1f}:552 {hot + 2:.1f}:402 {end:.0f}:398",
            f"gpu 2 reasons 0:0x1 8:0 {hot:.1f}:0x20",
            "",
        ]
    )
    training = Training(
        host=HOST,
        process_id=21_734,
        start_ns=_started(steps, first, 1_772_534_497_481_516_234, 0.002),
        duration_s=round(end),
        interval_s=_INTERVAL_S,
        steps=steps,
        spans=spans,
        allocator=_allocator(4, 58.2 * GIB, 66.9 * GIB, 75.3 * GIB),
        memory_growth=False,
    )
    return DemoTelemetry(scenario, training)


def input_bound() -> DemoTelemetry:
    """The driver sees the four GPUs busy 56 % of the time; why, only the profile knows."""
    epoch, first = 200, 220
    pauses = {epoch - 1: 3.0}
    steps = _profiled(_steps([(370, 0.1400)], 8.0, 256, pauses), first, 9)
    end = steps[-1].end_s + 3.0
    spans = [
        SpanAt("checkpoint", steps[epoch - 1].end_s, steps[epoch - 1].end_s + 3.0, epoch - 1, "epoch 1"),
        SpanAt("profile", steps[first].end_s - 0.14, steps[first + 8].end_s, first, "GPUs idle"),
    ]
    # What the driver's sampling makes of a GPU that works in bursts.
    busy = " ".join(f"{8 + n}:{56 + (n * 5) % 9 - 4}" for n in range(0, round(end) - 11, 6))
    scenario = _head(4, H100) + "\n".join(
        [
            f"gpu * utilization 0:0 7.9:0 {busy} {end - 3:.1f}:56 {end - 2:.1f}:0",
            "gpu * memory_utilization 0:0 8:24",
            "gpu * memory_used 0:6.0e8 4:8.0e10",
            f"gpu * temperature 0:38 8:42 60:51 {end:.0f}:52",
            "gpu * power 0:115 8:352",
            "gpu * sm_clock 0:1980 8:1965",
            "gpu * reasons 0:0x1 8:0",
            "gpu * pcie_rx 0:0 8:6.1e8",
            "gpu * pcie_tx 0:0 8:0.9e8",
            "",
        ]
    )
    training = Training(
        host=HOST,
        process_id=18_022,
        start_ns=_started(steps, first, 1_772_442_845_123_456_789, 0.002),
        duration_s=round(end),
        interval_s=2.5,
        steps=steps,
        spans=spans,
        allocator=_allocator(4, 58.2 * GIB, 66.9 * GIB, 75.3 * GIB),
        memory_growth=False,
    )
    return DemoTelemetry(scenario, training)


def launch_bound() -> DemoTelemetry:
    """A small model on two large GPUs: it needs a seventh of their memory."""
    first = 100
    steps = _profiled(_steps([(7600, 0.00714)], 6.0, 64, {}), first, 6)
    end = steps[-1].end_s + 3.0
    spans = [SpanAt("profile", steps[first].end_s - 0.00714, steps[first + 5].end_s, first, "steps 100 to 105")]
    scenario = _head(2, A100) + "\n".join(
        [
            f"gpu * utilization 0:0 5.9:0 6:71 {end - 3:.1f}:71 {end - 2:.1f}:0",
            "gpu * memory_utilization 0:0 6:3",
            "gpu * memory_used 0:5.0e8 3:6.4e10",
            f"gpu * temperature 0:34 6:36 {end:.0f}:39",
            "gpu * power 0:61 6:118",
            "gpu * sm_clock 0:1410 6:1410",
            "gpu * reasons 0:0x1 6:0",
            "gpu * pcie_rx 0:0 6:2.0e7",
            "gpu * pcie_tx 0:0 6:1.2e7",
            "",
        ]
    )
    training = Training(
        host=HOST,
        process_id=30_915,
        start_ns=_started(steps, first, 1_772_612_411_334_455_667, 0.001),
        duration_s=round(end),
        interval_s=2.5,
        steps=steps,
        spans=spans,
        allocator=_allocator(2, 6.1 * GIB, 8.4 * GIB, 59.4 * GIB),
        memory_growth=False,
    )
    return DemoTelemetry(scenario, training)


TELEMETRY: dict[str, Callable[[], DemoTelemetry]] = {
    "input_bound": input_bound,
    "slow_gpu": slow_gpu,
    "launch_bound": launch_bound,
}


@lru_cache(maxsize=1)
def stub() -> LoadedStub:
    """The stand-in for the driver in this process.

    Raises:
        NoCompiler: nothing can compile it.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpu-doctor-nvml-"))
    return LoadedStub(build(folder), folder / "scenario.txt")


def telemetry_files(name: str, driver: LoadedStub | None = None) -> dict[str, bytes]:
    """The event files of one run by their path below the logdir; the same bytes every time.

    Args:
        name: of the run.
        driver: the stand-in where this process has loaded it already.

    Raises:
        NoCompiler: there is nothing to compile the stand-in for the driver with.
    """
    made = TELEMETRY[name]()
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-demo-") as folder:
        record(folder, driver or stub(), made.scenario, made.training)
        root = Path(folder)
        return {
            f"{name}/{path.relative_to(root).as_posix()}": path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }
