"""HolisticTraceAnalysis' idle, compute and overlap figures from our columns, by HTA's definitions (version 0.5).

They differ from the doctor's own: see `RULES`, which the written comparison prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.traces.columns import PS_PER_US, Trace

Int64 = NDArray[np.int64]

RULES = (
    "The last `ProfilerStep` is left out: only what was launched before it began counts. We count it: its end is "
    "known, because the profiler waits for the GPU before it stops.",
    "Where the file marks steps on the GPU as well (`gpu_user_annotation`), the last step begins for HTA when its "
    "first kernel runs, so the launches in front of that count still.",
    "Times with a fraction are cut to whole microseconds, starts up and ends down. We keep nanoseconds.",
    "The span runs from a rank's first to its last event on the device. Ours is the window of its marked steps, "
    "and so holds the wait in front of the first one.",
    "Non-compute is all that is neither compute nor idle. We split it into communication and copies that nothing "
    "hides.",
    "Communication is what is called `nccl...Kernel`, and the overlap is a share of it. We know RCCL, other "
    "libraries and copies between GPUs too, and tell waiting for the last rank from moving data.",
    "Idle time by cause is summed per stream, so two idle streams count twice. We count a GPU as idle when all of "
    "its streams are, and each gap once.",
)
_KERNEL_WAIT_US = 30
_COMMUNICATION = re.compile(r"^nccl.*Kernel")
_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_NO_COMPUTE = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


@dataclass(frozen=True)
class Figures:
    """One rank, in microseconds; ``overlap`` is a share of communication, NaN without any."""

    idle_us: float
    compute_us: float
    non_compute_us: float
    kernel_us: float
    overlap: float


def figures(trace: Trace, marked_on_gpu: bool, whole_us: bool = True) -> Figures:
    """HTA's temporal breakdown and overlap of one file.

    Args:
        trace: one rank.
        marked_on_gpu: the file holds ``gpu_user_annotation`` events of the steps.
        whole_us: cut times to whole microseconds as HTA does where they have fractions.
    """
    kept = np.flatnonzero(_counted(trace, marked_on_gpu))
    events = trace.device_events
    start, end = events.start[kept] / PS_PER_US, events.end[kept] / PS_PER_US
    if whole_us:
        start, end = np.ceil(start), np.floor(end)
    names = events.name[kept]
    texts = {int(name): trace.strings[int(name)] for name in np.unique(names)}
    communicates = np.array([bool(_COMMUNICATION.match(texts[name])) for name in names.tolist()], np.bool_)
    computes = np.array([_computes(texts[name]) for name in names.tolist()], np.bool_)
    low, high = _merged(start, end)
    busy, span = float((high - low).sum()), float(high[-1] - low[0])
    compute = _merged(start[computes], end[computes])
    communication = _merged(start[communicates], end[communicates])
    compute_us = float((compute[1] - compute[0]).sum())
    total = float((communication[1] - communication[0]).sum())
    both = _merged(np.append(compute[0], communication[0]), np.append(compute[1], communication[1]))
    overlap = compute_us + total - float((both[1] - both[0]).sum())
    return Figures(span - busy, compute_us, busy - compute_us, span, overlap / total if total else float("nan"))


def idle_by_stream(trace: Trace, marked_on_gpu: bool) -> dict[tuple[int, str], float]:
    """HTA's idle time in microseconds by (stream, cause), each stream for itself, between its first and last event.

    ``host_wait``: the launch of what follows began after the gap did; ``kernel_wait``: another gap below 30 us;
    ``other``: the rest. Where streams overlap themselves, gaps are negative, as in HTA.
    """
    kept = np.flatnonzero(_counted(trace, marked_on_gpu))
    events, launch = trace.device_events, launch_of(trace)[kept]
    start = np.ceil(events.start[kept] / PS_PER_US)
    end = np.floor(events.end[kept] / PS_PER_US)
    called = np.where(launch >= 0, np.ceil(trace.host_events.start[launch] / PS_PER_US), np.nan)
    found: dict[tuple[int, str], float] = {}
    for stream in trace.streams:
        rows = np.flatnonzero(events.stream[kept] == stream.index)
        rows = rows[np.argsort(start[rows], kind="stable")]
        gap, before = start[rows][1:] - end[rows][:-1], end[rows][:-1]
        host = called[rows][1:] > before
        for cause, chosen in (
            ("host_wait", host),
            ("kernel_wait", ~host & (gap < _KERNEL_WAIT_US)),
            ("other", ~host & (gap >= _KERNEL_WAIT_US)),
        ):
            found[stream.line_id, cause] = float(gap[chosen].sum())
    return found


def _computes(name: str) -> bool:
    return not _MEMORY.match(name) and not _NO_COMPUTE.match(name)


def _counted(trace: Trace, marked_on_gpu: bool) -> NDArray[np.bool_]:
    """The device events that were launched before the last step; all where no two steps are marked."""
    host, count = trace.host_events, len(trace.device_events)
    markers = np.flatnonzero(host.step_num >= 0)
    if len(np.unique(host.step_num[markers])) < 2:
        return np.ones(count, np.bool_)
    launch = launch_of(trace)
    launched = np.where(launch >= 0, host.start[launch], np.iinfo(np.int64).max)
    last = int(host.start[markers].max())
    if marked_on_gpu:
        inside = launched >= last
        own = trace.device_events.start[inside & (launch >= 0)]
        last = max(last, int(own.min())) if len(own) else last
    return np.asarray((launch >= 0) & (launched < last), np.bool_)


def _merged(start: NDArray[np.float64], end: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Starts and ends of the intervals that overlap or touch, as one each."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.append(True, start[1:] > reached[:-1])
    at = np.flatnonzero(first)
    return start[at], np.maximum.reduceat(end, at)
