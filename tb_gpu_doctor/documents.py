"""JSON for programs and for files that are kept: one writer, one reader.

A document is made of dicts, lists, dataclasses, msgspec structs and plain values. What is read back is declared as a
`msgspec.Struct`, so that the declaration is the check of what a file holds.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import msgspec

_PS_PER_MS = 1_000_000_000
_Struct = TypeVar("_Struct", bound="msgspec.Struct")
# Of what a file is told to lack, so much fits into a sentence.
_MAX_REASON = 200


class DamagedDocument(ValueError):
    """Bytes that are not the JSON document they should be; the message says where and why."""


def plain(document: Any) -> dict[str, Any]:
    """The document as builtins that JSON knows; a number that is not finite is unknown, hence None."""
    import msgspec  # here and below, so that printing a diagnosis does not wait for it

    content: dict[str, Any] = _finite(msgspec.to_builtins(document, enc_hook=_scalar))
    return content


def to_json(document: Any, indent: int | None = 2) -> str:
    """The document as JSON text; plain ASCII, so that no terminal or locale can spoil it."""
    return json.dumps(plain(document), indent=indent, allow_nan=False)


def from_json(content: bytes, kind: type[_Struct]) -> _Struct:
    """The struct that JSON bytes hold, with or without a byte order mark; fields that it does not declare are left out.

    Raises:
        DamagedDocument: they are no JSON, or a field is missing or out of its bounds.
    """
    import msgspec

    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedDocument(str(error)[:_MAX_REASON]) from error


def milliseconds(picoseconds: float | None) -> float | None:
    """Picoseconds as the milliseconds of documents; None stays None."""
    return None if picoseconds is None else float(picoseconds) / _PS_PER_MS


def _scalar(value: Any) -> Any:
    """A number of numpy, which this module need not know, as one of Python."""
    return value.item()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
