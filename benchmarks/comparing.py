"""How far a comparison can be trusted: ``python -m benchmarks.comparing``.

Two runs of the same settings must hardly ever be called faster or slower, intervals must hold the true change as
often as they promise, and a change that matters must be seen. Steps are drawn from models of noise whose truth is
known, and whole runs are simulated, written, read and diagnosed as a user's are. Every draw is seeded: the same code
writes the same benchmarks/COMPARING.md, in one or two minutes. Exits with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from simulator.faults.bases import WARM_UP, base
from simulator.faults.setup import simulate
from simulator.scenarios import SimulatedRun
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparing import summary_of_path
from tb_gpu_doctor.comparison.compare import compare
from tb_gpu_doctor.comparison.summary import RunSummary

Float64 = NDArray[np.float64]
OUT = Path(__file__).with_name("COMPARING.md")
STEPS = (5, 10, 20, 60)
CHANGES = (0.05, 0.10, 0.20)
# A first-order series of so few steps that resembles itself so much cannot be told from a change.
_HOPELESS = {("resembling (0.6)", 5), ("resembling (0.8)", 5), ("resembling (0.8)", 10)}
_LEAST_COVERAGE, _MOST_FALSE = 0.90, 0.05
_MS = 1e9


@dataclass(frozen=True)
class Noise:
    """How the steps of a run vary around a mean of one."""

    name: str
    draw: Callable[[np.random.Generator, int], Float64]


def _series(rho: float, scatter: float) -> Callable[[np.random.Generator, int], Float64]:
    """First-order autoregressive steps, already settled."""

    def draw(random: np.random.Generator, steps: int) -> Float64:
        values = np.empty(steps)
        level = random.standard_normal()
        for index, noise in enumerate(random.standard_normal(steps)):
            level = rho * level + np.sqrt(1 - rho * rho) * noise
            values[index] = level
        return 1 + scatter * values

    return draw


def _spikes(random: np.random.Generator, steps: int) -> Float64:
    values = 1 + 0.02 * random.standard_normal(steps)
    values[random.random(steps) < 0.05] += 1.0
    return np.asarray(values / 1.05)


def _saving(random: np.random.Generator, steps: int) -> Float64:
    values = 1 + 0.02 * random.standard_normal(steps)
    values[random.integers(10) :: 10] += 0.5
    return np.asarray(values / 1.05)


NOISES = (
    Noise("steady (1 %)", _series(0.0, 0.01)),
    Noise("independent (5 %)", _series(0.0, 0.05)),
    Noise("long tail (exponential, 10 %)", lambda random, steps: 0.9 + random.exponential(0.1, steps)),
    Noise("one in twenty twice as long", _spikes),
    Noise("every tenth half as long again", _saving),
    Noise("resembling (0.3)", _series(0.3, 0.05)),
    Noise("resembling (0.6)", _series(0.6, 0.05)),
    Noise("resembling (0.8)", _series(0.8, 0.05)),
)


def run_of(steps: Float64) -> RunSummary:
    """A run of the given steps, in units of 100 ms, of which all is computing."""
    wall = np.maximum(steps, 0.01) * 100 * _MS
    parts = np.zeros((len(wall), len(PART_IDS)))
    parts[:, PART_IDS.index("compute")] = wall
    shares = np.zeros(len(PART_IDS))
    return RunSummary(
        "run", "xplane", "ok", ("GPU",), 1, 8, "marked", len(wall), float(np.median(wall)), wall, parts,
        float(wall.sum()), shares, (), (),
    )  # fmt: skip


@dataclass(frozen=True)
class Verdicts:
    """What many comparisons of runs with one true change said.

    ``covered`` is the share of intervals that hold the true change, ``width`` the median of their widths.
    """

    outcomes: Counter[str]
    covered: float
    width: float

    def share(self, *outcomes: str) -> float:
        """Part of the comparisons with one of these outcomes."""
        return sum(self.outcomes[outcome] for outcome in outcomes) / sum(self.outcomes.values())


def judge(pairs: Sequence[tuple[RunSummary, RunSummary]], change: float) -> Verdicts:
    """Compare each pair, whose true relative change is known."""
    outcomes: Counter[str] = Counter()
    held, widths = 0, []
    for before, after in pairs:
        found = compare(before, after)
        outcomes[found.outcome] += 1
        assert found.change is not None
        held += found.change.low <= change <= found.change.high
        widths.append(found.change.high - found.change.low)
    return Verdicts(outcomes, held / len(pairs), float(np.median(widths)))


def drawn(noise: Noise, steps: int, change: float, pairs: int) -> Verdicts:
    """Pairs of runs whose steps are drawn, the second one longer by ``change``."""
    random = np.random.default_rng((steps, round(change * 1000), NOISES.index(noise)))
    return judge(
        [
            (run_of(noise.draw(random, steps)), run_of((1 + change) * noise.draw(random, steps)))
            for _ in range(pairs)
        ],
        change,
    )  # fmt: skip


def simulated(folder: Path, noise: Noise, slowdown: float, runs: int, seed: int, steps: int = 20) -> list[RunSummary]:
    """Runs of one model whose GPU is slower in some steps than in others, simulated, written and diagnosed."""
    random, found = np.random.default_rng(seed), []
    for index in range(runs):
        setup = base("keras", 1, "large", steps, Random(7))
        slow = noise.draw(random, steps + WARM_UP) * slowdown
        setup = replace(setup, slow_steps={step: float(value) for step, value in enumerate(slow)})
        run = simulate(setup, "run", seed + index)
        assert isinstance(run, SimulatedRun)
        path = folder / f"{seed + index}.xplane.pb"
        path.write_bytes(run.space.encode())
        found.append(summary_of_path(path))
        path.unlink()
    return found


def paired(
    before: Sequence[RunSummary], after: Sequence[RunSummary], pairs: int
) -> list[tuple[RunSummary, RunSummary]]:
    """Different pairs drawn from all there are, none of a run with itself."""
    every = [(a, b) for a in range(len(before)) for b in range(len(after)) if before[a] is not after[b]]
    chosen = np.random.default_rng(len(every)).permutation(len(every))[:pairs]
    return [(before[every[at][0]], after[every[at][1]]) for at in chosen]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparing", description="How far to trust a comparison."
    )
    parser.add_argument("--pairs", type=int, default=200, metavar="N", help="pairs of each case (default: 200)")
    parser.add_argument("--runs", type=int, default=40, metavar="N", help="simulated runs of each case (default: 40)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the tables go (default: {OUT.name})")
    options = parser.parse_args(arguments)
    os.environ["GPU_DOCTOR_CACHE_DIR"] = ""  # runs come and go under the same names
    missed: list[str] = []
    alike = {(n.name, s): drawn(n, s, 0.0, options.pairs) for n in NOISES for s in STEPS}
    changed = {(n.name, c): drawn(n, 20, c, options.pairs) for n in NOISES for c in CHANGES}
    whole = _whole(options.runs, options.pairs)
    # What chance alone does to a share of so many pairs: two standard errors.
    slack = 2 * (0.05 * 0.95 / options.pairs) ** 0.5
    for (name, steps), found in alike.items():
        if (name, steps) in _HOPELESS:
            continue
        if found.covered < _LEAST_COVERAGE - slack / 2:
            missed.append(f"{name}, {steps} steps: {found.covered:.1%} of the intervals hold no change")
        if found.share("faster", "slower") > _MOST_FALSE + slack:
            missed.append(f"{name}, {steps} steps: {found.share('faster', 'slower'):.1%} false verdicts")
    for name, found in whole.items():
        if name.endswith("+0 %") and found.share("faster", "slower") > _MOST_FALSE:
            missed.append(f"{name}: {found.share('faster', 'slower'):.1%} false verdicts")
    page = _page(alike, changed, whole, options.pairs, options.runs)
    options.out.write_text(page, encoding="utf-8")
    print(page)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def _whole(runs: int, pairs: int) -> dict[str, Verdicts]:
    """Simulated runs: the same settings, and slower GPUs."""
    found: dict[str, Verdicts] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, noise in enumerate((NOISES[0], NOISES[6])):
            seed = 10_000 * (place + 1)
            same = simulated(folder, noise, 1.0, runs, seed)
            found[f"{noise.name}, +0 %"] = judge(paired(same, same, pairs), 0.0)
            mean = float(np.mean([run.mean_ps for run in same if run.mean_ps is not None]))
            for index, change in enumerate(CHANGES, 1):
                slower = simulated(folder, noise, 1 + change, max(2, runs // 2), seed + 1_000 * index)
                # what a slower GPU makes of the whole step, of many runs
                true = float(np.mean([run.mean_ps for run in slower if run.mean_ps is not None])) / mean - 1
                found[f"{noise.name}, +{change * 100:.0f} %"] = judge(paired(same, slower, pairs), true)
    return found


def _page(
    alike: dict[tuple[str, int], Verdicts],
    changed: dict[tuple[str, float], Verdicts],
    whole: dict[str, Verdicts],
    pairs: int,
    runs: int,
) -> str:
    lines = [
        "# Comparing",
        "",
        f"Made by `python -m benchmarks.comparing`, {pairs} pairs of runs a case. A verdict is what",
        "`gpu-doctor compare` says; it takes a change of 5 % and an interval of 95 % that excludes no change.",
        "",
        "## Two runs of the same settings",
        "",
        "Steps drawn from models of noise; a number in brackets says how much neighbours resemble each other (the",
        "correlation of successive steps), whose scatter is 5 %. Of each: how many of the intervals hold the truth,",
        "that nothing changed, and how many verdicts are wrong, that is faster or slower.",
        "",
        "| steps vary | " + " | ".join(f"{steps} steps" for steps in STEPS) + " |",
        "|---|" + "---|" * len(STEPS),
    ]
    for noise in NOISES:
        cells = [
            f"{found.covered:.1%}, {found.share('faster', 'slower'):.1%} wrong"
            for steps in STEPS
            for found in [alike[noise.name, steps]]
        ]
        lines.append(f"| {noise.name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Five or ten steps cannot show how much they resemble each other: where they do strongly, more than the",
        "promised 5 % are wrong. Profile twenty.",
        "",
        "## One run slower than the other, 20 steps each",
        "",
        "How many are called slower; how many get any wrong verdict (faster, or no change where it is 10 % and more).",
        "",
        "| steps vary | " + " | ".join(f"+{change * 100:.0f} %" for change in CHANGES) + " |",
        "|---|" + "---|" * len(CHANGES),
    ]
    for noise in NOISES:
        cells = []
        for change in CHANGES:
            found = changed[noise.name, change]
            wrong = found.share("faster", "same") if change > 0.05 else found.share("faster")
            cells.append(f"{found.share('slower'):.0%} slower, {wrong:.0%} wrong")
        lines.append(f"| {noise.name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "A true change of 5 % lies on the limit of what is worth a word, so half of the estimates fall below it.",
        "",
        "## Whole runs",
        "",
        f"Simulated runs of 20 steps ({runs} of the same settings, half as many with a slower GPU), written as",
        "profiles, read and diagnosed; pairs are drawn from all there are. GPUs are slower by the given part, and",
        "steps vary as above.",
        "",
        "| | intervals that hold it | slower | no change | inconclusive | faster |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in whole.items():
        shares = (found.share(outcome) for outcome in ("slower", "same", "inconclusive", "faster"))
        lines.append(f"| {name} | {found.covered:.1%} | " + " | ".join(f"{share:.1%}" for share in shares) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
