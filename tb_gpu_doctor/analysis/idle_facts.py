"""What rules want to know of a GPU's idle time: how much each cause has, in how many gaps, and what the host did then.

Some of it can be claimed: where a finding with better evidence counts the same time, the rules for `sync`, `launch` and
`host_other` look at what is left. Which GPUs that concerns only the session tells, so the facts of each GPU come in
every version that can be asked for; most GPUs have one.

A gap that follows a wait of the host, which emptied the GPU's queue, shows little of the wait itself: it ends when the
gap begins. So the wait is looked for on the thread that launched the work behind the gap, then on the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from tb_gpu_doctor.analysis.copy_facts import CLAIMABLE, blocking_waits
from tb_gpu_doctor.analysis.file_columns import FileColumns
from tb_gpu_doctor.analysis.host_names import Kind
from tb_gpu_doctor.analysis.idle import gap_rows, sum_by_step
from tb_gpu_doctor.analysis.results import BoolArray, Cause, DeviceAccounting
from tb_gpu_doctor.traces.columns import PS_PER_MS, PS_PER_US, Int64, UInt8

# A wait returns a little after the GPU is done; the clocks may differ by as much.
_TOLERANCE = 20 * PS_PER_US
# A range inside another one tells more if it fills this part of it.
_FILLS = 0.8
_OWN = (Kind.HOST_OTHER, Kind.UNKNOWN_NAME)
# Gaps looked at per GPU, the costliest first; nobody reads more names.
_MAX_GAPS = 200

# Names with the time that they stand for, picoseconds.
Weights = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class WaitedGap:
    """A gap after a synchronisation.

    Attributes:
        charge: time of the gap charged to the synchronisation.
        start, end: of the gap.
        step: recorded number of the step of what followed, None for none.
        name, thread: of the wait, the outermost event that is one; None when none was recorded.
        work: what the host did longest between the wait and the gap's end; None for nothing recorded.
    """

    charge: int
    start: int
    end: int
    step: int | None
    name: str | None
    thread: str | None
    work: str | None


@dataclass(frozen=True)
class Wait:
    """All waits of one name before the gaps of one GPU.

    Attributes:
        name: of the event.
        time: what the gaps behind it cost; ``threads`` and ``works`` share it out.
        threads: where it happened.
        works: what the host did longest after it, as far as recorded.
        longest: charge of the costliest of these gaps.
        caller: Python frame or framework op that asked for that one, None when not recorded.
        frame: the user's own code around it, None when not recorded.
    """

    name: str
    time: int
    threads: Weights
    works: Weights
    longest: int
    caller: str | None
    frame: str | None


@dataclass(frozen=True)
class Waits:
    """The costliest gaps of one GPU that are charged to a synchronisation.

    Attributes:
        examined: their charges in all.
        by_name: the waits that were found before them.
        worst: the costliest gaps, the costliest first.
    """

    examined: int
    by_name: tuple[Wait, ...]
    worst: tuple[WaitedGap, ...]


class WaitFinder:
    """Looks up the waits of one file."""

    def __init__(self, file: FileColumns) -> None:
        self._file = file
        host, kind = file.trace.host_events, file.calls.kind
        rows = np.flatnonzero((kind == Kind.SYNC) & (host.duration > 0))
        self._by_thread: dict[int, Int64] = {}
        for thread in np.flatnonzero(np.bincount(host.thread[rows])).tolist() if len(rows) else []:
            mine = rows[host.thread[rows] == thread]
            # outermost ones only: they do not overlap, so starts and ends both rise
            reached = np.maximum.accumulate(host.end[mine])
            self._by_thread[thread] = mine[np.concatenate(([True], host.start[mine][1:] >= reached[:-1]))]

    def before(self, gaps: Sequence[int], charges: Sequence[int], limit: int) -> Waits:
        """The waits before some gaps.

        Args:
            gaps: rows, the costliest first.
            charges: of each, what it costs.
            limit: how many of the worst gaps to keep.
        """
        file, table = self._file, self._file.analysis.gaps
        pairs = list(zip(gaps, charges, strict=True))[:_MAX_GAPS]
        worst: list[WaitedGap] = []
        times: dict[str, int] = {}
        threads: dict[str, dict[str, int]] = {}
        works: dict[str, dict[str, int]] = {}
        longest: dict[str, tuple[int, int]] = {}
        for gap, charge in pairs:
            event, after = self._around(gap)
            name = file.host_name(event) if event >= 0 else None
            thread = file.host_thread(event) if event >= 0 else None
            work = file.host_name(after) if after >= 0 else None
            if len(worst) < limit:
                start, end = int(table.start[gap]), int(table.end[gap])
                step = file.step_number(int(table.after[gap]))
                worst.append(WaitedGap(charge, start, end, step, name, thread, work))
            if name is None or thread is None:
                continue
            times[name] = times.get(name, 0) + charge
            own = threads.setdefault(name, {})
            own[thread] = own.get(thread, 0) + charge
            if work is not None:
                done = works.setdefault(name, {})
                done[work] = done.get(work, 0) + charge
            if name not in longest or charge > longest[name][0]:
                longest[name] = (charge, event)
        found = []
        for name, time in times.items():
            charge, event = longest[name]
            caller, frame = file.calls.caller(event), file.calls.user_frame(event)
            by_thread, by_work = tuple(threads[name].items()), tuple(works.get(name, {}).items())
            found.append(Wait(name, time, by_thread, by_work, charge, _interned(caller), _interned(frame)))
        return Waits(sum(charge for _, charge in pairs), tuple(found), tuple(worst))

    def _around(self, gap: int) -> tuple[int, int]:
        """(host row of the wait, host row of the work after it) of one gap; -1 for nothing found."""
        gaps, host = self._file.analysis.gaps, self._file.trace.host_events
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
        host = self._file.trace.host_events
        at = int(np.searchsorted(host.start[rows], start)) - 1
        if at >= 0 and host.end[rows[at]] >= start - _TOLERANCE:
            return int(rows[at])
        low, high = at + 1, int(np.searchsorted(host.start[rows], end))
        if low >= high:
            return -1
        inside = rows[low:high]
        return int(inside[np.argmax(np.minimum(host.end[inside], end) - host.start[inside])])

    def _work_after(self, wait: int, end: int) -> int:
        """What the waiting thread did longest between the wait and ``end``: the innermost range that fills that time.

        The user's own functions and ranges are looked into, the framework's are not.
        """
        host = self._file.trace.host_events
        begin = int(host.end[wait])
        rows = host.of_thread(int(host.thread[wait]))
        low, high = (np.searchsorted(host.start[rows], [begin, end]) + rows.start).tolist()
        inside = np.arange(low, high)
        inside = inside[self._file.calls.kind[inside] != Kind.NEUTRAL]
        if not len(inside):
            return -1
        starts, ends = host.start[inside], host.end[inside]
        outermost = np.concatenate(([True], starts[1:] >= np.maximum.accumulate(ends)[:-1]))
        spent = np.where(outermost, np.minimum(ends, end) - starts, -1)
        best = int(np.argmax(spent))
        if spent[best] <= 0:
            return -1
        filling = np.minimum(ends, end) - starts >= _FILLS * spent[best]
        own = np.flatnonzero(filling & np.isin(self._file.calls.kind[inside], _OWN))
        return int(inside[own[-1] if len(own) else best])


def _interned(name: str | None) -> str | None:
    return None if name is None else sys.intern(name)


# A cause with less of the window than this is no story, and its gaps are not looked at.
LEAST_SHARE = 0.005
# Gaps whose surroundings are read for a function's name or a save, the costliest first.
_MAX_READ = 200
# Host events named behind a cause; the first has most of the time.
_MAX_EVENTS = 8
# Without steps, gaps that lie closer together than this belong to one stop.
_SAME_STOP = PS_PER_MS
# What has less than this part of the largest stop is none.
_LEAST_STOP = 0.01


@dataclass(frozen=True)
class Claim:
    """Which idle time of a GPU findings with better evidence have taken.

    Attributes:
        placed: what the host does between the two copies of a bounce.
        copied: what it spends inside blocking copies.
        contended: the part of launching that a host with free processors would not need.
    """

    placed: bool = False
    copied: bool = False
    contended: bool = False


@dataclass(frozen=True)
class ChargedGap:
    """One idle gap with a part charged to a cause.

    Attributes:
        charge: that part in picoseconds.
        start, end: of the gap.
        step: recorded number of the step of the work that ends it, None for none.
        event, thread: host event that explains it and where it ran, None where nothing was recorded.
        before: name of the kernel or copy that ends it, None at the window's end.
    """

    charge: int
    start: int
    end: int
    step: int | None
    event: str | None
    thread: str | None
    before: str | None


@dataclass(frozen=True)
class EventBehind:
    """A host event behind idle time of one cause: the time of gaps that are mostly due to it, and its main thread's."""

    name: str
    time: int
    thread: str
    thread_time: int


