"""GPUs that hardly work, as far as telemetry alone can tell.

Reads: NVML's utilization while training ran, without a profile. NVML does not know why a GPU idles, so this
names no cause: it says that a profile is the next step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.telemetry_gpus import names, ref, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Load, active_window, measure

KIND = "low_utilization"
# From this difference on GPUs are told one by one.
_DIFFERENT = 0.05


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs below the threshold; silent with a profile, which knows better."""
    if context.profiles:
        return
    limits = context.thresholds
    known = loads(context)
    found = [(gpu, load) for gpu, load in known if load.utilization < limits.utilization_warning]
    if not found:
        return
    gpus = [gpu for gpu, _ in found]
    mean = float(np.mean([load.utilization for _, load in found]))
    facts = {"gpus": names(context, gpus), "used": mean, "idle": 1 - mean, "count": len(gpus)}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    unused = [gpu for gpu, load in found if not load.ever_busy]
    if unused:
        explanation.append(Phrase(f"findings.{KIND}.never", {"gpus": names(context, unused), "count": len(unused)}))
    by_gpu = {id(gpu): load for gpu, load in found if load.ever_busy}
    used = [load.utilization for load in by_gpu.values()]
    if used and max(used) - min(used) >= _DIFFERENT:
        rows = [(gpu, -by_gpu[id(gpu)].utilization) for gpu in gpus if id(gpu) in by_gpu]
        for gpu in worst_first(rows):
            one = {"gpus": names(context, [gpu]), "used": by_gpu[id(gpu)].utilization}
            explanation.append(Phrase(f"findings.{KIND}.one", one))
    explanation.append(Phrase(f"findings.{KIND}.no_cause"))
    yield Finding(
        kind=KIND,
        severity="critical" if mean < limits.utilization_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "profile", "profile_keras", "fewer_gpus"),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def loads(context: Context) -> list[tuple[GpuTelemetry, Load]]:
    """The load of every GPU of a recording while any of them trained."""
    limits = context.thresholds
    found = []
    for recording in context.telemetry.recordings:
        gpus = [gpu for gpu in context.telemetry.gpus if gpu.recording is recording]
        window = active_window(tuple(gpu.series for gpu in gpus), limits.telemetry_busy_percent)
        if window is None:
            continue
        for gpu in gpus:
            load = measure(gpu.series, limits.telemetry_busy_percent, recording.spans, window)
            if load is not None and load.seconds > 0 and len(gpu.series) >= limits.telemetry_min_samples:
                found.append((gpu, load))
    return found
