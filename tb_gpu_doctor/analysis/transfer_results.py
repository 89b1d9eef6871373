"""What the analyses of copies return."""

from __future__ import annotations

from dataclasses import dataclass

from tb_gpu_doctor.traces.columns import CopyKind, Int32, Int64


@dataclass(frozen=True)
class CopyTotals:
    """The copies of one direction on one GPU that ran in the window.

    Attributes:
        device: device index.
        direction: `CopyKind`; ``NONE`` stands for memsets.
        count: how many; ``pageable`` and ``pinned`` of them by their host memory, the others unknown.
        blocking: those whose call returned only when the copy was done.
        size_bytes: of those with a known size, ``sized_time`` their durations.
        time: durations inside the window.
        exposed: time that neither a kernel nor an earlier copy hides. Without ``P2P`` the directions
            sum to ``DeviceAccounting.transfer`` exactly; copies between GPUs count as communication.
        exposed_pageable: the part of it with pageable host memory.
    """

    device: int
    direction: CopyKind
    count: int
    pageable: int
    pinned: int
    blocking: int
    size_bytes: int
    sized_time: int
    time: int
    exposed: int
    exposed_pageable: int

    @property
    def hidden(self) -> int:
        """Time behind kernels or an earlier copy."""
        return self.time - self.exposed

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth over the copies of known size; None without any."""
        return self.size_bytes / self.sized_time * 1e12 if self.size_bytes > 0 and self.sized_time > 0 else None


@dataclass(frozen=True)
class CopyGroup:
    """The copies on one GPU that one op asked for.

    Attributes:
        device, direction: as in `CopyTotals`.
        op: framework op, else the host event around the launch, else the copy's own name.
        count, size_bytes, time, exposed: as in `CopyTotals`.
        waited: idle time of the GPU during their blocking calls.
        longest: row of the device event with the largest exposed time.
    """

    device: int
    direction: CopyKind
    op: str
    count: int
    size_bytes: int
    time: int
    exposed: int
    waited: int
    longest: int


@dataclass(frozen=True)
class Transfers:
    """All copies of one trace over the window.

    Attributes:
        totals: by GPU and direction, in that order; directions without copies are left out.
        groups: those of each GPU that cost most, the most expensive first.
        rows: rows of the device events, by device and start.
        exposed: time of each row that neither a kernel nor an earlier copy hides.
        late: the part of it that would be hidden had the host not been late before the copy.
        gap_wait: time of each gap in which the host sat in a blocking copy, shape (gaps,).
        step_exposed: exposed time without ``P2P`` per complete step and GPU, shape (steps, devices).
        step_late, step_wait: ``late`` and ``gap_wait`` per complete step and GPU.
    """

    totals: tuple[CopyTotals, ...]
    groups: tuple[CopyGroup, ...]
    rows: Int64
    exposed: Int64
    late: Int64
    gap_wait: Int64
    step_exposed: Int64
    step_late: Int64
    step_wait: Int64


@dataclass(frozen=True)
class Bounces:
    """Ops on the CPU between GPU ops: a copy to the host, the op, a copy back, in most steps.

    Attributes:
        device: device index, shape (n,), rising.
        step: index into `Steps`.
        down, up: rows of the two copies.
        op: host row of the op between them, the longest of several.
        op_time: time of all named ops between them.
        gap_part: time of each gap between the two copies of a bounce, shape (gaps,).
        step_part: the same per complete step and GPU, shape (steps, devices).
        step_copies: exposed time of the bounces' copies per complete step and GPU.
        device_copies: exposed time of the bounces' copies in the window, shape (devices,).
    """

    device: Int32
    step: Int32
    down: Int64
    up: Int64
    op: Int64
    op_time: Int64
    gap_part: Int64
    step_part: Int64
    step_copies: Int64
    device_copies: Int64

    def __len__(self) -> int:
        return len(self.op)
