"""``nvidia-smi dmon``: columns between blanks under two lines of header, with times where ``-o DT`` was given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.fields import DMON_FIELDS
from tb_gpu_doctor.telemetry.logs.lines import pieces
from tb_gpu_doctor.telemetry.logs.model import Known, Log, Rows
from tb_gpu_doctor.telemetry.logs.values import NoUnit, Reader, stamps
from tb_gpu_doctor.traces.log_heads import dmon_names, is_dmon_header

# Memory is counted in MiB, and called MB; buses move MB.
_UNITS = {"fb": {"MB": "MiB"}}
SECOND_NS = 1_000_000_000


def read(path: str) -> Log:
    """Read a log.

    Raises:
        ProfileError: what it lacks, ``log_...``.
    """
    table = _Table(path)
    for lines, rest in pieces(path):
        table.take(lines)
        if rest and rest[-1:].isspace():  # else its last number may be cut
            table.take([rest])
    return table.log()


class _Table:
    def __init__(self, path: str) -> None:
        self._path = path
        self._rows = Rows(path)
        self._names: list[str] = []
        self._readers: dict[int, Reader] = {}
        self._gpus: dict[str, int] = {}
        self._ticks = 0
        self._seen: set[str] = set()
        self._left_out = 0
        self._timed: bool | None = None

    def take(self, lines: Sequence[str]) -> None:
        rows: list[list[str]] = []
        for line in lines:
            names = dmon_names(line)
            if names:
                if is_dmon_header(line):
                    if [name.lower() for name in names] != self._names:
                        self._take_rows(rows)
                        rows = []
                        self._begin([name.lower() for name in names])
                elif len(names) == len(self._names) and not self._readers:
                    self._take_units(names)
                continue
            row = line.split(",") if "," in line else line.split()
            if len(row) == len(self._names) and self._readers:
                rows.append([text.strip() for text in row])
            elif row:
                self._left_out += 1
        self._take_rows(rows)

    def _begin(self, names: list[str]) -> None:
        timed = "date" in names and "time" in names
        if self._timed not in (None, timed):
            raise ProfileError("log_mixed", self._path)
        if "time" in names and not timed:
            raise ProfileError("log_no_date", self._path)
        self._names, self._readers, self._timed = names, {}, timed

    def _take_units(self, units: list[str]) -> None:
        for place, (name, unit) in enumerate(zip(self._names, units, strict=True)):
            field = DMON_FIELDS.get(name)
            if field is not None:
                self._readers[place] = Reader(field.measure, _UNITS.get(name, {}).get(unit, unit))

    def _take_rows(self, rows: list[list[str]]) -> None:
        place_of_gpu = self._names.index("gpu") if rows else 0
        rows = [row for row in rows if row[place_of_gpu].isdecimal()]
        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        gpus = columns[place_of_gpu]
        for text in dict.fromkeys(gpus):
            if text not in self._gpus:
                self._gpus[text] = self._rows.gpu(Known(int(text[:9])))
        values: dict[str, NDArray[np.float64]] = {}
        for place, reader in self._readers.items():
            try:
                values[DMON_FIELDS[self._names[place]].metric] = reader.column(columns[place])
            except NoUnit:
                raise ProfileError("log_no_unit", self._path, name=self._names[place]) from None
        gpu = np.array([self._gpus[text] for text in gpus], np.int32)
        good = np.ones(len(rows), np.bool_)
        if self._timed:
            dates, times = columns[self._names.index("date")], columns[self._names.index("time")]
            wall_ns, good = stamps([f"{d[:4]}/{d[4:6]}/{d[6:]} {t}" for d, t in zip(dates, times, strict=True)])
            self._left_out += int((~good).sum())
        else:
            wall_ns = self._order(gpus)
        self._rows.add(wall_ns[good], gpu[good], {name: column[good] for name, column in values.items()})

    def _order(self, gpus: Sequence[str]) -> NDArray[np.int64]:
        """Each row's tick as a time: a GPU that comes again begins the next one."""
        ticks = []
        for text in gpus:
            if text in self._seen:
                self._ticks += 1
                self._seen.clear()
            self._seen.add(text)
            ticks.append(self._ticks)
        return np.array(ticks, np.int64) * SECOND_NS

    def log(self) -> Log:
        notes: list[tuple[str, dict[str, object]]] = []
        if self._left_out:
            notes.append(("log_lines_left_out", {"count": self._left_out}))
        return self._rows.log("dmon", "local" if self._timed else "order", notes)
