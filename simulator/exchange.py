"""The collectives that GPUs run together, be they of one process or of several."""

from __future__ import annotations

from simulator.device import Collective
from simulator.engine import Simulation, us


class Exchange:
    """All collectives of a job: the n-th of a step is one for all ranks.

    Args:
        simulation: the clock.
        ranks: how many GPUs take part in each.
        slowdown: how many times as long data moves, for all: the slowest link sets the pace.
        end_spread_us: within how many microseconds the ranks see the end.
    """

    def __init__(self, simulation: Simulation, ranks: int, slowdown: float = 1.0, end_spread_us: float = 0.0) -> None:
        self._simulation = simulation
        self._ranks = ranks
        self._slowdown = slowdown
        self._end_spread = us(end_spread_us)
        self._known: dict[tuple[int, int], Collective] = {}

    def collective(self, step: int, index: int, micros: float) -> Collective:
        """The step's ``index``-th collective, which moves data for ``micros`` on good links."""
        key = (step, index)
        if key not in self._known:
            transfer = self._simulation.jitter(us(micros * self._slowdown), 0.02)
            self._known[key] = Collective(self._simulation, self._ranks, transfer, self._end_spread)
        return self._known[key]
