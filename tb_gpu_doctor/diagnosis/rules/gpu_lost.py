"""GPUs that stopped answering, or of which the driver reported an error, while training ran.

Reads: where a GPU's samples end before the recording does, the driver's errors by their Xid, GPUs that never answered,
and a driver that stopped answering altogether (`telemetry.progress`). Says: which GPU as the driver numbers it, since
when, and in the driver's words why.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_gpu_doctor import texts
from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase, Severity
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import MOST_DESCRIBED, driver_name, names, ref, since
from tb_gpu_doctor.telemetry.joining import GpuTelemetry
from tb_gpu_doctor.telemetry.progress import driver_lost, silent_gpus, vanished, xids

KIND = "gpu_lost"
# Errors that programs cause: a kernel that raised, an access to wrong memory, a process that was ended.
_OF_PROGRAMS = {13, 31, 43, 45, 68}


def check(context: Context) -> Iterator[Finding]:
    """One finding for all that went missing."""
    known = {id(gpu.series): gpu for gpu in context.telemetry.gpus}
    recordings = context.telemetry.recordings
    lost = [(known[id(one.series)], one) for r in recordings for one in vanished(r) if id(one.series) in known]
    errors = _errors(context)
    silent = {(r.host, number): words for r in recordings for number, words in silent_gpus(r).items()}
    gone = {r.host: words for r in recordings if (words := driver_lost(r)) is not None}
    if not (lost or errors or silent or gone):
        return
    explanation = []
    if lost:
        explanation.append(Phrase(f"findings.{KIND}.explanation", {"gpus": names(context, [gpu for gpu, _ in lost])}))
    for gpu, one in lost[:MOST_DESCRIBED]:
        facts = {
            "gpus": names(context, [gpu]),
            "since": since(gpu, one.step, one.since_ns),
            "reason": one.reason or "",
            "driver": driver_name([gpu]),
            "bus": gpu.series.facts.pci_bus_id or "?",
        }
        explanation.append(Phrase(f"findings.{KIND}.{'one_reason' if one.reason else 'one'}", facts))
    for gpu, numbers in errors[:MOST_DESCRIBED]:
        for number in dict.fromkeys(numbers):
            facts = {"gpus": names(context, [gpu]), "driver": driver_name([gpu]), "xid": str(number)}
            key = f"findings.{KIND}.xid.x{number}"
            explanation.append(Phrase(key if texts.has_text(key) else f"findings.{KIND}.xid.other", facts))
    for words in dict.fromkeys(gone.values()):
        explanation.append(Phrase(f"findings.{KIND}.driver", {"reason": words}))
    for (host, number), words in list(silent.items())[:MOST_DESCRIBED]:
        explanation.append(Phrase(f"findings.{KIND}.silent", {"number": str(number), "host": host, "reason": words}))
    gpus = [gpu for gpu, _ in lost] or [gpu for gpu, _ in errors]
    smi = driver_name(gpus) if gpus else ",".join(dict.fromkeys(str(number) for _, number in silent))
    of_program = not lost and not gone and {n for _, numbers in errors for n in numbers} <= _OF_PROGRAMS
    spared = not lost and not gone and not errors and bool(context.telemetry.gpus)  # training has others
    severity: Severity = "warning" if spared or (errors and of_program) else "critical"
    title = "title" if lost else "title_driver" if gone else "title_xid" if errors else "title_silent"
    facts = {
        "gpus": names(context, gpus),
        "count": len(silent) if title == "title_silent" else len({n for _, numbers in errors for n in numbers}),
        "numbers": tuple(str(number) for _, number in silent),
        "xids": tuple(dict.fromkeys(str(number) for _, numbers in errors for number in numbers)),
    }
    advice = [Phrase(f"findings.{KIND}.advice.log")]
    if gone and not lost and not errors:
        advice.append(Phrase(f"findings.{KIND}.advice.driver"))
    elif smi and not of_program:
        advice.append(Phrase(f"findings.{KIND}.advice.reset", {"smi": smi}))
    more = ("program",) if of_program and errors else ("resume",) if gone and not lost else ("hardware", "resume")
    yield Finding(
        kind=KIND,
        severity=severity,
        title=Phrase(f"findings.{KIND}.{title}", facts),
        explanation=tuple(explanation),
        advice=(*advice, *context.advice(KIND, *more)),
        gpus=tuple(sorted(map(ref, gpus))),
    )


def _errors(context: Context) -> list[tuple[GpuTelemetry, tuple[int, ...]]]:
    """GPUs with the errors that the driver reported of them; each once, whoever recorded it."""
    found: dict[str, tuple[GpuTelemetry, tuple[int, ...]]] = {}
    for recording in context.telemetry.recordings:
        for number, told in xids(recording).items():
            for gpu in context.telemetry.gpus:
                if gpu.recording.host == recording.host and gpu.series.facts.nvml_index == number:
                    found.setdefault(f"{gpu.host} {number}", (gpu, told))
                    break
    return list(found.values())


RULE = Rule(
    kind=KIND,
    order=285,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    check=check,
)
