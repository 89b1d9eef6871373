"""Which wait of the host emptied the GPU's queue before a gap, and what the host did then.

A gap that follows a wait shows little of the wait itself: it ends when the gap begins. So it is
looked for on the thread that launched the work behind the gap, then on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.asking import ask, ask_one
from tb_gpu_doctor.diagnosis.context import Context, GpuAccount, HostProfile
from tb_gpu_doctor.diagnosis.idle import charged_gaps
from tb_gpu_doctor.diagnosis.model import Evidence, Phrase
from tb_gpu_doctor.traces.columns import PS_PER_US, Int64

# A wait returns a little after the GPU is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US
# Gaps looked at per GPU, the costliest first; nobody reads more names.
_MAX_GAPS = 200


@dataclass(frozen=True)
class Wait:
    """One gap with the wait before it.

    Attributes:
        account: the GPU.
        charge: time of the gap charged to the synchronisation.
        seen: what was recorded of it.
    """

    account: GpuAccount
    charge: int
    seen: Seen


@dataclass(frozen=True)
class Seen:
    """What was recorded of a gap.

    Attributes:
        event: host row of the wait, the outermost event that is one; -1 when none was recorded.
        name, thread: of that event.
        work: what the host did longest between the wait and the gap's end; None for nothing recorded.
        start, end: of the gap.
        step: recorded number of the step of what followed, None for none.
    """

    event: int
    name: str
    thread: str
    work: str | None
    start: int
    end: int
    step: int | None


@dataclass(frozen=True)
class WaitSummary:
    """What is behind most of the waits.

    Attributes:
        name: name of the wait.
        thread: where it happens most.
        caller: Python frame or framework op that asked for it, None when not recorded.
        frame: the user's own code around it, None when not recorded.
        work: what the host did after it most of the time, None when nothing was recorded.
        located: part of the examined loss for which a wait was found.
    """

    name: str
    thread: str
    caller: str | None
    frame: str | None
    work: str | None
    located: float


def find_waits(accounts: Sequence[GpuAccount]) -> list[Wait]:
    """The costliest gaps of each GPU that are charged to a synchronisation, with what was recorded of it."""
    answers = ask(_waits, [(account.profile, account.accounting.device) for account in accounts])
    return [Wait(account, *item) for account, items in zip(accounts, answers, strict=True) for item in items]


def _waits(profile: HostProfile, device: int) -> list[tuple[int, Seen]]:
    """Charge and record of the costliest gaps of one GPU."""
    finder, calls, gaps = _Finder(profile), profile.calls, profile.analysis.gaps
    rows, charges = charged_gaps(profile, device, Cause.SYNC)
    found = []
    for index in np.argsort(-charges, kind="stable")[:_MAX_GAPS].tolist():
        gap = int(rows[index])
        event, work = finder.around(gap)
        seen = Seen(
            event=event,
            name=calls.name(event) if event >= 0 else "",
            thread=calls.thread(event) if event >= 0 else "",
            work=calls.name(work) if work >= 0 else None,
            start=int(gaps.start[gap]),
            end=int(gaps.end[gap]),
            step=profile.step_number(int(gaps.after[gap])),
        )
        found.append((int(charges[index]), seen))
    return found


def _asked_by(profile: HostProfile, event: int) -> tuple[str | None, str | None]:
    """The Python frame or framework op, and the user's own code, around a host event."""
    return profile.calls.caller(event), profile.calls.user_frame(event)


def summarise_waits(waits: Sequence[Wait]) -> WaitSummary | None:
    """The wait that costs most, by name; None when no wait was found at all."""
    by_name: dict[str, int] = {}
    for wait in waits:
        if wait.seen.event >= 0:
            by_name[wait.seen.name] = by_name.get(wait.seen.name, 0) + wait.charge
    if not by_name:
        return None
    worst = max(by_name, key=by_name.__getitem__)
    mine = [wait for wait in waits if wait.seen.event >= 0 and wait.seen.name == worst]
    threads: dict[str, int] = {}
    works: dict[str, int] = {}
    for wait in mine:
        seen = wait.seen
        threads[seen.thread] = threads.get(seen.thread, 0) + wait.charge
        if seen.work is not None:
            works[seen.work] = works.get(seen.work, 0) + wait.charge
    longest = max(mine, key=lambda wait: wait.charge)
    caller, frame = ask_one(_asked_by, longest.account.profile, longest.seen.event)
    return WaitSummary(
        name=worst,
        thread=max(threads, key=threads.__getitem__),
        caller=None if caller == frame else caller,
        frame=frame,
        work=max(works, key=works.__getitem__) if works else None,
        located=sum(wait.charge for wait in waits if wait.seen.event >= 0) / sum(wait.charge for wait in waits),
    )


