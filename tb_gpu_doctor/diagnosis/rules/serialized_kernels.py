"""Kernels of several streams that never overlap: an old way of tracing makes the GPU run one kernel at a time.

Reads: kernels launched in time to run beside another stream's kernel that did not (`analysis.stream_overlap`).
A finding about the profile: without the profiler the run may well be faster.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.analysis.launches import StreamOverlap
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

KIND = "serialized_kernels"


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs whose streams take turns."""
    found = [
        (profile, overlap)
        for profile in context.profiles
        for overlap in profile.analysis.serialized
        if _proven(overlap, context.thresholds)
    ]
    if not found:
        return
    gpus = tuple(sorted(profile.ref(overlap.device) for profile, overlap in found))
    most = max((overlap for _, overlap in found), key=lambda overlap: overlap.handovers)
    facts = {"gpus": context.names(gpus), "streams": most.streams, "count": most.handovers}
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts), Phrase(f"findings.{KIND}.doubtful")),
        advice=context.advice(KIND, "newer", "activity", "compare"),
        gpus=gpus,
        evidence=tuple(ask(_evidence, found[: context.thresholds.max_evidence])),
    )


def _proven(overlap: StreamOverlap, limits: Thresholds) -> bool:
    """Two streams in turn may depend on each other; three, or kernels that overtake, need not."""
    if overlap.reversed >= limits.serialized_reversed:
        return True
    return overlap.streams >= limits.serialized_streams and overlap.handovers >= limits.serialized_handovers


def _evidence(profile: HostProfile, overlap: StreamOverlap) -> Evidence:
    """The longest wait of a kernel for one of another stream."""
    events, strings = profile.trace.device_events, profile.trace.strings
    waiting, running = overlap.first, overlap.waited_for
    return Evidence(
        host=profile.label,
        gpu=profile.ref(overlap.device).id,
        start=int(events.start[running]),
        end=int(events.end[waiting]),
        thread=None,
        step=profile.step_number(waiting),
        what=Phrase(
            f"findings.{KIND}.waited",
            {
                "name": strings[int(events.name[waiting])],
                "stream": profile.trace.streams[int(events.stream[waiting])].name,
                "other": strings[int(events.name[running])],
                "other_stream": profile.trace.streams[int(events.stream[running])].name,
            },
        ),
    )
