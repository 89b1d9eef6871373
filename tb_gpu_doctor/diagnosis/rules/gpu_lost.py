"""GPUs that stopped answering while training ran.

Reads: where a GPU's samples end before the recording does, and what the driver said of it (`telemetry.progress`). Says:
which GPU as the driver numbers it, since when, and in the driver's words why.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import MOST_DESCRIBED, driver_name, names, ref, since
from tb_gpu_doctor.telemetry.progress import vanished

KIND = "gpu_lost"


def check(context: Context) -> Iterator[Finding]:
    """One finding for all lost GPUs."""
    known = {id(gpu.series): gpu for gpu in context.telemetry.gpus}
    found = [
        (known[id(lost.series)], lost)
        for recording in context.telemetry.recordings
        for lost in vanished(recording)
        if id(lost.series) in known
    ]
    if not found:
        return
    gpus = [gpu for gpu, _ in found]
    facts = {"gpus": names(context, gpus), "count": len(gpus)}
    explanation = [Phrase(f"findings.{KIND}.explanation", facts)]
    for gpu, lost in found[:MOST_DESCRIBED]:
        one = {
            "gpus": names(context, [gpu]),
            "since": since(gpu, lost.step, lost.since_ns),
            "reason": lost.reason or "",
            "driver": driver_name([gpu]),
            "bus": gpu.series.facts.pci_bus_id or "?",
        }
        explanation.append(Phrase(f"findings.{KIND}.{'one_reason' if lost.reason else 'one'}", one))
    yield Finding(
        kind=KIND,
        severity="critical",
        title=Phrase(f"findings.{KIND}.title", facts),
        explanation=tuple(explanation),
        advice=(
            Phrase(f"findings.{KIND}.advice.log"),
            Phrase(f"findings.{KIND}.advice.reset", {"smi": driver_name(gpus)}),
            *context.advice(KIND, "hardware", "resume"),
        ),
        gpus=tuple(sorted(map(ref, gpus))),
    )


RULE = Rule(
    kind=KIND,
    order=285,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    check=check,
)
