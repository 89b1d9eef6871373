"""Kernels that can keep only few warps on a multiprocessor, and what limits them.

Reads: the kernel table. Theoretical occupancy is a bound, not a speed: what a change brings
cannot be told, so there is no saving. Matrix, convolution and attention kernels, and whatever else
works on tensor cores, run at low occupancy by design and are remarks at most; communication and
persistent kernels are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.analysis.kernel_families import USED
from tb_gpu_doctor.analysis.occupancy import BLOCK_CHANGE, REGISTERS_CHANGE, SHARED_CHANGE, config_of, next_steps
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.kernel_picks import BY_DESIGN, KernelPick, kernel_evidence, mean_share, picks
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "low_occupancy"


@dataclass(frozen=True)
class Limits:
    """Time in kernels that can keep only few warps on a multiprocessor."""

    # Theoretical occupancy below which a kernel is named.
    low: float = 0.25
    # Time in such kernels, of the window: below it a remark, from it on a warning.
    warning: float = 0.05


def check(context: Context) -> Iterator[Finding]:
    """One finding per limiter."""
    limits: Limits = context.thresholds.of(KIND)
    low = [
        pick
        for pick in picks(context)
        if not pick.row.persistent and pick.row.occupancy is not None and 0 < pick.row.occupancy < limits.low
    ]
    for limiter in sorted({pick.row.limiter or "" for pick in low}):
        group = [pick for pick in low if (pick.row.limiter or "") == limiter]
        # By design or not are two different things to say.
        for by_design in (False, True):
            part = [pick for pick in group if _by_design(pick) == by_design]
            if part:
                yield _finding(context, part, limiter or None, by_design)


def _by_design(pick: KernelPick) -> bool:
    return pick.row.family in BY_DESIGN or pick.row.tensor_cores == USED


def _finding(context: Context, group: list[KernelPick], limiter: str | None, by_design: bool) -> Finding:
    gpus = tuple(sorted({pick.ref for pick in group}))
    share = mean_share(group, lambda pick: pick.window_share)
    worst = max(group, key=lambda pick: pick.window_share)
    names = {pick.row.name for pick in group}
    facts = {
        "gpus": context.names(gpus),
        "share": share,
        "count": len(names),
        "name": worst.row.name,
        "occupancy": worst.row.occupancy,
        "registers": worst.row.registers,
        "shared": (worst.row.static_shared_bytes or 0) + (worst.row.dynamic_shared_bytes or 0),
        "threads": worst.threads,
    }
    key = f"findings.{KIND}"
    explanation = [Phrase(f"{key}.explanation", facts), Phrase(f"{key}.causes.{limiter or 'unknown'}", facts)]
    explanation += _next_step(worst)
    if worst.row.occupancy_differs and worst.row.recorded_occupancy is not None:
        facts["recorded"] = worst.row.recorded_occupancy
        explanation.append(Phrase(f"{key}.differs", facts))
    if by_design:
        explanation.append(Phrase(f"{key}.{'tensor_cores' if worst.row.tensor_cores == USED else 'by_design'}", facts))
    advice = {
        "registers": ("fewer_registers", "find_op", "fuse@"),
        "shared_memory": ("less_shared", "find_op"),
        "block_size": ("larger_blocks", "find_op", "fuse@"),
        "blocks": ("larger_blocks", "find_op", "fuse@"),
        None: ("find_op", "fuse@"),
    }.get(limiter, ("find_op",))
    limits: Limits = context.thresholds.of(KIND)
    warn = not by_design and share >= limits.warning
    return Finding(
        kind=KIND,
        severity="warning" if warn else "info",
        title=Phrase(f"{key}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *(("leave", "find_op") if by_design else advice)),
        gpus=gpus,
        cause=limiter,
        share=share,
        evidence=kernel_evidence(context, group),
    )


def _next_step(pick: KernelPick) -> list[Phrase]:
    """The nearest step up the staircase of the worst kernel, where it can be computed and there is one."""
    device, row = pick.file.gpus[pick.row.device].device, pick.row
    capability = device.compute_capability if device.is_nvidia else None
    config = config_of(capability, row.registers, row.shared_bytes, row.block_threads)
    steps = () if config is None else next_steps(config)
    if not steps:
        return []
    step = steps[0]
    facts: dict[str, float] = {"better": step.occupancy, "blocks": step.active_blocks}
    names = {REGISTERS_CHANGE: "registers", SHARED_CHANGE: "shared", BLOCK_CHANGE: "threads"}
    for change in step.changes:
        facts[f"{names[change.what]}_from"], facts[f"{names[change.what]}_to"] = change.before, change.after
    which = step.changes[0].what if len(step.changes) == 1 else "both"
    return [Phrase(f"findings.{KIND}.next.{which}", facts)]


RULE = Rule(
    kind=KIND,
    order=220,
    about="run",
    cost="spent",
    reads=("kernels", "occupancy"),
    needs=("occupancy",),
    thresholds=Limits(),
    of_kernels=True,
    remarks_last=True,
    check=check,
)
