"""GPUs that wait for copies.

Reads: copies that no kernel hides, idle time during blocking copy calls, who asked for the copies, and from
which kind of host memory. Copies that belong to an op on the CPU are that op's (`op_placement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tb_gpu_doctor.analysis.copy_facts import CopiesOfOp
from tb_gpu_doctor.diagnosis.context import Context, evidence_at
from tb_gpu_doctor.diagnosis.losses import CopyLoss, cost_per_step, transfer_loss
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "transfer_bound"
_DIRECTIONS = {
    "h2d": "h2d",
    "d2h": "d2h",
    "d2d": "d2d",
    "none": "memset",
}
# Copies smaller than this cost their call, not their bytes.
_SMALL_BYTES = 65_536
# From here on the waiting inside calls is worth a sentence of its own.
_WAITS = 0.01
_WORTH_SHOWING = 0.05


@dataclass(frozen=True)
class Limits:
    """Copies that nothing hides, and idle time during blocking copy calls, of a GPU's window."""

    # xprof's own for output: 5 / 20 %.
    warning: float = 0.05
    critical: float = 0.15
    # Without the step that loses most, the others must still lose this part of the first of these.
    recurs: float = 0.50


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    limits: Limits = context.thresholds.of(KIND)
    loss = transfer_loss(context)
    if loss is None:
        return
    groups = _groups(loss)
    facts = {"gpus": context.names(loss.refs), "share": loss.share, "exposed": loss.exposed, "waited": loss.waited}
    waits = "explanation_waits" if loss.waited >= _WAITS else "explanation"
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            Phrase(f"findings.{KIND}.{waits}", facts),
            *_what(groups),
            *_memory(loss),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, *_advice(context, groups)),
        gpus=tuple(sorted(loss.refs)),
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=_evidence(context, loss),
    )


def _groups(loss: CopyLoss) -> list[CopiesOfOp]:
    """What was copied, the most expensive first; the same over several GPUs as one."""
    found: dict[tuple[str, str], CopiesOfOp] = {}
    for gpu in loss.gpus:
        for group in gpu.facts.copies.by_op if gpu.facts.copies is not None else ():
            key = (group.direction, group.op)
            known = found.get(key)
            found[key] = group
            if known is not None:
                found[key] = replace(
                    known,
                    count=known.count + group.count,
                    size_bytes=known.size_bytes + group.size_bytes,
                    time=known.time + group.time,
                    exposed=known.exposed + group.exposed,
                    waited=known.waited + group.waited,
                )
    return sorted(found.values(), key=lambda group: -(group.exposed + group.waited))


def _what(groups: Sequence[CopiesOfOp]) -> Iterator[Phrase]:
    """The copies that cost most: direction, who asked for them, how many, how large, how fast."""
    if not groups:
        return
    worst = groups[0]
    facts = {
        "direction": Phrase(f"findings.{KIND}.directions.{_DIRECTIONS.get(worst.direction, 'other')}"),
        "name": worst.longest.what,
        "op": worst.op,
        "count": worst.count,
    }
    if worst.size_bytes > 0 and worst.time > 0:
        facts["each"] = worst.size_bytes / worst.count
        facts["rate"] = worst.size_bytes / worst.time * 1e3  # bytes per picosecond to GB per second
        yield Phrase(f"findings.{KIND}.most_sized", facts)
    else:
        yield Phrase(f"findings.{KIND}.most", facts)


def _memory(loss: CopyLoss) -> Iterator[Phrase]:
    """How much of it comes from memory that is not page-locked, and how many calls block."""
    copies = [known for gpu in loss.gpus if (known := gpu.facts.copies) is not None]
    exposed, pageable = sum(known.host_exposed for known in copies), sum(known.host_pageable for known in copies)
    blocking, count = sum(known.host_blocking for known in copies), sum(known.host_count for known in copies)
    if exposed > 0 and pageable > 0:
        yield Phrase(f"findings.{KIND}.pageable", {"share": pageable / exposed})
    if blocking:
        yield Phrase(f"findings.{KIND}.blocking", {"blocking": blocking, "count": count})


def _advice(context: Context, groups: Sequence[CopiesOfOp]) -> Iterator[str]:
    total = sum(group.exposed + group.waited for group in groups)
    by_direction: dict[str, int] = {}
    for group in groups:
        by_direction[group.direction] = by_direction.get(group.direction, 0) + group.exposed + group.waited
    # the larger part first, what hardly counts not at all
    for direction in sorted(by_direction, key=lambda key: -by_direction[key]):
        if by_direction[direction] < 0.2 * total:
            continue
        if direction == "d2h":
            yield from ("fetch_less@", "fetch_async@jax")
        elif direction == "d2d":
            yield from ("layouts", "donate@jax")
        elif direction != "none":
            yield from ("prefetch_device@", "small_types@", "pinned@")
    large = [group for group in groups if group.exposed + group.waited >= 0.2 * total]
    if any(0 < group.size_bytes < _SMALL_BYTES * group.count for group in large):
        yield "fewer_copies@"
    yield "keep_on_gpu"


def _evidence(context: Context, loss: CopyLoss) -> tuple[Evidence, ...]:
    """The longest copy of each of the groups, the most expensive first."""
    found = []
    for gpu in loss.gpus:
        for group in gpu.facts.copies.by_op if gpu.facts.copies is not None else ():
            cost = group.exposed + group.waited
            if cost > 0:
                what = Phrase(f"findings.{KIND}.copy_for", {"name": group.longest.what, "op": group.op})
                found.append((cost, evidence_at(gpu.file, gpu.index, group.longest, what)))
    found.sort(key=lambda item: -item[0])
    # what costs next to nothing beside the worst is no evidence
    found = [item for item in found if item[0] >= _WORTH_SHOWING * found[0][0]]
    return tuple(evidence for _, evidence in found[: context.thresholds.max_evidence])


RULE = Rule(
    kind=KIND,
    order=130,
    about="run",
    cost="lost",
    reads=("idle_causes", "copies", "host_events", "steps"),
    thresholds=Limits(),
    tells=("transfer", "sync", "launch"),
    check=check,
)
