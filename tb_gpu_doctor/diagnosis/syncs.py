"""Which wait of the host emptied the GPU's queue before a gap, and what the host did then.

A gap that follows a wait shows little of the wait itself: it ends when the gap begins. So it is
looked for on the thread that launched the work behind the gap, then on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.vocabulary import Cause
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
        gap: row of the gap.
        charge: time of it charged to the synchronisation.
        event: host row of the wait, the outermost event that is one; -1 when none was recorded.
        work: host row of what the host did longest between the wait and the gap's end; -1 for nothing recorded.
    """

    account: GpuAccount
    gap: int
    charge: int
    event: int
    work: int

    @property
    def profile(self) -> HostProfile:
        """The host."""
        return self.account.profile


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
    found = []
    for account in accounts:
        finder = _Finder(account.profile)
        rows, charges = charged_gaps(account, Cause.SYNC)
        for index in np.argsort(-charges, kind="stable")[:_MAX_GAPS].tolist():
            event, work = finder.around(int(rows[index]))
            found.append(Wait(account, int(rows[index]), int(charges[index]), event, work))
    return found


def summarise_waits(waits: Sequence[Wait]) -> WaitSummary | None:
    """The wait that costs most, by name; None when no wait was found at all."""
    by_name: dict[str, int] = {}
    for wait in waits:
        if wait.event >= 0:
            name = wait.profile.calls.name(wait.event)
            by_name[name] = by_name.get(name, 0) + wait.charge
    if not by_name:
        return None
    worst = max(by_name, key=by_name.__getitem__)
    mine = [wait for wait in waits if wait.event >= 0 and wait.profile.calls.name(wait.event) == worst]
    threads: dict[str, int] = {}
    works: dict[str, int] = {}
    for wait in mine:
        calls = wait.profile.calls
        threads[calls.thread(wait.event)] = threads.get(calls.thread(wait.event), 0) + wait.charge
        if wait.work >= 0:
            works[calls.name(wait.work)] = works.get(calls.name(wait.work), 0) + wait.charge
    longest = max(mine, key=lambda wait: wait.charge)
    calls = longest.profile.calls
    frame = calls.user_frame(longest.event)
    caller = calls.caller(longest.event)
    return WaitSummary(
        name=worst,
        thread=max(threads, key=threads.__getitem__),
        caller=None if caller == frame else caller,
        frame=frame,
        work=max(works, key=works.__getitem__) if works else None,
        located=sum(wait.charge for wait in waits if wait.event >= 0) / sum(wait.charge for wait in waits),
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
    profile, gaps = wait.profile, wait.profile.analysis.gaps
    calls, after = profile.calls, int(gaps.after[wait.gap])
    what: str | Phrase = Phrase("report.evidence.after_wait_unknown")
    thread = None
    if wait.event >= 0:
        what, thread = calls.name(wait.event), calls.thread(wait.event)
        if wait.work >= 0:
            what = Phrase("report.evidence.after_wait", {"wait": what, "work": calls.name(wait.work)})
    return Evidence(
        host=profile.label,
        gpu=wait.account.ref.id,
        start=int(gaps.start[wait.gap]),
        end=int(gaps.end[wait.gap]),
        thread=thread,
        step=profile.step_number(after),
        what=what,
    )


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
