"""One session in short: all that a comparison needs, small enough to be kept as a baseline."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.step_costs import PART_IDS

Float64 = NDArray[np.float64]
# More steps than this are kept as means of neighbours; intervals of the mean do not mind.
MAX_STEPS = 512
MAX_KERNELS = 300
# What telemetry tells of a run, by name.
TELEMETRY = (
    "utilization", "clock_mhz", "power_watts", "temperature_celsius", "memory_peak_bytes", "throttled",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelSum:
    """One kernel of one shape, per GPU and unit (step, or millisecond of the window without steps).

    Attributes:
        name: as recorded; empty in the last row when that holds all that are too many to list.
        grid, block: launch shape, None where not recorded.
        calls: how often.
        total_ps: how long.
        occupancy: theoretical, 0..1, None where unknown.
        wave_blocks: blocks that fill the GPU once, None where unknown.
    """

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    calls: float
    total_ps: float
    occupancy: float | None = None
    wave_blocks: int | None = None


@dataclass(frozen=True)
class FindingSum:
    """One finding without its words.

    ``gpus`` are numbers, of several hosts with the host's, never its name. ``part_of`` is the kind of the finding that
    it is told as a part of, None for one that is told by itself.
    """

    kind: str
    cause: str | None
    severity: str
    share: float | None
    saving_ps_per_step: float | None
    gpus: tuple[str, ...] = ()
    part_of: str | None = None


@dataclass(frozen=True)
class RunSummary:
    """What a comparison knows of one session.

    Attributes:
        label: how reports call it.
        format: of the files.
        verdict: of the diagnosis.
        models: names of the GPUs that worked, sorted, one a GPU; None where unnamed.
        hosts: how many files could be read.
        batch: samples of a step over all GPUs, None where not recorded.
        step_source: ``marked``, ``inferred`` or ``none``.
        step_count: complete steps before any folding.
        median_ps: median step, mean over the GPUs; None without steps.
        wall_ps: length of each complete step, mean over the GPUs, shape (n,), n at most `MAX_STEPS`.
        parts_ps: where it went by `PART_IDS`, shape (n, parts); rows sum to ``wall_ps``.
        window_ps: length of the analysed window, mean over the GPUs, 0 without any.
        window_parts: share of each part in the window, mean over the GPUs, shape (parts,); zeros without a window.
        kernels: longest first, by name and shape.
        findings: as the diagnosis orders them, then those that are told as a part of others.
        doubts: kinds of findings about the profile itself, such as ``serialized_kernels``.
        occupancy: weighted by time over the GPUs where it is known.
        telemetry: means over the GPUs by metric, those that were recorded.
        unread: how many files of the session could not be read, so that their GPUs are missing.
        cut: how many were cut off, so that the rest of their recording is missing.
        sm_count: multiprocessors of a GPU, None where that is unknown or differs.
        not_shown: kinds of findings that the profile could not have shown, however the run went; telemetry aside.
    """

    label: str
    format: str
    verdict: str
    models: tuple[str | None, ...]
    hosts: int
    batch: int | None
    step_source: str
    step_count: int
    median_ps: float | None
    wall_ps: Float64
    parts_ps: Float64
    window_ps: float
    window_parts: Float64
    kernels: tuple[KernelSum, ...]
    findings: tuple[FindingSum, ...]
    doubts: tuple[str, ...] = ()
    occupancy: float | None = None
    telemetry: dict[str, float] = field(default_factory=dict)
    not_shown: tuple[str, ...] = ()
    sm_count: int | None = None
    unread: int = 0
    cut: int = 0

    @property
    def gpu_count(self) -> int:
        """GPUs that worked."""
        return len(self.models)

    @property
    def mean_ps(self) -> float | None:
        """Mean step, None without steps."""
        return float(self.wall_ps.mean()) if len(self.wall_ps) else None

    @property
    def mean_parts(self) -> Float64:
        """Mean part of a step, shape (parts,); zeros without steps."""
        return self.parts_ps.mean(axis=0) if len(self.parts_ps) else np.zeros(len(PART_IDS))


def fold_steps(wall: Float64, parts: Float64, limit: int = MAX_STEPS) -> tuple[Float64, Float64]:
    """Means of equally many neighbouring steps, so that at most ``limit`` rows remain.

    The steps at the end that fill no group are left out, less than one in ``most / 2`` of them.
    """
    each = -(-len(wall) // limit)
    if each <= 1:
        return wall, parts
    rows = len(wall) // each
    kept = rows * each
    return (
        wall[:kept].reshape(rows, each).mean(axis=1),
        parts[:kept].reshape(rows, each, parts.shape[1]).mean(axis=1),
    )


def fold_kernels(kernels: list[KernelSum], limit: int = MAX_KERNELS) -> tuple[KernelSum, ...]:
    """The longest kernels, and the others as one nameless row, so that the sum stays."""
    ordered = sorted(kernels, key=lambda row: (-row.total_ps, row.name, str(row.grid), str(row.block)))
    if len(ordered) <= limit:
        return tuple(ordered)
    rest = ordered[limit - 1 :]
    calls, total = sum(row.calls for row in rest), sum(row.total_ps for row in rest)
    return (*ordered[: limit - 1], KernelSum("", None, None, calls, total))
