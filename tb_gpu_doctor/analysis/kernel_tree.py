"""Kernel time as a tree: layer scopes from the outside in, then the framework op, then its kernels."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from tb_gpu_doctor.analysis.kernel_results import KernelRow

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


def largest(root: Node, most: int) -> tuple[list[tuple[int, Node]], bool]:
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
    while heap and len(taken) < most:
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
