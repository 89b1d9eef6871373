"""CUDA's own numbers of the GPUs, asked only where the framework has started CUDA already.

Nothing here loads or initialises CUDA: that would break processes that are forked later. The calls need no
context and do not wait for a GPU.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_SUCCESS = 0


def _loaded_library() -> Any:
    """The driver's library if this process has it, else None."""
    flag = getattr(os, "RTLD_NOLOAD", None)
    if flag is None:
        return None
    try:
        return ctypes.CDLL("libcuda.so.1", mode=flag | os.RTLD_NOW)
    except OSError:
        return None


def cuda_devices() -> dict[str, int] | None:
    """CUDA's ordinal by UUID (hexadecimal with hyphens, without ``GPU-``); None while CUDA does not run here."""
    library = _loaded_library()
    if library is None:
        return None
    count = ctypes.c_int()
    try:
        if library.cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
            return None
        # The second version gives an instance's own UUID where the GPU is partitioned.
        get_uuid = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
        found = {}
        for ordinal in range(count.value):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            if library.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
                return None
            if get_uuid(raw, device) != _SUCCESS:
                return None
            found[_uuid(bytes(raw))] = ordinal
        return found
    except AttributeError:
        return None


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
