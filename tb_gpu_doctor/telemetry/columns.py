"""Blocks of samples put together to columns, in bounded memory however long the recording is.

Ten hours of 8 GPUs are thousands of small blocks: they are laid into larger pieces as they come. When the
pieces grow beyond the bound, neighbouring samples are folded, two to one, by each metric's own rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.recording_format import DamagedBlock, SampleBlock

# 8 GPUs once a second for two days; half a gigabyte.
MAX_VALUES = 60_000_000
_BLOCKS_A_PIECE = 256
# Blocks are small for what they unpack to: a piece is made before they hold more than this.
_VALUES_A_PIECE = 4_000_000

Times = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Samples of all GPUs.

    Attributes:
        wall_ns, step: int64[ticks].
        values: float64[GPUs, ticks] by metric id; only metrics that any block held.
    """

    wall_ns: Times
    step: Times
    values: dict[str, Values]


@dataclass(frozen=True)
class _Piece:
    wall_ns: Times
    step: Times
    values: Values  # [metrics, GPUs, ticks]


class ColumnStore:
    """Takes blocks, gives columns.

    Args:
        metrics: names of the blocks' columns.
        gpus: how many the blocks tell of; others are passed over.

    Attributes:
        ticks_a_sample: how many ticks a sample was folded from.
    """

    def __init__(self, metrics: Sequence[str], gpus: int) -> None:
        self.metrics, self.gpus = list(metrics), gpus
        self.ticks_a_sample = 1
        self._known = [index for index, metric in enumerate(self.metrics) if metric in BY_ID]
        self._row_of = np.full(1 << 16, -1, np.int64)
        self._row_of[self._known] = np.arange(len(self._known))
        self._waiting: list[SampleBlock] = []
        self._waiting_values = 0
        self._pieces: list[_Piece] = []
        self._seen = np.zeros(1 << 16, np.bool_)

    def add(self, block: SampleBlock) -> None:
        """Take a block; of another number of GPUs it is passed over.

        Raises:
            DamagedBlock: it alone has more samples than a recording may have.
        """
        if block.gpus != self.gpus:
            return
        # As columns, where a block that leaves most of them out takes as much room as any other.
        values = max(len(self._known), len(block.ids32) + len(block.ids64)) * block.gpus * len(block.wall_ns)
        if values > MAX_VALUES:
            raise DamagedBlock(f"a block of {len(block.wall_ns)} ticks of {block.gpus} GPUs")
        if self._waiting_values + values > _VALUES_A_PIECE:
            self._gather()
        self._waiting.append(block)
        self._waiting_values += values
        if len(self._waiting) >= _BLOCKS_A_PIECE:
            self._gather()

    def _gather(self) -> None:
        """Lay the waiting blocks into one piece."""
        blocks, self._waiting, self._waiting_values = self._waiting, [], 0
        if not blocks:
            return
        ticks = sum(len(block.wall_ns) for block in blocks)
        values = np.full((len(self._known), self.gpus, ticks), np.nan)
        at = 0
        for block in blocks:
            count = len(block.wall_ns)
            for ids, part in ((block.ids32, block.values32), (block.ids64, block.values64)):
                self._seen[ids] = True
                rows = self._row_of[ids]
                if len(rows) and rows.min() < 0:  # metrics of a later version
                    rows, part = rows[rows >= 0], part[rows >= 0]
                values[rows, :, at : at + count] = part
            at += count
        piece = _Piece(
            np.concatenate([block.wall_ns for block in blocks]),
            np.concatenate([block.step for block in blocks]),
            values,
        )
        for _ in range(self.ticks_a_sample.bit_length() - 1):
            piece = self._halved(piece)
        self._pieces.append(piece)
        while sum(piece.values.size for piece in self._pieces) > MAX_VALUES:
            if max(len(piece.wall_ns) for piece in self._pieces) <= 1:
                break
            self._pieces = [self._halved(piece) for piece in self._pieces]
            self.ticks_a_sample *= 2

    def _halved(self, piece: _Piece) -> _Piece:
        """Two samples to one, each metric by its rule; the later one's time and step."""
        ticks = len(piece.wall_ns)
        last = np.minimum(np.arange(1, ticks + 1, 2), ticks - 1)
        values = np.empty((len(self._known), self.gpus, len(last)))
        for row, index in enumerate(self._known):
            one, other = piece.values[row][:, 0::2], piece.values[row][:, last]
            values[row] = _folded(self.metrics[index], one, other)
        return _Piece(piece.wall_ns[last], piece.step[last], values)

    def columns(self) -> Columns:
        """What has come so far."""
        self._gather()
        pieces = self._pieces
        none = np.zeros(0, np.int64)
        wall_ns = np.concatenate([piece.wall_ns for piece in pieces]) if pieces else none
        step = np.concatenate([piece.step for piece in pieces]) if pieces else none
        # The writer's time grows; that of a file from elsewhere may not.
        order = None if bool((np.diff(wall_ns) > 0).all()) else np.unique(wall_ns, return_index=True)[1]
        values: dict[str, Values] = {}
        for row, index in enumerate(self._known):
            if self._seen[index]:
                column = np.concatenate([piece.values[row] for piece in pieces], axis=1)
                values[self.metrics[index]] = column if order is None else column[:, order]
        if order is not None:
            wall_ns, step = wall_ns[order], step[order]
        return Columns(wall_ns, step, values)


def _folded(metric: str, one: Values, other: Values) -> Values:
    if metric == "clock_event_reasons":
        both = ~np.isnan(one) & ~np.isnan(other)
        bits = _bits(np.where(both, one, 0)) | _bits(np.where(both, other, 0))
        return np.where(both, bits.astype(np.float64), np.fmax(one, other))
    fold = BY_ID[metric].fold
    if fold == "max":
        return np.fmax(one, other)
    if fold == "min":
        return np.fmin(one, other)
    if fold == "last":
        return np.where(np.isnan(other), one, other)
    return np.where(np.isnan(one), other, np.where(np.isnan(other), one, (one + other) / 2))


def _bits(values: Values) -> NDArray[np.int64]:
    # Bits beyond these are not NVML's; a float of a damaged file may be anything.
    return np.clip(np.nan_to_num(values), 0, 2**52).astype(np.int64)
