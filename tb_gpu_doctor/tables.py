"""Tables of numpy columns that Python programs get, and their way into pandas, polars and Arrow.

None of these libraries is needed: a table counts, iterates and hands out its columns without them, and asks for one
only when it is to become one of its frames. Words are kept once each, with the place of one in every row, so a table
holds no object per row.
"""

from __future__ import annotations

import html
import importlib
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import MissingLibraryError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Rows that become Python objects at a time while somebody iterates.
_CHUNK = 1_024
# Rows that a notebook shows.
_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Column:
    """One column.

    Attributes:
        values: booleans, integers or floats, shape (n,); of words, places in ``words``.
        words: each once; None for a column of numbers.
        known: where an integer or boolean is known, shape (n,); None where all are. Of floats NaN is unknown, of words
            a negative place.
    """

    values: NDArray[Any]
    words: tuple[str, ...] | None = None
    known: NDArray[np.bool_] | None = None

    def as_array(self, rows: slice = slice(None)) -> NDArray[Any]:
        """The values as numpy shows them best: words as objects (None where unknown), unknown integers as NaN."""
        values = self.values[rows]
        if self.words is not None:
            words: NDArray[Any] = np.array([*self.words, None], dtype=object)
            return np.asarray(words[values])
        if self.known is None or self.known[rows].all():
            return values
        return np.where(self.known[rows], values, np.nan)

    def plain(self, rows: slice) -> list[Any]:
        """Some of the values as Python's own, None where unknown."""
        values = self.values[rows]
        if self.words is not None:
            return [self.words[place] if place >= 0 else None for place in values.tolist()]
        if values.dtype.kind == "f":
            return [value if value == value else None for value in values.tolist()]
        if self.known is None:
            return list(values.tolist())
        return [value if known else None for value, known in zip(values.tolist(), self.known[rows], strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows and named columns; a column's unit stands at the end of its name (``duration_ms``, ``size_bytes``).

        >>> import tb_gpu_doctor
    >>> gaps = tb_gpu_doctor.diagnose("demo_logs/input_bound").gaps
    >>> gaps
    <gaps: 4427 rows, 23 columns>
    >>> first = next(iter(gaps))
    >>> first.cause, round(first.duration_ms, 2)
    ('input', 138.22)
    >>> float(gaps["idle_input_ms"].sum().round(3))
    2336.269

    Attributes:
        name: what a row is, in the plural.
        data: the columns as they are kept.
    """

    name: str
    data: Mapping[str, Column]

    def __post_init__(self) -> None:
        lengths = {len(column.values) for column in self.data.values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of {self.name} of several lengths: {sorted(lengths)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.data)

    def __len__(self) -> int:
        return len(next(iter(self.data.values())).values)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column as a numpy array; words are Python strings, what is unknown is NaN or None."""
        return self.data[column].as_array()

    def __iter__(self) -> Iterator[Any]:
        """The rows as named tuples, made while one iterates; what is unknown is None."""
        return self._rows(len(self))

    def _rows(self, limit: int) -> Iterator[Any]:
        kind = namedtuple(self.name.capitalize(), self.columns)  # type: ignore[misc]
        limit = min(limit, len(self))
        for first in range(0, limit, _CHUNK):
            rows = slice(first, min(first + _CHUNK, limit))
            yield from map(kind._make, zip(*(column.plain(rows) for column in self.data.values()), strict=True))

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame of pandas; words become categories, integers of which some are unknown become ``Int64``.

        Raises:
            MissingLibraryError: pandas is not installed.
        """
        pd = _library("pandas")
        frame: pandas.DataFrame = pd.DataFrame({name: _pandas(pd, column) for name, column in self.data.items()})
        return frame

    def to_polars(self) -> polars.DataFrame:
        """A DataFrame of polars; words become ``Categorical``, what is unknown becomes null.

        Raises:
            MissingLibraryError: polars is not installed.
        """
        pl = _library("polars")
        frame: polars.DataFrame = pl.DataFrame({name: _polars(pl, column) for name, column in self.data.items()})
        return frame

    def to_arrow(self) -> pyarrow.Table:
        """A table of Arrow; words become dictionaries, what is unknown becomes null.

        Raises:
            MissingLibraryError: pyarrow is not installed.
        """
        pa = _library("pyarrow")
        table: pyarrow.Table = pa.table({name: _arrow(pa, column) for name, column in self.data.items()})
        return table

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} rows, {len(self.data)} columns>"

    def _repr_html_(self) -> str:
        """The first rows, for a notebook: no script, no request, and nothing from a profile is markup."""
        names = "".join(f"<th>{name}</th>" for name in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_short(value))}</td>" for value in row) + "</tr>"
            for row in self._rows(_SHOWN)
        )
        table = f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
        return f'<div style="overflow-x:auto">{table}</div><p>{html.escape(repr(self))}</p>'


def words(values: Iterable[str | None]) -> Column:
    """A column of words; None is unknown."""
    places: dict[str, int] = {}
    found = [-1 if value is None else places.setdefault(value, len(places)) for value in values]
    return Column(np.array(found, np.int32), tuple(places))


def integers(values: Iterable[int | None]) -> Column:
    """A column of integers (or booleans); None is unknown."""
    listed = list(values)
    known = np.array([value is not None for value in listed], bool)
    kind = bool if any(isinstance(value, bool) for value in listed) else np.int64
    return Column(np.array([value or 0 for value in listed], kind), None, None if known.all() else known)


def floats(values: Iterable[float | None]) -> Column:
    """A column of floats; None is unknown."""
    return Column(np.array([np.nan if value is None else value for value in values], np.float64))


def stacked(name: str, parts: Sequence[Mapping[str, Column]], empty: Mapping[str, Column]) -> Table:
    """One table of parts with the same columns below one another; ``empty`` where there are none."""
    if not parts:
        return Table(name, empty)
    return Table(name, {column: _joined([part[column] for part in parts]) for column in parts[0]})


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    if parts[0].words is not None:
        places: dict[str, int] = {}
        moved = []
        for part in parts:
            to = np.array([*(places.setdefault(word, len(places)) for word in part.words or ()), -1], np.int32)
            moved.append(to[part.values])
        return Column(np.concatenate(moved), tuple(places))
    known = None
    if any(part.known is not None for part in parts):
        known = np.concatenate([np.ones(len(p.values), bool) if p.known is None else p.known for p in parts])
    return Column(np.concatenate([part.values for part in parts]), None, known)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError("missing_library", library=name) from error


def _pandas(pd: Any, column: Column) -> Any:
    if column.words is not None:
        return pd.Categorical.from_codes(column.values, categories=list(column.words))
    if column.known is None:
        return column.values.copy()
    kind = pd.arrays.BooleanArray if column.values.dtype.kind == "b" else pd.arrays.IntegerArray
    return kind(column.values.copy(), ~column.known)


def _polars(pl: Any, column: Column) -> Any:
    if column.words is not None:
        places = pl.Series(column.values.astype(np.int64))
        listed = pl.Series([*column.words, None], dtype=pl.String)
        unknown = len(column.words)
        return listed.gather(places.set(places < 0, unknown)).cast(pl.Categorical)
    series = pl.Series(column.values)
    if column.values.dtype.kind == "f":
        return series.fill_nan(None)
    return series if column.known is None else series.set(pl.Series(~column.known), None)


def _arrow(pa: Any, column: Column) -> Any:
    if column.words is not None:
        places = pa.array(column.values, mask=column.values < 0)
        return pa.DictionaryArray.from_arrays(places, pa.array(list(column.words), pa.string()))
    if column.values.dtype.kind == "f":
        return pa.array(column.values, from_pandas=True)
    return pa.array(column.values, mask=None if column.known is None else ~column.known)


def _short(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
