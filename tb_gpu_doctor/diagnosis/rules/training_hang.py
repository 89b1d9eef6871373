"""Training that stands still: no step for a long time, although the process is alive.

Reads: the time from the last training step to the last sample, and what the GPUs did in it
(`telemetry.progress`). GPUs that spin at little power wait inside a collective for somebody; GPUs that do nothing
get no work, so the host or the input stands still. Says: since when, where, and which process or GPU stopped first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import Rule
from tb_gpu_doctor.diagnosis.telemetry_gpus import MOST_DESCRIBED, clock_time, names, process_name, ref
from tb_gpu_doctor.recording_format import FACT_LOCK_HELD
from tb_gpu_doctor.telemetry.joining import GpuTelemetry, extent
from tb_gpu_doctor.telemetry.progress import Standstill, frozen, lock_held_ns, standstill
from tb_gpu_doctor.telemetry.series import Recording

KIND = "training_hang"
_PS_PER_S = 1e12
# Frames of a stack that tell one place from another, and those that are shown.
_FRAMES, _FRAMES_SHOWN = 6, 4
# Processes of one host share a clock; who stopped this much earlier did so first.
_FIRST_BY_S = 1.0

# Whose samples ended so long before the others' has ended itself, or was killed.
_GONE_S = 30.0

Place = Literal["collective", "lock", "host", "unknown"]


_WORST_FIRST: tuple[Place, ...] = ("collective", "lock", "host")


@dataclass(frozen=True)
class Limits:
    """How long there must have been no step."""

    seconds: float = 60.0
    # Of the usual length.
    steps: float = 20.0
    # Where no steps are recorded and only the GPUs' utilization and power tell.
    frozen_seconds: float = 120.0


_ADVICE: dict[Place, tuple[str, ...]] = {
    "collective": ("dump", "collective", "timeout"),
    "lock": ("native", "timeout"),
    "host": ("dump", "host"),
    "unknown": ("dump",),
}


def check(context: Context) -> Iterator[Finding]:
    """One finding for all processes that stand still."""
    found: list[tuple[Standstill, Place]] = []
    for recording in context.telemetry.recordings:
        hang = hang_of(context, recording)
        if hang is not None:
            found.append(hang)
    if not found:
        return
    places = {place for _, place in found}
    cause: Place = next((place for place in _WORST_FIRST if place in places), "unknown")
    stills = [still for still, _ in found]
    first = min(stills, key=lambda still: still.since_ns)
    facts = {
        "lasting": max(still.seconds for still in stills) * _PS_PER_S,
        "step": first.last_step,
        "time": clock_time(first.since_ns),
        "usual": None if first.usual_s is None else first.usual_s * _PS_PER_S,
        "count": len(stills),
    }
    stepping = first.last_step is not None
    explanation = [Phrase(f"findings.{KIND}.{'explanation' if stepping else 'explanation_no_steps'}", facts)]
    everyone = [gpu for still in stills for gpu in _gpus(context, still)]
    explanation.append(Phrase(f"findings.{KIND}.places.{cause}", _place_facts(context, stills, everyone)))
    between = cause == "host" and all(_dump(still).get("in_step") is False for still in stills)
    if between:
        explanation.append(Phrase(f"findings.{KIND}.between"))
    culprits, sentence = _who(context, stills)
    stands, odd = _where_they_stand(stills)
    if sentence is None and odd is not None:
        culprits = _gpus(context, odd)
        sentence = Phrase(f"findings.{KIND}.differs", {"process": process_name(odd.recording)})
    explanation += [*([] if sentence is None else [sentence]), *stands]
    advice = _ADVICE[cause]
    yield Finding(
        kind=KIND,
        severity="warning" if cause == "unknown" or between else "critical",
        title=Phrase(f"findings.{KIND}.{'title' if stepping else 'title_no_steps'}", facts),
        explanation=tuple(explanation),
        advice=context.advice(KIND, *advice),
        gpus=tuple(sorted(map(ref, culprits or everyone))),
        victims=tuple(sorted({ref(gpu) for gpu in everyone} - set(map(ref, culprits)))) if culprits else (),
        cause=cause,
    )


def hang_of(context: Context, recording: Recording) -> tuple[Standstill, Place] | None:
    """The time at the end of a recording in which training stood still, and where; None where it did not."""
    limits: Limits = context.thresholds.of(KIND)
    still = standstill(recording, limits.seconds, limits.steps) or frozen(recording, limits.frozen_seconds)
    place = None if still is None else _place(still)
    return None if still is None or place is None else (still, place)


def work_without_steps(context: Context) -> Phrase | None:
    """That the GPUs went on working when no step came any more, which nobody can tell from a hang; None without that.

    It is mostly an evaluation of which the monitor was not told, and so no finding; but no proof that nothing hangs.
    """
    limits: Limits = context.thresholds.of(KIND)
    longest = 0.0
    for recording in context.telemetry.recordings:
        still = standstill(recording, limits.seconds, limits.steps)
        if still is not None and _place(still) is None and "working" in still.states and recording.ended != "normal":
            longest = max(longest, still.seconds)
    return Phrase("telemetry.doubts.no_step", {"lasting": longest * _PS_PER_S}) if longest else None


def _place(still: Standstill) -> Place | None:
    """Where training stands; None where it does not: GPUs that work on compute something that is no step."""
    if lock_held_ns(still.recording) is not None:
        return "lock"
    if "working" in still.states:
        # The watchdog knows more where a step has begun and does not end: whatever the GPUs do, it is no evaluation.
        return "unknown" if _dump(still).get("in_step") is True else None
    if "spinning" in still.states:
        return "collective"
    if "idle" not in still.states:
        return "unknown"
    # A process that left its training loop in good order may go on without the GPUs, and record that too.
    return None if still.recording.ended == "normal" else "host"


def _gpus(context: Context, still: Standstill) -> list[GpuTelemetry]:
    return [gpu for gpu in context.telemetry.gpus if gpu.recording is still.recording]


def _place_facts(context: Context, stills: Sequence[Standstill], gpus: Sequence[GpuTelemetry]) -> dict[str, object]:
    watts = [still.power_watts for still in stills if still.power_watts is not None]
    return {"gpus": names(context, gpus), "power": sum(watts) / len(watts) if watts else None}


def _who(context: Context, stills: Sequence[Standstill]) -> tuple[list[GpuTelemetry], Phrase | None]:
    """The GPUs, or the process, that the others wait for, as far as that can be told; and the sentence for it."""
    spinning = {id(series) for still in stills for series in _of(still, "spinning")}
    idle = {id(series) for still in stills for series in _of(still, "idle")}
    gpus = [gpu for still in stills for gpu in _gpus(context, still)]
    if spinning and idle:
        absent = [gpu for gpu in gpus if id(gpu.series) in idle]
        if absent:
            return absent, Phrase(f"findings.{KIND}.absent", {"gpus": names(context, absent)})
    gone = _gone(context, stills)
    if gone:
        facts: dict[str, object] = {"processes": tuple(map(process_name, gone)), "count": len(gone)}
        return [gpu for gpu in context.telemetry.gpus if any(gpu.recording is one for one in gone)], Phrase(
            f"findings.{KIND}.gone", facts
        )
    if len(stills) < 2 or any(still.last_step is None for still in stills):
        return [], None
    steps = [still.last_step or 0 for still in stills]
    if min(steps) < max(steps):
        behind = [still for still in stills if still.last_step == min(steps)]
        facts = {"last": min(steps), "others": max(steps)}
        key = "behind"
    else:
        if len({still.recording.host for still in stills}) > 1:
            return [], None  # clocks of several hosts do not tell who was first by a second
        order = sorted(stills, key=lambda still: still.since_ns)
        if (order[1].since_ns - order[0].since_ns) / 1e9 < _FIRST_BY_S:
            return [], None
        behind, key, facts = order[:1], "earlier", {"last": min(steps)}
    if len(behind) == len(stills):
        return [], None
    culprits = [gpu for still in behind for gpu in _gpus(context, still)]
    processes = tuple(process_name(still.recording) for still in behind)
    return culprits, Phrase(f"findings.{KIND}.{key}", {**facts, "processes": processes, "count": len(processes)})


def _gone(context: Context, stills: Sequence[Standstill]) -> list[Recording]:
    """Processes that stepped beside the hanging ones, and whose recordings end well before theirs."""
    until = min(still.until_ns for still in stills)
    hanging = {id(still.recording) for still in stills}
    found = []
    for recording in context.telemetry.recordings:
        span = extent(recording)
        if id(recording) in hanging or span is None or not len(recording.steps.number):
            continue
        if (until - span[1]) / 1e9 >= _GONE_S and recording.ended != "normal":
            found.append(recording)
    return found


def _dump(still: Standstill) -> Mapping[str, Any]:
    """What the process's watchdog wrote of this hang; empty without one."""
    locked = still.recording.facts.get(FACT_LOCK_HELD)
    if lock_held_ns(still.recording) is not None and isinstance(locked, Mapping):
        return locked
    found = still.recording.facts.get("hang")
    if not isinstance(found, Mapping) or found.get("resumed") or found.get("step") != still.last_step:
        return {}
    return found


