"""A logdir with a past: the same training profiled several times, its input slower from one session on."""

from __future__ import annotations

from pathlib import Path
from random import Random

from simulator.faults.bases import base
from simulator.faults.cases import PLANTS
from simulator.faults.setup import simulate

GOOD, BAD = 4, 3
RUN = "nightly"


def session_names(good: int = GOOD, bad: int = BAD) -> list[str]:
    """The sessions, the oldest first."""
    return [f"2026_04_{day + 1:02d}_02_00_00" for day in range(good + bad)]


def write_regressing(logdir: Path, good: int = GOOD, bad: int = BAD) -> list[str]:
    """Write the sessions below ``logdir``; returns their names, the oldest first."""
    names = session_names(good, bad)
    for index, name in enumerate(names):
        # The same model in each: only the jitter and, from the regression on, the input differ.
        setup = base("keras", 2, "large", 10, Random(7))
        if index >= good:
            setup = PLANTS["input_bound.map"].apply(setup, 0.3)
        run = simulate(setup, RUN, 100 + index, later_s=24 * 3600 * index)
        folder = logdir / RUN / "plugins" / "profile" / name
        folder.mkdir(parents=True)
        (folder / "trainer.xplane.pb").write_bytes(run.space.encode())  # type: ignore[union-attr]
    return names
