r"""The kernel table: every kernel of every GPU with its times, launch facts, occupancy and use of tensor cores.

The launch facts come from the ``kernel_details`` string, of which four dialects exist::

    regs:38 shm:0 grid:160,1,1 block:1024,1,1                                              TF 2.3/2.4
    regs:12 static_shared:0 dynamic_shared:0 grid:3,1,1 block:128,1,1 occ_pct:100          NVIDIA today
     grid:65536,1,1 block:256,1,1 private_mem:0 group_mem:0 occ_pct:0                      ROCm
    registers_per_thread:32\nstatic_shared_memory_usage:0\n..grid_x:2\n..block_z:1       before TF 2.3

All are ``key:value`` words, so one reader serves them. A profiler sometimes writes uninitialised memory here, hence
every value is checked against what hardware can do: a value that cannot be is None, never clamped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.filling import bound_of, gpu_fills, step_fill
from tb_gpu_doctor.analysis.kernel_families import (
    COMMUNICATION,
    has_tensor_cores,
    is_fusible,
    is_persistent,
    kernel_family,
    tensor_use,
)
from tb_gpu_doctor.analysis.kernel_results import KernelRow, KernelTable, OpTimes, StepFill, Sums
from tb_gpu_doctor.analysis.kernel_tree import KernelEvents, LayerScopes, find_fusion
from tb_gpu_doctor.analysis.occupancy import filled_slots, sm_share, tail, theoretical_occupancy, waves
from tb_gpu_doctor.analysis.results import Steps, Window
from tb_gpu_doctor.traces.columns import CopyKind, Device, EventClass, Int64, SparseStat, StringTable, Trace

Dim3 = tuple[int, int, int]

MAX_REGISTERS = 255
MAX_BLOCK_THREADS = 1024
# No GPU has this much on-chip memory per block (227 KiB on Hopper, 160 KiB on MI350): more is garbage.
MAX_SHARED_BYTES = 1 << 20
MAX_GRID = (1 << 32) - 1  # CUDA stops at 2^31 - 1, HIP at 2^32 - 1

# The longest real string has about 130 bytes; a longer one is not kernel details.
_MAX_LENGTH = 512
_MAX_DIGITS = 10

_REGISTERS = (b"regs", b"registers_per_thread")
# "shm" is the total of both kinds; "group_mem" is AMD's name of shared memory (private_mem is per thread: not it).
_STATIC_SHARED = (b"static_shared", b"static_shared_memory_usage", b"shm", b"group_mem")
_DYNAMIC_SHARED = (b"dynamic_shared", b"dynamic_shared_memory_usage")


@dataclass(frozen=True)
class KernelDetails:
    """Launch facts of one kernel; None where unknown or impossible.

    Attributes:
        registers: per thread, 1..255.
        static_shared_bytes: per block; the total where the profile knows the total only.
        dynamic_shared_bytes: per block.
        grid: blocks in x, y, z.
        block: threads in x, y, z, at most 1,024 together.
        occ_pct: theoretical occupancy as recorded, in (0, 100].
    """

    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    grid: Dim3 | None = None
    block: Dim3 | None = None
    occ_pct: float | None = None

    @property
    def shared_bytes(self) -> int | None:
        """Static plus dynamic shared memory of a block; None when neither is known."""
        if self.static_shared_bytes is None and self.dynamic_shared_bytes is None:
            return None
        return (self.static_shared_bytes or 0) + (self.dynamic_shared_bytes or 0)

    @property
    def block_threads(self) -> int | None:
        """Threads of a block."""
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return None if self.grid is None else self.grid[0] * self.grid[1] * self.grid[2]


UNKNOWN = KernelDetails()


@lru_cache(maxsize=4096)
def parse_kernel_details(raw: bytes) -> KernelDetails:
    """Read one ``kernel_details`` string of any dialect; never raises.

    An impossible block means that the whole record is uninitialised memory, so nothing
    of it is believed. Of registers and shared memory one impossible value discredits all
    (old ROCm profiles put the halves of a pointer there) but not the dimensions.
    """
    if not raw or len(raw) > _MAX_LENGTH:
        return UNKNOWN
    words: dict[bytes, bytes] = {}
    for word in raw.split():
        key, _, value = word.partition(b":")
        words.setdefault(key, value)
    block_found, block = _dim3(words, b"block", MAX_BLOCK_THREADS)
    if block_found and (block is None or block[0] * block[1] * block[2] > MAX_BLOCK_THREADS):
        return UNKNOWN
    _, grid = _dim3(words, b"grid", MAX_GRID)

    numbers = [
        (text, _integer(text, limit))
        for text, limit in (
            (_first(words, _REGISTERS), MAX_REGISTERS),
            (_first(words, _STATIC_SHARED), MAX_SHARED_BYTES),
            (_first(words, _DYNAMIC_SHARED), MAX_SHARED_BYTES),
        )
    ]
    if any(text is not None and number is None for text, number in numbers):
        registers = static = dynamic = None
    else:
        registers, static, dynamic = (number for _, number in numbers)
    return KernelDetails(
        registers=registers or None,  # 0: not recorded, since every kernel has some
        static_shared_bytes=static,
        dynamic_shared_bytes=dynamic,
        grid=grid,
        block=block,
        occ_pct=_percent(words.get(b"occ_pct")),
    )


def _first(words: dict[bytes, bytes], keys: tuple[bytes, ...]) -> bytes | None:
    return next((words[key] for key in keys if key in words), None)


def _integer(text: bytes | None, limit: int) -> int | None:
    """A plain decimal in 0..limit, else None."""
    if text is None or not text.isdigit() or len(text) > _MAX_DIGITS:
        return None
    value = int(text)
    return value if value <= limit else None


def _dim3(words: dict[bytes, bytes], key: bytes, limit: int) -> tuple[bool, Dim3 | None]:
    """Whether ``key`` is there in either spelling, and its three sizes when each is in 1..limit."""
    if key in words:
        parts: list[bytes | None] = list(words[key].split(b","))
    elif key + b"_x" in words:
        parts = [words.get(key + axis) for axis in (b"_x", b"_y", b"_z")]
    else:
        return False, None
    sizes = [_integer(part, limit) for part in parts]
    if len(sizes) != 3:
        return True, None
    x, y, z = sizes
    return True, (x, y, z) if x and y and z else None


def _percent(text: bytes | None) -> float | None:
    """A percentage in (0, 100]; the profiler writes 0 for "could not be computed"."""
    if text is None or len(text) > 2 * _MAX_DIGITS:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value <= 100.0 else None


# Tables of flags up to this many bytes are quicker than sorting a million keys.
_DENSE_KEYS = 1 << 24
# Characters of names that are searched for what they tell: of two thousand names all, of more the beginnings.
_NAME_CHARS = 8_000_000
# What XLA writes where TensorFlow writes the op: it names no op, the HLO op does.
_NO_OP = (b"XlaModule:",)
# Recorded and computed occupancy may be this far apart, in percent: profiles round to whole ones.
_ROUNDING_PCT = 1.0


@dataclass(frozen=True)
class _Groups:
    """Kernels by (device, name, details): keys of each group and the group of each event."""

    code: Int64
    device: Int64
    name: Int64
    details: Int64

    def __len__(self) -> int:
        return len(self.device)


@dataclass(frozen=True)
class _Totals:
    """Sums over groups of events; one entry a group."""

    calls: Int64
    total: Sums
    shortest: Int64
    longest: Int64
    in_window: Sums

    def joined(self, first: Int64) -> _Totals:
        """The sums over stretches of groups that begin at ``first``."""
        return _Totals(
            np.add.reduceat(self.calls, first),
            np.add.reduceat(self.total, first),
            np.minimum.reduceat(self.shortest, first),
            np.maximum.reduceat(self.longest, first),
            np.add.reduceat(self.in_window, first),
        )


def kernel_table(
    trace: Trace, window: Window | None, steps: Steps | None = None, scopes: LayerScopes | None = None
) -> KernelTable:
    """Group the kernels of a trace by (device, name, launch details).

    Copies (also those between GPUs) and memsets are no kernels. All columns but
    ``in_window_ps`` cover the whole recording, and so does the time-weighted occupancy.

    Args:
        trace: the decoded file.
        window: bounds of ``in_window_ps``; None counts everything.
        steps: for how kernels fill the GPU in each step; fusion candidates end where a step ends.
        scopes: layers of the device events, where their ops do not name them.

    Returns:
        Rows sorted by total time, longest first (then device, name). ``share`` is the
        row's part of its own device's kernel time.
    """
    events = trace.device_events
    is_kernel = (events.klass == EventClass.COMPUTE) | (events.klass == EventClass.COMMUNICATION)
    is_kernel &= events.copy_kind == CopyKind.NONE
    rows = slice(None) if is_kernel.all() else np.flatnonzero(is_kernel)
    groups = _group(trace.strings, events.device[rows], events.name[rows], events.details[rows])
    code, count = groups.code, len(groups)
    if not count:
        none = len(trace.devices)
        return KernelTable((), (None,) * none, (0.0,) * none, gpu_fills((), trace.devices), fusion_ps=(0,) * none)
    start, duration, stream = events.start[rows], events.duration[rows], events.stream[rows]

    op = _op_of(trace.strings, events.op[rows], events.hlo_op[rows])
    atoms = _atoms(op, code, count, start, duration, window, None if scopes is None else scopes.code[rows], scopes)
    table, telling = _rows(trace, rows, groups, atoms)
    order = sorted(range(count), key=lambda g: (-table[g].total_ps, table[g].device, table[g].name))
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    fusible = np.array(
        [is_fusible(name, row.op, row.family) for row, name in zip(table, telling, strict=True)], np.bool_
    )
    step = None if steps is None or not len(steps.event_step) else steps.event_step[rows]
    complete = None if steps is None else steps.complete
    kernel_events = KernelEvents(events.device[rows], stream, start, duration, step, complete, code, op)
    fusion, fusion_ps = find_fusion(kernel_events, fusible, len(trace.devices), place)
    table = [table[g] for g in order]
    fills = gpu_fills(table, trace.devices)
    by_row = np.argsort(place[atoms.row], kind="stable")
    return KernelTable(
        rows=tuple(table),
        occupancy=tuple(fill.occupancy for fill in fills),
        occupancy_coverage=tuple(fill.occupancy_coverage for fill in fills),
        fills=fills,
        steps=None if step is None or steps is None else _by_step(table, place, code, duration, step, steps, trace),
        ops=OpTimes(
            place[atoms.row][by_row],
            atoms.op[by_row],
            atoms.parts.calls[by_row],
            atoms.parts.total[by_row],
            None if scopes is None else atoms.layer[by_row],
            () if scopes is None else scopes.paths,
        ),
        fusion=fusion,
        fusion_ps=fusion_ps,
    )


@dataclass(frozen=True)
class _Atoms:
    """The finest groups, each kernel by op and layer; everything else is summed up from them.

    Attributes:
        row: the kernel of each, rising; shape (atoms,).
        op: its op, a string id; shape (atoms,).
        layer: index into the scopes' paths, -1 none; shape (atoms,).
        parts: calls and times of each.
        sums: calls and times of each kernel.
    """

    row: Int64
    op: Int64
    layer: Int64
    parts: _Totals
    sums: _Totals


def _atoms(
    op: Int64,
    code: Int64,
    count: int,
    start: Int64,
    duration: Int64,
    window: Window | None,
    scope: NDArray[np.int32] | None,
    scopes: LayerScopes | None,
) -> _Atoms:
    """Group the kernels' events by kernel, op and layer."""
    op_code, ops = _factor(op)
    layers = np.full(len(ops), -1, dtype=np.int64)
    if scopes is not None and scope is not None:
        width = len(scopes.paths) + 1
        op_code, pairs = _factor(op_code * width + scope + 1)
        ops, layers = ops[pairs // width], pairs % width - 1
    atom, atoms = _factor(code * len(ops) + op_code)
    row = atoms // len(ops)
    parts = _sum_up(atom, len(atoms), start, duration, window)
    sums = parts.joined(np.searchsorted(row, np.arange(count)))
    return _Atoms(row, ops[atoms % len(ops)], layers[atoms % len(ops)], parts, sums)


def _rows(trace: Trace, rows: slice | Int64, groups: _Groups, atoms: _Atoms) -> tuple[list[KernelRow], list[str]]:
    """One row of the table a kernel, and the part of each name that the analyses read."""
    events, sums, code, count = trace.device_events, atoms.sums, groups.code, len(groups)
    communication = events.klass[rows] == EventClass.COMMUNICATION
    communicates = 2 * np.bincount(code[communication], minlength=count) > sums.calls
    recorded = _largest(code, events.occupancy_pct[rows], count)
    main_op = _most_frequent(atoms.row, atoms.op, atoms.parts.calls, count)
    achieved, flops, accessed = (
        _stat_of(trace.device_stats.get(name), rows, len(events), code, sums.calls, how)
        for name, how in (("achieved_occupancy_pct", "max"), ("flops", "sum"), ("bytes_accessed", "sum"))
    )
    per_device = [0] * len(trace.devices)
    for device, time in zip(groups.device.tolist(), sums.total.tolist(), strict=True):
        per_device[device] += time
    nvidia = [device.is_nvidia for device in trace.devices]
    with_tensor_cores = [has_tensor_cores(device) is True for device in trace.devices]
    # rows share the text of their name, which may be long and come with a million launch details
    names = {name: trace.strings[name] for name in set(groups.name.tolist())}
    seen = max(_NAME_CHARS // max(len(names), 1), 512)
    keys = zip(groups.device.tolist(), groups.name.tolist(), groups.details.tolist(), strict=True)
    table = [
        _row(
            trace.devices[device],
            names[name],
            names[name][:seen],
            parse_kernel_details(trace.strings.raw(details)) if details >= 0 else UNKNOWN,
            is_nvidia=nvidia[device],
            has_tensor=with_tensor_cores[device],
            calls=int(sums.calls[g]),
            total=int(sums.total[g]),
            shortest=int(sums.shortest[g]),
            longest=int(sums.longest[g]),
            in_window=int(sums.in_window[g]),
            device_total=per_device[device],
            communicates=bool(communicates[g]),
            recorded_pct=float(recorded[g]),
            achieved_pct=achieved.get(g),
            flops=flops.get(g),
            accessed=accessed.get(g),
            op=trace.strings[int(main_op[g])],
        )
        for g, (device, name, details) in enumerate(keys)
    ]
    return table, [row.name[:seen] for row in table]


def _row(
    device: Device,
    name: str,
    telling: str,
    details: KernelDetails,
    *,
    is_nvidia: bool,
    has_tensor: bool,
    calls: int,
    total: int,
    shortest: int,
    longest: int,
    in_window: int,
    device_total: int,
    communicates: bool,
    recorded_pct: float,
    achieved_pct: int | None,
    flops: int | None,
    accessed: int | None,
    op: str,
) -> KernelRow:
    blocks, sms = details.blocks, device.sm_count or None
    computed = None
    if is_nvidia:
        computed = theoretical_occupancy(
            device.compute_capability, details.registers, details.shared_bytes, details.block_threads
        )
    recorded = _recorded(recorded_pct, details.occ_pct)
    occupancy = computed.value if computed is not None else recorded
    family = COMMUNICATION if communicates else kernel_family(telling, op)
    active = computed.active_blocks if computed is not None else None
    differs = computed is not None and recorded is not None and abs(computed.value - recorded) * 100 > _ROUNDING_PCT
    achieved = None
    if blocks and sms and active and computed is not None:
        achieved = computed.value * filled_slots(blocks, sms, active)
        if achieved_pct is not None and details.block_threads:
            # Kineto counts threads, not warps, and no last wave
            resident = min(active, blocks / sms) * details.block_threads
            kineto = resident / (computed.warps * 32)
            differs |= abs(kineto * 100 - achieved_pct) > _ROUNDING_PCT
    tensor = tensor_use(telling, family) if has_tensor else None
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
        waves=waves(blocks, sms, active) if blocks and sms and active else None,
        sm_share=sm_share(blocks, sms) if blocks and sms else None,
        family=family,
        persistent=is_persistent(telling),
        op=op,
        in_window_ps=in_window,
        recorded_occupancy=recorded,
        recorded_achieved=None if achieved_pct is None else achieved_pct / 100.0,
        occupancy_differs=differs,
        achieved_occupancy=achieved,
        wave_blocks=sms * active if sms and active else None,
        tail=tail(blocks, sms, active) if blocks and sms and active else None,
        tensor_cores=None if tensor is None else tensor.state,
        data_type=None if tensor is None else tensor.data_type,
        flops=flops,
        bytes_accessed=accessed,
        bound=bound_of(device, total, flops, accessed),
    )


def _by_step(
    table: list[KernelRow],
    place: Int64,
    code: Int64,
    duration: Int64,
    step: NDArray[np.int32],
    steps: Steps,
    trace: Trace,
) -> StepFill:
    """Kernel time by step and row, then what it says per step and GPU."""
    inside = slice(None) if len(step) and int(step.min()) >= 0 else np.flatnonzero(step >= 0)
    width = len(table)
    cell, cells = _factor(step[inside].astype(np.int64) * width + place[code[inside]])
    times = np.asarray(_exact_sums(cell, duration[inside], len(cells)), dtype=np.float64)
    return step_fill(table, cells // width, cells % width, times, len(steps.number), len(trace.devices))


def _sum_up(code: Int64, count: int, start: Int64, duration: Int64, window: Window | None) -> _Totals:
    """Calls and times of each group; past int64 the sums are Python integers."""
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, code, duration)
    longest = np.zeros(count, dtype=np.int64)
    np.maximum.at(longest, code, duration)
    total = in_window = _exact_sums(code, duration, count)
    if window is not None and (int(start.min()) < window.start or int((start + duration).max()) > window.end):
        clipped = np.minimum(start + duration, window.end) - np.maximum(start, window.start)
        in_window = _exact_sums(code, np.maximum(clipped, 0), count)
    return _Totals(np.bincount(code, minlength=count), total, shortest, longest, in_window)


def _largest(code: Int64, values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The largest value of each group, NaN without any."""
    found = np.full(count, np.nan, dtype=np.float32)
    np.fmax.at(found, code, values)
    return found


def _stat_of(
    stat: SparseStat | None, rows: slice | Int64, events: int, code: Int64, calls: Int64, how: str
) -> dict[int, int]:
    """A stat by group: its largest value, or its sum where every call of the group carries it."""
    if stat is None or not len(stat.rows):
        return {}
    values = np.full(events, -1, dtype=np.int64)
    values[stat.rows] = stat.values
    picked = values[rows]
    has = np.flatnonzero(picked >= 0)
    group, picked = code[has], picked[has]
    if how == "max":
        best = np.full(len(calls), -1, dtype=np.int64)
        np.maximum.at(best, group, picked)
        return {g: int(best[g]) for g in np.flatnonzero(best >= 0).tolist()}
    complete = np.bincount(group, minlength=len(calls)) == calls
    sums = _exact_sums(group, picked, len(calls))
    return {g: int(sums[g]) for g in np.flatnonzero(complete).tolist()}


def _recorded(column_pct: float, details_pct: float | None) -> float | None:
    """The profiler's own occupancy (its stat, else the one in the details), as 0..1."""
    if 0.0 < column_pct <= 100.0:
        return column_pct / 100.0
    return None if details_pct is None else details_pct / 100.0


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


def _exact_sums(code: Int64, values: Int64, count: int) -> Sums:
    """Sum of the values of each group, exact even past 64 bits."""
    if len(values) and int(values.max()) > np.iinfo(np.int64).max // len(values):
        low, high = _exact_sums(code, values & 0xFFFFFFFF, count), _exact_sums(code, values >> 32, count)
        return np.asarray((high.astype(object) << 32) + low.astype(object))
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, code, values)
    return sums


def _op_of(strings: StringTable, op: NDArray[np.int32], hlo_op: NDArray[np.int32]) -> Int64:
    """String id of each event's op (framework op, else HLO op); -1 for none. Equal strings have one id."""
    framework = _canonical(strings, op, _NO_OP)
    if (framework < 0).any():
        framework = np.where(framework >= 0, framework, _canonical(strings, hlo_op))
    return framework


def _most_frequent(group: Int64, op: Int64, calls: Int64, count: int) -> Int64:
    """String id of each group's most frequent op; -1 for none. On a tie the op that was recorded first wins."""
    ops = np.full(count, -1, dtype=np.int64)
    width = int(op.max(initial=0)) + 2
    pair, pairs = _factor(group * width + op + 1)  # an op may be there once for each layer
    calls = np.asarray(_exact_sums(pair, calls, len(pairs)))
    group, op = pairs // width, pairs % width - 1
    named = np.flatnonzero(op >= 0)
    order = named[np.lexsort((-op[named], calls[named], group[named]))]  # the last of a group: most calls, smallest id
    ops[group[order]] = op[order]
    return ops
