"""What training needs of each GPU's memory: by telemetry, else by the allocator's events in the profile."""

from __future__ import annotations

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.context import ref as gpu_of_file
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.diagnosis.telemetry_gpus import judged, ref
from tb_gpu_doctor.telemetry.memory import Memory, measure


def memory_needs(context: Context) -> dict[GpuRef, Memory | None]:
    """The need of every GPU that worked, None where it cannot be told."""
    needs: dict[GpuRef, Memory | None] = {
        ref(gpu): measure(gpu.series, gpu.recording.memory_growth) for gpu in judged(context)
    }
    for file in context.files:
        for index, gpu in enumerate(file.gpus):
            name, use = gpu_of_file(file, index), gpu.allocator
            if gpu.worked and needs.get(name) is None:
                needs[name] = None if use is None else Memory("allocator", use.peak_bytes, use.limit_bytes, None)
    return needs
