"""GPUs that run below their clocks because power is short.

Reads: NVML's reasons together with the clocks, the power limit and its default (`telemetry.throttling`). A large
GPU at its own full power is no fault: it is remarked. A limit that was lowered, and the power brake of the
server, are; so is a slowdown by the hardware of which the driver does not tell whether heat or power is behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import driver_name, measured_gpus, names, ref, since, worst_first
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.series import column, highest
from tb_gpu_doctor.telemetry.throttling import Throttling, measure

KIND = "power_throttle"
# Where the driver does not tell the usual limit.
_USUAL_WATTS = 400.0
_TITLES = {"hardware": "title_hardware", "full_power": "title_full_power"}
# A limit counts as lowered below this part of its default.
_LOWERED = 0.99


def check(context: Context) -> Iterator[Finding]:
    """One finding for each cause: the power brake, the hardware for no told reason, a lowered limit, full power."""
    found = [
        (gpu, throttling)
        for gpu in measured_gpus(context)
        for throttling in measure(gpu.series, context.thresholds.telemetry_busy_percent)
        if throttling.kind in ("power", "other") and throttling.share >= context.thresholds.throttle_warning
    ]
    for cause in ("power_brake", "hardware", "lowered_limit", "full_power"):
        some = [(gpu, throttling) for gpu, throttling in found if _cause(throttling, _usual(context, gpu)) == cause]
        if not some:
            continue
        by_gpu = {id(gpu): throttling for gpu, throttling in some}
        gpus = [gpu for gpu, _ in some]
        worst = max(throttling.share for _, throttling in some)
        facts = {"gpus": names(context, gpus), "share": worst, "count": len(gpus)}
        is_known = all(throttling.default_limit_watts for _, throttling in some)
        others = {"lowered_limit": "lowered_limit_peers", "full_power": "full_power_unknown"}
        explanation = [Phrase(f"findings.{KIND}.causes.{cause if is_known else others.get(cause, cause)}", facts)]
        for gpu in worst_first([(gpu, throttling.share) for gpu, throttling in some]):
            throttling = by_gpu[id(gpu)]
            one = {
                "gpus": names(context, [gpu]),
                "since": since(gpu, throttling.since_step, throttling.since_ns),
                "share": throttling.share,
                "power": throttling.power_watts,
                "limit": throttling.limit_watts,
                "default": _usual(context, gpu),
                "clock": throttling.clock_mhz,
                "top": throttling.max_clock_mhz,
            }
            explanation.append(Phrase(f"findings.{KIND}.{'lasting' if throttling.lasting else 'at_times'}", one))
            if cause == "lowered_limit":
                told = "limit" if throttling.default_limit_watts else "limit_peers"
                explanation.append(Phrase(f"findings.{KIND}.{told}", one))
            if throttling.clock_mhz is not None and throttling.max_clock_mhz is not None:
                explanation.append(Phrase(f"findings.{KIND}.clock", one))
        serious = cause != "full_power"
        advice = {
            "power_brake": ("brake", "watch"),
            "hardware": ("look_at_hardware", "brake", "watch"),
            "lowered_limit": ("raise_limit", "watch"),
            "full_power": ("accept",),
        }
        yield Finding(
            kind=KIND,
            severity=("critical" if worst >= context.thresholds.throttle_critical else "warning")
            if serious
            else "info",
            title=Phrase(f"findings.{KIND}.{_TITLES.get(cause, 'title')}", facts),
            explanation=tuple(explanation),
            advice=context.advice(KIND, *advice[cause], params=_command(context, [gpu for gpu, _ in some])),
            gpus=tuple(sorted(map(ref, gpus))),
            cause=cause,
        )


def _usual(context: Context, gpu: GpuTelemetry) -> float | None:
    """The limit that a GPU should have: its default, else the highest of its kind beside it, None where nobody says."""
    default = gpu.series.facts.limits.get("power_limit_default_watts")
    name = gpu.series.facts.name
    if default or not name:
        return default
    beside = [other.series for other in context.telemetry.gpus if other.recording is gpu.recording]
    limits = [column(series, "power_limit_watts") for series in beside if series.facts.name == name]
    return max((highest(values) for values in limits if values is not None), default=None)


def _cause(throttling: Throttling, usual: float | None) -> str:
    if throttling.kind == "other":
        return "hardware"
    if "power_brake" in throttling.reasons:
        return "power_brake"
    limit = throttling.limit_watts
    return "lowered_limit" if limit and usual and limit < _LOWERED * usual else "full_power"


def _command(context: Context, gpus: Sequence[GpuTelemetry]) -> dict[str, str]:
    """The GPUs as the driver counts them, and their usual limit."""
    usual = min(_usual(context, gpu) or _USUAL_WATTS for gpu in gpus)
    return {"smi": driver_name(gpus), "watts": str(round(usual))}


RULE = Rule(
    kind=KIND,
    order=310,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    metrics=("clock_event_reasons", "work"),
    check=check,
)
