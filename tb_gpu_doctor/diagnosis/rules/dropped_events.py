"""Events that are not in the file although they happened, so that the numbers are wrong.

Reads: the profile's own warnings and errors, whether its writer stopped at a limit, launches without work, and GPUs
that are silent while all others meet (`analysis.lost_events`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tb_gpu_doctor.analysis.facts import FileFacts
from tb_gpu_doctor.analysis.lost_events import GpuLoss, LostEvents
from tb_gpu_doctor.diagnosis.context import Context, ref
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "dropped_events"
_CAPPED = "capped_export"
_DROPPED = re.compile(
    r"events?[^\n]{0,40} dropped|dropped[^\n]{0,40} events?|activity buffer full"
    r"|Not all CUDA events might|events might be missing",
    re.I,
)
# Of so many GPUs and steps the holes are told one by one.
_MAX_GPUS, _MAX_STEPS = 4, 8


def check(context: Context) -> Iterator[Finding]:
    """One finding for all hosts whose events are not all there."""
    said = _messages(context)
    losses = [(file, file.lost) for file in context.files if file.has_gpu_work and file.lost is not None]
    hosts = dict.fromkeys([*said, *(file.label for file, _ in losses)])
    if not hosts:
        return
    facts = {"hosts": tuple(hosts)}
    explanation = []
    if said:
        explanation = [Phrase(f"findings.{KIND}.explanation", facts), next(iter(said.values()))]
    gpus, evidence = [], []
    for file, lost in losses:
        explanation += _told(context, file, lost)
        known = [gpu for gpu in lost.gpus if gpu.device >= 0]
        gpus += [ref(file, gpu.device) for gpu in known]
        evidence += [_where(file, gpu) for gpu in known]
    if losses:
        explanation.append(Phrase(f"findings.{KIND}.consequence"))
    advice = ("shorter", "more_events@jax", "fewer_launches") if said else ("flush", "alone", "shorter")
    yield Finding(
        kind=KIND,
        severity="warning",
        title=Phrase(f"findings.{KIND}.{'title' if said else 'title_lost'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *advice),
        gpus=tuple(sorted(set(gpus))),
        evidence=tuple(evidence[: context.thresholds.max_evidence]),
    )


def _messages(context: Context) -> dict[str, Phrase]:
    """What the writer of each file says of events that it dropped, by host."""
    said: dict[str, Phrase] = {}
    for file in context.files:
        for message in (*file.warnings, *file.errors):
            if _DROPPED.search(message):
                said.setdefault(file.label, Phrase("report.profiler_said", {"message": message}))
        for note in file.notes:
            if note.code == _CAPPED:
                said.setdefault(file.label, note)
    return said


def _told(context: Context, file: FileFacts, lost: LostEvents) -> Iterator[Phrase]:
    """How much of one file is missing, and where."""
    if lost.lost:
        yield Phrase(f"findings.{KIND}.lost", {"lost": lost.lost, "launches": lost.launches})
    begin = (file.recorded or (0, 0))[0]
    for gpu in lost.gpus[:_MAX_GPUS]:
        refs = (
            [ref(file, gpu.device)]
            if gpu.device >= 0
            else [ref(file, index) for index, known in enumerate(file.gpus) if known.worked]
        )
        facts = {"gpus": context.names(refs), "lost": gpu.lost, "launches": gpu.launches}
        facts |= {"since": gpu.start - begin, "until": gpu.end - begin}
        yield Phrase(f"findings.{KIND}.{gpu.place if gpu.lost else 'silent'}", facts)
    if lost.steps:
        numbers = lost.steps[:_MAX_STEPS]
        facts = {"numbers": numbers, "count": len(lost.steps), "more": len(lost.steps) - len(numbers)}
        yield Phrase(f"findings.{KIND}.{'steps_more' if len(lost.steps) > _MAX_STEPS else 'steps'}", facts)


def _where(file: FileFacts, gpu: GpuLoss) -> Evidence:
    what = Phrase("report.evidence.lost_events", {"count": gpu.lost}) if gpu.lost else Phrase("report.evidence.silent")
    return Evidence(file.label, ref(file, gpu.device).id, gpu.start, gpu.end, None, None, what)


RULE = Rule(
    kind=KIND,
    order=420,
    about="profile",
    cost="none",
    reads=("recording",),
    proves_no_health=True,
    distorts="times",
    check=check,
)
