"""GPUs that hardly work, as far as telemetry alone can tell.

Reads: NVML's utilization while training ran, without a profile. NVML does not know why a GPU idles, so this
names no cause: it says that a profile is the next step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.rules.gpu_unused import without_work
from tb_gpu_doctor.diagnosis.rules.training_hang import hang_of
from tb_gpu_doctor.diagnosis.telemetry_gpus import names, ref, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.load import Load, active_window, measure, stretches_beside

KIND = "low_utilization"
# From this difference on GPUs are told one by one.
_DIFFERENT = 0.05


@dataclass(frozen=True)
class Limits:
    """Mean utilization, without a profile."""

    # From so much idle time on it pays to look for the reason.
    warning: float = 0.60
    critical: float = 0.20
    # From this utilization on it is said what it does not mean.
    full: float = 0.95


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs below the threshold; the rule keeps quiet beside a profile, which knows better."""
    if context.files:
        return
    limits: Limits = context.thresholds.of(KIND)
    elsewhere = {id(gpu) for gpu, _ in without_work(context)}  # what another finding says
    found = [
        (gpu, load) for gpu, load in loads(context) if load.utilization < limits.warning and id(gpu) not in elsewhere
    ]
    if not found:
        return
    gpus = [gpu for gpu, _ in found]
    mean = fmean(load.utilization for _, load in found)
    facts = {"gpus": names(context, gpus), "used": mean, "idle": 1 - mean, "count": len(gpus)}
    # What ran beside a log, and whether it was a training, nobody has noted.
    is_log = all(gpu.recording.is_log for gpu in gpus)
    explanation = [Phrase(f"findings.{KIND}.{'explanation_log' if is_log else 'explanation'}", facts)]
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
        severity="critical" if mean < limits.critical and not is_log else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "profile", "profile_keras", "fewer_gpus"),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def loads(context: Context) -> list[tuple[GpuTelemetry, Load]]:
    """The load of every GPU of a recording while any of them trained."""
    return context.once(_loads)


def _loads(context: Context) -> list[tuple[GpuTelemetry, Load]]:
    found = []
    for recording in context.telemetry.recordings:
        gpus = [gpu for gpu in context.telemetry.gpus if gpu.recording is recording]
        window = active_window(tuple(gpu.series for gpu in gpus), context.thresholds.telemetry_busy_percent)
        hang = hang_of(context, recording)
        if window is not None and hang is not None:
            # What the GPUs do while training hangs says nothing of how it uses them.
            since = hang[0].since_ns
            window = (window[0], since) if since > window[0] else None
        if window is None:
            continue
        beside = stretches_beside(recording.spans)
        for gpu in gpus:
            load = measure(gpu.series, context.thresholds.telemetry_busy_percent, beside, window)
            if load is not None and load.seconds > 0 and len(gpu.series) >= context.thresholds.telemetry_min_samples:
                found.append((gpu, load))
    return found


RULE = Rule(
    kind=KIND,
    order=320,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    thresholds=Limits(),
    beside_profile=False,
    metrics=("utilization_percent", "work"),
    check=check,
)
