"""Memory that training leaves unused: the batch could grow.

Reads: what the framework's allocator needed at most (`telemetry_gpus.memory_needs`), never what NVML calls used where
the framework takes nearly all memory at its start. Says: to about what the batch could grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import memory_needs, names_of
from tb_gpu_doctor.telemetry.memory import Memory
from tb_gpu_doctor.telemetry.progress import global_batch

KIND = "memory_headroom"
# A program that hardly uses the memory is a test or a toy: nobody needs to know how often it would fit.
_MANY = 10
# Next to nothing in use is no measurement of training: a context alone takes more.
_LEAST_USED = 1e-6


@dataclass(frozen=True)
class Limits:
    """Need of memory, of what there is."""

    # Up to here the batch could grow.
    low: float = 0.60
    # A grown batch must leave this part of the memory free for fragments and libraries.
    spare: float = 0.10


def check(context: Context) -> Iterator[Finding]:
    """One remark when even the fullest GPU has room; silent where any GPU's need cannot be told."""
    limits: Limits = context.thresholds.of(KIND)
    needs = memory_needs(context)
    known = [memory for memory in needs.values() if memory is not None and memory.growth is None]
    rooms = [memory.room_bytes for memory in known if memory.room_bytes is not None]
    if not needs or len(known) < len(needs) or len(rooms) < len(known):
        return
    # What others hold is not there to be taken.
    fullest = max(known, key=lambda memory: memory.peak_bytes / _obtainable(memory))
    used = fullest.peak_bytes / _obtainable(fullest)
    if not _LEAST_USED <= used <= limits.low:
        return
    # Weights do not grow with the batch, so this is the least that it can become.
    times = (1 - limits.spare) / used
    batches = {global_batch(recording.steps) for recording in context.telemetry.recordings}
    batch = batches.pop() if len(batches) == 1 else None
    facts = {
        "gpus": names_of(context, needs),
        "peak": fullest.peak_bytes,
        "capacity": _obtainable(fullest),
        "free": fullest.room_bytes,
        "used": used,
        "times": times,
        "batch": batch,
        "larger": None if batch is None else _round_down(batch * times, batch),
    }
    source = "allocator" if all(memory.source == "allocator" for memory in known) else "nvml"
    growth = "many" if times >= _MANY else "times" if batch is None else "batch"
    yield Finding(
        kind=KIND,
        severity="info",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.explanation", facts),
            Phrase(f"findings.{KIND}.{growth}", facts),
            Phrase(f"findings.{KIND}.sources.{source}"),
        ),
        advice=context.advice(KIND, "sweep", "larger_batch", "fewer_gpus"),
        gpus=tuple(sorted(needs)),
    )


def _obtainable(memory: Memory) -> float:
    """What training uses of a GPU's memory and could take beside it."""
    return memory.peak_bytes + (memory.room_bytes or 0.0)


def _round_down(value: float, batch: int) -> int:
    """Two leading digits are as much as such an estimate bears; never below the present batch."""
    whole = int(value)
    unit = int(10 ** max(0, len(str(whole)) - 2))
    return max(batch, whole // unit * unit)


RULE = Rule(
    kind=KIND,
    order=360,
    about="telemetry",
    cost="none",
    reads=("telemetry", "allocators"),
    needs=("allocators",),
    thresholds=Limits(),
    metrics=("memory", "work"),
    check=check,
)
