"""What one machine sends another of a file: the smallest bytes that give the same columns back.

Between machines there is no shared scratch file, so columns must travel. Times rise and ids repeat: the differences
of neighbours, with the bytes of equal weight side by side, are mostly zeros, which zlib packs well. What comes
back is equal, bit for bit; columns of one value only take no memory.
"""

from __future__ import annotations

import io
import pickle
import zlib
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces.columns import DeviceEvents, HostEvents

# Measured on files of 100,000 events: higher levels take several times as long for a tenth less.
_LEVEL = 3
# Small arrays do not pay for a look at their values.
_SMALL = 64
_KINDS = "iubf"


def pack(value: Any) -> bytes:
    """The bytes of a value that can be pickled."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return zlib.compress(stream.getbuffer(), _LEVEL)


def unpack(packed: bytes) -> Any:
    """The value; arrays of one value only are read-only."""
    return pickle.loads(zlib.decompress(packed))


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) in (DeviceEvents, HostEvents):  # without what they have computed of themselves
            return type(value), tuple(getattr(value, spec.name) for spec in fields(value))
        if type(value) is np.ndarray and value.dtype.kind in _KINDS and value.size > _SMALL:
            return _restored, _laid_out(value)
        return NotImplemented


Laid = tuple[str, str, tuple[int, ...], bytes]


def _laid_out(array: NDArray[Any]) -> Laid:
    """(how, dtype, shape, bytes) of an array; what stands in one column of a table is laid side by side."""
    dtype, shape = array.dtype.str, array.shape
    flat = np.ascontiguousarray(array.T).reshape(-1)
    width = array.dtype.itemsize
    raw = flat.view(f"u{width}")
    if (raw[1:] == raw[0]).all():
        return "one", dtype, shape, flat[:1].tobytes()
    if array.dtype.kind in "iu" and width > 1:
        signed = flat.view(f"i{width}")
        # Differences wrap around, and their sums wrap back.
        apart = np.diff(signed, prepend=signed.dtype.type(0))
        if _magnitude(apart) < _magnitude(signed):
            return "apart", dtype, shape, _by_weight(_folded(apart))
        return "folded", dtype, shape, _by_weight(_folded(signed))
    return "raw", dtype, shape, _by_weight(raw)


def _restored(how: str, dtype: str, shape: tuple[int, ...], content: bytes) -> NDArray[Any]:
    wanted = np.dtype(dtype)
    if how == "one":
        return np.broadcast_to(np.frombuffer(content, wanted)[0], shape)
    width = wanted.itemsize
    values = np.frombuffer(content, np.uint8).reshape(width, -1).T.copy().view(f"u{width}").reshape(-1)
    if how != "raw":
        # unsigned, so that the lowest bit's sign is no surprise
        signed = (values >> values.dtype.type(1)).view(f"i{width}") ^ -(values & values.dtype.type(1)).view(f"i{width}")
        values = np.cumsum(signed, dtype=signed.dtype) if how == "apart" else signed
    return np.ascontiguousarray(values.view(wanted).reshape(shape[::-1]).T)


def _magnitude(values: NDArray[Any]) -> float:
    """About how many bits a value takes."""
    return float(np.log2(np.abs(values.astype(np.float64)) + 1).mean())


def _folded(signed: NDArray[Any]) -> NDArray[Any]:
    """Small values of either sign as small unsigned ones."""
    bits = signed.dtype.itemsize * 8
    return ((signed << 1) ^ (signed >> (bits - 1))).view(f"u{signed.dtype.itemsize}")


def _by_weight(values: NDArray[Any]) -> bytes:
    """All lowest bytes first, then all second ones, ..."""
    return values.view(np.uint8).reshape(-1, values.dtype.itemsize).T.tobytes()
