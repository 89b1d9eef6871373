"""Wall time under a clock that jumps."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.monitor.clock import WallClock

SECOND = 1_000_000_000


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.monotonic = 5 * SECOND
        self.wall = 1_700_000_000 * SECOND
        self.jumps: list[float] = []
        self.clock = WallClock(self.jumps.append, lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float, set_forward_s: float = 0.0) -> int:
        self.monotonic += round(seconds * SECOND)
        self.wall += round((seconds + set_forward_s) * SECOND)
        return self.clock.now_ns()


def test_undisturbed_it_is_the_machines_time() -> None:
    machine = Machine()
    for _ in range(5):
        assert machine.passes(1) == machine.wall
    assert not machine.jumps


def test_a_slewed_clock_is_followed_without_a_word() -> None:
    machine = Machine()
    for _ in range(1000):
        assert machine.passes(1, 0.0005) == machine.wall
    assert not machine.jumps


def test_a_jump_forward_is_followed_and_told() -> None:
    machine = Machine()
    machine.passes(1)
    assert machine.passes(1, 3600) == machine.wall
    assert [round(jump) for jump in machine.jumps] == [3600]


def test_a_jump_backwards_goes_on_at_the_monotonic_pace_until_it_is_caught_up() -> None:
    machine = Machine()
    before = machine.passes(1)
    assert machine.passes(1, -60) == before + SECOND
    assert machine.passes(10) == before + 11 * SECOND
    assert machine.passes(1, 60) == machine.wall
    assert [round(jump) for jump in machine.jumps] == [-60]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(-100, 100)), max_size=50))
def test_it_never_turns_back(steps: list[tuple[float, float]]) -> None:
    machine = Machine()
    times = [machine.passes(seconds, forward) for seconds, forward in steps]
    assert all(later > earlier for earlier, later in pairwise(times))
