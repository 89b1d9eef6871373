"""GPUs of the profile that did nothing while others worked.

Reads: devices without a single event beside devices with some. A GPU is a host and a number: several
processes of one host may list the same GPU, and it is idle if none of them used it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase

KIND = "idle_gpus"


def check(context: Context) -> Iterator[Finding]:
    """One finding for all GPUs without work; none where no GPU worked (`empty_gpu_plane`)."""
    if not context.has_gpu_work:
        return
    known = {_identity(profile, device.id) for profile in context.profiles for device in profile.trace.devices}
    used = {_identity(profile, device.id) for profile in context.profiles for device in profile.active_devices}
    idle, evidence = [], []
    for profile in context.profiles:
        for device in profile.trace.devices:
            identity = _identity(profile, device.id)
            if identity in used:
                continue
            used.add(identity)  # once
            idle.append(profile.ref(device.index))
            window = profile.analysis.window
            if window is not None:
                what = Phrase("report.evidence.no_events")
                evidence.append(Evidence(profile.label, device.id, window.start, window.end, None, None, what))
    if not idle:
        return
    limits = context.thresholds
    facts = {"gpus": context.names(idle), "count": len(idle), "total": len(known)}
    yield Finding(
        kind=KIND,
        severity="critical" if len(idle) / len(known) >= limits.idle_gpus_critical else "warning",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=(Phrase(f"findings.{KIND}.explanation", facts),),
        advice=context.advice(KIND, "distribute@", "profiled_all", "visible_devices"),
        gpus=tuple(idle),
        share=1.0,
        evidence=tuple(evidence[: limits.max_evidence]),
    )


def _identity(profile: HostProfile, number: int) -> tuple[str, int]:
    return profile.trace.host or profile.label, number
