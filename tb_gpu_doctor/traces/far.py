"""Columns that lie elsewhere: objects that know their few facts, and fetch a column when somebody asks for it.

A session of hundreds of hosts is decoded on many machines. What one of them tells of a file is short; its columns
stay there. A far object stands in their place: the same type, with the same answers, only slower to give them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from tb_gpu_doctor.traces.columns import DeviceEvents

# From the name of a field to its value, wherever that is.
Fetch = Callable[[str], Any]
T = TypeVar("T")


def far(near: T, fetch: Fetch, *names: str) -> T:
    """The same dataclass instance with some fields elsewhere, all of them where none is named.

    Args:
        near: what to leave behind; of `DeviceEvents` the rows of each device and their extent are kept.
        fetch: called with a field's name when it is asked for, once each.
        names: of the fields that stay elsewhere.
    """
    kind = type(near)
    every = [spec.name for spec in fields(near)]  # type: ignore[arg-type]
    away = frozenset(names or every)
    kept: dict[str, Any] = {name: getattr(near, name) for name in every if name not in away}
    if hasattr(near, "__len__"):
        kept["_length"] = len(near)
    if isinstance(near, DeviceEvents):
        kept["_rows"] = near.rows_of_devices()
        kept["_extent"] = near.extent()
    made: T = connect(_made(kind, away, kept), fetch)
    return made


def connect(instance: T, fetch: Fetch) -> T:
    """The far object, after a journey, with another way to its columns."""
    vars(instance)["_fetch"] = fetch
    return instance


def is_far(instance: object) -> bool:
    """Whether any column of an object lies elsewhere."""
    return isinstance(instance, _Far)


class _Far:
    """What far classes share; fields that are elsewhere are no attributes until they have been fetched."""

    _kind: type
    _away: frozenset[str]

    def __new__(cls, *values: Any, **named: Any) -> Any:
        """Whoever gives all values, `dataclasses.replace` for one, makes no far object (`_made` does)."""
        return cls._kind(*values, **named)

    def __getattr__(self, name: str) -> Any:
        if name not in self._away:
            raise AttributeError(name)
        value = vars(self)["_fetch"](name)
        vars(self)[name] = value
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: value for name, value in vars(self).items() if name != "_fetch" and name not in self._away}
        return _made, (self._kind, self._away, kept)


class _Away:
    """A field that has a default, which stands in the class and would be taken for the value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: _Far, _: type) -> Any:
        return instance.__getattr__(self._name)


def _length(self: Any) -> int:
    return int(vars(self)["_length"])


class _FarDeviceEvents(_Far):
    """Answers of `DeviceEvents` that need no column."""

    def rows_of_devices(self) -> dict[int, slice]:
        rows: dict[int, slice] = vars(self)["_rows"]
        return rows

    def of_device(self, device: int) -> slice:
        return self.rows_of_devices().get(device, slice(0, 0))

    def extent(self) -> tuple[int, int] | None:
        extent: tuple[int, int] | None = vars(self)["_extent"]
        return extent


@lru_cache(maxsize=64)
def _class(kind: type, away: frozenset[str]) -> type:
    base = _FarDeviceEvents if kind is DeviceEvents else _Far
    namespace: dict[str, Any] = {"_kind": kind, "_away": away, "__module__": __name__}
    namespace |= {name: _Away(name) for name in away if hasattr(kind, name)}
    if hasattr(kind, "__len__"):
        namespace["__len__"] = _length
    return type(f"Far{kind.__name__}", (base, kind), namespace)


def _made(kind: type, away: frozenset[str], kept: dict[str, Any]) -> Any:
    made: Any = object.__new__(_class(kind, away))
    vars(made).update(kept)
    return made


class FarMapping(Mapping[str, Any]):
    """A mapping whose keys are known and whose values lie elsewhere."""

    def __init__(self, names: tuple[str, ...], fetch: Fetch) -> None:
        self._names = names
        self._fetch = fetch
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._known:
            self._known[name] = self._fetch(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
