"""What every reader of a log makes: the samples of each GPU as columns, and what could not be taken from the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.telemetry.series import GpuFacts, ToldNote

Times = NDArray[np.int64]
Values = NDArray[np.float64]
# How a log tells the time: Unix time, a clock on the wall without its zone, or only the order of its rows.
Clock = Literal["unix", "local", "order"]

# As many as a recording may hold in memory, half a gigabyte.
MAX_VALUES = 60_000_000
MAX_GPUS = 1_024


@dataclass(frozen=True)
class LogGpu:
    """One GPU of a log.

    Attributes:
        host: as the log names it, "" where it does not.
        wall_ns: int64[n], increasing; Unix nanoseconds, or of a clock without zone as if it were UTC.
        values: float64[n] by metric id, NaN where the log has no value.
    """

    host: str
    facts: GpuFacts
    wall_ns: Times
    values: Mapping[str, Values]


@dataclass(frozen=True)
class Log:
    """What a log holds.

    Attributes:
        format: ``query_csv``, ``dmon``, ``dcgmi_dmon``, ``dcgm_exporter`` or ``prometheus``.
        told: by host, what the recording of a monitor would have noted.
        notes: keys and parameters of sentences about what was assumed or left out.
    """

    path: str
    format: str
    clock: Clock
    gpus: tuple[LogGpu, ...]
    told: Mapping[str, tuple[ToldNote, ...]] = field(default_factory=dict)
    notes: tuple[tuple[str, Mapping[str, object]], ...] = ()

    @property
    def rows(self) -> int:
        """Samples of all GPUs together."""
        return sum(len(gpu.wall_ns) for gpu in self.gpus)


def _since_start(metric: str, column: Values) -> Values:
    """The column; of a counter that runs since the driver was loaded, what was counted since the log began."""
    if not BY_ID[metric].counter:
        return column
    return column - float(column[~np.isnan(column)][0])


@dataclass
class Known:
    """What the log says of one GPU beside its samples; the first thing said counts."""

    number: int
    host: str = ""
    uuid: str | None = None
    bus: str | None = None
    name: str | None = None
    mig: int | None = None
    limits: dict[str, float] = field(default_factory=dict)

    def facts(self) -> GpuFacts:
        """As telemetry has them."""
        return GpuFacts(None, self.number, self.uuid, self.bus, self.name, self.limits, self.mig)


class Rows:
    """Takes rows of all GPUs as they come, in pieces of columns.

    Args:
        path: of the log, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pieces: list[tuple[Times, NDArray[np.int32], dict[str, Values]]] = []
        self._values = 0
        self.known: list[Known] = []
        self.told: dict[str, list[ToldNote]] = {}

    def gpu(self, known: Known) -> int:
        """The place of a new GPU.

        Raises:
            ProfileError: ``log_gpus``: more than any machine has.
        """
        if len(self.known) >= MAX_GPUS:
            raise ProfileError("log_gpus", self._path, limit=MAX_GPUS)
        self.known.append(known)
        return len(self.known) - 1

    def add(self, wall_ns: Times, gpu: NDArray[np.int32], values: dict[str, Values]) -> None:
        """Take rows: when, of which GPU, and float64[rows] by metric.

        Raises:
            ProfileError: ``log_too_long``.
        """
        if not len(wall_ns):
            return
        self._pieces.append((wall_ns, gpu, values))
        self._values += len(wall_ns) * (len(values) + 1)
        if self._values > MAX_VALUES:
            raise ProfileError("log_too_long", self._path, limit=MAX_VALUES)

    def tell(self, gpu: int, key: str, **params: object) -> None:
        """Note something of a GPU, once."""
        known = self.known[gpu]
        note = ToldNote(key, {"gpu": f"gpu{known.number}", **params})
        told = self.told.setdefault(known.host, [])
        if note not in told:
            told.append(note)

    def columns(self) -> tuple[Times, NDArray[np.int32], dict[str, Values]]:
        """All rows: times, GPUs and values, in the order in which they came."""
        names = sorted({name for _, _, values in self._pieces for name in values})
        none = np.zeros(0, np.int64)
        wall_ns = np.concatenate([none, *(piece[0] for piece in self._pieces)])
        gpu = np.concatenate([none.astype(np.int32), *(piece[1] for piece in self._pieces)])
        values: dict[str, Values] = {}
        for name in names:
            parts = [v[name] if name in v else np.full(len(t), np.nan) for t, _, v in self._pieces]
            values[name] = np.concatenate(parts)
        return wall_ns, gpu, values

    def log(self, form: str, clock: Clock, notes: Sequence[tuple[str, Mapping[str, object]]] = ()) -> Log:
        """All that was taken, GPU by GPU, each in order of time.

        Raises:
            ProfileError: ``log_no_rows``: nothing was.
        """
        wall_ns, gpu, values = self.columns()
        self._pieces = []
        if not len(wall_ns):
            raise ProfileError("log_no_rows", self._path)
        order = np.lexsort((wall_ns, gpu))
        bounds = np.searchsorted(gpu[order], np.arange(len(self.known) + 1))
        found = []
        for place, known in enumerate(self.known):
            rows = order[bounds[place] : bounds[place + 1]]
            when = wall_ns[rows]
            # Of several rows at one time the last one counts.
            rows = rows[np.append(np.diff(when) > 0, True)] if len(when) else rows
            if not len(rows):
                continue
            columns = {name: column[rows] for name, column in values.items()}
            kept = {name: _since_start(name, column) for name, column in columns.items() if not np.isnan(column).all()}
            found.append(LogGpu(known.host, known.facts(), wall_ns[rows], kept))
        told = {host: tuple(notes) for host, notes in self.told.items()}
        return Log(self._path, form, clock, tuple(found), told, tuple(notes))
