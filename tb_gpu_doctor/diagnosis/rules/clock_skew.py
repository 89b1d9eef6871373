"""What was done about the clocks of several files.

Reads: offsets between the files' clocks, bounded by the collectives that their GPUs share. A remark
only: it says how far times of different files, and who came late, can be believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Evidence, Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule

KIND = "clock_skew"
_PS_PER_NS = 1_000


def check(context: Context) -> Iterator[Finding]:
    """One remark when GPUs of several files worked."""
    working = [index for index, file in enumerate(context.files) if file.window is not None]
    meeting = [index for index in working if context.files[index].communicates]
    if len(meeting) < 2:
        return  # nobody meets anybody, so no two clocks matter to each other
    clocks, lateness = context.job.clocks, context.job.lateness
    known = [index for index in working if clocks.known[index]]
    aligned = len(known) == len(working)
    error = max((int(clocks.error[index]) for index in known), default=0)
    facts = {
        "count": len(working),
        "hosts": tuple(context.files[index].label for index in working if index not in known),
        "reference": context.files[clocks.reference].label,
        "collectives": int(median(int(clocks.collectives[index]) for index in known)) if known else 0,
        "error": error,
        "tolerance": clocks.tolerance,
    }
    how = "aligned" if aligned else "partly" if len(known) > 1 else "unknown"
    explanation = [Phrase(f"findings.{KIND}.{how}", facts)]
    if clocks.problem is not None:
        explanation.append(Phrase(f"findings.{KIND}.problems.{clocks.problem}"))
    if clocks.tolerance:
        explanation.append(Phrase(f"findings.{KIND}.tolerance", facts))
    if clocks.drift is not None and len(known) > 1:
        fastest = max(abs(float(clocks.drift[index])) for index in known)
        explanation.append(Phrase(f"findings.{KIND}.drift", {"drift": fastest * 1e6}))
    if lateness is not None and lateness.method != "one_clock":
        explanation.append(Phrase(f"findings.{KIND}.methods.{lateness.method}", {"error": lateness.error}))
    # Processes of one host share its clock: no time service would change how their files count.
    many_hosts = len({context.files[index].machine for index in working}) > 1
    yield Finding(
        kind=KIND,
        severity="info",
        title=Phrase(f"findings.{KIND}.{'title' if aligned else 'title_' + how}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *([] if aligned else ["same_steps"]), "time_service" if many_hosts else "one_host"),
        evidence=_evidence(context, known),
    )


def _evidence(context: Context, known: list[int]) -> tuple[Evidence, ...]:
    """Each file's offset, with the interval that holds it."""
    clocks, items = context.job.clocks, []
    for index in known:
        file = context.files[index]
        window = file.window
        if index == clocks.reference or window is None:
            continue
        shift = _ahead(context, index, int(clocks.offset[index]))
        # the estimate is somewhere in the interval, so the larger side is how wrong it can be
        wrong = max(int(clocks.high[index] - clocks.offset[index]), int(clocks.offset[index] - clocks.low[index]))
        key = "unknown_zero" if shift is None else "ahead" if shift >= 0 else "behind"
        facts = {"offset": abs(shift or 0), "error": wrong, "reference": context.files[clocks.reference].label}
        what = Phrase(f"findings.{KIND}.{key}", facts)
        items.append(Evidence(file.label, None, window.start, window.end, None, None, what))
    return tuple(items[: context.thresholds.max_evidence])


def _ahead(context: Context, index: int, offset: int) -> int | None:
    """By how much the host's clock runs ahead of the reference's; None when the files count from unknown times."""
    own, other = context.files[index], context.files[context.job.clocks.reference]
    if own.wall_start_unix_ns is None or other.wall_start_unix_ns is None:
        return None
    return (own.wall_start_unix_ns - other.wall_start_unix_ns) * _PS_PER_NS - offset


RULE = Rule(
    kind=KIND,
    order=460,
    about="profile",
    cost="none",
    reads=("collectives", "clocks"),
    check=check,
)
