"""``nvidia-smi --query-gpu=... --format=csv``, with or without units, once or in a loop.

The header says what the columns are. It may come again, come changed, and stand behind lines of the shell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.fields import CSV_BITS, CSV_FIELDS, Field
from tb_gpu_doctor.telemetry.logs.lines import pieces
from tb_gpu_doctor.telemetry.logs.model import Known, Log, Rows
from tb_gpu_doctor.telemetry.logs.ticks import place_in_tick
from tb_gpu_doctor.telemetry.logs.values import NoUnit, Reader, stamps
from tb_gpu_doctor.traces.log_heads import CsvHeader, csv_header, odd_names

# The names of a header, the most telling key of a GPU first.
_KEYS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_LOST = re.compile(r"GPU (?:is lost|requires reset)")
_WHOLE = re.compile(r".*(?:%|[A-Za-z/]|\]|0x[0-9a-fA-F]{16})\s*")


def read(path: str) -> Log:
    """Read a log.

    Raises:
        ProfileError: what it lacks, ``log_...``.
    """
    table = _Table(path)
    for lines, rest in pieces(path):
        table.take(lines)
        if rest:
            table.take_last(rest)
    return table.log()


class _Table:
    """The table that is being read; a new header begins another one in the same columns."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows = Rows(path)
        self._header: CsvHeader | None = None
        self._readers: dict[int, tuple[Field, Reader]] = {}
        self._gpus: dict[str, int] = {}
        self._lost: set[int] = set()
        self._by_order = False
        self._waiting: list[tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]] = []
        self._waiting_facts: list[list[str]] = []
        self._passed_over = self._no_time = self._hours = 0
        self._sample = ""
        self._last_ns: int | None = None

    def take(self, lines: Sequence[str]) -> None:
        """Take whole lines, headers and foreign ones among them."""
        start = 0
        for number, line in enumerate(lines):
            header = csv_header(line) if line and not line[0].isdigit() else None
            if header is not None:
                self._take_rows(lines[start:number])
                start = number + 1
                if header != self._header:
                    self._begin(header)
        self._take_rows(lines[start:])

    def take_last(self, line: str) -> None:
        """Take what stands behind the last end of a line, unless it may have been cut within a number."""
        if self._header is None or line.count(",") != len(self._header.names) - 1:
            return
        if _WHOLE.fullmatch(line.rpartition(",")[2]):
            self._take_rows([line])

    def _begin(self, header: CsvHeader) -> None:
        odd = odd_names(header)
        if odd:
            raise ProfileError("log_names", self._path, names=odd[:5])
        if "timestamp" not in header.names:
            raise ProfileError("log_no_timestamp", self._path)
        self._header = header
        self._by_order = not any(key in header.names for key in _KEYS)
        self._readers = {
            place: (field, Reader(field.measure, unit if unit is not None else field.unit))
            for place, (name, unit) in enumerate(zip(header.names, header.units, strict=True))
            if (field := CSV_FIELDS.get(name)) is not None
        }

    def _take_rows(self, lines: Sequence[str]) -> None:
        if self._header is None:
            return
        width = len(self._header.names)
        rows = [line for line in lines if line.count(",") == width - 1]
        if len(rows) < len(lines):
            self._passed_over += sum(line.count(",") != width - 1 and bool(line.strip()) for line in lines)
        if not rows:
            return
        text = ",".join(rows)
        is_any_lost = _LOST.search(text) is not None
        flat = text.split(",")
        columns = [flat[place::width] for place in range(width)]
        names = self._header.names
        wall_ns, good = stamps(columns[names.index("timestamp")])
        if not good.all():
            bad = int((~good).sum())
            self._no_time += bad
            self._sample = self._sample or columns[names.index("timestamp")][int(np.argmin(good))].strip()
            keep = np.flatnonzero(good).tolist()
            columns = [[column[row] for row in keep] for column in columns]
            wall_ns = wall_ns[good]
            if not keep:
                return
        wall_ns = self._unwound(wall_ns)
        values = self._values(columns)
        if self._by_order:
            self._waiting.append((wall_ns, values))
            return
        gpu = self._places(columns)
        if is_any_lost:
            self._note_lost(columns, gpu)
        self._note_limits(values, gpu)
        self._rows.add(wall_ns, gpu, values)

    def _values(self, columns: Sequence[Sequence[str]]) -> dict[str, NDArray[np.float64]]:
        assert self._header is not None
        values: dict[str, NDArray[np.float64]] = {}
        for place, (field, reader) in self._readers.items():
            try:
                found = reader.column(columns[place])
            except NoUnit:
                raise ProfileError("log_no_unit", self._path, name=self._header.names[place]) from None
            name = f"limit {field.metric}" if field.limit else field.metric
            values[name] = np.where(np.isnan(values[name]), found, values[name]) if name in values else found
        bits = [(place, CSV_BITS[name]) for place, name in enumerate(self._header.names) if name in CSV_BITS]
        if bits and "clock_event_reasons" not in values:
            total = np.zeros(len(columns[0]))
            unknown = np.zeros(len(columns[0]), np.bool_)
            for place, bit in bits:
                texts = [text.strip() for text in columns[place]]
                unknown |= np.array([text not in ("Active", "Not Active") for text in texts])
                total += np.array([bit if text == "Active" else 0 for text in texts], np.float64)
            values["clock_event_reasons"] = np.where(unknown, np.nan, total)
        return values

    def _places(self, columns: Sequence[Sequence[str]]) -> NDArray[np.int32]:
        """Which GPU each row is of. A lost one may have lost its other names, and keeps its index."""
        assert self._header is not None
        names = self._header.names
        key = next(key for key in _KEYS if key in names)
        texts = columns[names.index(key)]
        for text in dict.fromkeys(texts):
            name = text.strip()
            if name in self._gpus or name.startswith("[") or not name:
                continue
            if key == "index" and not name.isdecimal():
                continue
            number = int(name[:9]) if key == "index" else len(self._gpus)
            self._gpus[name] = self._rows.gpu(Known(number))
        if not self._gpus:
            raise ProfileError("log_no_gpu", self._path)
        found = np.array([self._gpus.get(text.strip(), -1) for text in texts], np.int32)
        if key != "index" and len(self._gpus) == 1:
            found[found < 0] = 0  # the only GPU, even where it no longer knows its name
        for attribute, wanted in (("uuid", ("uuid", "gpu_uuid")), ("bus", ("pci.bus_id", "gpu_bus_id")),
                                  ("name", ("name", "gpu_name"))):  # fmt: skip
            column = next((columns[names.index(one)] for one in wanted if one in names), None)
            if column is None:
                continue
            for place, text in dict.fromkeys(zip(found.tolist(), column, strict=True)):
                value = text.strip()
                if place >= 0 and value and value[0] not in "[<" and value != "N/A":
                    known = self._rows.known[place]
                    setattr(known, attribute, getattr(known, attribute) or value)
        return found

    def _note_lost(self, columns: Sequence[Sequence[str]], gpu: NDArray[np.int32]) -> None:
        for column in columns:
            for text in {text for text in column if "GPU " in text and _LOST.search(text)}:
                for row, other in enumerate(column):
                    place = int(gpu[row])
                    if other == text and place >= 0 and place not in self._lost:
                        self._lost.add(place)
                        self._rows.tell(place, "recording.gpu_lost", reason=text.strip().strip("[]"))

    def _note_limits(self, values: dict[str, NDArray[np.float64]], gpu: NDArray[np.int32]) -> None:
        """What does not change leaves the columns; the greatest counts."""
        for name in [name for name in values if name.startswith("limit ")]:
            column = values.pop(name)
            for place in np.unique(gpu[~np.isnan(column)]).tolist():
                if place >= 0:
                    limits = self._rows.known[place].limits
                    most = float(np.nanmax(column[gpu == place]))
                    limits[name[6:]] = max(most, limits.get(name[6:], most))

    def _unwound(self, wall_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times that go on where the clock was set back an hour, as it is each autumn."""
        hour = 3_600_000_000_000
        wall_ns = wall_ns + self._hours * hour
        before = wall_ns[:1] if self._last_ns is None else np.array([self._last_ns])
        jumps = np.diff(wall_ns, prepend=before)
        for row in np.flatnonzero(jumps < -hour * 0.95).tolist():
            if -hour <= jumps[row] < -hour * 0.95:
                wall_ns[row:] += hour
                self._hours += 1
        self._last_ns = int(wall_ns[-1])
        return wall_ns

    def _finish_by_order(self) -> None:
        """Tell the GPUs apart by their order within a tick."""
        wall_ns = np.concatenate([one[0] for one in self._waiting])
        place = place_in_tick(wall_ns)
        if place is None:
            raise ProfileError("log_no_index", self._path)
        for number in range(int(place.max()) + 1):
            self._rows.gpu(Known(number))
        start = 0
        for when, values in self._waiting:
            part = place[start : start + len(when)]
            self._note_limits(values, part)
            self._rows.add(when, part, values)
            start += len(when)

    def log(self) -> Log:
        """What was read.

        Raises:
            ProfileError: it holds no samples.
        """
        notes: list[tuple[str, dict[str, object]]] = []
        if self._waiting:
            self._finish_by_order()
            if len(self._rows.known) > 1:
                notes.append(("log_by_order", {"count": len(self._rows.known)}))
        if self._no_time and not self._rows.known:
            raise ProfileError("log_dates", self._path, sample=self._sample[:40])
        odd = Counter({field.metric: reader.odd for field, reader in self._readers.values() if reader.odd})
        left_out = self._passed_over + self._no_time
        if left_out:
            notes.append(("log_lines_left_out", {"count": left_out}))
        if odd:
            notes.append(("log_odd_values", {"names": tuple(sorted(odd))}))
        if self._hours:
            notes.append(("log_clock_set_back", {"count": self._hours}))
        return self._rows.log("query_csv", "local", notes)