@dataclass(frozen=True)
class Stops:
    """Stretches of charged gaps where there are no steps to count them by: how many, the median and the longest."""

    count: int
    typical: float
    longest: int


@dataclass(frozen=True)
class CauseFacts:
    """Idle time of one GPU that is charged to one cause; see `LEAST_SHARE`.

    Attributes:
        gaps: how many gaps have a part of it.
        typical, longest: median and largest charge of those gaps in picoseconds.
        half: the fewest gaps that make up half of it.
        worst: the costliest gaps, the costliest first.
        events: host events behind it, the one with most of the time first.
        stops: None where steps tell more.
    """

    gaps: int
    typical: float
    longest: int
    half: int
    worst: tuple[ChargedGap, ...]
    events: tuple[EventBehind, ...]
    stops: Stops | None


NO_GAPS = CauseFacts(0, 0.0, 0, 0, (), (), None)


@dataclass(frozen=True)
class IdleFacts:
    """The idle time of one GPU.

    Attributes:
        account: where its window went.
        by_cause: by `Cause`.
        per_step: idle time in each complete step, by `Cause`; empty without complete steps.
        waits: what is behind the gaps charged to ``sync``; None without any.
        functions: what was compiled in the gaps charged to ``compile``, and the time of each.
        saves: what was saved in those charged to ``checkpoint``: a number for each save, and how long it took.
    """

    account: DeviceAccounting
    by_cause: tuple[CauseFacts, ...]
    per_step: tuple[tuple[int, ...], ...]
    waits: Waits | None
    functions: tuple[tuple[str, int], ...]
    saves: tuple[tuple[int, int], ...]

    def of(self, cause: Cause) -> CauseFacts:
        """What one cause has."""
        return self.by_cause[cause]

    def share(self, cause: Cause) -> float:
        """The part of the window that is charged to a cause."""
        return self.account.idle_of(cause) / self.account.wall if self.account.wall else 0.0


