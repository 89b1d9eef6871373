"""Numbers, units and times as nvidia-smi and DCGM write them.

A unit stands in the header or behind each number; what has none where one belongs is refused, never assumed. Whatever
stands in brackets, ``N/A``, ``-`` and DCGM's blanks are no value: NaN, and never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([%A-Za-z/]*)")
_NONE = {"", "-", "n/a", "nan", "na", "<<<null>>>", "<<<not_supported>>>"}
# Factor to the unit of the metric, by what the metric is measured in. "": numbers that never carry a unit.
UNITS: dict[str, dict[str, float]] = {
    "percent": {"%": 1.0},
    "bytes": {"b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30},
    "bytes_per_s": {"b/s": 1.0, "kb/s": 1e3, "mb/s": 1e6},
    "watts": {"w": 1.0, "mw": 1e-3},
    "celsius": {"": 1.0, "c": 1.0},
    "mhz": {"mhz": 1.0, "hz": 1e-6},
    "joules": {"j": 1.0, "mj": 1e-3},
    "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "count": {"": 1.0, "errs": 1.0},
    "bits": {"": 1.0},
    "ratio": {"": 100.0},
}
# DCGM's blanks: none of its integers or doubles is as large.
_BLANK_INTEGER, _BLANK_DOUBLE = 0x7FFFFFFFFFFFFFF0, 140737488355328.0
_BLANK_32 = range(0x7FFFFFF0, 0x7FFFFFF8)
_MAX_KNOWN = 200_000


class NoUnit(ValueError):
    """A number without a unit where its header has none either."""


class Reader(dict[str, float]):
    """The number that a text of one column stands for; each different text is read once.

    Args:
        measure: a key of `UNITS`.
        unit: of the header, None without.

    Attributes:
        odd: texts that are neither a number nor one of the words for none.
    """

    def __init__(self, measure: str, unit: str | None) -> None:
        super().__init__()
        self._measure, self._unit = measure, unit
        self.odd = 0

    def __missing__(self, text: str) -> float:
        value = self._read(text.strip())
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[text] = value
        return value

    def column(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """float64[n].

        Raises:
            NoUnit: neither the header nor a value says what is measured.
        """
        return np.fromiter(map(self.__getitem__, texts), np.float64, len(texts))

    def _read(self, text: str) -> float:
        if text.lower() in _NONE or text.startswith("["):
            return math.nan
        if self._measure == "bits" and text.lower().startswith("0x"):
            try:
                return float(int(text, 16))
            except ValueError:
                self.odd += 1
                return math.nan
        match = _NUMBER.fullmatch(text)
        if match is None:
            self.odd += 1
            return math.nan
        number, unit = float(match[1]), match[2].lower() or (self._unit or "").lower()
        if is_blank(number):
            return math.nan
        factors = UNITS[self._measure]
        if unit not in factors:
            if unit == "":
                raise NoUnit
            self.odd += 1
            return math.nan
        value = number * factors[unit]
        return value if math.isfinite(value) else math.nan


def is_blank(number: float) -> bool:
    """Whether DCGM stands for "no value" with this number."""
    return not math.isfinite(number) or abs(number) >= _BLANK_DOUBLE or (number.is_integer() and number in _BLANK_32)


# Where the digits of ``2024/11/23 12:23:29.950`` stand, and what is between them.
_STAMP = "dddd/dd/dd dd:dd:dd.ddd"
_DIGITS = np.array([sign == "d" for sign in _STAMP])
_SIGNS = np.frombuffer(_STAMP.encode(), np.uint8)
_DAYS_BEFORE_1970 = 719_468


def stamps(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Times on the wall as nanoseconds since 1970 as if they were UTC, int64[n], and which of them are times.

    Args:
        texts: ``YYYY/MM/DD HH:MM:SS``, with three decimals or none.
    """
    if not texts:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    full = [text.strip() for text in texts]
    full = [text + ".000" if len(text) == 19 else text for text in full]
    width = len(_STAMP)
    fits = np.fromiter((len(text) == width and text.isascii() for text in full), np.bool_, len(full))
    packed = "".join(text if fit else "0" * width for text, fit in zip(full, fits.tolist(), strict=True))
    table = np.frombuffer(packed.encode("ascii"), np.uint8).reshape(len(full), width)
    digits = table.astype(np.int64) - ord("0")
    good = fits & ((digits[:, _DIGITS] >= 0) & (digits[:, _DIGITS] <= 9)).all(axis=1)
    good &= (table[:, ~_DIGITS] == _SIGNS[~_DIGITS]).all(axis=1)

    def number(start: int, count: int) -> NDArray[np.int64]:
        found = np.zeros(len(full), np.int64)
        for place in range(start, start + count):
            found = found * 10 + digits[:, place]
        return found

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second, milli = number(11, 2), number(14, 2), number(17, 2), number(20, 3)
    good &= (year >= 1970) & (year < 2262) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    good &= (hour < 24) & (minute < 60) & (second <= 60)
    # Days since the first of March of the year 0, as calendars count them.
    shifted = year - (month <= 2)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - _DAYS_BEFORE_1970
    total = ((days * 24 + hour) * 60 + minute) * 60 + second
    return np.where(good, (total * 1000 + milli) * 1_000_000, 0), good
