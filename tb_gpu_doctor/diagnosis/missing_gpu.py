"""Why a profile holds no GPU work: what the profiler's own messages and the launches in it say, and nothing beyond."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Finding, Phrase

# What the reader notes of TPUs and their like.
_OTHER_ACCELERATORS = "notes.other_accelerators"
# In this order: a profiler without privileges also finds no GPU, the reason is the privilege.
_CAUSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "cupti_permission",
        re.compile(r"insufficient privilege|root permission|INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM", re.I),
    ),
    ("cupti_missing", re.compile(r"failed to load libcupti|libcupti[^\n]*(not found|cannot open|could not)", re.I)),
    ("no_gpu", re.compile(r"no gpu detected|no cuda-capable device|cuda_error_no_device", re.I)),
)


def missing_cause(files: Sequence[FileFacts]) -> str | None:
    """The reason that the profiler recorded; None when it recorded none.

    ``launched`` is one with launches: a GPU was used, whatever the profiler says of it. ``host_only`` is a profile
    that was asked for without devices: the host's events are there, no GPU is, and the profiler, which complains
    when it fails, did not complain.
    """
    if _other_accelerators(files):
        return "other_accelerator"
    messages = [text for file in files for text in (*file.errors, *file.warnings)]
    launched = launches_without_work(files) > 0
    for cause, pattern in _CAUSES:
        if any(pattern.search(message) for message in messages):
            # who may not or cannot use CUPTI gets no launches from it either
            return "launched" if launched and cause != "cupti_permission" else cause
    if launched:
        return "launched"
    host_events = all(file.has_host_events for file in files)
    no_devices = not any(file.gpus for file in files)
    return "host_only" if host_events and no_devices and not messages else None


def launches_without_work(files: Sequence[FileFacts]) -> int:
    """Launches in files without any work of a GPU."""
    return sum(file.lost.lost for file in files if file.lost is not None and not file.has_gpu_work)


def _other_accelerators(files: Sequence[FileFacts]) -> list[Phrase]:
    """What the files say of accelerators that are no GPUs."""
    return [note for file in files for note in file.notes if note.key == _OTHER_ACCELERATORS]


def missing_gpu_finding(context: Context, kind: str, files: Sequence[FileFacts]) -> Finding:
    """The finding of ``kind`` over the given hosts."""
    cause = missing_cause(files)
    hosts = tuple(file.label for file in files)
    facts = {"hosts": hosts, "count": sum(len(file.gpus) for file in files)}
    explanation = [
        Phrase(f"findings.{kind}.explanation", facts),
        *(
            _other_accelerators(files)[:1]
            or [Phrase(f"findings.missing_gpu.causes.{cause or 'unknown'}", {"launches": launches_without_work(files)})]
        ),
    ]
    messages = [message for file in files for message in file.errors]
    if messages:
        explanation.append(Phrase("report.profiler_said", {"message": messages[0]}))
    gpus = [ref(file, index) for file in files for index in range(len(file.gpus))]
    advice = {
        "cupti_permission": ("allow_counters", "container"),
        "cupti_missing": ("install_cupti",),
        "launched": ("flush", "other_profiler", "wsl", "cupti_version", "env"),
        "no_gpu": ("check_driver", "check_framework@"),
        "other_accelerator": (),
        "host_only": ("check_framework@", "device_tracer@"),
        None: ("check_framework@", "device_tracer@", "allow_counters"),
    }[cause]
    return Finding(
        kind=kind,
        severity="warning",
        title=Phrase(f"findings.{kind}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice("missing_gpu", *advice),
        gpus=tuple(gpus),
        cause=cause,
    )