@dataclass(frozen=True)
class GpuIdle:
    """The idle time of one GPU, as it is and without what may be claimed of it."""

    whole: IdleFacts
    left: tuple[tuple[Claim, IdleFacts], ...]

    def without(self, claim: Claim) -> IdleFacts:
        """What is left beside a claim; parts of it that take nothing here do not matter."""
        known = [other for other, _ in self.left]
        effective = Claim(
            claim.placed and any(other.placed for other in known),
            claim.copied and any(other.copied for other in known),
            claim.contended and any(other.contended for other in known),
        )
        return next((facts for other, facts in self.left if other == effective), self.whole)


class IdleGathering:
    """Gathers the idle facts of the GPUs of one file.

    Args:
        file: the columns.
        limit: gaps to keep of each cause as evidence.
    """

    def __init__(self, file: FileColumns, limit: int) -> None:
        self._file = file
        self._most = limit
        self._waits: WaitFinder | None = None

    def of_gpu(self, device: int) -> GpuIdle | None:
        """The facts of one GPU, None where it has no accounting."""
        account, gaps = self._file.account(device), self._file.analysis.gaps
        if account is None:
            return None
        rows = gap_rows(gaps, device)
        costs = self._file.analysis.step_costs
        per_step: tuple[tuple[int, ...], ...] = ()
        if costs is not None and len(costs.wall):
            none = (0,) * len(costs.wall)
            columns = [costs.idle[:, device, cause] for cause in Cause]
            per_step = tuple(tuple(column.tolist()) if column.any() else none for column in columns)
        table = _GapTable(self._file, rows, gaps.by_cause[rows], gaps.cause[rows])
        whole = self._facts(table, account, per_step, None)
        return GpuIdle(whole, tuple(self._left(device, table, whole)))

    def _left(self, device: int, table: _GapTable, whole: IdleFacts) -> Iterator[tuple[Claim, IdleFacts]]:
        analysis, rows = self._file.analysis, table.rows
        bounces, transfers = analysis.bounces, analysis.transfers
        crowded = [item.gap_part[rows] for item in analysis.contention if item.device == device]
        can_place = bounces is not None and bool(bounces.gap_part[rows].any())
        can_copy = transfers is not None and bool(transfers.gap_wait[rows].any())
        can_contend = any(bool(part.any()) for part in crowded)
        options = [(False, True) if possible else (False,) for possible in (can_place, can_copy, can_contend)]
        for claim in [Claim(*flags) for flags in product(*options)][1:]:
            amount = np.zeros(len(table.by_cause), np.int64)
            own = bounces if claim.placed else None
            if own is not None:
                amount += own.gap_part[rows]
            if claim.copied:
                amount += blocking_waits(self._file, device, own)
            if claim.contended:
                for part in crowded:
                    amount += part
            yield claim, self._without(device, table, whole, amount)

    def _without(self, device: int, table: _GapTable, whole: IdleFacts, amount: Int64) -> IdleFacts:
        """The facts without ``amount`` picoseconds of each gap, as far as they are charged to the host."""
        by_cause, left = table.by_cause.copy(), amount.copy()
        for cause in CLAIMABLE:
            taken = np.minimum(by_cause[:, cause], left)
            by_cause[:, cause] -= taken
            left -= taken
        removed = table.by_cause - by_cause
        touched = removed.any(axis=1)
        if not touched.any():
            return whole
        main = np.where(touched, by_cause.argmax(axis=1), table.cause).astype(np.uint8)
        gone = removed.sum(axis=0)
        account = whole.account
        account = replace(
            account,
            idle=account.idle - int(gone.sum()),
            idle_by_cause=tuple(int(v) for v in np.array(account.idle_by_cause) - gone),
        )
        per_step = list(whole.per_step)
        if per_step:
            start = self._file.analysis.gaps.start[table.rows]
            for cause in CLAIMABLE:
                if removed[:, cause].any():
                    lost = sum_by_step(self._file.analysis.steps, device, start, removed[:, cause])
                    per_step[cause] = tuple((np.array(per_step[cause], np.int64) - lost).tolist())
        changed = _GapTable(self._file, table.rows, by_cause, main)
        return self._facts(changed, account, tuple(per_step), (table, whole))

    def _facts(
        self,
        table: _GapTable,
        account: DeviceAccounting,
        per_step: tuple[tuple[int, ...], ...],
        known: tuple[_GapTable, IdleFacts] | None,
    ) -> IdleFacts:
        """The facts of a table; what is the same in a known one is taken from there."""
        same = (lambda _: False) if known is None else known[0].same_causes(table)
        by_cause = []
        for cause in Cause:
            if known is not None and same(cause):
                by_cause.append(known[1].by_cause[cause])
            elif account.wall > 0 and account.idle_of(cause) >= LEAST_SHARE * account.wall:
                by_cause.append(table.facts(cause, self._most, not per_step))
            else:
                by_cause.append(NO_GAPS)
        waits: Waits | None = None
        functions: tuple[tuple[str, int], ...] = ()
        saves: tuple[tuple[int, int], ...] = ()
        if by_cause[Cause.SYNC].gaps:
            waits = known[1].waits if known is not None and same(Cause.SYNC) else self._waits_of(table)
        if by_cause[Cause.COMPILE].gaps:
            functions = known[1].functions if known is not None and same(Cause.COMPILE) else self._functions(table)
        if by_cause[Cause.CHECKPOINT].gaps:
            saves = known[1].saves if known is not None and same(Cause.CHECKPOINT) else self._saves(table)
        return IdleFacts(account, tuple(by_cause), per_step, waits, functions, saves)

    def _waits_of(self, table: _GapTable) -> Waits:
        if self._waits is None:
            self._waits = WaitFinder(self._file)
        rows, charges = table.costliest(Cause.SYNC, _MAX_READ)
        return self._waits.before(rows.tolist(), charges.tolist(), self._most)

    def _functions(self, table: _GapTable) -> tuple[tuple[str, int], ...]:
        """Time of each function that the gaps charged to compilation wait for."""
        found: dict[str, int] = {}
        for event, charge in table.events(Cause.COMPILE, _MAX_READ):
            name = self._file.calls.compiled_function(event)
            if name is not None:
                found[name] = found.get(name, 0) + charge
        return tuple(found.items())

    def _saves(self, table: _GapTable) -> tuple[tuple[int, int], ...]:
        """The saves behind the gaps charged to saving: host row and duration."""
        found: dict[int, int] = {}
        for event, _ in table.events(Cause.CHECKPOINT, _MAX_READ):
            save = self._file.calls.outermost(event, Kind.CHECKPOINT)
            found[save] = int(self._file.trace.host_events.duration[save])
        return tuple(found.items())


