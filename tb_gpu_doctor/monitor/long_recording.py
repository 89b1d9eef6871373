"""What keeps a long recording bounded: parts of which the oldest are deleted, and the history of what was in them.

See `tb_gpu_doctor.recording_format`. Nothing of this begins before the recording's own file is full, so that most
recordings are one file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.monitor.event_file import EventFile, Origin, file_layer, is_remote

# The recording's own file, and each part, end their samples here: some hours of one GPU, half an hour of eight.
PART_BYTES = 2 << 20
# The newest parts that are kept, beside the one that is written.
KEPT_PARTS = 6
# Intervals of the history are at least this share of its length, and this long.
INTERVALS = 700
SHORTEST_S = 10.0
# So many intervals are written at once: until then the parts still hold what is in them.
_INTERVALS_A_BLOCK = 32


class Folds(Protocol):
    """As `writer.Folder`."""

    def add(self, values: NDArray[np.float64]) -> None:
        """Take a sample."""

    def take(self) -> NDArray[np.float64]:
        """What the samples since the last call fold to."""


class Parts:
    """The parts of one recording: opens the next one, deletes old ones.

    Args:
        folder: of the recording.
        origin: whose it is.
        begin: writes the recording's head into a new part.
    """

    def __init__(self, folder: str, origin: Origin, begin: Callable[[EventFile], None]) -> None:
        self._folder, self._origin, self._begin = folder, origin, begin
        self._number = 0
        self.current: EventFile | None = None

    def file_for(self, main: EventFile) -> EventFile:
        """Where the next block goes: the recording's own file until that is full, then the newest part."""
        full = main if self.current is None else self.current
        if full.size_bytes < PART_BYTES:
            return full
        if self.current is not None:
            with contextlib.suppress(Exception):
                self.current.close()
        self._number += 1
        self.current = EventFile(self._folder, self._origin, name=form.part_name(self._number))
        self._begin(self.current)
        self._delete(self._number - KEPT_PARTS - 1)
        return self.current

    def _delete(self, number: int) -> None:
        if number < 1:
            return
        separator = "/" if is_remote(self._folder) else os.sep
        path = f"{self._folder.rstrip(separator)}{separator}{form.part_name(number)}"
        with contextlib.suppress(Exception):  # it costs room, and nothing else
            if is_remote(path):
                file_layer(path).remove(path)
            else:
                os.unlink(path)


class History:
    """Folds samples to intervals that become longer as the recording does, with least and greatest values.

    Args:
        folder: makes what folds the samples of an interval.
        shape: GPUs and metrics.

    Attributes:
        gpus: how many.
    """

    def __init__(self, folder: Callable[[], Folds], shape: tuple[int, int]) -> None:
        self._new, self._shape = folder, shape
        self.gpus = shape[0]
        self._first_ns: int | None = None
        self._rows: list[tuple[int, int, list[NDArray[np.float64]]]] = []
        self._steps: list[tuple[int, ...]] = []
        self._kept_steps: list[tuple[int, ...]] = []
        self._begin(0)

    def _begin(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._fold = self._new()
        self._low = np.full(self._shape, np.nan)
        self._high = np.full(self._shape, np.nan)

    def add(self, wall_ns: int, step: int, values: NDArray[np.float64]) -> None:
        """Take a sample: float64[GPUs, metrics]."""
        if self._first_ns is None:
            self._first_ns = wall_ns
            self._begin(wall_ns)
        self._fold.add(values)
        self._low, self._high = np.fmin(self._low, values), np.fmax(self._high, values)
        if wall_ns - self._since_ns >= max(SHORTEST_S * 1e9, (wall_ns - self._first_ns) / INTERVALS):
            self._rows.append((wall_ns, step, [self._fold.take(), self._low, self._high]))
            self._kept_steps += _typical(self._steps)
            self._steps.clear()
            self._begin(wall_ns)

    def add_steps(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Take steps, as the writer's rows."""
        self._steps += rows
        if len(self._steps) > 100_000:  # without samples nothing ends an interval
            self._kept_steps += _typical(self._steps)
            self._steps.clear()

    def take(self, last: bool = False) -> tuple[bytes | None, bytes | None]:
        """Blocks of intervals and of steps, where enough have come; None otherwise."""
        if not last and max(len(self._rows), len(self._kept_steps) // 5) < _INTERVALS_A_BLOCK:
            return None, None
        rows, self._rows = self._rows, []
        steps, self._kept_steps = self._kept_steps, []
        block = None
        if rows:
            values = [np.stack([row[2][part] for row in rows]).transpose(2, 1, 0) for part in range(3)]
            wall_ns = np.array([row[0] for row in rows], np.int64)
            block = form.encode_history(wall_ns, np.array([row[1] for row in rows], np.int64), values)
        return block, form.encode_steps(np.array(steps, np.int64).T) if steps else None


def _typical(steps: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Of an interval's steps the first, the shortest, the median, the longest and the last; in their order."""
    if len(steps) <= 5:
        return list(steps)
    by_length = sorted(range(len(steps)), key=lambda row: steps[row][2])
    chosen = {0, len(steps) - 1, by_length[0], by_length[len(steps) // 2], by_length[-1]}
    return [steps[row] for row in sorted(chosen)]
