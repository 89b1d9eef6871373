"""What training needs of each GPU's memory: by telemetry, else by the allocator's events in the profile."""

from __future__ import annotations

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.context import ref as gpu_of_file
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.diagnosis.telemetry_gpus import judged, ref
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.memory import Memory, measure_together


def memory_needs(context: Context) -> dict[GpuRef, Memory | None]:
    """The need of every GPU that worked, None where it cannot be told. Ranks that share a GPU count together."""
    needs: dict[GpuRef, Memory | None] = {ref(gpu): _of_all_ranks(context, gpu) for gpu in judged(context)}
    for file in context.files:
        for index, gpu in enumerate(file.gpus):
            name, use = gpu_of_file(file, index), gpu.allocator
            if gpu.worked and needs.get(name) is None:
                needs[name] = None if use is None else _of_profile(use.peak_bytes, use.limit_bytes)
    return needs


def _of_all_ranks(context: Context, gpu: GpuTelemetry) -> Memory | None:
    """What the recorded processes need of one GPU together."""
    uuid = gpu.series.facts.uuid
    beside = [
        (series, recording.memory_growth)
        for recording in context.telemetry.recordings
        if recording is not gpu.recording and recording.host == gpu.recording.host and uuid is not None
        for series in recording.gpus
        if series.facts.uuid == uuid
    ]
    return measure_together([(gpu.series, gpu.recording.memory_growth), *beside])


def _of_profile(peak: float, limit: float) -> Memory:
    return Memory("allocator", peak, limit, None, max(0.0, limit - peak))
