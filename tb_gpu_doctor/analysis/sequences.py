"""The longest common subsequence of two sequences of ids: what two GPUs did both, in the same order."""

from __future__ import annotations

import numpy as np

from tb_gpu_doctor.traces.columns import Int64

# Sequences that differ in more places than this have too little in common to be worth the time.
MAX_DIFFERENCES = 300


def common_subsequence(a: Int64, b: Int64) -> tuple[Int64, Int64]:
    """Positions in ``a`` and in ``b`` of a longest common subsequence, both rising, of one shape.

    Myers' greedy method: quick where the two differ in few places. Beyond `MAX_DIFFERENCES` only the
    common beginning and the common end are given.
    """
    short = min(len(a), len(b))
    same = a[:short] == b[:short]
    head = short if same.all() else int(np.argmin(same))
    rest = short - head
    same = a[len(a) - rest :][::-1] == b[len(b) - rest :][::-1]
    tail = rest if same.all() else int(np.argmin(same))
    middle = _myers(a[head : len(a) - tail].tolist(), b[head : len(b) - tail].tolist())
    front, back = np.arange(head, dtype=np.int64), np.arange(tail, dtype=np.int64)
    inner = np.array(middle, np.int64).reshape(-1, 2) + head
    return (
        np.concatenate((front, inner[:, 0], len(a) - tail + back)),
        np.concatenate((front, inner[:, 1], len(b) - tail + back)),
    )


def _myers(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Matched positions; nothing when the sequences differ in too many places."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    reach = {1: 0}
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MAX_DIFFERENCES) + 1):
        history.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1)
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= n and y >= m:
                return _walk_back(history, n, m)
    return []


def _walk_back(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    matched: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reach = history[edits]
        diagonal = x - y
        down = diagonal == -edits or (diagonal != edits and reach.get(diagonal - 1, -1) < reach.get(diagonal + 1, -1))
        before = diagonal + 1 if down else diagonal - 1
        from_x = reach[before]
        from_y = from_x - before
        while x > max(from_x, 0) and y > max(from_y, 0) and (x > from_x if down else x > from_x + 1):
            x, y = x - 1, y - 1
            matched.append((x, y))
        x, y = from_x, from_y
    matched.reverse()
    return matched
