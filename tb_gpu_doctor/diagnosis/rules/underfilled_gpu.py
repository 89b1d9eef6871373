"""Kernels with fewer blocks than the GPU has multiprocessors, so that part of the chip rests.

Reads: the kernel table. Communication chooses its grid by design and never counts. Persistent kernels start a block
a multiprocessor, less some that they leave to others; with far fewer there was no work for more. Kernels that run side
by side fill the chip together, so their time is scaled down to the time in which any of them ran. How much larger a
grid would have to be is known from one profile; from which batch size on it is so large, only from two
(`analysis.filling.grid_scaling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.kernel_picks import KernelPick, kernel_evidence, mean_share, picks
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "underfilled_gpu"
# A persistent kernel on at least this part of the multiprocessors has taken all that it was given.
_PERSISTENT = 0.75


@dataclass(frozen=True)
class Limits:
    """Time lost in kernels with fewer blocks than multiprocessors (time x empty share of the chip), of the window."""

    info: float = 0.02
    warning: float = 0.10


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs whose kernels leave enough of the chip empty."""
    limits: Limits = context.thresholds.of(KIND)
    small = [
        pick
        for pick in picks(context)
        if pick.row.sm_share is not None and pick.row.sm_share < (_PERSISTENT if pick.row.persistent else 1)
    ]
    lost = {ref: sum(map(_lost, (p for p in small if p.ref == ref))) for ref in {pick.ref for pick in small}}
    affected = sorted(ref for ref, value in lost.items() if value >= limits.info)
    if not affected:
        return
    group = [pick for pick in small if pick.ref in affected]
    share = fmean(min(1.0, lost[ref]) for ref in affected)
    worst = max(group, key=_lost)
    blocks, sms = worst.row.blocks, worst.file.gpus[worst.row.device].device.sm_count
    facts = {
        "gpus": context.names(affected),
        "share": share,
        "busy_share": mean_share(group, lambda pick: pick.window_share),
        "count": len({pick.row.name for pick in group}),
        "name": worst.row.name,
        "blocks": blocks,
        "sms": sms,
    }
    yield Finding(
        kind=KIND,
        severity="warning" if share >= limits.warning else "info",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts), *_to_fill(context, worst)),
        advice=context.advice(KIND, "batch@", "fuse@", "concurrent"),
        gpus=tuple(affected),
        share=share,
        evidence=kernel_evidence(context, group),
    )


def _lost(pick: KernelPick) -> float:
    assert pick.row.sm_share is not None
    return pick.window_share * (1 - pick.row.sm_share)


def _to_fill(context: Context, worst: KernelPick) -> tuple[Phrase, ...]:
    """How much larger the grid would have to be, and with which batch it is, where another profile shows that."""
    blocks, sms, wave = worst.row.blocks, worst.file.gpus[worst.row.device].device.sm_count, worst.row.wave_blocks
    if not blocks or not sms:
        return ()
    key = f"findings.{KIND}"
    facts: dict[str, float] = {"grow": sms / blocks}
    if wave:
        facts["wave"] = wave / blocks
    found = [Phrase(f"{key}.grow_wave" if wave and wave > sms else f"{key}.grow", facts)]
    for scaling in context.scaling:
        if (scaling.name, scaling.op, scaling.blocks) != (worst.row.name, worst.row.op, blocks):
            continue
        if scaling.block_per_sm_batch is None:
            found.append(Phrase(f"{key}.batch_fixed", {}))
        elif scaling.full_wave_batch is None or scaling.full_wave_batch <= scaling.block_per_sm_batch:
            found.append(Phrase(f"{key}.batch", {"batch": scaling.block_per_sm_batch}))
        else:
            batches = {"batch": scaling.block_per_sm_batch, "wave_batch": scaling.full_wave_batch}
            found.append(Phrase(f"{key}.batch_wave", batches))
        break
    return tuple(found)


RULE = Rule(
    kind=KIND,
    order=230,
    about="run",
    cost="lost",
    reads=("kernels", "multiprocessors"),
    needs=("multiprocessors",),
    thresholds=Limits(),
    of_kernels=True,
    check=check,
)
