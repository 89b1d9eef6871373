"""dcgm-exporter's text, one scrape or several in a row; and `Gathered`, which a Prometheus answer shares with it.

A scrape is an instant without a time. Several are only of use where a line between them tells one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import numpy as np

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.fields import EXPORTER_FIELDS, XID_NAMES, Field
from tb_gpu_doctor.telemetry.logs.lines import modified_ns, pieces
from tb_gpu_doctor.telemetry.logs.model import Known, Log, Rows, Values
from tb_gpu_doctor.telemetry.logs.values import UNITS, is_blank

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)\s*\{(.*)\}\s+(\S+)(?:\s+(-?\d{10,16}))?\s*")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_EPOCH = re.compile(r"(?:#\s*)?(\d{10})(?:\.(\d{1,9}))?")
_ISO = re.compile(r"(?:#\s*)?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)")
_MOST_KEPT = 10_000
_FIRST_NS, _LAST_NS = 10**18, 4 * 10**18
NAME = re.compile(r"(?:DCGM_FI_|dcgm_)\w+")


def read(path: str) -> Log:
    """Read a log.

    Raises:
        ProfileError: what it lacks, ``log_...``.
    """
    scrapes = _Scrapes(path)
    for lines, _ in pieces(path):  # a last line without its end may be cut within a number
        scrapes.take(lines)
    return scrapes.log()


class Gathered:
    """Samples of single metrics, by GPU and time.

    Args:
        path: of the log.
    """

    def __init__(self, path: str) -> None:
        self.rows = Rows(path)
        self.path = path
        self._gpus: dict[tuple[str, str, str], int] = {}
        self._columns: dict[tuple[int, str], tuple[list[int], list[float]]] = {}
        self._known: dict[tuple[str, str], tuple[int, Field] | None] = {}
        self.others: set[str] = set()
        self._ratios: dict[tuple[int, str], bool] = {}

    def gpu(self, labels: Mapping[str, str]) -> int | None:
        """The GPU that labels name; None where they name a link, a switch, or a part of a GPU that is not told."""
        number = labels.get("gpu", "")
        if "nvlink" in labels or "nvswitch" in labels or "cpu" in labels or not number.isdecimal():
            return None
        host = labels.get("hostname") or labels.get("Hostname") or labels.get("instance", "")
        instance = labels.get("GPU_I_ID", "")
        key = (host, number, instance)
        if key not in self._gpus:
            self._gpus[key] = self.rows.gpu(
                Known(
                    int(number[:9]),
                    host,
                    labels.get("UUID") or labels.get("uuid") or None,
                    labels.get("pci_bus_id") or None,
                    labels.get("modelName") or None,
                    int(instance[:6]) if instance.isdecimal() else None,
                )
            )
        return self._gpus[key]

    def add(self, name: str, gpu: int, times: Sequence[int], numbers: Sequence[float]) -> None:
        """Take samples of a metric of a GPU."""
        if name in XID_NAMES:
            for number in dict.fromkeys(numbers):
                if 0 < number < 1000 and number == int(number):
                    self.rows.tell(gpu, "recording.xid", xid=int(number))
            return
        field = EXPORTER_FIELDS.get(name)
        if field is None:
            self.others.add(name)
            return
        measure = field.measure
        if measure == "ratio" and any(1.0 < number <= 100.0 for number in numbers):
            self._ratios[gpu, field.metric] = True  # of 4.6: per cent under the name of a ratio
        factor = 1.0 if measure == "ratio" else UNITS[measure][(field.unit or "").lower()]
        values = [float("nan") if is_blank(number) else number * factor for number in numbers]
        if field.limit:
            known = self.rows.known[gpu].limits
            known |= dict.fromkeys((field.metric,), max((value for value in values if value == value), default=0.0))
            return
        kept = self._columns.setdefault((gpu, f"{measure} {field.metric}"), ([], []))
        kept[0].extend(times)
        kept[1].extend(values)

    def finish(self) -> None:
        """Lay the samples of each GPU side by side."""
        found: dict[int, dict[str, tuple[list[int], list[float]]]] = {}
        for (gpu, name), column in self._columns.items():
            found.setdefault(gpu, {})[name] = column
        for gpu, columns in found.items():
            wall_ns = np.unique(np.concatenate([np.array(times, np.int64) for times, _ in columns.values()]))
            values: dict[str, Values] = {}
            for name, (times, numbers) in columns.items():
                measure, _, metric = name.partition(" ")
                read = np.array(numbers)
                if measure == "ratio" and not self._ratios.get((gpu, metric)):
                    read = read * 100.0
                row = values.setdefault(metric, np.full(len(wall_ns), np.nan))
                row[np.searchsorted(wall_ns, np.array(times, np.int64))] = read
            self.rows.add(wall_ns, np.full(len(wall_ns), gpu, np.int32), values)
        self._columns = {}


class _Scrapes:
    def __init__(self, path: str) -> None:
        self._gathered = Gathered(path)
        self._path = path
        self._seen: set[tuple[str, str]] = set()
        self._scrapes = 0
        self._time: int | None = None
        self._untimed = self._left_out = 0
        self._waiting: dict[tuple[str, int], float] = {}
        self._labels: dict[str, int | None] = {}
        self._stamped = False

    def take(self, lines: Sequence[str]) -> None:
        for line in lines:
            match = _SAMPLE.fullmatch(line)
            if match is None:
                time = _time_of(line) if line.strip() else None
                if time is not None:
                    self._flush()
                    self._time = time
                elif line.strip() and not line.lstrip().startswith("#"):
                    self._left_out += 1
                continue
            name, labels, text, stamp = match.groups()
            if NAME.fullmatch(name) is None:
                continue
            gpu = self._gpu(labels)
            if gpu is None:
                continue
            try:
                number = float(text)
            except ValueError:
                self._left_out += 1
                continue
            if stamp is not None and _FIRST_NS < int(stamp) * 1_000_000 < _LAST_NS:
                self._stamped = True
                self._gathered.add(name, gpu, [int(stamp) * 1_000_000], [number])
                continue
            if (name, gpu) in self._waiting:
                self._flush()
            self._waiting[name, gpu] = number

    def _gpu(self, labels: str) -> int | None:
        if labels not in self._labels:
            if len(self._labels) > _MOST_KEPT:
                self._labels.clear()
            told = {name: value.replace('\\"', '"').replace("\\\\", "\\") for name, value in _LABEL.findall(labels)}
            self._labels[labels] = self._gathered.gpu(told)
        return self._labels[labels]

    def _flush(self) -> None:
        """End a scrape."""
        if not self._waiting:
            return
        if self._time is None:
            self._untimed += 1
        time = self._time if self._time is not None else modified_ns(self._path)
        for (name, gpu), number in self._waiting.items():
            self._gathered.add(name, gpu, [time], [number])
        self._scrapes += 1
        self._waiting, self._time = {}, None

    def log(self) -> Log:
        self._flush()
        if self._untimed and (self._scrapes > 1 or self._stamped):
            raise ProfileError("log_scrapes", self._path, count=self._scrapes)
        notes: list[tuple[str, dict[str, object]]] = []
        if self._untimed:
            notes.append(("log_one_scrape", {}))
        if self._left_out:
            notes.append(("log_lines_left_out", {"count": self._left_out}))
        self._gathered.finish()
        return self._gathered.rows.log("dcgm_exporter", "order" if self._untimed else "unix", notes)


def _time_of(line: str) -> int | None:
    """The time that a line between scrapes tells, with its zone; None for any other line."""
    line = line.strip()
    match = _EPOCH.fullmatch(line)
    if match is not None:
        return int(match[1]) * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))
    match = _ISO.fullmatch(line)
    if match is not None:
        zone = "+00:00" if match[3] == "Z" else match[3]
        zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
        try:
            moment = datetime.fromisoformat(match[1].replace(" ", "T") + zone)
        except ValueError:
            return None
        return int(moment.timestamp()) * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))
    for form in ("%a %b %d %H:%M:%S UTC %Y", "%a %b %d %I:%M:%S %p UTC %Y"):
        try:
            moment = datetime.strptime(line.removeprefix("#").strip(), form).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
        return int(moment.timestamp()) * 1_000_000_000
    return None