def _main_frames(still: Standstill) -> list[str]:
    threads = _dump(still).get("threads")
    for thread in threads if isinstance(threads, list) else []:
        if isinstance(thread, Mapping) and thread.get("main") and isinstance(thread.get("frames"), list):
            return [str(frame) for frame in thread["frames"]]
    return []


def _where_they_stand(stills: Sequence[Standstill]) -> tuple[list[Phrase], Standstill | None]:
    """A sentence for each different place of the main threads, and the one process that stands elsewhere."""
    places: dict[tuple[str, ...], list[Standstill]] = {}
    for still in stills:
        frames = _main_frames(still)
        if frames:
            # Which line a loop is at says less than where it was called from.
            key = tuple(re.sub(r":\d+ ", " ", frame) for frame in frames[:_FRAMES])
            places.setdefault(key, []).append(still)
    phrases = []
    for found in sorted(places.values(), key=len)[:MOST_DESCRIBED]:
        facts = {
            "processes": tuple(process_name(still.recording) for still in found[:MOST_DESCRIBED]),
            "count": len(found),
            "frames": " < ".join(_main_frames(found[0])[:_FRAMES_SHOWN]),
        }
        phrases.append(Phrase(f"findings.{KIND}.stack", facts))
    few = [found for found in places.values() if len(found) == 1]
    odd = few[0][0] if len(places) == 2 and len(few) == 1 else None
    return phrases, odd


def _of(still: Standstill, state: str) -> list[object]:
    return [series for series, found in zip(still.recording.gpus, still.states, strict=True) if found == state]


RULE = Rule(
    kind=KIND,
    order=280,
    about="telemetry",
    cost="none",
    reads=("telemetry",),
    thresholds=Limits(),
    metrics=("steps",),
    check=check,
)
