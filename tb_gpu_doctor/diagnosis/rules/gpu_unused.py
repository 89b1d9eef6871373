"""Steps run, and no GPU works: training takes place on the CPU.

Reads: NVML's utilization from the first training step to the last, without a profile, which would show it better.
What the framework holds of the GPU's memory is no sign of work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import names, ref
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.progress import utilization_while_stepping

KIND = "gpu_unused"
# Below this part of the time nothing of the training runs on the GPU; above it a little does.
_NOTHING = 0.02
_CHECKS = {"tensorflow": "check_tensorflow", "jax": "check_jax", "torch": "check_torch"}


@dataclass(frozen=True)
class Limits:
    """When training counts as one that uses no GPU."""

    # Mean utilization of every GPU of the process while it steps.
    utilization: float = 0.10
    # Less tells nothing: a process may begin on the CPU.
    steps: int = 10
    seconds: float = 5.0
    # Of long steps a few are enough, where they took this long together.
    few_steps: int = 3
    long_seconds: float = 60.0


def check(context: Context) -> Iterator[Finding]:
    """One finding for all processes whose GPUs did nothing; silent with a profile."""
    if context.files:
        return
    found = without_work(context)
    if not found:
        return
    recordings = list({id(gpu.recording): gpu.recording for gpu, _ in found}.values())
    gpus = [gpu for gpu, _ in found]
    used = max(share for _, share in found)
    everyone = len(gpus) == len(context.telemetry.gpus)
    facts = {
        "steps": max(len(recording.steps.number) for recording in recordings),
        "gpus": names(context, gpus),
        "used": used,
    }
    hardly = used >= _NOTHING
    explanation = [Phrase(f"findings.{KIND}.{'explanation_hardly' if hardly else 'explanation'}", facts)]
    frameworks = {name for recording in recordings for name in _loaded(recording.environment)}
    explanation.append(Phrase(f"findings.{KIND}.reasons"))
    wanted = [check for name, check in _CHECKS.items() if not frameworks or name in frameworks]
    yield Finding(
        kind=KIND,
        severity="critical",
        title=Phrase(f"findings.{KIND}.{'title_hardly' if hardly else 'title' if everyone else 'title_some'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *wanted, "environment", "visible", "placed"),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def without_work(context: Context) -> list[tuple[GpuTelemetry, float]]:
    """The GPUs, with their utilization, of processes that stepped while none of their GPUs worked."""
    limits: Limits = context.thresholds.of(KIND)
    found = []
    for recording in context.telemetry.recordings:
        gpus = [gpu for gpu in context.telemetry.gpus if gpu.recording is recording]
        known = [(gpu, utilization_while_stepping(gpu.series, recording)) for gpu in gpus]
        count = len(recording.steps.number)
        least = limits.seconds if count >= limits.steps else limits.long_seconds
        if not gpus or count < limits.few_steps:
            continue
        loads = [(gpu, load[0]) for gpu, load in known if load is not None and load[1] >= least]
        if len(loads) == len(known) and all(load <= limits.utilization for _, load in loads):
            found += loads
    return found


def _loaded(environment: object) -> list[str]:
    """Frameworks that the process had loaded, by the environment report."""
    frameworks = environment.get("frameworks") if isinstance(environment, dict) else None
    return [name for name in _CHECKS if isinstance(frameworks, dict) and name in frameworks]


RULE = Rule(
    kind=KIND,
    order=290,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    thresholds=Limits(),
    beside_profile=False,
    metrics=("utilization_percent", "steps"),
    check=check,
)
