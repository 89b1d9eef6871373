"""The kernel table: every kernel of every GPU with its times, launch facts and occupancy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.kernel_details import UNKNOWN, KernelDetails, parse_kernel_details
from tb_gpu_doctor.analysis.kernel_families import COMMUNICATION, is_persistent, kernel_family
from tb_gpu_doctor.analysis.occupancy import sm_share, theoretical_occupancy, waves
from tb_gpu_doctor.analysis.results import KernelRow, KernelTable, Window
from tb_gpu_doctor.traces.columns import CopyKind, Device, EventClass, Int64, StringTable, Trace

# Tables of flags up to this many bytes are quicker than sorting a million keys.
_DENSE_KEYS = 1 << 24
# Characters of names that are searched for what they tell: of two thousand names all, of more the beginnings.
_NAME_CHARS = 8_000_000
# What XLA writes where TensorFlow writes the op: it names no op, the HLO op does.
_NO_OP = (b"XlaModule:",)


@dataclass(frozen=True)
class _Groups:
    """Kernels by (device, name, details): keys of each group and the group of each event."""

    code: Int64
    device: Int64
    name: Int64
    details: Int64

    def __len__(self) -> int:
        return len(self.device)


def kernel_table(trace: Trace, window: Window | None) -> KernelTable:
    """Group the kernels of a trace by (device, name, launch details).

    Copies (also those between GPUs) and memsets are no kernels. All columns but
    ``in_window_ps`` cover the whole recording, and so does the time-weighted occupancy.

    Args:
        trace: the decoded file.
        window: bounds of ``in_window_ps``; None counts everything.

    Returns:
        Rows sorted by total time, longest first (then device, name). ``share`` is the
        row's part of its own device's kernel time.
    """
    events = trace.device_events
    is_kernel = (events.klass == EventClass.COMPUTE) | (events.klass == EventClass.COMMUNICATION)
    is_kernel &= events.copy_kind == CopyKind.NONE
    rows = slice(None) if is_kernel.all() else np.flatnonzero(is_kernel)
    start, duration = events.start[rows], events.duration[rows]
    op = events.op[rows]
    groups = _group(trace.strings, events.device[rows], events.name[rows], events.details[rows])
    code, count = groups.code, len(groups)

    calls = np.bincount(code, minlength=count)
    total = _exact_sums(code, duration, count)
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, code, duration)
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, code, duration)
    if window is None:
        in_window = total
    else:
        clipped = np.minimum(start + duration, window.end) - np.maximum(start, window.start)
        in_window = _exact_sums(code, np.maximum(clipped, 0), count)
    communication = events.klass[rows] == EventClass.COMMUNICATION
    communicates = 2 * np.bincount(code[communication], minlength=count) > calls
    recorded = np.full(count, np.nan, dtype=np.float32)
    np.fmax.at(recorded, code, events.occupancy_pct[rows])
    ops = _most_frequent(trace.strings, code, op, events.hlo_op[rows], count)

    per_device = [0] * len(trace.devices)
    for device, time in zip(groups.device.tolist(), total, strict=True):
        per_device[device] += time

    # rows share the text of their name, which may be long and come with a million launch details
    names = {name: trace.strings[name] for name in set(groups.name.tolist())}
    seen = max(_NAME_CHARS // max(len(names), 1), 512)
    table = [
        _row(
            trace.devices[device],
            names[name],
            names[name][:seen],
            parse_kernel_details(trace.strings.raw(details)) if details >= 0 else UNKNOWN,
            calls=int(calls[g]),
            total=total[g],
            shortest=int(shortest[g]),
            longest=int(longest[g]),
            in_window=in_window[g],
            device_total=per_device[device],
            communicates=bool(communicates[g]),
            recorded_pct=float(recorded[g]),
            op=trace.strings[ops[g]],
        )
        for g, (device, name, details) in enumerate(
            zip(groups.device.tolist(), groups.name.tolist(), groups.details.tolist(), strict=True)
        )
    ]
    table.sort(key=lambda row: (-row.total_ps, row.device, row.name))
    occupancy, coverage = _weighted_occupancy(table, len(trace.devices))
    return KernelTable(tuple(table), occupancy, coverage)


def _row(
    device: Device,
    name: str,
    telling: str,
    details: KernelDetails,
    *,
    calls: int,
    total: int,
    shortest: int,
    longest: int,
    in_window: int,
    device_total: int,
    communicates: bool,
    recorded_pct: float,
    op: str,
) -> KernelRow:
    blocks, sms = details.blocks, device.sm_count or None
    computed = None
    if device.is_nvidia:
        computed = theoretical_occupancy(
            device.compute_capability, details.registers, details.shared_bytes, details.block_threads
        )
    occupancy = computed.value if computed is not None else _recorded(recorded_pct, details.occ_pct)
    return KernelRow(
        device=device.index,
        name=name,
        calls=calls,
        total_ps=total,
        min_ps=shortest,
        max_ps=longest,
        share=total / device_total if device_total else 0.0,
        registers=details.registers,
        static_shared_bytes=details.static_shared_bytes,
        dynamic_shared_bytes=details.dynamic_shared_bytes,
        grid=details.grid,
        block=details.block,
        occupancy=occupancy,
        limiter=None if computed is None else computed.limiter,
        waves=waves(blocks, sms, computed.active_blocks) if blocks and sms and computed is not None else None,
        sm_share=sm_share(blocks, sms) if blocks and sms else None,
        family=COMMUNICATION if communicates else kernel_family(telling, op),
        persistent=is_persistent(telling),
        op=op,
        in_window_ps=in_window,
    )


def _recorded(column_pct: float, details_pct: float | None) -> float | None:
    """The profiler's own occupancy (its stat, else the one in the details), as 0..1."""
    if 0.0 < column_pct <= 100.0:
        return column_pct / 100.0
    return None if details_pct is None else details_pct / 100.0


