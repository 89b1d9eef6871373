"""Whether memory or arithmetic bounds a kernel, only where the profile counts both.

After the roofline model (Williams, Waterman, Patterson 2009): a kernel can run no faster than the GPU's memory moves
its bytes, and no faster than its units do its operations. It is said only of kernels that come near one of the two
roofs; the others are bound by something else (latency, too few blocks), which these numbers do not show.
"""

from __future__ import annotations

from tb_gpu_doctor.traces.columns import Device

MEMORY, COMPUTE = "memory", "compute"
# From this part of the peak bandwidth, or of the peak arithmetic, on.
NEAR_THE_ROOF = 0.6
_PS_PER_S = 1e12


def bound_of(device: Device, total_ps: int, flops: int | None, accessed_bytes: int | None) -> str | None:
    """``memory`` or ``compute``; None where the profile does not hold all that is needed, or neither roof is near.

    Args:
        device: the GPU with its peaks.
        total_ps: time of all calls.
        flops: operations of all calls.
        accessed_bytes: bytes of all calls.
    """
    peak = device.memory_bandwidth_bytes_per_s
    if flops is None or accessed_bytes is None or not peak or total_ps <= 0 or accessed_bytes <= 0:
        return None
    if accessed_bytes / (total_ps / _PS_PER_S) / peak >= NEAR_THE_ROOF:
        return MEMORY
    peak_flops = device.peak_flops_per_s
    if peak_flops and flops / (total_ps / _PS_PER_S) / peak_flops >= NEAR_THE_ROOF:
        return COMPUTE
    return None
