"""The cases that are run on every change: one per way of planting a fault, some pairs, some controls."""

from __future__ import annotations

from functools import cache

from simulator.faults.cases import PLANTS, Case, all_cases
from simulator.scoring import Score, score

# Big enough to be the finding that matters, and quick: the runs with few GPUs.
_STRENGTH = "medium"
_MAX_GPUS = 2


def _is_chosen(case: Case) -> bool:
    return case.gpus <= _MAX_GPUS and not case.style.startswith("eager")


@cache
def single_cases() -> tuple[str, ...]:
    """For each plant one case with it alone, of medium strength where there is one with few GPUs."""
    found = {}
    for plant in PLANTS.values():
        own = [c for c in all_cases().values() if len(c.planted) == 1 and c.planted[0].plant is plant]
        own.sort(key=lambda case: (not _is_chosen(case), case.planted[0].strength != _STRENGTH))
        found[plant.id] = own[0].name
    return tuple(found.values())


@cache
def pair_cases() -> tuple[str, ...]:
    """Every third pair with few GPUs."""
    return tuple(c.name for c in all_cases().values() if len(c.planted) == 2 and c.gpus <= _MAX_GPUS)[::3]


@cache
def healthy_cases() -> tuple[str, ...]:
    """The controls with few GPUs."""
    return tuple(case.name for case in all_cases().values() if not case.planted and case.gpus <= _MAX_GPUS)


@cache
def scored(name: str) -> Score:
    """The score of a case's first seed."""
    return score(all_cases()[name], 0)
