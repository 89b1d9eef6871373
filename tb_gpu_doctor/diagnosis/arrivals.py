"""GPUs that wait for each other, side by side: those of one file, or of all files that share collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.results import Cause, DeviceAccounting
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.context import Context, HostProfile
from tb_gpu_doctor.diagnosis.model import GpuRef
from tb_gpu_doctor.traces.columns import Int32, Int64

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.rules.imbalance import Limits

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Member:
    """One GPU: its file and its index in there."""

    profile: HostProfile
    device: int

    @property
    def ref(self) -> GpuRef:
        """The GPU by name."""
        return self.profile.ref(self.device)

    @property
    def window(self) -> int:
        """Length of its file's window, 0 without any."""
        found = self.profile.analysis.window
        return 0 if found is None else found.length

    @property
    def account(self) -> DeviceAccounting | None:
        """Where its window went."""
        return next((a for a in self.profile.analysis.accounting if a.device == self.device), None)


@dataclass(frozen=True)
class Arrivals:
    """GPUs and how far each was behind the first, in collectives or, without any, in compute.

    Attributes:
        members: the GPUs, shape (p,).
        behind: picoseconds behind the first, shape (k, p).
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
    start: Int64 | None
    step: Int64
    number: Int64
    exposed: Float64
    window: float
    per_step: float | None

    def units(self, limits: Limits) -> tuple[Float64, bool]:
        """``behind`` summed per step, and True; with too few steps as it is, and False."""
        numbers, at = np.unique(self.step, return_inverse=True)
        known = numbers >= 0
        if np.count_nonzero(known) < limits.min_units:
            return self.behind, False
        summed = np.zeros((len(numbers), len(self.members)))
        np.add.at(summed, at, self.behind)
        return summed[known], True


def find_arrivals(context: Context) -> Iterator[Arrivals]:
    """The comparisons that can be made: over all files where they share collectives, else file by file."""
    found = _of_job(context)
    if found is not None:
        yield found
    joined = {id(member.profile) for member in found.members} if found is not None else set()
    alone = [
        profile
        for profile in context.profiles
        if id(profile) not in joined and profile.analysis.window is not None and len(profile.active_devices) > 1
    ]
    entered = iter(ask(_entered, [(profile,) for profile in alone if profile.analysis.lateness is not None]))
    for profile in alone:
        single = _of_profile(profile, None if profile.analysis.lateness is None else next(entered))
        if single is not None:
            yield single


def _of_job(context: Context) -> Arrivals | None:
    lateness = context.job.lateness
    if lateness is None:
        return None
    # In one file without marked steps the file's own comparison knows more: it has inferred steps.
    if lateness.method == "one_clock" and (lateness.collectives.step < 0).all():
        return None
    found = lateness.collectives
    members = tuple(
        Member(context.profiles[trace], device)
        for trace, device in zip(found.trace.tolist(), found.device.tolist(), strict=True)
    )
    # Across clocks less than the error is nothing.
    behind = np.where(lateness.behind > lateness.error, lateness.behind, 0).astype(np.float64)
    return _arrivals(members, behind, found.start, found.step, found.step, _waiting)


def _entered(profile: HostProfile) -> tuple[Int64, Int32] | None:
    """Starts of the collectives inside the window, on each GPU that takes part, and their steps; None for no match."""
    lateness, window = profile.analysis.lateness, profile.analysis.window
    if lateness is None or window is None or not len(lateness.start):
        return None
    inside = (lateness.start.max(axis=1) < window.end) & (lateness.end.max(axis=1) > window.start)
    return lateness.start[inside], lateness.step[inside]


def _of_profile(profile: HostProfile, entered: tuple[Int64, Int32] | None) -> Arrivals | None:
    lateness, steps = profile.analysis.lateness, profile.analysis.steps
    if lateness is None or entered is None:
        return _by_compute(profile)
    start, index = entered
    step = np.full(len(start), -1, np.int64)
    known = index >= 0
    known[known] = steps.complete[index[known]]
    # by row rather than by number: steps of two loops may carry the same
    step[known] = index[known]
    behind = (start - start.min(axis=1, keepdims=True)).astype(np.float64)
    number = np.where(step >= 0, steps.number[step] if len(steps.number) else -1, -1)
    members = tuple(Member(profile, device) for device in lateness.devices.tolist())
    return _arrivals(members, behind, start, step, number, _waiting)


def _by_compute(profile: HostProfile) -> Arrivals | None:
    """Compute per complete step behind the GPU with the least, for the GPUs that compute at all."""
    steps = profile.analysis.steps
    if steps.source != "marked":
        return None  # inferred steps of one GPU need not be those of another
    rows = [s for s in profile.analysis.summaries if len(s.compute_per_step) and s.compute > 0]
    if len(rows) < 2:
        return None
    compute = np.stack([row.compute_per_step for row in rows], axis=1).astype(np.float64)
    members = tuple(Member(profile, row.device) for row in rows)
    number = steps.number[np.flatnonzero(steps.complete)]
    behind = compute - compute.min(axis=1, keepdims=True)
    return _arrivals(members, behind, None, np.arange(len(number)), number, lambda a: a.communication + a.idle)


def _arrivals(
    members: tuple[Member, ...],
    behind: Float64,
    start: Int64 | None,
    step: Int64,
    number: Int64,
    exposed: Callable[[DeviceAccounting], int],
) -> Arrivals | None:
    accounts = [account for member in members if (account := member.account) is not None]
    if not len(behind) or len(accounts) < len(members):
        return None
    window = float(np.mean([member.window for member in members]))
    factors = [member.profile.per_step for member in members]
    known = [factor for factor in factors if factor is not None]
    return Arrivals(
        members=members,
        behind=behind,
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


def refs(members: Sequence[Member]) -> tuple[GpuRef, ...]:
    """The GPUs by name, sorted."""
    return tuple(sorted(member.ref for member in members))