@dataclass(frozen=True, eq=False)
class _GapTable:
    """The gaps of one GPU with what is charged to each cause.

    Attributes:
        file: the columns.
        rows: of the gaps.
        by_cause: time charged to each cause, shape (gaps, causes).
        cause: the one with most of each gap.
    """

    file: FileColumns
    rows: slice
    by_cause: Int64
    cause: UInt8

    def same_causes(self, other: _GapTable) -> _Same:
        """Which causes have the same gaps in another table of the same GPU."""
        return _Same(
            (self.by_cause == other.by_cause).all(axis=0),
            [
                not ((self.cause == cause) != (other.cause == cause))[other.by_cause[:, cause] > 0].any()
                for cause in Cause
            ],
        )

    def costliest(self, cause: Cause, limit: int | None = None) -> tuple[Int64, Int64]:
        """Rows of the gaps with a part charged to a cause and those parts, the costliest first."""
        charges = self.by_cause[:, cause]
        rows = np.flatnonzero(charges)
        order = np.argsort(-charges[rows], kind="stable")[:limit]
        return rows[order] + self.rows.start, charges[rows[order]]

    def events(self, cause: Cause, limit: int) -> Iterator[tuple[int, int]]:
        """(host event, charge) of the costliest gaps that a cause has most of and an event proves."""
        gaps = self.file.analysis.gaps
        for row, charge in zip(*(column.tolist() for column in self.costliest(cause, limit)), strict=True):
            event = int(gaps.evidence[row])
            if event >= 0 and self.cause[row - self.rows.start] == cause:
                yield event, charge

    def facts(self, cause: Cause, limit: int, count_stops: bool) -> CauseFacts:
        """What a cause has."""
        rows, charges = self.costliest(cause)
        if not len(rows):
            return NO_GAPS
        reached = np.cumsum(charges)
        worst = zip(rows[:limit].tolist(), charges[:limit].tolist(), strict=True)
        return CauseFacts(
            gaps=len(rows),
            typical=float(np.median(charges)),
            longest=int(charges[0]),
            half=int(np.searchsorted(reached, reached[-1] / 2)) + 1,
            worst=tuple(self._gap(row, charge) for row, charge in worst),
            events=self._events_behind(cause, rows, charges),
            stops=self._stops(rows, charges) if count_stops else None,
        )

    def _gap(self, row: int, charge: int) -> ChargedGap:
        gaps, file = self.file.analysis.gaps, self.file
        after, event = int(gaps.after[row]), int(gaps.evidence[row])
        return ChargedGap(
            charge=charge,
            start=int(gaps.start[row]),
            end=int(gaps.end[row]),
            step=file.step_number(after),
            event=file.host_name(event) if event >= 0 else None,
            thread=file.host_thread(event) if event >= 0 else None,
            before=file.device_name(after) if after >= 0 else None,
        )

    def _events_behind(self, cause: Cause, rows: Int64, charges: Int64) -> tuple[EventBehind, ...]:
        gaps, trace = self.file.analysis.gaps, self.file.trace
        known = (self.cause[rows - self.rows.start] == cause) & (gaps.evidence[rows] >= 0)
        events, weights = gaps.evidence[rows[known]], charges[known].astype(np.float64)
        if not len(events):
            return ()
        name, thread = trace.host_events.name[events], trace.host_events.thread[events]
        by_name = np.bincount(name, weights)
        found = []
        for top in np.argsort(-by_name, kind="stable")[:_MAX_EVENTS].tolist():
            if by_name[top] <= 0:
                break
            mine = name == top
            by_thread = np.bincount(thread[mine], weights[mine])
            main = int(np.argmax(by_thread))
            found.append(
                EventBehind(self.file.text(top), int(by_name[top]), trace.threads[main].name, int(by_thread[main]))
            )
        return tuple(found)

    def _stops(self, rows: Int64, charges: Int64) -> Stops:
        gaps, order = self.file.analysis.gaps, np.argsort(rows)
        rows, charges = rows[order], charges[order]
        stop = np.concatenate(([0], np.cumsum(gaps.start[rows[1:]] - gaps.end[rows[:-1]] >= _SAME_STOP)))
        lost = np.bincount(stop, weights=charges.astype(np.float64))
        lost = lost[lost >= _LEAST_STOP * lost.max()]
        return Stops(len(lost), float(np.median(lost)), int(lost.max()))


@dataclass(frozen=True, eq=False)
class _Same:
    """Whether a cause has the same charges and is the main one of the same gaps."""

    charges: BoolArray
    main: list[bool]

    def __call__(self, cause: Cause) -> bool:
        return bool(self.charges[cause]) and self.main[cause]
