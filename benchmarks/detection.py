"""What can still be seen of lost time: ``python -m benchmarks.detection [--seeds N]``.

Plants each fault of lost time at 2, 4, 8 and 16 % of the step, with 1 to 3 % jitter, and writes how often it is found
to its section of ``benchmarks/ACCURACY.md``, which `benchmarks.accuracy` leaves as it is.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from benchmarks.accuracy import DETECTION, OUT
from simulator.faults.cases import FAINT, PLANTS, faint_cases
from simulator.scoring import LOUD, Score, score

_COMMAND = "python -m benchmarks.detection"
# What else a plant may be called: a hole in the file is also idle time of which nothing is known.
_ALSO = {"dropped_events": ("unexplained_idle",)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Scores all faint cases."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description="Scores the doctor on faint faults.")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1 of each case (default: 3)")
    options = parser.parse_args(arguments)
    cases = list(faint_cases().values())
    scores = [score(case, seed) for case in cases for seed in range(options.seeds)]
    text = section(scores, options.seeds, _commit())
    print(text)
    before = OUT.read_text(encoding="utf-8").partition(DETECTION)[0].rstrip("\n")
    OUT.write_text(f"{before}\n\n{text}\n", encoding="utf-8")
    return 0


def section(scores: Sequence[Score], seeds: int, commit: str) -> str:
    """The section as Markdown."""
    lines = [
        DETECTION,
        "",
        f"By `{_COMMAND}` at commit {commit}: {len(scores)} runs on one GPU, seeds 0 to {seeds - 1}, jitter of the",
        "kernels 1 to 3 %. Each column is a strength that was asked for: found in how many runs, and what the fault",
        "truly costs on average (of `dropped_events`: how much is missing). Rules keep quiet below their thresholds,",
        "2 to 10 % of the window, on purpose. Causes and savings are those of the faults found; wrong alarms are",
        "findings of other kinds at warning or worse. Rules go by the idle time of their cause, which is less than the",
        "cost where a fault costs more: a host that is busy also exposes launching and copies that were hidden.",
        "",
        "| fault | " + " | ".join(f"{percent} %" for percent in FAINT) + " | right cause | saving | wrong alarms |",
        "|---|" + "---|" * (len(FAINT) + 3),
    ]
    for plant in PLANTS:
        mine = [item for item in scores if item.faults[0].plant == plant]
        if mine:
            lines.append(_row(plant, mine))
    return "\n".join(lines)


def _row(plant: str, scores: Sequence[Score]) -> str:
    columns = []
    for percent in FAINT:
        of_strength = [item.faults[0] for item in scores if f".{percent}%/" in item.case]
        found = sum(fault.found for fault in of_strength)
        columns.append(f"{found} of {len(of_strength)} ({fmean(fault.cost for fault in of_strength):.1%})")
    faults = [item.faults[0] for item in scores if item.faults[0].found]
    causes = [fault.cause for fault in faults if fault.cause is not None]
    savings = [fault.saving for fault in faults if fault.saving is not None]
    known = {PLANTS[plant].kind, *_ALSO.get(PLANTS[plant].kind, ())}
    wrong = sum(any(kind not in known for kind in _loud(item)) for item in scores)
    columns.append(f"{sum(causes)} of {len(causes)}" if causes else "–")
    columns.append(f"{median(savings):.2f}" if savings else "–")
    return f"| `{plant}` | " + " | ".join(columns) + f" | {wrong} of {len(scores)} |"


def _loud(item: Score) -> list[str]:
    return [said.split()[0] for said in item.said if said.endswith(tuple(f"[{word}]" for word in LOUD))]


def _commit() -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
