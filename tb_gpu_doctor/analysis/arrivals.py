"""GPUs that wait for each other, side by side: those of one file, or of all files that share collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.blame import components, who_meets
from tb_gpu_doctor.analysis.facts import FileFacts, GpuFacts
from tb_gpu_doctor.analysis.job import Job
from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting, Float64
from tb_gpu_doctor.traces.columns import Int64


@dataclass(frozen=True, eq=False)
class Member:
    """One GPU: its file and its index in there."""

    file: FileFacts
    device: int

    @property
    def gpu(self) -> GpuFacts:
        """The GPU."""
        return self.file.gpus[self.device]

    @property
    def window(self) -> int:
        """Length of its file's window, 0 without any."""
        return 0 if self.file.window is None else self.file.window.length


@dataclass(frozen=True)
class Arrivals:
    """GPUs and how far each was behind the first, in collectives or, without any, in compute.

    Attributes:
        members: the GPUs, shape (p,).
        behind: picoseconds behind the first that are the member's own doing (see `blame`), shape (k, p).
        among: a number for who meets whom, equal for collectives of the same members; shape (k,).
        start: own start of each collective on the member's clock, shape (k, p); None without collectives.
        step: an id of the step of each row, -1 for none; shape (k,).
        number: its recorded number, shape (k,).
        exposed: time that each member shows in waiting for others, or could, shape (p,); windows differ by a
            step or so between files, so it is scaled to the mean window.
        window: mean length of the members' windows.
        per_step: factor from a total over the window to the mean per step, None without steps.
    """

    members: tuple[Member, ...]
    behind: Float64
    among: Int64
    start: Int64 | None
    step: Int64
    number: Int64
    exposed: Float64
    window: float
    per_step: float | None

    def units(self, least: int) -> tuple[Float64, bool]:
        """``behind`` summed per step, and True; with fewer steps than ``least`` as it is, and False.

        Who is late to several groups is late once: that to which it is latest counts.
        """
        numbers, at = np.unique(self.step, return_inverse=True)
        known = numbers >= 0
        if np.count_nonzero(known) < least:
            return self.behind, False
        most = np.zeros((len(numbers), len(self.members)))
        for meeting in np.unique(self.among).tolist():
            rows = np.flatnonzero(self.among == meeting)
            summed = np.zeros_like(most)
            np.add.at(summed, at[rows], self.behind[rows])
            most = np.maximum(most, summed)
        return most[known], True

    def numbers_of_units(self) -> Int64:
        """The recorded number of each step of `units`, shape (steps,)."""
        steps, first = np.unique(self.step, return_index=True)
        return self.number[first[steps >= 0]]

    def lateness(self, is_late: Callable[[Member], bool], numbers: Sequence[int]) -> tuple[float, float]:
        """How late some members were in the steps of some numbers, and in all; picoseconds."""
        columns = [column for column, member in enumerate(self.members) if is_late(member)]
        behind = self.behind[:, columns].sum(axis=1)
        inside = np.isin(self.number, sorted(numbers)) & (self.step >= 0)
        return float(behind[inside].sum()), float(behind.sum())


def find_arrivals(files: Sequence[FileFacts], job: Job) -> Iterator[Arrivals]:
    """The comparisons that can be made: over all GPUs that share collectives, else file by file."""
    joined = set()
    for found in _of_job(files, job):
        yield found
        joined |= {id(member.file) for member in found.members}
    for file in files:
        if id(file) in joined or file.window is None or sum(gpu.worked for gpu in file.gpus) < 2:
            continue
        single = _of_file(file)
        if single is not None:
            yield single


def _of_job(files: Sequence[FileFacts], job: Job) -> Iterator[Arrivals]:
    """Those of each set of GPUs that share collectives, directly or through others; sets that do not are no peers."""
    lateness = job.lateness
    if lateness is None:
        return
    # In one file without marked steps the file's own comparison knows more: it has inferred steps.
    if lateness.method == "one_clock" and (lateness.collectives.step < 0).all():
        return
    found = lateness.collectives
    members = [
        Member(files[which], device) for which, device in zip(found.trace.tolist(), found.device.tolist(), strict=True)
    ]
    # Across clocks less than the error is nothing.
    behind = np.where(lateness.behind > lateness.error, lateness.own, 0).astype(np.float64)
    present = found.present
    among = who_meets(present)
    for columns in components(present):
        rows = np.flatnonzero(present[:, columns].any(axis=1))
        own, start, step = behind[np.ix_(rows, columns)], found.start[np.ix_(rows, columns)], found.step[rows]
        made = _arrivals(tuple(members[i] for i in columns), own, among[rows], start, step, step, _waiting)
        if made is not None:
            yield made


def _of_file(file: FileFacts) -> Arrivals | None:
    known = file.arrivals
    if known is None:
        return _by_compute(file)
    behind = np.array(known.behind, np.int64).reshape(-1, len(known.devices))
    step = np.array(known.step, np.int64)
    numbers = np.append(np.array(file.steps.numbers, np.int64), -1)  # the last one serves -1
    members = tuple(Member(file, device) for device in known.devices)
    start = np.array(known.first, np.int64)[:, None] + behind
    # by place rather than by number: steps of two loops may carry the same
    return _arrivals(members, behind.astype(np.float64), np.zeros_like(step), start, step, numbers[step], _waiting)


def _by_compute(file: FileFacts) -> Arrivals | None:
    """Compute per complete step behind the GPU with the least, for the GPUs that compute at all."""
    if file.steps.source != "marked":
        return None  # inferred steps of one GPU need not be those of another
    devices = [i for i, gpu in enumerate(file.gpus) if gpu.steps is not None and gpu.worked and gpu.compute > 0]
    if len(devices) < 2:
        return None
    columns = [steps.compute for i in devices if (steps := file.gpus[i].steps) is not None]
    compute = np.array(columns, np.float64).T
    members = tuple(Member(file, device) for device in devices)
    number = np.array(file.steps.numbers, np.int64)
    behind = compute - compute.min(axis=1, keepdims=True)
    same, step = np.zeros_like(number), np.arange(len(number))
    return _arrivals(members, behind, same, None, step, number, lambda a: a.communication + a.idle)


def _arrivals(
    members: tuple[Member, ...],
    behind: Float64,
    among: Int64,
    start: Int64 | None,
    step: Int64,
    number: Int64,
    exposed: Callable[[DeviceAccounting], int],
) -> Arrivals | None:
    accounts = [account for member in members if (account := member.gpu.account) is not None]
    if not len(behind) or len(accounts) < len(members):
        return None
    window = float(np.mean([member.window for member in members]))
    factors = [member.file.per_step for member in members]
    known = [factor for factor in factors if factor is not None]
    return Arrivals(
        members=members,
        behind=behind,
        among=among,
        start=start,
        step=step,
        number=number,
        exposed=np.array([exposed(account) / max(1, account.wall) * window for account in accounts]),
        window=window,
        per_step=float(np.mean(known)) if len(known) == len(factors) else None,
    )


def _waiting(account: DeviceAccounting) -> int:
    """Time a GPU shows in communication, or idle because of other GPUs."""
    return account.communication + account.idle_of(Cause.PEER) + account.idle_of(Cause.DEPENDENCY)


def per_window(members: Sequence[Member], value: Callable[[Member], float]) -> Float64:
    """What each member shows as a share of its own window, shape (p,): files' windows differ by a step or so."""
    return np.array([value(member) / max(1, member.window) for member in members])
