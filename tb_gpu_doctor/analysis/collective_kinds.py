"""What kind of collective a kernel runs, and how many bytes; tables are data."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from tb_gpu_doctor.analysis.results import Float64
from tb_gpu_doctor.traces.columns import NO_STAT, Int64, Trace
from tb_gpu_doctor.traces.grouping import group


class CollectiveKind(IntEnum):
    """What a collective does; OTHER where its name does not say."""

    OTHER = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    SEND_RECEIVE = 7


# Whose result needs something from every participant: nobody can be done before the last has begun.
NEEDS_ALL = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
# Between two GPUs, or from one: that all of them meet cannot be taken for granted.
NOT_FOR_ALL = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)

_NAMES = (
    (re.compile(r"reduce[-_ ]?scatter", re.IGNORECASE), CollectiveKind.REDUCE_SCATTER),
    (re.compile(r"all[-_ ]?reduce|barrier|cross_device_reduce", re.IGNORECASE), CollectiveKind.ALL_REDUCE),
    (re.compile(r"all[-_ ]?gather", re.IGNORECASE), CollectiveKind.ALL_GATHER),
    (re.compile(r"all[-_ ]?to[-_ ]?all", re.IGNORECASE), CollectiveKind.ALL_TO_ALL),
    (re.compile(r"broadcast", re.IGNORECASE), CollectiveKind.BROADCAST),
    (re.compile(r"send[-_ ]?recv|collective-permute|(?<![a-z])(?:send|recv)(?![a-z])", re.IGNORECASE),
     CollectiveKind.SEND_RECEIVE),
    (re.compile(r"nccl\w*_reduce_|^reduce$", re.IGNORECASE), CollectiveKind.REDUCE),
)  # fmt: skip
# PyTorch's and NCCL's words for the types of elements.
_SIZES = (
    (re.compile(r"float64|double|int64|uint64|long|complex64|f64|s64|u64", re.IGNORECASE), 8),
    (re.compile(r"bfloat16|float16|half|bf16|f16|int16|short", re.IGNORECASE), 2),
    (re.compile(r"float8|int8|uint8|byte|char|bool|f8|u8|s8", re.IGNORECASE), 1),
    (re.compile(r"float|int|f32|u32|s32", re.IGNORECASE), 4),
)
_READ = 512


def kind_of(name: str) -> CollectiveKind:
    """The kind that a kernel's, an HLO op's or PyTorch's name says."""
    return next((kind for pattern, kind in _NAMES if pattern.search(name[:_READ])), CollectiveKind.OTHER)


def kinds(trace: Trace, rows: Int64) -> Int64:
    """`CollectiveKind` of device events: by PyTorch's word, else by HLO op, else by kernel name."""
    found = np.zeros(len(rows), np.int64)
    events = trace.device_events
    for ids in (trace.device_stats.get("collective", NO_STAT).at(rows), events.hlo_op[rows], events.name[rows]):
        open_ = np.flatnonzero((found == CollectiveKind.OTHER) & (ids >= 0))
        if len(open_):
            names, inverse = group(np.asarray(ids, dtype=np.int64)[open_])
            found[open_] = np.array([int(kind_of(trace.strings[i])) for i in names.tolist()], np.int64)[inverse]
    return found


def sizes(trace: Trace, rows: Int64) -> Int64:
    """Bytes that each collective works on, the larger of input and output; -1 where unknown."""
    stats = trace.device_stats
    elements = np.maximum(stats.get("in_elements", NO_STAT).at(rows), stats.get("out_elements", NO_STAT).at(rows))
    types = stats.get("dtype", NO_STAT).at(rows)
    found = np.full(len(rows), -1, np.int64)
    known = np.flatnonzero((elements >= 0) & (types >= 0))
    if len(known):
        names, inverse = group(types[known])
        width = np.array([_element_size(trace.strings[i]) for i in names.tolist()], np.int64)[inverse]
        total = np.clip(elements[known], 0, 1 << 48) * width
        found[known] = np.where(width > 0, total, -1)
    return found


def _element_size(dtype: str) -> int:
    return next((size for pattern, size in _SIZES if pattern.search(dtype[:_READ])), 0)


def bus_factor(kind: Int64, participants: Int64) -> Float64:
    """What the size is multiplied with for the bytes that cross each GPU's link (nccl-tests' bus bandwidth)."""
    n = np.maximum(participants, 1).astype(np.float64)
    part = (n - 1) / n
    factor = np.ones(len(n))
    factor[kind == CollectiveKind.ALL_REDUCE] = 2 * part[kind == CollectiveKind.ALL_REDUCE]
    split = np.isin(kind, (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL))
    factor[split] = part[split]
    return factor
