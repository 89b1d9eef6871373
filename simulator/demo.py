"""Writes the demonstration logdir: ``python -m simulator.demo [FOLDER]`` (default: demo_logs)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from simulator.nvml_stub import NoCompiler
from simulator.scenarios import SCENARIOS, SimulatedRun
from simulator.telemetry_demo import TELEMETRY, telemetry_files
from simulator.torch_scenarios import TORCH_SCENARIOS, TorchJob

# The files of one run by their path below the logdir.
Files = Mapping[str, bytes]


def xplane_files(make: Callable[[], SimulatedRun]) -> Files:
    """What TensorFlow's and JAX's profiler writes of a run."""
    run = make()
    return {run.path: run.space.encode()}


def torch_files(make: Callable[[], TorchJob]) -> Files:
    """What ``torch.profiler`` writes of a job, one file a rank."""
    return make().files()


def demo_runs() -> dict[str, Callable[[], Files]]:
    """How the files of each run are made, by the run's name."""
    return {
        **{name: partial(xplane_files, make) for name, make in SCENARIOS.items()},
        **{name: partial(torch_files, make) for name, make in TORCH_SCENARIOS.items()},
    }


def main(arguments: Sequence[str]) -> int:
    """Writes all runs; the same bytes every time."""
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "demo_logs"
    for name, make in demo_runs().items():
        try:
            write(folder, {**make(), **(telemetry_files(name) if name in TELEMETRY else {})})
        except NoCompiler as error:
            print(f"{name}: its telemetry needs a stand-in for the driver, built from C: {error}", file=sys.stderr)
            return 1
    return 0


def write(folder: Path, files: Files) -> None:
    """Writes the files of one run below a folder, and says so."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{path} ({path.stat().st_size:,} bytes)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
