"""GPUs that compute nothing while data moves between them.

Reads: exposed communication without the time inside collectives in which GPUs only waited for late
ones (that is `imbalance`). Where a GPU's collectives cannot be matched with those of others, nobody can
tell waiting from moving: then it is a remark, as it is where files of some ranks are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.job import Exposed
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.traces.columns import EventClass

KIND = "communication_bound"
_MAX_RANKS = 16


@dataclass(frozen=True)
class Limits:
    """Moving data between GPUs while nothing is computed, waiting for late ones not counted, of a GPU's window."""

    warning: float = 0.10
    critical: float = 0.30


@dataclass(frozen=True)
class _Gpu:
    profile: HostProfile
    device: int
    wall: int
    compute: int
    exposed: Exposed


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts; a remark where waiting and moving cannot be told apart."""
    limits: Limits = context.thresholds.of(KIND)
    gpus = list(_gpus(context))
    moving = [gpu for gpu in gpus if gpu.exposed.moving >= limits.warning * gpu.wall]
    if moving:
        share = float(np.mean([gpu.exposed.moving / gpu.wall for gpu in moving]))
        severity = "critical" if share >= limits.critical else "warning"
        if context.job.missing_ranks:
            severity = "info"  # what looks like moving may be waiting for a rank whose file is missing
        yield _finding(context, moving, share, severity, "explanation")
        return
    unsplit = [gpu for gpu in gpus if gpu.exposed.moving + gpu.exposed.unsplit >= limits.warning * gpu.wall]
    if unsplit:
        share = float(np.mean([(gpu.exposed.moving + gpu.exposed.unsplit) / gpu.wall for gpu in unsplit]))
        yield _finding(context, unsplit, share, "info", "unsplit")


def _gpus(context: Context) -> Iterator[_Gpu]:
    for which, profile in enumerate(context.profiles):
        for account in profile.analysis.accounting:
            exposed = context.job.exposed.get((which, account.device))
            if exposed is not None and account.wall > 0:
                yield _Gpu(profile, account.device, account.wall, account.compute, exposed)


def _finding(context: Context, found: list[_Gpu], share: float, severity: str, sentence: str) -> Finding:
    waiting = float(np.mean([gpu.exposed.waiting / gpu.wall for gpu in found]))
    facts = {
        "gpus": context.names([gpu.profile.ref(gpu.device) for gpu in found]),
        "share": share,
        "waiting": waiting,
    }
    explanation = [Phrase(f"findings.{KIND}.{sentence}", facts)]
    if sentence == "explanation" and waiting > 0.005:
        explanation.append(Phrase(f"findings.{KIND}.waiting", facts))
    lost = context.job.missing_ranks
    if lost:
        some = tuple(map(str, lost[:_MAX_RANKS])) + (("…",) if len(lost) > _MAX_RANKS else ())
        explanation.append(Phrase(f"findings.{KIND}.missing", {"ranks": some, "count": len(lost)}))
    bandwidth = context.job.bandwidth
    if bandwidth is not None:
        rate = {"rate": bandwidth.bytes_per_s / 1e9, "count": bandwidth.collectives, "size": bandwidth.size_bytes}
        explanation.append(Phrase(f"findings.{KIND}.bandwidth", rate))
    # What cannot be told apart may be waiting, which no change to the communication mends.
    gains = [
        min(gpu.exposed.moving, gpu.compute) * factor
        for gpu in found
        if sentence == "explanation" and not lost and (factor := gpu.profile.per_step) is not None
    ]
    return Finding(
        kind=KIND,
        severity=severity,  # type: ignore[arg-type]
        title=Phrase(f"findings.{KIND}.{'title' if sentence == 'explanation' else 'title_unsplit'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "overlap@", "less_often@", "fewer_bytes@", "topology"),
        gpus=tuple(sorted(gpu.profile.ref(gpu.device) for gpu in found)),
        share=share,
        saving_ps_per_step=float(np.mean(gains)) if gains else None,
        evidence=_evidence(context, found),
    )


def _evidence(context: Context, found: list[_Gpu]) -> tuple[Evidence, ...]:
    """The longest communication of each GPU, a few per GPU."""
    most = context.thresholds.max_evidence
    calls = [(gpu.profile, gpu.device, max(1, most // len(found))) for gpu in found[:most]]
    items = sorted((item for items in ask(_longest, calls) for item in items), key=lambda item: item.start - item.end)
    return tuple(items[:most])


def _longest(profile: HostProfile, device: int, most: int) -> list[Evidence]:
    """The longest communication of one GPU."""
    events, window = profile.trace.device_events, profile.analysis.window
    rows = np.arange(*events.of_device(device).indices(len(events)))
    rows = rows[events.klass[rows] == EventClass.COMMUNICATION]
    if window is not None:
        rows = rows[(events.start[rows] < window.end) & (events.end[rows] > window.start)]
    identity, items = profile.trace.devices[device].id, []
    for row in rows[np.argsort(-events.duration[rows], kind="stable")][:most].tolist():
        name, number = profile.trace.strings[int(events.name[row])], profile.step_number(row)
        items.append(
            Evidence(profile.label, identity, int(events.start[row]), int(events.end[row]), None, number, name)
        )
    return items


RULE = Rule(
    kind=KIND,
    order=200,
    about="run",
    cost="lost",
    reads=("collectives", "steps"),
    thresholds=Limits(),
    check=check,
)
