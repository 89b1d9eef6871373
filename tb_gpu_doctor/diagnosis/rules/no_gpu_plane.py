"""A profile without any GPU in it, and why, where the profiler said so."""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.missing_gpu import missing_gpu_finding
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "no_gpu_plane"


def check(context: Context) -> Iterator[Finding]:
    """One finding for the hosts whose file lists no GPU."""
    without = [file for file in context.files if not file.gpus]
    if without:
        yield missing_gpu_finding(context, KIND, without)


RULE = Rule(
    kind=KIND,
    order=400,
    about="profile",
    cost="none",
    reads=("gpus", "recording"),
    check=check,
)
