"""GPUs of the profile that did nothing, or next to nothing, while others worked.

Reads: devices without events beside devices with some, and how long each GPU was busy. A GPU is a host and a
number: several processes of one host may list the same GPU, and it is idle if none of them used it.
PyTorch's files list the GPU of their own process only: others of the machine may be anybody's, and nothing is
said of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "idle_gpus"

_Identity = tuple[str, int]


@dataclass(frozen=True)
class Limits:
    """GPUs without any work, of the profile's GPUs: a warning from one on."""

    critical: float = 0.40
    # Busy for less than this part of what a GPU of the job usually is, one did next to nothing.
    nearly: float = 0.02


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs without work; none where no GPU worked (`empty_gpu_plane`)."""
    if not context.has_gpu_work:
        return
    limits: Limits = context.thresholds.of(KIND)
    busy = _busy(context)
    usual = _usual(busy, limits.nearly)
    seen: set[_Identity] = set()
    idle, evidence, shares, nearly = [], [], [], 0
    for file in context.files:
        for index, gpu in enumerate(file.gpus):
            identity = _identity(file, gpu.device.id)
            if identity in seen or (busy[identity] > 0 and busy[identity] >= limits.nearly * usual):
                continue
            seen.add(identity)
            nearly += busy[identity] > 0
            idle.append(ref(file, index))
            shares.append(1 - busy[identity] / usual if usual else 1.0)
            window = file.window
            if window is not None:
                what = Phrase(f"report.evidence.{'few_events' if busy[identity] else 'no_events'}")
                evidence.append(Evidence(file.label, gpu.device.id, window.start, window.end, None, None, what))
    if not idle:
        return
    facts = {
        "gpus": context.names(idle),
        "count": len(idle),
        "total": len(busy),
        "nearly": nearly,
        "least": limits.nearly,
    }
    explanation = [Phrase(f"findings.{KIND}.explanation", {**facts, "count": len(idle) - nearly})]
    if nearly:
        explanation = [*(explanation if len(idle) > nearly else []), Phrase(f"findings.{KIND}.nearly", facts)]
    yield Finding(
        kind=KIND,
        severity="critical" if len(idle) / len(busy) >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.{'title_nearly' if nearly else 'title'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "distribute@", "profiled_all", "visible_devices"),
        gpus=tuple(idle),
        share=fmean(shares),
        evidence=tuple(evidence[: context.thresholds.max_evidence]),
    )


def _busy(context: Context) -> dict[_Identity, int]:
    """How long each GPU was busy in the whole recording, over all processes that used it."""
    busy: dict[_Identity, int] = {}
    for file in context.files:
        for gpu in file.gpus:
            # a picosecond for events that take no time: such a GPU was used
            used = max(gpu.busy, int(gpu.worked))
            identity = _identity(file, gpu.device.id)
            busy[identity] = busy.get(identity, 0) + used
    return busy


def _usual(busy: dict[_Identity, int], least: float) -> float:
    """How long a GPU that works is busy."""
    longest = max(busy.values(), default=0)
    return float(median(value for value in busy.values() if value >= least * longest)) if longest else 0.0


def _identity(file: FileFacts, number: int) -> _Identity:
    return file.host or file.label, number


RULE = Rule(
    kind=KIND,
    order=210,
    about="run",
    cost="none",
    reads=("gpus",),
    thresholds=Limits(),
    check=check,
)
