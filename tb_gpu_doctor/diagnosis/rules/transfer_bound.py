"""GPUs that wait for copies.

Reads: copies that no kernel hides, idle time during blocking copy calls, who asked for the copies, and from
which kind of host memory. Copies that belong to an op on the CPU are that op's (`op_placement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tb_gpu_doctor.analysis.transfers import CopyGroup
from tb_gpu_doctor.diagnosis.asking import ask, ask_one
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.copy_loss import CopyLoss
from tb_gpu_doctor.diagnosis.idle import cost_per_step
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.traces.columns import CopyKind

KIND = "transfer_bound"
_DIRECTIONS = {
    CopyKind.H2D: "h2d",
    CopyKind.D2H: "d2h",
    CopyKind.D2D: "d2d",
    CopyKind.NONE: "memset",
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
    loss = context.copied
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
            *_what(loss, groups),
            *_memory(loss),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(KIND, *_advice(context, groups)),
        gpus=tuple(sorted(loss.refs)),
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=_evidence(context, loss),
    )


def _groups(loss: CopyLoss) -> list[CopyGroup]:
    """What was copied, the most expensive first; the same over several GPUs as one."""
    found: dict[tuple[CopyKind, str], CopyGroup] = {}
    for account in loss.accounts:
        transfers = account.profile.analysis.transfers
        for group in transfers.groups if transfers is not None else ():
            if group.device != account.accounting.device or group.direction is CopyKind.P2P:
                continue
            key = (group.direction, group.op)
            known = found.get(key)
            if known is None:
                found[key] = group
            else:
                found[key] = CopyGroup(
                    known.device,
                    known.direction,
                    known.op,
                    known.count + group.count,
                    known.size_bytes + group.size_bytes,
                    known.time + group.time,
                    known.exposed + group.exposed,
                    known.waited + group.waited,
                    known.longest,
                )
    return sorted(found.values(), key=lambda group: -(group.exposed + group.waited))


def _has(account: GpuAccount, group: CopyGroup) -> bool:
    """Whether a group's longest copy ran on this GPU: several files have GPUs of the same number."""
    transfers = account.profile.analysis.transfers
    return account.accounting.device == group.device and any(
        (own.device, own.direction, own.op, own.longest) == (group.device, group.direction, group.op, group.longest)
        for own in (transfers.groups if transfers is not None else ())
    )


def _what(loss: CopyLoss, groups: Sequence[CopyGroup]) -> Iterator[Phrase]:
    """The copies that cost most: direction, who asked for them, how many, how large, how fast."""
    if not groups:
        return
    worst = groups[0]
    owner = next(account for account in loss.accounts if _has(account, worst)).profile
    facts = {
        "direction": Phrase(f"findings.{KIND}.directions.{_DIRECTIONS.get(worst.direction, 'other')}"),
        "name": ask_one(_event_name, owner, worst.longest),
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
    exposed = pageable = blocking = count = 0
    for account in loss.accounts:
        transfers = account.profile.analysis.transfers
        for total in transfers.totals if transfers is not None else ():
            if total.device == account.accounting.device and total.direction in (CopyKind.H2D, CopyKind.D2H):
                exposed += total.exposed
                pageable += total.exposed_pageable
                blocking += total.blocking
                count += total.count
    if exposed > 0 and pageable > 0:
        yield Phrase(f"findings.{KIND}.pageable", {"share": pageable / exposed})
    if blocking:
        yield Phrase(f"findings.{KIND}.blocking", {"blocking": blocking, "count": count})


def _advice(context: Context, groups: Sequence[CopyGroup]) -> Iterator[str]:
    total = sum(group.exposed + group.waited for group in groups)
    by_direction: dict[CopyKind, int] = {}
    for group in groups:
        by_direction[group.direction] = by_direction.get(group.direction, 0) + group.exposed + group.waited
    # the larger part first, what hardly counts not at all
    for direction in sorted(by_direction, key=lambda key: -by_direction[key]):
        if by_direction[direction] < 0.2 * total:
            continue
        if direction is CopyKind.D2H:
            yield from ("fetch_less@", "fetch_async@jax")
        elif direction is CopyKind.D2D:
            yield from ("layouts", "donate@jax")
        elif direction is not CopyKind.NONE:
            yield from ("prefetch_device@", "small_types@", "pinned@")
    large = [group for group in groups if group.exposed + group.waited >= 0.2 * total]
    if any(0 < group.size_bytes < _SMALL_BYTES * group.count for group in large):
        yield "fewer_copies@"
    yield "keep_on_gpu"


def _event_name(profile: HostProfile, row: int) -> str:
    return profile.trace.strings[int(profile.trace.device_events.name[row])]


def _evidence(context: Context, loss: CopyLoss) -> tuple[Evidence, ...]:
    """The longest copy of each of the groups, the most expensive first."""
    answers = ask(_copies, [(account.profile, account.accounting.device) for account in loss.accounts])
    ranked = sorted((item for items in answers for item in items), key=lambda item: -item[0])
    # what costs next to nothing beside the worst is no evidence
    ranked = [item for item in ranked if item[0] >= _WORTH_SHOWING * ranked[0][0]]
    return tuple(evidence for _, evidence in ranked[: context.thresholds.max_evidence])


def _copies(profile: HostProfile, device: int) -> list[tuple[int, Evidence]]:
    """The longest copy of each group of one GPU, with what the group costs."""
    found = []
    transfers = profile.analysis.transfers
    events, host = profile.trace.device_events, profile.trace.host_events
    for group in transfers.groups if transfers is not None else ():
        row, cost = group.longest, group.exposed + group.waited
        if group.device != device or cost <= 0 or group.direction is CopyKind.P2P:
            continue
        thread = None
        called = host.correlation == events.correlation[row] if events.correlation[row] > 0 else None
        if called is not None and called.any():
            thread = profile.trace.threads[int(host.thread[int(called.argmax())])].name
        evidence = Evidence(
            host=profile.label,
            gpu=profile.ref(device).id,
            start=int(events.start[row]),
            end=int(events.end[row]),
            thread=thread,
            step=profile.step_number(row),
            what=Phrase(f"findings.{KIND}.copy_for", {"name": _event_name(profile, row), "op": group.op}),
        )
        found.append((cost, evidence))
    return found


RULE = Rule(
    kind=KIND,
    order=130,
    about="run",
    cost="lost",
    reads=("idle_causes", "copies", "host_events", "steps"),
    thresholds=Limits(),
    check=check,
)
