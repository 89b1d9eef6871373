"""Reads tables of a SQLite file that nobody vouches for.

A database is a program as much as a file: views, triggers, generated columns and virtual tables compute what a reader
asks for, without end if they like. So nothing is read but plain columns of plain tables; the schema is not trusted;
time, rows and sizes are bounded; and the file is opened as one that never changes, so that nothing is made beside it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import Int64

MAGIC = b"SQLite format 3\0"
# Texts and blobs beyond this are refused; the longest names of kernels have 20 KB.
_MAX_CELL_BYTES = 4 << 20
_MAX_TABLES, _MAX_COLUMNS = 4096, 512
_FETCHED_ROWS = 16_384
_LOOKED_UP = 400
# A row takes at least so many bytes of the file, whatever its table.
_LEAST_ROW_BYTES = 8
# Time for a file: this, and a second for so many bytes of it. Opcodes between two looks at the clock.
_LEAST_SECONDS, _BYTES_PER_S, _OPCODES = 60.0, 2e6, 100_000


class Tables:
    """The plain tables of one file, which is closed at the end of a ``with``.

    Raises:
        ProfileError: ``not_nsys`` for a file that is no SQLite; ``bad_database`` where SQLite finds it damaged, or
            reading takes longer than any honest file of its size; ``changed`` where it was written meanwhile.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            state = os.stat(path)
            with open(path, "rb") as file:
                head = file.read(len(MAGIC))
        except OSError as error:
            raise ProfileError("io_error", path, reason=error.strerror or str(error)) from None
        if not state.st_size:
            raise ProfileError("empty_file", path)
        if head != MAGIC:
            raise ProfileError("not_nsys", path)
        self._state = state
        self._most_rows = state.st_size // _LEAST_ROW_BYTES
        self._deadline = time.monotonic() + _LEAST_SECONDS + state.st_size / _BYTES_PER_S
        self._connection = sqlite3.connect(_address(path), uri=True, check_same_thread=False)
        self._columns: dict[str, frozenset[str]] = {}
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        self._connection.close()
        if kind is None:
            now = os.stat(self._path)
            if (now.st_size, now.st_mtime_ns) != (self._state.st_size, self._state.st_mtime_ns):
                raise ProfileError("still_written", self._path)

    def _open(self) -> None:
        connection = self._connection
        connection.text_factory = bytes
        if hasattr(connection, "setlimit"):  # Python 3.11 and later
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(self._is_late, _OPCODES)
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"):
            self._rows(f"PRAGMA {pragma}")
        listed = self._rows("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT ?", (_MAX_TABLES,))
        for name, sql in listed:
            if not isinstance(name, bytes) or not isinstance(sql, bytes):
                continue
            if sql.lstrip()[:14].upper().startswith(b"CREATE VIRTUAL"):
                continue
            text = name.decode("utf-8", "replace")
            if text.isidentifier() and text.isascii():
                self._columns[text] = self._plain_columns(text)

    def _plain_columns(self, table: str) -> frozenset[str]:
        described = self._rows(f'PRAGMA table_xinfo("{table}")')[:_MAX_COLUMNS]
        names = (row[1].decode("utf-8", "replace") for row in described if row[6] == 0)
        return frozenset(name for name in names if name.isidentifier() and name.isascii())

    def _is_late(self) -> int:
        return time.monotonic() > self._deadline

    def __contains__(self, table: str) -> bool:
        return bool(self._columns.get(table))

    def names(self) -> frozenset[str]:
        """Names of the plain tables."""
        return frozenset(self._columns)

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table has all of these columns, as plain ones."""
        return self._columns.get(table, frozenset()).issuperset(columns)

    def _rows(self, query: str, given: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return list(chain.from_iterable(self._parts(query, given)))

    def _parts(self, query: str, given: Sequence[object] = ()) -> Iterator[list[tuple[Any, ...]]]:
        """Rows in portions; no table has more than its file can hold."""
        left = self._most_rows + _MAX_TABLES
        try:
            cursor = self._connection.execute(query, given)
            while rows := cursor.fetchmany(_FETCHED_ROWS):
                left -= len(rows)
                if left < 0:
                    raise ProfileError("bad_database", self._path, reason="more rows than its size allows")
                yield rows
        # SQLite's own messages may quote bytes that are no UTF-8
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeDecodeError) as error:
            raise ProfileError("bad_database", self._path, reason=str(error)) from None

    def values(self, table: str, columns: Sequence[str], most: int, where: str = "1") -> list[tuple[Any, ...]]:
        """The first rows of a small table as they are: numbers, bytes for texts, None; none where a column lacks."""
        if not self.has(table, *columns):
            return []
        named = ", ".join(f'"{column}"' for column in columns)
        return self._rows(f'SELECT {named} FROM "{table}" WHERE {where} LIMIT {most:d}')

    def integers(self, table: str, expressions: Sequence[str], where: str = "1") -> list[Int64]:
        """Columns of whole numbers, one for each SQL expression, whatever the file holds in their place.

        Args:
            table: one that is there.
            expressions: such as `whole` makes; they must yield integers or NULL, which becomes -1.
            where: condition on the rows.
        """
        width = len(expressions)
        chosen = ", ".join(f"ifnull({expression}, -1)" for expression in expressions)
        parts: list[Int64] = []
        for rows in self._parts(f'SELECT {chosen} FROM "{table}" WHERE {where}'):
            flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
            parts.append(np.ascontiguousarray(flat.reshape(-1, width).T))
        return [np.concatenate([part[column] for part in parts] or [np.zeros(0, np.int64)]) for column in range(width)]

    def portions(self, table: str, expressions: Sequence[str], where: str = "1") -> Iterator[list[tuple[Any, ...]]]:
        """Rows of any SQL expressions, in portions."""
        yield from self._parts(f'SELECT {", ".join(expressions)} FROM "{table}" WHERE {where}')

    def texts(self, idents: Iterable[int], most_bytes: int) -> dict[int, bytes]:
        """Of the file's string table (``StringIds``) those that are asked for, cut to a length."""
        wanted = sorted(set(idents))
        found: dict[int, bytes] = {}
        if not self.has("StringIds", "id", "value"):
            return found
        for at in range(0, len(wanted), _LOOKED_UP):
            some = wanted[at : at + _LOOKED_UP]
            marks = ", ".join("?" * len(some))
            query = (
                f"SELECT id, substr(CAST(value AS BLOB), 1, {most_bytes:d}) FROM StringIds WHERE id IN ({marks}) "
                f"LIMIT {len(some):d}"
            )
            found.update((ident, value or b"") for ident, value in self._rows(query, some) if isinstance(ident, int))
        return found


def whole(column: str) -> str:
    """SQL for the column as an integer, whatever is in it; NULL stays."""
    return f'"{column}" | 0'


def split(packed: NDArray[np.int64], *widths: int) -> list[Int64]:
    """Numbers that were packed into one, from the highest bits down; -1 where the whole is -1.

    Args:
        packed: shape (n,).
        widths: bits of each but the first, which takes what is left.
    """
    absent = packed == -1
    found = []
    for width in reversed(widths):
        found.append(packed & ((1 << width) - 1))
        packed = packed >> width
    found.append(packed)
    return [np.where(absent, -1, column) for column in reversed(found)]


def _address(path: str) -> str:
    # immutable: no lock, no journal that lies beside it is replayed, no file is made
    absolute = os.path.abspath(path)
    return (
        f"file:{quote(absolute)}?mode=ro&immutable=1"
        if os.sep == "/"
        else f"file:///{quote(absolute)}?mode=ro&immutable=1"
    )
