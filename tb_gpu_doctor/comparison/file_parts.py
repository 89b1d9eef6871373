"""What a summary needs of the columns of one file: a question (`diagnosis.asking`), with a small answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.job import NO_MEETINGS, Meetings
from tb_gpu_doctor.analysis.kernels import UNKNOWN, parse_kernel_details
from tb_gpu_doctor.analysis.step_costs import step_parts, window_parts
from tb_gpu_doctor.diagnosis.context import HostProfile
from tb_gpu_doctor.traces.columns import PS_PER_MS, CopyKind, EventClass, Int64

_Shape = tuple[int, int, int] | None
# A kernel's name, grid and block.
KernelKey = tuple[str, _Shape, _Shape]


@dataclass(frozen=True)
class FileParts:
    """One file in short.

    Attributes:
        steps: of each GPU the length of each complete step and its parts, see `step_parts`; none where the
            file's steps do not count.
        windows: of each GPU that worked in its window: device, and the window's parts, see `window_parts`.
        kernels: calls and time of each kernel, in the ``units``.
        units: how many steps of a GPU, or milliseconds of its window, the kernels were counted in.
    """

    steps: tuple[tuple[Int64, Int64], ...]
    windows: tuple[tuple[int, Int64], ...]
    kernels: dict[KernelKey, tuple[int, float]]
    units: float


def file_parts(profile: HostProfile, source: str, uses_steps: bool, meetings: Mapping[int, Meetings]) -> FileParts:
    """One file in short.

    Args:
        profile: the file.
        source: of the steps of the session.
        uses_steps: whether the file's steps are counted.
        meetings: by device index.
    """
    trace, analysis = profile.trace, profile.analysis

    def wait(device: int) -> Int64:
        return meetings.get(device, NO_MEETINGS).wait_of_events(trace.device_events.of_device(device))

    devices = range(analysis.steps.end.shape[1]) if uses_steps else ()
    active = [account.device for account in analysis.accounting if account.wall > 0]
    rows = trace.device_events.rows_of_devices()
    kernels, units = _kernels(profile, source)
    return FileParts(
        steps=tuple(step_parts(trace, analysis, device, wait(device)) for device in devices),
        windows=tuple((d, window_parts(trace, analysis, d, wait(d))) for d in active if d in rows),
        kernels=kernels,
        units=units,
    )


def _kernels(profile: HostProfile, source: str) -> tuple[dict[KernelKey, tuple[int, float]], float]:
    """Calls and time by name and shape; in complete steps, without steps in the window."""
    trace, analysis = profile.trace, profile.analysis
    events, units = trace.device_events, 0.0
    chosen = (events.klass == EventClass.COMPUTE) | (events.klass == EventClass.COMMUNICATION)
    chosen &= events.copy_kind == CopyKind.NONE
    if source != "none":
        if analysis.steps.source != source or not len(analysis.steps.event_step):
            return {}, 0.0
        complete = np.append(analysis.steps.complete, False)  # the last element serves -1, outside steps
        chosen &= complete[analysis.steps.event_step]
        units = float((analysis.steps.end[analysis.steps.complete] >= 0).sum())
    elif analysis.window is not None:
        chosen &= (events.start >= analysis.window.start) & (events.start < analysis.window.end)
        active = sum(accounting.busy > 0 for accounting in analysis.accounting)
        units = active * analysis.window.length / PS_PER_MS
    rows = np.flatnonzero(chosen)
    width = len(trace.strings) + 1
    pair = (events.name[rows].astype(np.int64) + 1) * width + events.details[rows] + 1
    codes, index = np.unique(pair, return_inverse=True)
    count = np.bincount(index, minlength=len(codes))
    total = np.bincount(index, weights=events.duration[rows], minlength=len(codes))
    found: dict[KernelKey, tuple[int, float]] = {}
    for code, number, time in zip(codes.tolist(), count.tolist(), total.tolist(), strict=True):
        name, text = code // width - 1, code % width - 1
        details = parse_kernel_details(trace.strings.raw(text)) if text >= 0 else UNKNOWN
        key = (trace.strings[name] if name >= 0 else "", details.grid, details.block)
        calls, spent = found.get(key, (0, 0.0))
        found[key] = (calls + number, spent + time)
    return found, units
