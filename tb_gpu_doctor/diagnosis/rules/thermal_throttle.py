"""GPUs that slow themselves down because they are too hot.

Reads: NVML's reasons together with the clocks (`telemetry.throttling`). Says: which GPUs, for how much of the time in
which they worked, since which step, how hot, and how slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import driver_name, measured_gpus, names, ref, since, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.throttling import Throttling, measure

KIND = "thermal_throttle"
_LESS_POWER, _USUAL_WATTS = 0.85, 350.0


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs above the threshold."""
    found = [
        (gpu, throttling)
        for gpu in measured_gpus(context)
        for throttling in measure(gpu.series, context.thresholds.telemetry_busy_percent)
        if throttling.kind == "thermal" and throttling.share >= context.thresholds.throttle_warning
    ]
    if not found:
        return
    by_gpu = {id(gpu): throttling for gpu, throttling in found}
    gpus = [gpu for gpu, _ in found]
    worst = max(throttling.share for _, throttling in found)
    facts = {"gpus": names(context, gpus), "share": worst, "count": len(gpus)}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    for gpu in worst_first([(gpu, throttling.share) for gpu, throttling in found]):
        explanation += describe(context, gpu, by_gpu[id(gpu)])
    yield Finding(
        kind=KIND,
        severity="critical" if worst >= context.thresholds.throttle_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, "cooling", "watch", "lower_limit", params=_command(gpus)),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def describe(context: Context, gpu: GpuTelemetry, throttling: Throttling) -> list[Phrase]:
    """When one GPU was throttled, how hot it was and what that did to its clocks."""
    facts = {
        "gpus": names(context, [gpu]),
        "since": since(gpu, throttling.since_step, throttling.since_ns),
        "share": throttling.share,
        "heat": throttling.temperature_celsius,
        "slowdown": throttling.slowdown_celsius,
        "clock": throttling.clock_mhz,
        "free": throttling.free_clock_mhz,
        "top": throttling.max_clock_mhz,
    }
    phrases = [Phrase(f"findings.{KIND}.{'lasting' if throttling.lasting else 'at_times'}", facts)]
    if throttling.temperature_celsius is not None:
        phrases.append(Phrase(f"findings.{KIND}.{'heat' if throttling.slowdown_celsius else 'heat_only'}", facts))
    if throttling.clock_mhz is not None and throttling.free_clock_mhz is not None:
        phrases.append(Phrase(f"findings.{KIND}.clock", facts))
    elif throttling.clock_mhz is not None and throttling.max_clock_mhz is not None:
        phrases.append(Phrase(f"findings.{KIND}.clock_top", facts))
    return phrases


def _command(gpus: Sequence[GpuTelemetry]) -> dict[str, str]:
    """The hot GPUs as the driver counts them, and the power limit to try: 85 % of the usual one, by tens of watts."""
    usual = min(gpu.series.facts.limits.get("power_limit_default_watts") or _USUAL_WATTS for gpu in gpus)
    return {"smi": driver_name(gpus), "watts": str(round(_LESS_POWER * usual / 10) * 10)}


RULE = Rule(
    kind=KIND,
    order=300,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    metrics=("clock_event_reasons", "work"),
    check=check,
)
