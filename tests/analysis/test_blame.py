"""Late arrivals are charged to whose doing they are, through any number of groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.blame import components, own_lateness, who_meets
from tb_gpu_doctor.analysis.communication_facts import waits_that_hold_up
from tb_gpu_doctor.traces.columns import Int64

US = 1_000_000


class Meeting:
    """A run of GPUs that compute and meet, one blocking collective after the other, played through event by event."""

    def __init__(self, gpus: int) -> None:
        self.now = np.zeros(gpus, np.int64)
        self.rows: list[tuple[Int64, Int64, np.ndarray]] = []  # start, wait, who
        self.waits: list[list[tuple[int, int]]] = [[] for _ in range(gpus)]

    def work(self, time: Int64) -> None:
        self.now = self.now + time

    def meet(self, members: list[int], moving: int = 10 * US) -> None:
        who = np.zeros(len(self.now), np.bool_)
        who[members] = True
        last = int(self.now[who].max())
        wait = np.where(who, last - self.now, 0)
        for gpu in members:
            self.waits[gpu].append((int(self.now[gpu]), last))
        self.rows.append((np.where(who, self.now, 0), wait, who))
        self.now[who] = last + moving

    def lateness(self) -> tuple[Int64, Int64]:
        """(own lateness, who meets whom) of all collectives."""
        start, wait, present = (np.stack(column) for column in zip(*self.rows, strict=True))
        behind = np.where(present, np.where(present, wait, 0).max(axis=1, keepdims=True) - wait, 0)

        def waited(gpu: int):  # type: ignore[no-untyped-def]
            def inside(low: Int64, high: Int64) -> Int64:
                parts = [np.clip(np.minimum(b, high) - np.maximum(a, low), 0, None) for a, b in self.waits[gpu]]
                return np.asarray(sum(parts), np.int64)

            return inside

        gpus = range(len(self.now))
        own = own_lateness(behind, start, present, {gpu: waited(gpu) for gpu in gpus}, dict.fromkeys(gpus, 0))
        return own, who_meets(present)

    def blamed(self, steps: int) -> np.ndarray:
        """Own lateness by GPU and step, that to the group to which it is latest."""
        own, among = self.lateness()
        return np.max([own[among == which].sum(axis=0) for which in np.unique(among)], axis=0) / steps


@given(
    tensor=st.integers(2, 4),
    data=st.integers(2, 4),
    layers=st.integers(1, 4),
    slow=st.integers(0, 15),
    seed=st.integers(0, 1000),
)
def test_who_waits_for_a_slow_neighbour_is_not_blamed_by_its_replicas(
    tensor: int, data: int, layers: int, slow: int, seed: int
) -> None:
    rng, gpus, steps = np.random.default_rng(seed), tensor * data, 6
    slow %= gpus
    run = Meeting(gpus)
    excess = np.zeros(gpus, np.int64)
    excess[slow] = 300 * US
    for _ in range(steps):
        for _ in range(layers):
            run.work(rng.integers(1000 * US, 1005 * US, gpus) + excess)
            for replica in range(data):
                run.meet(list(range(replica * tensor, (replica + 1) * tensor)))
        for place in range(tensor):
            run.meet(list(range(place, gpus, tensor)))
    blamed = run.blamed(steps)
    others = np.delete(blamed, slow)
    assert abs(blamed[slow] - layers * 300 * US) < layers * 12 * US
    assert others.max() < layers * 12 * US


def test_the_question_goes_on_through_a_chain_of_groups() -> None:
    """0 meets 1, 1 meets 2, 2 meets 3: the delay of 0 reaches 3 a round later each, and stays that of 0."""
    run = Meeting(4)
    for _ in range(8):
        run.work(np.array([1500, 1000, 1000, 1000], np.int64) * US)
        for pair in ([0, 1], [1, 2], [2, 3]):
            run.meet(pair)
    blamed = run.blamed(8)
    assert blamed[0] > 450 * US
    assert blamed[1:].max() < 50 * US


def test_a_replica_that_is_late_as_a_whole_is_late_itself() -> None:
    run = Meeting(4)
    for _ in range(5):
        run.work(np.array([1000, 1000, 1400, 1400], np.int64) * US)
        run.meet([0, 1])
        run.meet([2, 3])
        run.meet([0, 2])
        run.meet([1, 3])
    blamed = run.blamed(5)
    assert blamed[2:].min() > 390 * US
    assert blamed[:2].max() < 20 * US


def test_in_one_group_everything_is_ones_own() -> None:
    behind = np.array([[0, 5], [7, 0]], np.int64)
    everybody = np.ones((2, 2), np.bool_)
    assert (own_lateness(behind, np.zeros_like(behind), everybody, {}, {}) == behind).all()


def test_who_meets_through_others_belongs_together() -> None:
    present = np.array([[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]], np.bool_)
    assert [columns.tolist() for columns in components(present)] == [[0, 1, 2], [3, 4]]


def test_what_moves_in_the_background_holds_nobody_up() -> None:
    """While GPU waits for its neighbour (10 to 40, exposed), a reduction waits and moves beside it, from 20 to 90."""
    start, wait, end = (np.array(values, np.int64) * US for values in ([10, 20], [30, 60], [45, 90]))
    exposed = (np.array([12], np.int64) * US, np.array([46], np.int64) * US)
    low, high = waits_that_hold_up(start, wait, end, exposed)
    assert (low.tolist(), high.tolist()) == ([12 * US], [40 * US])


def test_of_two_that_are_waited_for_the_last_counts() -> None:
    start, wait, end = (np.array(values, np.int64) * US for values in ([0, 10], [50, 10], [60, 30]))
    exposed = (np.array([0], np.int64) * US, np.array([60], np.int64) * US)
    low, high = waits_that_hold_up(start, wait, end, exposed)
    assert (low.tolist(), high.tolist()) == ([0], [50 * US])
