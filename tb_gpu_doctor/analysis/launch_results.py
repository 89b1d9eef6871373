"""What the analyses of launching return."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpu_doctor.traces.columns import Int64


@dataclass(frozen=True)
class LaunchQueue:
    """How far ahead of one GPU the host was, over the window. Times in picoseconds.

    Attributes:
        device: device index.
        launches: launch calls that led to events in the window.
        period: median time from one launch call to the next on the launching thread, None under two calls.
        call: median time inside a launch call.
        mean_depth: work that was launched and had not started, the mean over time.
        max_depth: the most of it at one time.
        empty: time in which nothing was launched and waiting.
        delay_p10, delay_median, delay_p90: from the launch call to the start of its work, at least 0.
        kernels: compute kernels in the window; ``short_kernels`` of them run less than 10 us.
        kernel_time, short_time: their durations.
        border_idle: idle time charged to `launch` before the first work of a step.
        inner_idle: idle time charged to `launch` elsewhere.
        dispatches: calls in the window in which Python hands single ops or functions to the framework.
    """

    device: int
    launches: int
    period: int | None
    call: int
    mean_depth: float
    max_depth: int
    empty: int
    delay_p10: int
    delay_median: int
    delay_p90: int
    kernels: int
    short_kernels: int
    kernel_time: int
    short_time: int
    border_idle: int
    inner_idle: int
    dispatches: int


@dataclass(frozen=True)
class Contention:
    """How much longer the same calls take while many input workers run than while few do.

    Attributes:
        device: the GPU that the calls launch for.
        slowdown: median over the calls beside many workers, each compared with calls of its name beside few.
        few, many: workers at most and at least.
        calls_few, calls_many: how many calls were compared.
        name: the call with the most time beside many workers, and its median times.
        typical_few, typical_many: median time of that call.
        lost: idle time charged to ``launch``, ``host_other`` or ``sync`` that would not be there at the speed
            beside few workers; ``gap_part`` of each gap, shape (gaps,), ``step_part`` per complete step.
        workers: names of the worker threads, the busiest first.
        start, end: the longest stretch with many workers.
    """

    device: int
    slowdown: float
    few: int
    many: int
    calls_few: int
    calls_many: int
    name: str
    typical_few: float
    typical_many: float
    lost: int
    gap_part: Int64
    step_part: Int64
    workers: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True)
class StreamOverlap:
    """Whether kernels of several streams of one GPU ran one after the other although they need not have.

    Attributes:
        device: device index.
        streams: streams with compute kernels.
        handovers: kernels that were launched while a kernel of another stream ran, with nothing before
            them on their own stream, and started only when that one had ended.
        reversed: those of them that were launched before the kernel that they waited for,
            so that they cannot depend on it.
        first: row of the kernel of the longest such wait; ``waited_for`` the kernel before it.
    """

    device: int
    streams: int
    handovers: int
    reversed: int
    first: int
    waited_for: int
