"""What training needs of each GPU's memory: by telemetry, else by the allocator's events in the profile."""

from __future__ import annotations

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.diagnosis.telemetry_gpus import judged, ref
from tb_gpu_doctor.telemetry.memory import Memory, measure


def memory_needs(context: Context) -> dict[GpuRef, Memory | None]:
    """The need of every GPU that worked, None where it cannot be told."""
    needs: dict[GpuRef, Memory | None] = {
        ref(gpu): measure(gpu.series, gpu.recording.memory_growth) for gpu in judged(context)
    }
    for profile in context.profiles:
        known = {use.device: use for use in profile.outline.allocators}
        for device in profile.active_devices:
            gpu, use = profile.ref(device.index), known.get(device.index)
            if needs.get(gpu) is None:
                needs[gpu] = None if use is None else Memory("allocator", use.peak_bytes, use.limit_bytes, None)
    return needs