def _weighted_occupancy(rows: list[KernelRow], devices: int) -> tuple[tuple[float | None, ...], tuple[float, ...]]:
    """Per device: occupancy weighted by time, and the share of kernel time where it is known.

    Kernels that communicate are left out: they spin on a few SMs by design.
    """
    weighted, known, everything = [0.0] * devices, [0] * devices, [0] * devices
    for row in rows:
        if row.family == COMMUNICATION:
            continue
        everything[row.device] += row.total_ps
        if row.occupancy is not None:
            known[row.device] += row.total_ps
            weighted[row.device] += row.occupancy * row.total_ps
    occupancy = tuple(w / k if k else None for w, k in zip(weighted, known, strict=True))
    coverage = tuple(k / e if e else 0.0 for k, e in zip(known, everything, strict=True))
    return occupancy, coverage


def _group(
    strings: StringTable, device: NDArray[np.int32], name: NDArray[np.int32], details: NDArray[np.int32]
) -> _Groups:
    """Number the distinct (device, name, details); equal strings are equal whatever their id."""
    name_code, names = _factor(_canonical(strings, name))
    details_code, all_details = _factor(_canonical(strings, details))
    width, devices = max(len(all_details), 1), int(device.max(initial=0)) + 1
    pair_code, pairs = _factor(name_code * width + details_code)
    code, keys = _factor(pair_code * devices + device)
    pair = pairs[keys // devices]
    return _Groups(code, keys % devices, names[pair // width], all_details[pair % width])


def _canonical(strings: StringTable, ids: NDArray[np.int32], ignore: tuple[bytes, ...] = ()) -> Int64:
    """The ids, each replaced by the first id of an equal string; -1 for none, empty and ignored ones."""
    used = np.flatnonzero(np.bincount(ids[ids >= 0], minlength=1)) if len(ids) else np.zeros(0, dtype=np.int64)
    first: dict[bytes, int] = dict.fromkeys((b"", *ignore), -1)
    replacement = np.full(int(used[-1]) + 2 if len(used) else 1, -1, dtype=np.int64)  # the last one serves id -1
    changed = False
    for index in used.tolist():
        kept = first.setdefault(strings.raw(index), index)
        replacement[index] = kept
        changed |= kept != index
    if not changed:
        return ids.astype(np.int64)
    return np.asarray(replacement[ids], dtype=np.int64)


def _factor(keys: Int64) -> tuple[Int64, Int64]:
    """Codes 0..k-1 of the keys in ascending order, and the k distinct keys."""
    if not len(keys):
        return keys, keys
    low, high = int(keys.min()), int(keys.max())
    if high - low >= max(_DENSE_KEYS, 4 * len(keys)):
        distinct, code = np.unique(keys, return_inverse=True)
        return code.astype(np.int64), distinct
    shifted = keys - low
    present = np.zeros(high - low + 1, dtype=np.bool_)
    present[shifted] = True
    distinct = np.flatnonzero(present)
    code_of = np.zeros(len(present), dtype=np.int64)
    code_of[distinct] = np.arange(len(distinct))
    return code_of[shifted], distinct + low


def _exact_sums(code: Int64, values: Int64, count: int) -> list[int]:
    """Sum of the values of each group, exact even past 64 bits."""
    if len(values) and int(values.max()) > np.iinfo(np.int64).max // len(values):
        low, high = _exact_sums(code, values & 0xFFFFFFFF, count), _exact_sums(code, values >> 32, count)
        return [(h << 32) + part for h, part in zip(high, low, strict=True)]
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, code, values)
    return sums.tolist()


def _most_frequent(
    strings: StringTable, code: Int64, op: NDArray[np.int32], hlo_op: NDArray[np.int32], count: int
) -> list[int]:
    """String id of each group's most frequent op (framework op, else HLO op); -1 for none.

    On a tie the op that was recorded first wins.
    """
    framework = _canonical(strings, op, _NO_OP)
    if (framework < 0).any():
        framework = np.where(framework >= 0, framework, _canonical(strings, hlo_op))
    named = framework >= 0
    ops = np.full(count, -1, dtype=np.int64)
    if not named.any():
        return ops.tolist()
    width = int(framework.max()) + 1
    keys = np.sort(code[named] * width + framework[named])
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    repeats = np.diff(np.append(first, len(keys)))
    group, candidate = keys[first] // width, keys[first] % width
    order = np.lexsort((-candidate, repeats, group))  # the last of a group: most repeats, smallest id
    ops[group[order]] = candidate[order]
    return ops.tolist()
