"""What the kernel analysis returns: times in picoseconds, shares 0..1, unknown values None (NaN in columns)."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces.columns import Int64

Float64 = NDArray[np.float64]
# Sums of durations: int64, or Python integers where those would not fit.
Sums = NDArray[Any]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel on one GPU over the whole recording (communication kernels included).

    Rows are grouped by (device, name, kernel details). Unknown values are None.

    Attributes:
        occupancy: theoretical occupancy, computed; as recorded where it cannot be computed.
        limiter: ``registers``, ``shared_memory``, ``block_size`` or ``blocks``.
        waves: blocks over what all SMs hold at once.
        sm_share: min(blocks / SMs, 1).
        family: one of `kernel_families.FAMILIES`.
        persistent: a kernel whose grid is sized to the chip by design.
        in_window_ps: union-free sum of its durations clipped to the window.
        recorded_occupancy: theoretical occupancy as the profile says.
        recorded_achieved: estimated achieved occupancy as the profile says (PyTorch).
        occupancy_differs: what the profile says and what was computed are further apart than rounding explains.
        achieved_occupancy: estimate: ``occupancy`` times the part of the slots for blocks that the grid fills.
        wave_blocks: blocks that fill all SMs once.
        tail: part of all slots that the last wave leaves empty; None below one wave.
        tensor_cores: one of `tensor_cores.TENSOR_CLASSES`; None on a GPU that has none, or of which it is unknown.
        data_type: of the factors of a product, by the kernel's name.
        flops, bytes_accessed: of all its calls, where the profile counts them for every call.
        bound: ``memory`` or ``compute``, where the profile counts both and the GPU's peaks are known.
    """

    device: int
    name: str
    calls: int
    total_ps: int
    min_ps: int
    max_ps: int
    share: float
    registers: int | None
    static_shared_bytes: int | None
    dynamic_shared_bytes: int | None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    occupancy: float | None
    limiter: str | None
    waves: float | None
    sm_share: float | None
    family: str
    persistent: bool
    op: str
    in_window_ps: int
    recorded_occupancy: float | None = None
    recorded_achieved: float | None = None
    occupancy_differs: bool = False
    achieved_occupancy: float | None = None
    wave_blocks: int | None = None
    tail: float | None = None
    tensor_cores: str | None = None
    data_type: str | None = None
    flops: int | None = None
    bytes_accessed: int | None = None
    bound: str | None = None

    def __post_init__(self) -> None:
        for name in ("name", "op"):  # the same in all tables of a job
            object.__setattr__(self, name, sys.intern(str(getattr(self, name))))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its values alone: a job of thousands of hosts has as many tables."""
        return KernelRow, tuple(getattr(self, spec.name) for spec in fields(self))

    @property
    def mean_ps(self) -> float:
        """Total / calls."""
        return self.total_ps / self.calls

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def block_threads(self) -> int | None:
        """Threads of a block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]

    @property
    def shared_bytes(self) -> int | None:
        """Static plus dynamic shared memory of a block; None when neither is known."""
        if self.static_shared_bytes is None and self.dynamic_shared_bytes is None:
            return None
        return (self.static_shared_bytes or 0) + (self.dynamic_shared_bytes or 0)


@dataclass(frozen=True)
class GpuFill:
    """How kernels fill one GPU, weighted by their time over the whole recording; communication is left out.

    Attributes:
        device: device index.
        kernel_ps: time of the kernels, communication included.
        occupancy, achieved_occupancy, sm_share: means over the kernels where each is known.
        occupancy_coverage: part of the time where ``occupancy`` is known.
        sm_share_in_window: the same as ``sm_share`` over the time inside the window.
        tensor_ps: time of matmul, convolution and attention by `tensor_cores.TENSOR_CLASSES`; None without any.
        family_ps: time by `kernel_families.FAMILIES`.
    """

    device: int
    kernel_ps: int
    occupancy: float | None
    occupancy_coverage: float
    achieved_occupancy: float | None
    sm_share: float | None
    sm_share_in_window: float | None
    tensor_ps: tuple[int, ...] | None
    family_ps: tuple[int, ...]


@dataclass(frozen=True)
class StepFill:
    """How kernels fill each GPU in each step of `Steps`; communication is left out; shape (steps, devices).

    Attributes:
        kernel_ps: time of the kernels that the step launched.
        occupancy, achieved_occupancy, sm_share: means weighted by time, NaN where unknown.
    """

    kernel_ps: Float64
    occupancy: Float64
    achieved_occupancy: Float64
    sm_share: Float64


@dataclass(frozen=True)
class OpTimes:
    """Kernel time by row of the table and op; sorted by row.

    Attributes:
        row: index into ``KernelTable.rows``.
        op: string id of the op (framework op, else HLO op), -1 for none.
        calls, total_ps: of the row's kernel launched by that op.
        scope: index into ``scopes`` of the layer that the op belongs to, -1 for none; None where no layers are known.
        scopes: names of layers from the outside in, where they do not stand in the op's name.
    """

    row: Int64
    op: Int64
    calls: Int64
    total_ps: Sums
    scope: Int64 | None = None
    scopes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class FusionCandidate:
    """The same short elementwise kernels, again and again one after another on one stream.

    Attributes:
        device: device index.
        rows: kernels of a run in order, as indices into ``KernelTable.rows``.
        ops: string ids of their ops in one run, -1 for none.
        kernels: how many kernels one run has; ``rows`` and ``ops`` hold the first of them.
        runs: how often it occurs.
        total_ps: time of all runs, from the first kernel's start to the last one's end.
        saving_ps: upper bound of what one kernel in place of each run would save: all but the shortest kernel.
        saving_in_steps_ps: the part of ``saving_ps`` inside complete steps.
        start, end: of the longest run.
    """

    device: int
    rows: tuple[int, ...]
    ops: tuple[int, ...]
    kernels: int
    runs: int
    total_ps: int
    saving_ps: int
    saving_in_steps_ps: int
    start: int
    end: int


@dataclass(frozen=True)
class KernelTable:
    """All kernels, longest total first, and what they say per device.

    Attributes:
        rows: `KernelRow`, sorted by total time.
        occupancy: per device index, time-weighted theoretical occupancy over the kernels
            where it is known (communication excluded); None when unknown for all.
        occupancy_coverage: per device index, share of kernel time where it is known.
        fills: per device index.
        steps: None where no steps were given.
        ops: None where there is no kernel.
        fusion: largest saving first.
        fusion_ps: per device index, the saving of all runs, also of those that ``fusion`` leaves out.
    """

    rows: tuple[KernelRow, ...]
    occupancy: tuple[float | None, ...]
    occupancy_coverage: tuple[float, ...]
    fills: tuple[GpuFill, ...] = ()
    steps: StepFill | None = None
    ops: OpTimes | None = None
    fusion: tuple[FusionCandidate, ...] = ()
    fusion_ps: tuple[int, ...] = field(default=())


__all__ = ["FusionCandidate", "GpuFill", "KernelRow", "KernelTable", "OpTimes", "StepFill"]
