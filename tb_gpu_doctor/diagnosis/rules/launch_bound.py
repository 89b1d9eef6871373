"""GPUs that run out of work because the host cannot launch it fast enough.

Reads: idle time charged to ``launch``, how many launches there were and how short their work is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpu_doctor.analysis.vocabulary import Cause
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.idle import IdleLoss, cost_per_step, gap_evidence, idle_loss
from tb_gpu_doctor.diagnosis.model import Finding, Phrase

KIND = "launch_bound"


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold that wait again and again."""
    limits = context.thresholds
    loss = idle_loss(context, Cause.LAUNCH, limits.launch_warning, limits.launch_min_gaps)
    if loss is None:
        return
    gpus = tuple(account.ref for account in loss.accounts)
    facts = {"gpus": context.names(gpus), "share": loss.share}
    few = loss.half_gaps < limits.launch_spread_gaps
    if few:
        pauses = {**facts, "half": round(loss.half_gaps), "longest": loss.longest_gap}
        explanation = Phrase(f"findings.{KIND}.explanation_few", pauses)
    else:
        explanation = Phrase(f"findings.{KIND}.explanation", {**facts, "gaps": loss.gaps, "gap": loss.typical_gap})
    yield Finding(
        kind=KIND,
        severity="critical" if loss.share >= limits.launch_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(
            explanation,
            *_launches(loss),
            *cost_per_step(context, loss),
        ),
        advice=context.advice(
            KIND,
            *(("warm_up",) if few else ()),
            "compile@",
            "keras_steps@tensorflow",
            "scan@jax",
            "graphs@",
            "batch",
            "no_sync@",
            "fuse_optimizer@jax",
        ),
        gpus=gpus,
        share=loss.share,
        saving_ps_per_step=loss.saving,
        evidence=gap_evidence(context, loss.accounts, Cause.LAUNCH),
    )


def _launches(loss: IdleLoss) -> Iterator[Phrase]:
    """How many launches, and how long their kernels run."""
    launches, kernels = [], []
    for account in loss.accounts:
        for stats in account.profile.analysis.launches:
            if stats.device == account.accounting.device and stats.launches > 0:
                per_step = account.profile.per_step
                launches.append(stats.launches * per_step if per_step is not None else float(stats.launches))
                kernels.append(stats.median_kernel)
    if launches:
        per_step_known = all(account.profile.per_step is not None for account in loss.accounts)
        yield Phrase(
            f"findings.{KIND}.{'launches_per_step' if per_step_known else 'launches'}",
            {"launches": float(np.mean(launches)), "kernel": float(np.median(kernels))},
        )
