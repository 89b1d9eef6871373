"""GPUs of the profile that did nothing while others worked.

Reads: devices without a single event beside devices with some.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase

KIND = "idle_gpus"


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs without work; none where no GPU worked (`empty_gpu_plane`)."""
    if not context.has_gpu_work:
        return
    idle, evidence = [], []
    for profile in context.profiles:
        active = {device.index for device in profile.active_devices}
        for device in profile.trace.devices:
            if device.index in active:
                continue
            idle.append(profile.ref(device.index))
            window = profile.analysis.window
            if window is not None:
                what = Phrase("report.evidence.no_events")
                evidence.append(Evidence(profile.label, device.id, window.start, window.end, None, None, what))
    if not idle:
        return
    limits = context.thresholds
    facts = {"gpus": context.names(idle), "count": len(idle), "total": context.gpu_count}
    yield Finding(
        kind=KIND,
        severity="critical" if len(idle) / context.gpu_count >= limits.idle_gpus_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts),),
        advice=context.advice(KIND, "distribute@", "profiled_all", "visible_devices"),
        gpus=tuple(idle),
        share=1.0,
        evidence=tuple(evidence[: limits.max_evidence]),
    )
