"""What the framework's allocator of each GPU needed at most, where the profile holds its events.

TensorFlow and JAX record each allocation with the state of its allocator: how much is in use, how much is left of its
limit, and the peak since the process began. The peak is the need of the training so far, the limit is what
may be used: NVML, which counts what the allocator has reserved, knows neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.traces.columns import Trace

# `GPU_0_bfc` of TensorFlow and JAX, `gpu_async_0` of cuda_malloc_async; `gpu_host_bfc` is pinned host memory.
_ALLOCATOR = re.compile(r"^gpu_(?:async_)?(\d{1,4})(?:_bfc)?$", re.IGNORECASE)
# A cudaMallocAsync pool and a broken counter may claim anything.
_MOST_BYTES = 1 << 50


@dataclass(frozen=True)
class AllocatorUse:
    """The allocator of one GPU.

    Attributes:
        device: index into ``Trace.devices``.
        peak_bytes: the most that was in use since the process began, as last told.
        limit_bytes: what it may use in all.
    """

    device: int
    peak_bytes: int
    limit_bytes: int


def allocator_use(trace: Trace) -> tuple[AllocatorUse, ...]:
    """One for each GPU whose allocator left an event, in the order of the devices."""
    names = trace.host_stats.get("allocator_name")
    peaks, used, left = (
        trace.host_stats.get(name) for name in ("peak_bytes_in_use", "bytes_allocated", "bytes_available")
    )
    if names is None or peaks is None or used is None or left is None:
        return ()
    device_of = {device.id: device.index for device in trace.devices}
    found = []
    for ident in np.unique(names.values).tolist():
        match = _ALLOCATOR.match(trace.strings[ident])
        device = None if match is None else device_of.get(int(match.group(1)))
        if device is None:
            continue
        rows = names.rows[names.values == ident]
        peak = int(peaks.at(rows).max())
        limit = int(np.median(used.at(rows) + left.at(rows)))
        if 0 < peak <= limit < _MOST_BYTES:
            found.append(AllocatorUse(device, peak, limit))
    return tuple(sorted(found, key=lambda use: use.device))
