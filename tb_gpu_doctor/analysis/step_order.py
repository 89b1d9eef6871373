"""Which steps of several files are the same step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_gpu_doctor.analysis.results import Steps

StepKey = tuple[int, int]


def step_keys(steps: Steps, by_order: bool) -> list[StepKey]:
    """What a complete step is known by in all files: its number, and which one of that number it is."""
    rows = np.flatnonzero(steps.complete)
    if by_order:
        return [(index, 0) for index in range(len(rows))]
    seen: dict[int, int] = {}
    found = []
    for number in steps.number[rows].tolist():
        found.append((number, seen.get(number, 0)))
        seen[number] = found[-1][1] + 1
    return found


def order_of_steps(keys: Sequence[Sequence[StepKey]]) -> dict[StepKey, int]:
    """The place of each step of any file: in the order of the file with most, the others' own by number."""
    longest = max(keys, key=len, default=[])
    known = dict.fromkeys(longest)
    rest = sorted({key for own in keys for key in own} - set(known), key=lambda key: (key[1], key[0]))
    if rest:
        known = dict.fromkeys(sorted([*known, *rest], key=lambda key: (key[1], key[0])))
    return {key: place for place, key in enumerate(known)}
