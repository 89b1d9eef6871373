"""Writes big jobs of PyTorch: ``python -m simulator.large_torch_job --ranks N --events M --out FOLDER``.

A simulated job (see `simulator.torch_scenarios`) is repeated, end to end, until each rank's file holds
the wanted number of events: steps, correlations and operators count on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from simulator.engine import PS_PER_US
from simulator.kineto_writer import packed
from simulator.torch_models import gpt
from simulator.torch_program import TorchRun
from simulator.torch_scenarios import SimulatedRank, torch_job

STEPS = 8
START_UNIX_NS = 1_772_353_263_204_117_905
Json = dict[str, Any]


def write_job(folder: Path, ranks: int, events_per_rank: int, seed: int = 1) -> list[Path]:
    """Writes one file a rank; rank 1, where there is one, has a slow loader.

    Args:
        folder: where the files go, below a folder for the run.
        ranks: processes.
        events_per_rank: at least so many complete events each (whole repetitions of the simulated steps).
        seed: equal arguments give equal files.
    """
    run = TorchRun(steps=STEPS, model=gpt(layers=10), loader_us={1: 9_000}, look=True)
    job = torch_job("job", START_UNIX_NS, run, seed=seed, ranks=ranks)
    folder.mkdir(parents=True, exist_ok=True)
    period_us = max(rank.truth.recorded[1] for rank in job.ranks) // PS_PER_US + 200
    paths = []
    for rank in job.ranks:
        path = folder / Path(job.path(rank)).name
        path.write_bytes(packed(repeated(rank, events_per_rank, period_us), level=6))
        paths.append(path)
    return paths


def repeated(rank: SimulatedRank, events: int, period_us: int) -> bytes:
    """The file of a rank, unpacked, with its steps repeated each ``period_us``, which all ranks share."""
    document = json.loads(rank.content())
    once: list[Json] = document.pop("traceEvents")
    shape = [event for event in once if event["ph"] in "Xsf" and event.get("cat") != "Trace"]
    (whole,) = (event for event in once if event.get("cat") == "Trace")
    count = -(-events // sum(event["ph"] == "X" for event in shape))
    numbers = 1 + max(
        max(e["args"].get("correlation", 0), e["args"].get("External id", 0)) for e in shape if "args" in e
    )
    whole["dur"] += (count - 1) * period_us
    lines = [event for event in once if event["ph"] == "M"]
    for number in range(count):
        lines += (_moved(event, number, period_us, numbers) for event in shape)
    lines.append(whole)
    head = json.dumps(document)[:-1].encode()
    return head + b',\n"traceEvents": [\n' + b",\n".join(map(msgspec.json.encode, lines)) + b"\n]\n}\n"


def _moved(event: Json, number: int, period_us: int, numbers: int) -> Json:
    moved = {**event, "ts": round(event["ts"] + number * period_us, 3)}
    if "id" in moved:
        moved["id"] += number * numbers
    if "args" in moved:
        args = moved["args"] = dict(moved["args"])
        for key in ("correlation", "External id"):
            if key in args:
                args[key] += number * numbers
    if moved["name"].startswith("ProfilerStep#"):
        moved["name"] = f"ProfilerStep#{int(moved['name'].rpartition('#')[2]) + number * STEPS}"
    return moved


def main(argv: Sequence[str] | None = None) -> int:
    """Writes a job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=50_000, help="complete events of each rank")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    for path in write_job(arguments.out, arguments.ranks, arguments.events):
        print(f"{path} ({path.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
