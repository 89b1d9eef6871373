"""The GPUs that telemetry knows, as the rules ask about them: names, what one paste of a command needs, memory.

What training needs of a GPU's memory comes from telemetry, else from the allocator's events in the profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.context import ref as gpu_of_file
from tb_gpu_doctor.diagnosis.model import GpuNames, GpuRef, Phrase
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.memory import Memory, measure_together
from tb_gpu_doctor.telemetry.series import Recording, busy

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.context import Context


# Each of the worst GPUs gets its own sentences; of the others the title is enough.
MOST_DESCRIBED = 4


def ref(gpu: GpuTelemetry) -> GpuRef:
    """The GPU as a diagnosis names it."""
    return GpuRef(gpu.host, gpu.gpu)


def names(context: Context, gpus: Iterable[GpuTelemetry]) -> GpuNames:
    """GPUs as a parameter of a phrase, counted within the profile or, without one, within the telemetry."""
    return names_of(context, map(ref, gpus))


def names_of(context: Context, gpus: Iterable[GpuRef]) -> GpuNames:
    """As `names`, of GPUs that need not be in the telemetry."""
    refs = tuple(sorted(gpus))
    if context.files:
        return context.names(refs)
    known = context.telemetry.gpus
    return GpuNames(refs, len(known), len({gpu.host for gpu in known}) > 1)


def measured_gpus(context: Context) -> tuple[GpuTelemetry, ...]:
    """The GPUs with enough busy samples to say something of them."""
    limits = context.thresholds
    found = []
    for gpu in context.telemetry.gpus:
        working = busy(gpu.series, limits.telemetry_busy_percent)
        if (len(gpu.series) if working is None else int(working.sum())) >= limits.telemetry_min_samples:
            found.append(gpu)
    return tuple(found)


def process_name(recording: Recording) -> str:
    """``rank 3 (node7 · 4711)``; host and process alone where the launcher told no rank."""
    process = f"{recording.host} · {recording.process_id}"
    return process if recording.rank is None else f"rank {recording.rank.number} ({process})"


def clock_time(unix_ns: int) -> str:
    """A wall time for people, in UTC, since a logdir travels."""
    try:
        return datetime.fromtimestamp(unix_ns // 1_000_000_000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(unix_ns)


def since(gpu: GpuTelemetry, step: int | None, since_ns: int) -> Phrase:
    """``since step 1,200``; by the clock where steps are not known, and from the start where it was so already."""
    if len(gpu.series) and since_ns <= int(gpu.series.wall_ns[min(2, len(gpu.series) - 1)]):
        return Phrase("telemetry.since.start")
    if step is not None:
        return Phrase("telemetry.since.step", {"step": step})
    return Phrase("telemetry.since.time", {"time": clock_time(since_ns)})


def worst_first(items: Sequence[tuple[GpuTelemetry, float]]) -> list[GpuTelemetry]:
    """The GPUs by their number, largest first, as many as are described one by one."""
    return [gpu for gpu, _ in sorted(items, key=lambda item: (-item[1], ref(item[0])))[:MOST_DESCRIBED]]


def driver_name(gpus: Iterable[GpuTelemetry]) -> str:
    """The GPUs as ``nvidia-smi -i`` takes them: the driver's numbers, which ``CUDA_VISIBLE_DEVICES`` does not change.

    A command works on one host, so of several hosts only those of the first one are named.
    """
    found = sorted(gpus, key=lambda gpu: (gpu.host, gpu.series.facts.nvml_index))
    return ",".join(dict.fromkeys(str(gpu.series.facts.nvml_index) for gpu in found if gpu.host == found[0].host))


def memory_needs(context: Context) -> dict[GpuRef, Memory | None]:
    """The need of every GPU that worked, None where it cannot be told. Ranks that share a GPU count together."""
    needs: dict[GpuRef, Memory | None] = {ref(gpu): _of_all_ranks(context, gpu) for gpu in measured_gpus(context)}
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
