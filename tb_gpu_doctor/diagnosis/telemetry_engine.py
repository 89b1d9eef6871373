"""A diagnosis from telemetry alone: what NVML can prove, and that a profile is the next step."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.engine import finish_findings
from tb_gpu_doctor.diagnosis.model import (
    Diagnosis,
    GpuRef,
    GpuReport,
    Phrase,
    StepsReport,
    Verdict,
)
from tb_gpu_doctor.diagnosis.rule import rules
from tb_gpu_doctor.diagnosis.rules.low_utilization import Limits as LoadLimits
from tb_gpu_doctor.diagnosis.rules.low_utilization import loads
from tb_gpu_doctor.diagnosis.rules.training_hang import work_without_steps
from tb_gpu_doctor.diagnosis.telemetry_gpus import names, ref
from tb_gpu_doctor.diagnosis.telemetry_report import checks_made, report_telemetry, why_no_samples
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.telemetry.joining import Joined, extent, newest
from tb_gpu_doctor.telemetry.series import Telemetry

_PS_PER_NS = 1000


def diagnose_telemetry(
    telemetry: Telemetry | Joined,
    *,
    run: str = "",
    session: str = "telemetry",
    thresholds: Thresholds | None = None,
    problems: Sequence[Phrase] = (),
) -> Diagnosis:
    """The diagnosis of one home without a profile; the newest recordings are judged.

    Args:
        telemetry: of the home, or what was chosen of it already (`telemetry.joining.newest`).
        run: TensorBoard run, for the report.
        session: session name, for the report.
        thresholds: another table than the default one.
        problems: what could not be read.
    """
    context = Context((), thresholds or Thresholds(), telemetry if isinstance(telemetry, Joined) else newest(telemetry))
    found = [finding for rule in rules() if rule.about == "telemetry" for finding in rule.check(context)]
    findings = finish_findings(context, found)
    spans = [span for recording in context.telemetry.recordings if (span := extent(recording)) is not None]
    severities = {finding.severity for finding in findings}
    verdict: Verdict = "cannot_tell"
    if severities & {"critical", "warning"}:
        verdict = "critical" if "critical" in severities else "warning"
    return Diagnosis(
        verdict=verdict,
        reasons=_limits_of_telemetry(context, verdict, {finding.kind for finding in findings}),
        run=run,
        session=session,
        format="telemetry",
        hosts=tuple(sorted({one.host for one in context.telemetry.recordings if one.host})),
        window=None,
        recorded=max(((end - start) * _PS_PER_NS for start, end in spans), default=None),
        warnings=tuple(problems),
        gpus=tuple(_gpu(ref(gpu), gpu.series.facts.name) for gpu in context.telemetry.gpus),
        # Steps by the process's own clock, not the GPUs': they are none of a profile.
        steps=StepsReport(0, "none", None),
        kernels=(),
        findings=findings,
        telemetry=report_telemetry(context),
    )


def _gpu(gpu: GpuRef, name: str | None) -> GpuReport:
    return GpuReport(gpu, name, None, None, None, None, None, None, None, None)


def _limits_of_telemetry(context: Context, verdict: Verdict, found: Set[str]) -> tuple[Phrase, ...]:
    """What telemetry cannot tell, the most important first: that, or what was looked for and not found."""
    limits: LoadLimits = context.thresholds.of("low_utilization")
    if not context.telemetry.gpus:
        return why_no_samples(context)
    done, left_out = checks_made(context, found)
    no_step = work_without_steps(context)
    # What is remarked on was found.
    told = found | ({"training_hang"} if no_step is not None else set())
    done = tuple(name for name in done if name.key.split(".")[1] not in told)
    reasons = []
    if verdict == "cannot_tell":
        reasons.append(
            Phrase("telemetry.doubts.not_found", {"checks": done})
            if done
            else Phrase("telemetry.doubts.nothing_checked")
        )
    reasons += [*([] if no_step is None else [no_step]), Phrase("telemetry.doubts.no_profile"), *left_out]
    known = loads(context)
    full = [gpu for gpu, load in known if load.utilization >= limits.full]
    if full:
        least = min(load.utilization for _, load in known if load.utilization >= limits.full)
        reasons.append(Phrase("telemetry.doubts.full", {"gpus": names(context, full), "used": least}))
    return tuple(reasons)
