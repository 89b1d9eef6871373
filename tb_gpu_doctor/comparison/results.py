"""What a comparison of two runs says: frozen, typed, free of any language. Times in picoseconds per unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tb_gpu_doctor.comparison.bootstrap import Interval
from tb_gpu_doctor.comparison.scaling import BatchGrids
from tb_gpu_doctor.comparison.summary import RunSummary
from tb_gpu_doctor.diagnosis.model import Phrase

Outcome = Literal["faster", "slower", "same", "inconclusive", "not_comparable"]
Unit = Literal["step", "sample", "window"]
FindingChange = Literal["solved", "new", "better", "worse", "unchanged", "cannot_tell"]
KernelChangeKind = Literal["added", "gone", "changed"]


@dataclass(frozen=True)
class PartChange:
    """One part of the unit's time, before and after; the parts' ``after - before`` sum to that of the whole.

    ``difference`` is None where steps are too few for an interval.
    """

    part: str
    before: float
    after: float
    difference: Interval | None


@dataclass(frozen=True)
class KernelChange:
    """One kernel of one shape, per GPU and unit; ``before`` and ``after`` are 0 where it does not occur."""

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    kind: KernelChangeKind
    calls_before: float
    calls_after: float
    before: float
    after: float
    occupancy_before: float | None
    occupancy_after: float | None

    @property
    def difference(self) -> float:
        """After - before."""
        return self.after - self.before


@dataclass(frozen=True)
class FindingComparison:
    """A finding kind in both runs; costs are savings per unit, None where not told.

    ``part_of_...`` is the kind that the diagnosis tells it as a part of.
    """

    kind: str
    change: FindingChange
    severity_before: str | None
    severity_after: str | None
    cost_before: float | None
    cost_after: float | None
    share_before: float | None
    share_after: float | None
    cause_before: str | None = None
    cause_after: str | None = None
    part_of_before: str | None = None
    part_of_after: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        before, after: what was compared.
        outcome: of the time per unit.
        unit: what times are per: a step; a sample where batches differ and are known; a millisecond of the window
            where there are no steps.
        reasons: why the outcome is what it is, the weightiest first.
        obstacles: what makes the runs hard or impossible to compare, loudest first.
        change: relative change of the mean time per unit, None without steps.
        time_before, time_after: mean time per unit, None without steps.
        parts: in the order of `step_parts.PART_IDS`, those that occur.
        kernels: largest change first.
        kernel_time_before, kernel_time_after: sums over all kernels.
        findings: solved ones first, then new and worse ones, then the rest.
        grids: from which batch on they fill the GPU, where two batches tell.
    """

    before: RunSummary
    after: RunSummary
    outcome: Outcome
    unit: Unit
    reasons: tuple[Phrase, ...]
    obstacles: tuple[Phrase, ...]
    change: Interval | None
    time_before: float | None
    time_after: float | None
    parts: tuple[PartChange, ...]
    kernels: tuple[KernelChange, ...]
    kernel_time_before: float
    kernel_time_after: float
    findings: tuple[FindingComparison, ...]
    grids: BatchGrids | None = None