def wait_evidence(context: Context, waits: Sequence[Wait]) -> tuple[Evidence, ...]:
    """The costliest gaps: one of every GPU first, then the others; each names the wait and what followed."""
    ranked: list[tuple[int, int, Wait]] = []
    seen: dict[int, int] = {}
    for wait in sorted(waits, key=lambda item: -item.charge):
        rank = seen.get(id(wait.account), 0)
        seen[id(wait.account)] = rank + 1
        ranked.append((min(rank, 1), -wait.charge, wait))
    ranked.sort(key=lambda item: item[:2])
    return tuple(_as_evidence(wait) for _, _, wait in ranked[: context.thresholds.max_evidence])


def _as_evidence(wait: Wait) -> Evidence:
    seen, account = wait.seen, wait.account
    what: str | Phrase = Phrase("report.evidence.after_wait_unknown")
    thread = None
    if seen.event >= 0:
        what, thread = seen.name, seen.thread
        if seen.work is not None:
            what = Phrase("report.evidence.after_wait", {"wait": seen.name, "work": seen.work})
    return Evidence(account.profile.label, account.ref.id, seen.start, seen.end, thread, seen.step, what)


class _Finder:
    """Looks up waits of one host."""

    def __init__(self, profile: HostProfile) -> None:
        self.profile = profile
        host, kind = profile.trace.host_events, profile.calls.kind
        rows = np.flatnonzero((kind == Kind.SYNC) & (host.duration > 0))
        self._by_thread: dict[int, Int64] = {}
        for thread in np.flatnonzero(np.bincount(host.thread[rows])).tolist() if len(rows) else []:
            mine = rows[host.thread[rows] == thread]
            # outermost ones only: they do not overlap, so starts and ends both rise
            reached = np.maximum.accumulate(host.end[mine])
            self._by_thread[thread] = mine[np.concatenate(([True], host.start[mine][1:] >= reached[:-1]))]

    def around(self, gap: int) -> tuple[int, int]:
        """(host row of the wait, host row of the work after it) of one gap; -1 for nothing found."""
        gaps, host = self.profile.analysis.gaps, self.profile.trace.host_events
        start, end, launch = int(gaps.start[gap]), int(gaps.end[gap]), int(gaps.launch[gap])
        launching = int(host.thread[launch]) if launch >= 0 else -1
        best, rank = -1, (False, False, 0)
        for thread, rows in self._by_thread.items():
            row = self._on_thread(rows, start, end)
            if row < 0:
                continue
            drained = int(host.start[row]) < start
            mine = (drained, thread == launching, int(min(host.end[row], end) - max(host.start[row], start)))
            if best < 0 or mine > rank:
                best, rank = row, mine
        return best, self._work_after(best, end) if best >= 0 else -1

    def _on_thread(self, rows: Int64, start: int, end: int) -> int:
        """The wait that the gap begins at the end of; else the one that covers most of the gap."""
        host = self.profile.trace.host_events
        at = int(np.searchsorted(host.start[rows], start)) - 1
        if at >= 0 and host.end[rows[at]] >= start - _TOLERANCE:
            return int(rows[at])
        low, high = at + 1, int(np.searchsorted(host.start[rows], end))
        if low >= high:
            return -1
        inside = rows[low:high]
        return int(inside[np.argmax(np.minimum(host.end[inside], end) - host.start[inside])])

    def _work_after(self, wait: int, end: int) -> int:
        """What the waiting thread did longest between the wait and ``end``, by its outermost telling events."""
        host = self.profile.trace.host_events
        begin = int(host.end[wait])
        rows = host.of_thread(int(host.thread[wait]))
        low, high = (np.searchsorted(host.start[rows], [begin, end]) + rows.start).tolist()
        inside = np.arange(low, high)
        inside = inside[self.profile.calls.kind[inside] != Kind.NEUTRAL]
        if not len(inside):
            return -1
        starts, ends = host.start[inside], host.end[inside]
        outermost = np.concatenate(([True], starts[1:] >= np.maximum.accumulate(ends)[:-1]))
        spent = np.where(outermost, np.minimum(ends, end) - starts, -1)
        best = int(np.argmax(spent))
        return int(inside[best]) if spent[best] > 0 else -1
