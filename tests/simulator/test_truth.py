"""The truth's sums against brute force."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator.truth import CATEGORIES, IDLE_CAUSES, Interval, union
from tests.simulator.runs import NAMES, simulated


def brute_force(events: list[tuple[int, int, str]], window: Interval) -> dict[str, int]:
    """Time by category, cut at every border; the first category wins, nothing running is idle."""
    start, end = window
    opened: dict[int, list[str]] = {}
    closed: dict[int, list[str]] = {}
    borders = {start, end}
    for low, high, category in events:
        low, high = max(low, start), min(high, end)
        if low < high:
            opened.setdefault(low, []).append(category)
            closed.setdefault(high, []).append(category)
            borders |= {low, high}
    running = dict.fromkeys(CATEGORIES, 0)
    spent = dict.fromkeys((*CATEGORIES, "idle"), 0)
    ordered = sorted(borders)
    for low, high in pairwise(ordered):
        for category in closed.get(low, []):
            running[category] -= 1
        for category in opened.get(low, []):
            running[category] += 1
        spent[next((c for c in CATEGORIES if running[c]), "idle")] += high - low
    return spent


@pytest.mark.parametrize("name", NAMES)
def test_accounting_equals_brute_force(name: str) -> None:
    truth = simulated(name).truth
    third = (truth.window[1] - truth.window[0]) // 3
    windows = [truth.window, truth.recorded, truth.window_of(1, 3), (truth.window[0] + third, truth.window[1] - third)]
    for gpu in truth.gpus:
        events = [event[:3] for event in gpu.events]
        for window in windows:
            found = truth.accounting(gpu.gpu, window)
            parts = {"compute": found.compute, "communication": found.communication}
            parts |= {"transfer": found.transfer, "idle": found.idle}
            assert parts == brute_force(events, window)
            assert sum(parts.values()) == window[1] - window[0]
            assert sum(found.idle_by_cause.values()) == found.idle
            assert all(time >= 0 for time in found.idle_by_cause.values())


@pytest.mark.parametrize("name", NAMES)
def test_idle_pieces_are_the_complement_of_what_ran(name: str) -> None:
    truth = simulated(name).truth
    for gpu in truth.gpus:
        idle = [(piece.start, piece.end) for piece in gpu.idle]
        assert idle == sorted(idle)
        assert {piece.cause for piece in gpu.idle} <= set(IDLE_CAUSES)
        busy = union(event[:2] for event in gpu.events)
        assert all(low < high for low, high in idle)
        both = sorted([*busy, *idle])
        assert all(before[1] <= after[0] for before, after in pairwise(both))
        assert union(both) == [(idle[0][0], busy[-1][1])]


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_each_other_and_own_their_kernels(name: str) -> None:
    truth = simulated(name).truth
    assert [marker.number for marker in truth.markers] == list(
        range(truth.markers[0].number, truth.markers[0].number + len(truth.markers))
    )
    for gpu in truth.gpus:
        assert gpu.step_starts[0] == truth.markers[0].start
        assert gpu.step_starts[1:] == gpu.step_ends[:-1]
        for step, (low, high) in enumerate(zip(gpu.step_starts, gpu.step_ends, strict=True)):
            own = [event for event in gpu.events if event[3] == step and event[2] != "transfer"]
            assert low <= min(event[0] for event in own)
            assert max(event[1] for event in own) == high
        assert sum(total.calls for total in gpu.kernels.values()) == sum(e[2] != "transfer" for e in gpu.events)
