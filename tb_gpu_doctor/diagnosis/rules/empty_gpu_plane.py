"""A profile that lists GPUs but recorded nothing on any of them, and why, where the profiler said so."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.missing_gpu import missing_gpu_finding
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "empty_gpu_plane"


def check(context: Context) -> Iterator[Finding]:
    """One finding for the hosts that have GPUs and not one event on them.

    A silent host beside working ones is `idle_gpus`, unless the profiler reported an error there.
    """
    empty = [file for file in context.files if file.gpus and not file.has_gpu_work]
    if context.has_gpu_work:
        empty = [file for file in empty if file.errors]
    if empty:
        yield missing_gpu_finding(context, KIND, empty)


RULE = Rule(
    kind=KIND,
    order=410,
    about="profile",
    cost="none",
    reads=("gpus", "recording"),
    check=check,
)
