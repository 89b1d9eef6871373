"""GPUs that compute nothing while data moves between them.

Reads: exposed communication without the time inside collectives in which GPUs only waited for late
ones (that is `imbalance`). Where a GPU's collectives cannot be matched with those of others, nobody can
tell waiting from moving: then it is a warning at most, with its size, as it is where files of some ranks are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean

from tb_gpu_doctor.analysis.job import Exposed
from tb_gpu_doctor.diagnosis.context import Context, Gpu, evidence_at
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "communication_bound"
_MAX_RANKS = 16


@dataclass(frozen=True)
class Limits:
    """Moving data between GPUs while nothing is computed, waiting for late ones not counted, of a GPU's window."""

    warning: float = 0.10
    critical: float = 0.30


@dataclass(frozen=True)
class _Gpu:
    gpu: Gpu
    wall: int
    compute: int
    exposed: Exposed


def check(context: Context) -> Iterator[Finding]:
    """One finding over all hosts; a warning at most where waiting and moving cannot be told apart."""
    limits: Limits = context.thresholds.of(KIND)
    gpus = list(_gpus(context))
    moving = [gpu for gpu in gpus if gpu.exposed.moving >= limits.warning * gpu.wall]
    if moving:
        share = fmean(gpu.exposed.moving / gpu.wall for gpu in moving)
        severity = "critical" if share >= limits.critical else "warning"
        if context.job.missing_ranks:
            severity = "warning"  # what looks like moving may be waiting for a rank whose file is missing
        yield _finding(context, moving, share, severity, "explanation")
        return
    unsplit = [gpu for gpu in gpus if gpu.exposed.moving + gpu.exposed.unsplit >= limits.warning * gpu.wall]
    if unsplit:
        share = fmean((gpu.exposed.moving + gpu.exposed.unsplit) / gpu.wall for gpu in unsplit)
        yield _finding(context, unsplit, share, "warning", "unsplit")


def _gpus(context: Context) -> Iterator[_Gpu]:
    bubbles = {(stage.which, stage.device): each.bubble for each in context.pipelines for stage in each.stages}
    for gpu in context.working_gpus:
        exposed = context.job.exposed.get((gpu.which, gpu.index))
        if exposed is not None:
            # what a pipeline waits as it fills and drains is `pipeline_bubble`
            bubble = min(exposed.unsplit, int(bubbles.get((gpu.which, gpu.index), 0.0) * gpu.account.wall))
            exposed = replace(exposed, unsplit=exposed.unsplit - bubble, waiting=exposed.waiting + bubble)
            yield _Gpu(gpu, gpu.account.wall, gpu.account.compute, exposed)


def _finding(context: Context, found: list[_Gpu], share: float, severity: str, sentence: str) -> Finding:
    waiting = fmean(gpu.exposed.waiting / gpu.wall for gpu in found)
    facts = {
        "gpus": context.names([gpu.gpu.ref for gpu in found]),
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
        if sentence == "explanation" and not lost and (factor := gpu.gpu.file.per_step) is not None
    ]
    return Finding(
        kind=KIND,
        severity=severity,  # type: ignore[arg-type]
        title=Phrase(f"findings.{KIND}.{'title' if sentence == 'explanation' else 'title_unsplit'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "overlap@", "less_often@", "fewer_bytes@", "topology"),
        gpus=tuple(sorted(gpu.gpu.ref for gpu in found)),
        share=share,
        saving_ps_per_step=fmean(gains) if gains else None,
        evidence=_evidence(context, found),
    )


def _evidence(context: Context, found: list[_Gpu]) -> tuple[Evidence, ...]:
    """The longest communication of each GPU, a few per GPU."""
    most = context.thresholds.max_evidence
    items = []
    for one in found[:most]:
        gpu, exposed = one.gpu, one.gpu.facts.exposed
        places = exposed.longest[: max(1, most // len(found))] if exposed is not None else ()
        items += [evidence_at(gpu.file, gpu.index, place) for place in places]
    items.sort(key=lambda item: item.start - item.end)
    return tuple(items[:most])


RULE = Rule(
    kind=KIND,
    order=200,
    about="run",
    cost="lost",
    reads=("collectives", "steps"),
    thresholds=Limits(),
    tells=("communication",),
    check=check,
)
