"""Whose kernels they are: time by layer scope, framework op and kernel, and runs that a compiler could fuse.

PyTorch's layers are the ``nn.Module`` frames around the call that launched a kernel, where the profiler recorded
Python's stack (``with_stack=True`` or ``with_modules=True``). Kernels of the backward pass are launched by another
thread, which has no such frames: they have no layer.

A fusible run is a sequence of at least three short elementwise kernels on one stream, in one step, with nothing else
between them and no longer pause than a short kernel. What one kernel in place of a run saves is at most all of it but
its shortest kernel: the fused one still has to be launched and to write what the last one wrote.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.analysis.callers import Causality
from tb_gpu_doctor.analysis.kernel_results import FusionCandidate, KernelRow
from tb_gpu_doctor.traces.columns import PS_PER_US, Int32, Int64, Trace

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


SCOPE, OP, KERNEL = "scope", "op", "kernel"
# Deeper scopes are no layers; a name that goes on like this is no path.
MAX_DEPTH, MAX_PATH = 24, 2048


@dataclass
class Node:
    """One scope, op or kernel with all below it.

    Attributes:
        kind: ``scope``, ``op`` or ``kernel``.
        name: of this level alone; "" for kernels without an op.
        total_ps, calls: of all kernels below.
        row: of a kernel.
    """

    kind: str
    name: str
    total_ps: int = 0
    calls: int = 0
    row: KernelRow | None = None
    children: dict[tuple[str, str], Node] = field(default_factory=dict)
    _weighted: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: KernelRow, calls: int, total_ps: int) -> None:
        """Count time of a kernel at or below this node."""
        self.total_ps += total_ps
        self.calls += calls
        for name in ("occupancy", "achieved_occupancy", "sm_share"):
            value = getattr(row, name)
            if value is not None and row.family != "communication":
                sums = self._weighted.setdefault(name, [0.0, 0.0])
                sums[0] += value * total_ps
                sums[1] += total_ps

    def mean(self, name: str) -> float | None:
        """``occupancy``, ``achieved_occupancy`` or ``sm_share``, weighted by time where it is known."""
        value, time = self._weighted.get(name, (0.0, 0.0))
        return value / time if time else None


def op_path(op: str) -> tuple[str, ...]:
    """The levels of an op's name, from the outside in.

    ``model/dense/MatMul:MatMul`` (TensorFlow; the type after the colon is left out where it repeats the last level),
    ``jit(f)/jvp(bsd,de->bse)/dot_general`` (JAX: a slash inside brackets separates nothing), ``aten::mm``.
    """
    op = op[:MAX_PATH]
    path, depth, start = [], 0, 0
    for at, letter in enumerate(op):
        if letter in "([<{":
            depth += 1
        elif letter in ")]}" or (letter == ">" and op[at - 1 : at] != "-"):
            depth = max(depth - 1, 0)
        elif letter == "/" and depth == 0:
            path.append(op[start:at])
            start = at + 1
    path.append(op[start:])
    name, colon, kind = path[-1].rpartition(":")
    if colon and not name.endswith(":") and kind and name:
        path[-1] = name if name == kind or name.startswith(f"{kind}_") else f"{name} ({kind})"
    levels = [level for level in path if level]
    if len(levels) > MAX_DEPTH:
        levels = [*levels[: MAX_DEPTH - 1], "/".join(levels[MAX_DEPTH - 1 :])]
    return tuple(levels) or ("",)


def kernel_tree(times: Iterable[tuple[KernelRow, str, int, int]]) -> Node:
    """The root of the tree; kernels of one name below one op are one node, whatever their launch shape.

    Args:
        times: (kernel, op, calls, picoseconds).
    """
    root = Node(SCOPE, "")
    paths: dict[str, tuple[str, ...]] = {}
    for row, op, calls, total_ps in times:
        if op not in paths:
            paths[op] = op_path(op)
        *scopes, last = paths[op]
        node = root
        node.add(row, calls, total_ps)
        for kind, name in (*((SCOPE, scope) for scope in scopes), (OP, last), (KERNEL, row.name)):
            child = node.children.get((kind, name))
            if child is None:
                child = node.children[kind, name] = Node(kind, name)
            child.add(row, calls, total_ps)
            node = child
        node.row = row
    return root


def largest(root: Node, limit: int) -> tuple[list[tuple[int, Node]], bool]:
    """The nodes with the longest time as (index of the parent or -1, node), parents first and siblings longest first.

    A node's parent takes at least as long, so taking the longest again and again never takes a child alone.

    Returns:
        The nodes without the root, and whether some were left out.
    """
    taken: set[int] = set()
    count = 0
    heap: list[tuple[int, int, Node]] = []

    def offer(node: Node) -> None:
        nonlocal count
        for child in node.children.values():
            count += 1
            heapq.heappush(heap, (-child.total_ps, count, child))

    offer(root)
    while heap and len(taken) < limit:
        _, _, node = heapq.heappop(heap)
        taken.add(id(node))
        offer(node)
    truncated = bool(heap)
    found: list[tuple[int, Node]] = []
    stack: list[tuple[int, Node]] = [(-1, root)]
    while stack:
        parent, node = stack.pop()
        index = parent
        if node is not root:
            index = len(found)
            found.append((parent, node))
        children = sorted((c for c in node.children.values() if id(c) in taken), key=lambda c: (c.total_ps, c.name))
        stack += [(index, child) for child in children]  # the longest is popped first
    return found, truncated


SHORT_KERNEL_PS = 10 * PS_PER_US
# A longer pause has another reason than the kernels themselves.
LONGEST_PAUSE_PS = 10 * PS_PER_US
SHORTEST_RUN = 3
# Candidates that are kept, and kernels of a run that are named.
MAX_CANDIDATES, MAX_NAMED = 200, 16


@dataclass(frozen=True)
class KernelEvents:
    """Columns of the kernels of a trace, sorted by (device, start); shape (n,).

    ``code`` is the group of the kernel table, ``step`` -1 where it belongs to none; ``complete`` says of each step
    whether it was recorded from its beginning to its end.
    """

    device: Int32
    stream: Int32
    start: Int64
    duration: Int64
    step: Int32 | None
    complete: NDArray[np.bool_] | None
    code: Int64
    op: Int64


def find_fusion(
    events: KernelEvents, fusible: NDArray[np.bool_], devices: int, row_of: Int64
) -> tuple[tuple[FusionCandidate, ...], tuple[int, ...]]:
    """Candidates with the largest saving first, and the saving of all runs per device.

    Args:
        events: all kernels of a trace.
        fusible: per group, whether its kernels are elementwise work that no compiler has written.
        devices: how many devices there are.
        row_of: per group, its row in the kernel table.
    """
    nothing: tuple[tuple[FusionCandidate, ...], tuple[int, ...]] = ((), (0,) * devices)
    if not len(events.code) or not fusible.any():
        return nothing
    short = fusible[events.code] & (events.duration < SHORT_KERNEL_PS)
    if np.count_nonzero(short) < SHORTEST_RUN:
        return nothing
    order = _by_stream(events.stream)
    short = short[order]
    # Where the kernel after this one carries on its run.
    joined = short[1:] & short[:-1]
    at = np.flatnonzero(joined)
    first, second = order[at], order[at + 1]
    end = events.start[first] + events.duration[first]
    good = (events.stream[first] == events.stream[second]) & (events.start[second] - end <= LONGEST_PAUSE_PS)
    if events.step is not None:
        good &= events.step[first] == events.step[second]
    at = at[good]
    if not len(at):
        return nothing
    # Consecutive links make a run; one link more than its length.
    begins = np.flatnonzero(np.concatenate(([True], np.diff(at) != 1)))
    links = np.diff(np.append(begins, len(at)))
    long = links + 1 >= SHORTEST_RUN
    low, length = at[begins[long]], links[long] + 1
    if not len(low):
        return nothing
    return _candidates(events, order, low, length, devices, row_of)


def _by_stream(stream: Int32) -> NDArray[np.int64]:
    """The kernels stream by stream, each by start."""
    high = int(stream.max(initial=0))
    keys = stream.astype(np.uint16) if int(stream.min(initial=0)) >= 0 and high < 1 << 16 else stream
    return np.argsort(keys, kind="stable")


def _candidates(
    events: KernelEvents, order: Int64, low: Int64, length: Int64, devices: int, row_of: Int64
) -> tuple[tuple[FusionCandidate, ...], tuple[int, ...]]:
    """Group runs of the same kernels; ``low`` is the place in ``order`` where a run begins."""
    borders = np.concatenate(([0], np.cumsum(length)))[:-1]
    place = np.arange(int(length.sum())) - np.repeat(borders, length)
    member = order[np.repeat(low, length) + place]
    duration, code = events.duration[member], events.code[member]
    first, last = order[low], order[low + length - 1]
    span = np.maximum.reduceat(events.start[member] + duration, borders) - events.start[first]
    saving = span - np.minimum.reduceat(duration, borders)
    device = events.device[first]
    per_device = [0] * devices
    for index in range(devices):
        per_device[index] = int(saving[device == index].sum())
    signature = np.add.reduceat(_mixed(code, place), borders)
    _, group, runs = np.unique(signature, return_inverse=True, return_counts=True)
    totals, savings = _sums(group, span, len(runs)), _sums(group, saving, len(runs))
    in_steps = _sums(group, np.where(_in_complete_steps(events, first), saving, 0), len(runs))
    by_group = np.lexsort((-span, group))  # the longest run of each group stands first
    example = by_group[np.searchsorted(group[by_group], np.arange(len(runs)))]
    kept = np.argsort(-savings, kind="stable")[:MAX_CANDIDATES]
    found = []
    for index in kept.tolist():
        run = int(example[index])
        shown = member[borders[run] : borders[run] + min(int(length[run]), MAX_NAMED)]
        found.append(
            FusionCandidate(
                device=int(device[run]),
                rows=tuple(row_of[events.code[shown]].tolist()),
                ops=tuple(events.op[shown].tolist()),
                kernels=int(length[run]),
                runs=int(runs[index]),
                total_ps=int(totals[index]),
                saving_ps=int(savings[index]),
                saving_in_steps_ps=int(in_steps[index]),
                start=int(events.start[first[run]]),
                end=int(events.start[last[run]] + events.duration[last[run]]),
            )
        )
    return tuple(found), tuple(per_device)


def _in_complete_steps(events: KernelEvents, rows: Int64) -> NDArray[np.bool_]:
    if events.step is None or events.complete is None or not len(events.complete):
        return np.zeros(len(rows), np.bool_)
    step = events.step[rows]
    return np.asarray((step >= 0) & events.complete[step], dtype=np.bool_)


def _mixed(code: Int64, place: Int64) -> NDArray[np.uint64]:
    """A hash of (kernel, place in the run) whose sum tells runs of different kernels apart."""
    mixed = (code.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (place.astype(np.uint64) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _sums(group: NDArray[Any], values: Int64, count: int) -> Int64:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, group, values)
    return sums
