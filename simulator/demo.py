"""Writes the demonstration logdir: ``python -m simulator.demo [FOLDER]`` (default: demo_logs)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.scenarios import SCENARIOS


def main(arguments: Sequence[str]) -> int:
    """Writes all runs; the same bytes every time."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "demo_logs"
    for make in SCENARIOS.values():
        run = make()
        path = folder / run.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(run.space.encode())
        print(f"{path} ({path.stat().st_size:,} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
