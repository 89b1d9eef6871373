"""Layers that PyTorch's kernels belong to: the ``nn.Module`` frames around the call that launched them.

They are there where the profiler recorded Python's stack (``with_stack=True`` or ``with_modules=True``). Kernels of the
backward pass are launched by another thread, which has no such frames: they have no layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.traces.columns import Int32, Int64, Trace

_MODULE = b"nn.Module: "


@dataclass(frozen=True)
class LayerScopes:
    """The layers of device events.

    Attributes:
        code: index into ``paths`` for each device event, -1 for none.
        paths: names of the modules from the outside in.
    """

    code: Int32
    paths: tuple[tuple[str, ...], ...]


def layer_scopes(trace: Trace, launch: Int64, causes: Causality) -> LayerScopes | None:
    """The layers of a trace's device events; None where no module was recorded.

    Args:
        trace: the decoded file.
        launch: host row that launched each device event, -1 unknown.
        causes: of the host events.
    """
    if _MODULE not in trace.strings.blob:
        return None
    names = trace.host_events.name
    module_id = np.array([trace.strings.raw(i).startswith(_MODULE) for i in range(len(trace.strings))] + [False])
    is_module = module_id[names]
    if not is_module.any():
        return None
    nearest = _nearest(is_module, causes.parent)
    module = np.where(launch >= 0, nearest[causes.caller[launch]], -1)
    used, inverse = np.unique(module, return_inverse=True)
    paths: dict[tuple[str, ...], int] = {}
    known: dict[int, tuple[str, ...]] = {}
    codes = np.full(len(used), -1, np.int32)
    for index, row in enumerate(used.tolist()):
        if row < 0:
            continue
        chain: list[int] = []
        while row >= 0 and row not in known:
            chain.append(row)
            above = int(causes.parent[row])
            row = int(nearest[above]) if above >= 0 else -1
        path = known.get(row, ())
        for inner in reversed(chain):
            path = (*path, trace.strings[int(names[inner])].removeprefix(_MODULE.decode()))
            known[inner] = path
        codes[index] = paths.setdefault(known[int(used[index])], len(paths))
    return LayerScopes(codes[inverse].astype(np.int32), tuple(paths))


def _nearest(is_module: np.ndarray, parent: Int64) -> Int64:
    """The innermost module around each host event, itself included; -1 for none."""
    found = np.where(is_module, np.arange(len(parent)), parent)
    # each round looks twice as far up
    while True:
        further = np.where(found >= 0, found[found], -1)
        if (further == found).all():
            break
        found = further
    # what ends at an event without a parent that is no module has none
    return np.asarray(np.where((found >= 0) & is_module[found], found, -1), dtype=np.int64)
