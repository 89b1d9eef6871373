"""Who of a job is slower than the others, and what is known of why: shared by the monitor, live, and by telemetry.

Steps are compared in blocks of equal numbers, by the median of each block, so that neither a save on one rank nor a
single slow step counts. A rank is slow where it takes a fifth longer than the others' median for a hundred steps.
Ranks that wait for each other in every step have equal steps, whoever is to blame; there the GPUs tell (`holds_up`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

BLOCK_STEPS = 20
# A hundred steps in a row.
SLOW_BLOCKS = 5
SLOWER = 0.20
# Ranks in lockstep agree on the time of a block this well.
_LOCKSTEP = 0.05

Reason = Literal["heat", "power", "model", "shared", "clock", "idle", "work", "unknown"]
# A clock below this part of the others' makes a GPU slow.
_LOW_CLOCK = 0.90
# Throttled for this part of the time, the others hardly.
_THROTTLED, _FREE = 0.50, 0.10
# A GPU that does less by so many points of its time waits for its host; one that does as much has more to do.
_IDLER_POINTS, _EQUAL_POINTS = 15.0, 5.0
# Whoever waits in a collective spins.
_SPINNING_PERCENT = 90.0


@dataclass(frozen=True)
class Slow:
    """One rank that was slower than the others.

    Attributes:
        rank: its key.
        first_step, last_step: of the blocks in a row, the last such row.
        ratio: median over these blocks of its time by the others' median.
        own_ns, others_ns: median step of the rank and of the others there.
    """

    rank: str
    first_step: int
    last_step: int
    ratio: float
    own_ns: float
    others_ns: float

    @property
    def steps(self) -> int:
        """How many steps it has lasted."""
        return self.last_step - self.first_step + 1


@dataclass(frozen=True)
class Condition:
    """How the GPU of a rank was over some time; None where not recorded.

    Attributes:
        name: the model.
        clock_mhz, utilization_percent, temperature_celsius: medians or means.
        heat, power: the part of the time, 0..1, in which it was throttled for that.
        others: most other processes on it.
    """

    name: str | None = None
    clock_mhz: float | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    heat: float | None = None
    power: float | None = None
    others: float | None = None


def slower(paces: Mapping[str, Mapping[int, float]]) -> list[Slow]:
    """The ranks that were slow for a hundred steps in a row, the slowest first.

    Args:
        paces: median nanoseconds of a step by number of the block (step // BLOCK_STEPS), by rank. Blocks that a rank
            lacks end a row.
    """
    found = []
    for rank, own in paces.items():
        others = [pace for other, pace in paces.items() if other != rank]
        ratios: dict[int, tuple[float, float]] = {}
        for block, length in own.items():
            known = [pace[block] for pace in others if block in pace]
            # Of a job most ranks must be there to be compared with.
            if known and len(known) >= len(others) / 2 and median(known) > 0:
                ratios[block] = (length / median(known), median(known))
        row = _last_row([block for block in sorted(ratios) if ratios[block][0] >= 1 + SLOWER])
        if len(row) >= SLOW_BLOCKS:
            found.append(
                Slow(
                    rank,
                    row[0] * BLOCK_STEPS,
                    (row[-1] + 1) * BLOCK_STEPS - 1,
                    median(ratios[block][0] for block in row),
                    median(own[block] for block in row),
                    median(ratios[block][1] for block in row),
                )
            )
    # Where half of the ranks are slower than the others, the job is uneven by design.
    return sorted(found, key=lambda slow: -slow.ratio) if 2 * len(found) <= len(paces) else []


def _last_row(blocks: Sequence[int]) -> list[int]:
    """The last stretch of consecutive numbers that is long enough, else the last one."""
    rows: list[list[int]] = []
    for block in blocks:
        if rows and block == rows[-1][-1] + 1:
            rows[-1].append(block)
        else:
            rows.append([block])
    long = [row for row in rows if len(row) >= SLOW_BLOCKS]
    return (long or rows or [[]])[-1]


def in_lockstep(paces: Mapping[str, Mapping[int, float]]) -> tuple[int, int] | None:
    """First and last step of the blocks, a hundred steps at least, in which all ranks took equally long; else None."""
    if len(paces) < 2:
        return None
    common = sorted(set.intersection(*(set(pace) for pace in paces.values())))
    even = [
        block
        for block in common
        if max(pace[block] for pace in paces.values())
        <= (1 + _LOCKSTEP) * median(pace[block] for pace in paces.values())
    ]
    if len(even) < SLOW_BLOCKS or 2 * len(even) < len(common):
        return None
    return even[0] * BLOCK_STEPS, (even[-1] + 1) * BLOCK_STEPS - 1


def holds_up(conditions: Mapping[str, Condition]) -> tuple[str, Reason] | None:
    """Of ranks in lockstep the one for which the others wait, as far as their GPUs tell; None where they do not.

    Its GPU runs at a lower clock than all others, by a fifth; or it rests while all others spin.
    """
    if len(conditions) < 2:
        return None
    clocks = {rank: found.clock_mhz for rank, found in conditions.items() if found.clock_mhz}
    if len(clocks) == len(conditions) and len({found.name for found in conditions.values()}) == 1:
        slowest = min(clocks, key=lambda rank: clocks[rank] or 0.0)
        least = min(clock or 0.0 for rank, clock in clocks.items() if rank != slowest)
        if (clocks[slowest] or 0.0) * (1 + SLOWER) <= least:
            others = [found for rank, found in conditions.items() if rank != slowest]
            return slowest, reason_of(conditions[slowest], others)
    loads = {
        rank: found.utilization_percent for rank, found in conditions.items() if found.utilization_percent is not None
    }
    if len(loads) == len(conditions) and len(loads) > 2:
        idlest = min(loads, key=lambda rank: loads[rank] or 0.0)
        rest = [load for rank, load in loads.items() if rank != idlest]
        if min(rest) >= _SPINNING_PERCENT and (loads[idlest] or 0.0) <= min(rest) - 100 * SLOWER:
            return idlest, "idle"
    return None


def reason_of(own: Condition, others: Sequence[Condition]) -> Reason:
    """Why a rank may be slow, by what its GPU did and the others' did not; the surest first."""
    for kind in ("heat", "power"):
        mine: float | None = getattr(own, kind)
        theirs = [value for other in others if (value := getattr(other, kind)) is not None]
        if mine is not None and mine >= _THROTTLED and all(value <= _FREE for value in theirs):
            return "heat" if kind == "heat" else "power"
    names = {other.name for other in others}
    if own.name and len(names) == 1 and None not in names and own.name not in names:
        return "model"
    if own.others and not any(other.others for other in others):
        return "shared"
    clocks = [other.clock_mhz for other in others if other.clock_mhz]
    if own.clock_mhz and clocks and own.clock_mhz <= _LOW_CLOCK * median(clocks):
        return "clock"
    loads = [other.utilization_percent for other in others if other.utilization_percent is not None]
    if own.utilization_percent is not None and loads:
        if own.utilization_percent <= median(loads) - _IDLER_POINTS:
            return "idle"
        if own.utilization_percent >= median(loads) - _EQUAL_POINTS and clocks and own.clock_mhz:
            return "work"
    return "unknown"
