"""Matrix products and convolutions on the ordinary arithmetic units of a GPU that has tensor cores.

Reads: the kernel table. What a kernel uses is told by its name (`analysis.tensor_cores`); names that tell nothing count
neither way. What a change brings depends on memory as much as on arithmetic, so there is no saving. Silent on GPUs
without tensor cores and on those of which the profile does not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tb_gpu_doctor.analysis.kernel_families import UNKNOWN, UNUSED, USED, takes_tf32
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.kernel_picks import KernelPick, kernel_evidence, picks
from tb_gpu_doctor.diagnosis.model import Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "tensor_cores_unused"
# Where the type could use them as it is, what stands in the way is the shape or the library.
PRECISION, SHAPE = "precision", "shape"


@dataclass(frozen=True)
class Limits:
    """Products of matrices and convolutions on a GPU with tensor cores that do not use them, of the window."""

    info: float = 0.05
    warning: float = 0.20
    # Products whose names do not tell are mentioned from this part of the products' time on.
    unknown: float = 0.20


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs that lose enough."""
    limits: Limits = context.thresholds.of(KIND)
    products: dict[GpuRef, list[KernelPick]] = {}
    for pick in picks(context, least_share=0.0):
        if pick.row.tensor_cores in (USED, UNUSED, UNKNOWN):
            products.setdefault(pick.ref, []).append(pick)
    lost = {ref: _share(own, UNUSED) for ref, own in products.items()}
    affected = sorted(ref for ref, value in lost.items() if value >= limits.info)
    if not affected:
        return
    group = [pick for ref in affected for pick in products[ref] if pick.row.tensor_cores == UNUSED]
    share = fmean(min(1.0, lost[ref]) for ref in affected)
    everything = [pick for ref in affected for pick in products[ref]]
    total = sum(pick.window_share for pick in everything)
    worst = max(group, key=lambda pick: pick.window_share)
    cause = PRECISION if worst.row.data_type == "float32" else SHAPE
    unknown = _share(everything, UNKNOWN) / total if total else 0.0
    facts = {
        "gpus": context.names(affected),
        "share": share,
        "of_products": sum(pick.window_share for pick in group) / total if total else 0.0,
        "unknown": unknown,
        "count": len({pick.row.name for pick in group}),
        "name": worst.row.name,
        "data_type": worst.row.data_type or "float32",
    }
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.causes.{cause}", facts)]
    if unknown >= limits.unknown:
        explanation.append(Phrase(f"{key}.unknown", facts))
    yield Finding(
        kind=KIND,
        severity="warning" if share >= limits.warning else "info",
        title=Phrase(f"{key}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *_advice(cause, worst)),
        gpus=tuple(affected),
        cause=cause,
        share=share,
        evidence=kernel_evidence(context, group),
    )


def _share(group: list[KernelPick], state: str) -> float:
    return sum(pick.window_share for pick in group if pick.row.tensor_cores == state)


def _advice(cause: str, worst: KernelPick) -> tuple[str, ...]:
    if cause == SHAPE:
        return ("multiples", "newer")
    if takes_tf32(worst.file.gpus[worst.row.device].device):
        return ("bfloat16@", "tf32@", "multiples")
    return ("float16@", "loss_scaling@", "multiples")


RULE = Rule(
    kind=KIND,
    order=240,
    about="run",
    cost="spent",
    reads=("kernels", "tensor_cores"),
    needs=("tensor_cores",),
    thresholds=Limits(),
    of_kernels=True,
    check=check,
)
