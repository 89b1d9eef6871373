"""``dcgmi dmon``: columns at the offsets of their names, without any time.

A value that was not delivered is blank, and names hold blanks, so only the header's offsets tell the columns apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.telemetry.logs.dmon import SECOND_NS
from tb_gpu_doctor.telemetry.logs.fields import DCGMI_FIELDS, DCGMI_XID
from tb_gpu_doctor.telemetry.logs.lines import pieces
from tb_gpu_doctor.telemetry.logs.model import Known, Log, Rows
from tb_gpu_doctor.telemetry.logs.values import Reader
from tb_gpu_doctor.traces.log_heads import is_dcgmi_header

_WORD = re.compile(r"\S+")
_GPU = re.compile(r"GPU (\d{1,6})")
_ENTITY = re.compile(r"(?:GPU|GPU-I|GPU-CI|Switch|CPU|CPU-Core|Link)\b.*\d")
_CLOSING = "dmon was stopped"


def read(path: str) -> Log:
    """Read a log.

    Raises:
        ProfileError: what it lacks, ``log_...``.
    """
    table = _Table(path)
    for lines, rest in pieces(path):
        table.take(lines)
        # Rows are padded with blanks: a last one that is not may be cut within a number.
        if rest and (rest[-1:].isspace() or rest.startswith(_CLOSING)):
            table.take([rest])
    return table.log()


class _Table:
    def __init__(self, path: str) -> None:
        self._path = path
        self._rows = Rows(path)
        self._header = ""
        self._bounds: list[tuple[str, int, int | None]] = []
        self._readers: dict[str, Reader] = {}
        self._gpus: dict[str, int] = {}
        self._ticks = self._left_out = self._others = 0
        self._seen: set[str] = set()

    def take(self, lines: Sequence[str]) -> None:
        rows: list[tuple[str, str]] = []
        for line in lines:
            if is_dcgmi_header(line):
                if line.rstrip() != self._header:
                    self._take_rows(rows)
                    rows = []
                    self._begin(line.rstrip())
                continue
            entity = line[: self._bounds[0][1]].strip() if self._bounds else ""
            if _GPU.fullmatch(entity):
                rows.append((entity, line))
            elif _ENTITY.fullmatch(entity):
                self._others += 1  # instances, links, switches: none of them is a GPU
            elif line.strip() and not line.startswith(("ID", _CLOSING)):
                self._left_out += 1
        self._take_rows(rows)

    def _begin(self, header: str) -> None:
        words = [(match[0], match.start()) for match in _WORD.finditer(header)]
        if header.startswith("# "):  # "# Entity": the sign stands alone
            words = words[1:]
        names = words[1:]
        ends: list[int | None] = [start for _, start in names[1:]]
        self._bounds = [(name, start, end) for (name, start), end in zip(names, [*ends, None], strict=True)]
        self._header = header
        known = {name: DCGMI_FIELDS[name] for name, _ in names if name in DCGMI_FIELDS}
        self._readers = {name: Reader(field.measure, field.unit) for name, field in known.items()}

    def _take_rows(self, rows: list[tuple[str, str]]) -> None:
        if not rows:
            return
        ticks, gpu = [], []
        for entity, _ in rows:
            if entity not in self._gpus:
                self._gpus[entity] = self._rows.gpu(Known(int(entity[4:])))
            if entity in self._seen:
                self._ticks += 1
                self._seen.clear()
            self._seen.add(entity)
            ticks.append(self._ticks)
            gpu.append(self._gpus[entity])
        places = np.array(gpu, np.int32)
        values = {}
        for name, start, end in self._bounds:
            texts = [line[start:end].strip() for _, line in rows]
            field = DCGMI_FIELDS.get(name)
            if field is not None and field.limit:
                for place, value in zip(gpu, self._readers[name].column(texts).tolist(), strict=True):
                    if value == value:
                        self._rows.known[place].limits[field.metric] = value
            elif field is not None:
                values[field.metric] = self._readers[name].column(texts)
            elif name == DCGMI_XID:
                for place, text in zip(gpu, texts, strict=True):
                    if text.isdecimal() and 0 < int(text) < 1000:
                        self._rows.tell(place, "recording.xid", xid=int(text))
        self._rows.add(np.array(ticks, np.int64) * SECOND_NS, places, values)

    def log(self) -> Log:
        notes: list[tuple[str, dict[str, object]]] = []
        if not self._gpus and self._others:
            raise ProfileError("log_no_gpu", self._path)
        if self._others:
            notes.append(("log_other_entities", {"count": self._others}))
        if self._left_out:
            notes.append(("log_lines_left_out", {"count": self._left_out}))
        return self._rows.log("dcgmi_dmon", "order", notes)
