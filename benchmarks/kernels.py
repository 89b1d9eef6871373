"""The kernel analysis alone, after decoding: ``python -m benchmarks.kernels [--events N] [--rounds N]``.

A file of ``simulator.large_xplane`` is decoded once. Then the kernel table is made again and again: as it is, whose
kernels a compiler has written; and with the same kernels named as an eager framework names them, so that every one
is looked at for fusible runs. The best round counts, since what else a machine does only adds to it; and as it is work
of one thread, its CPU seconds are those of a clock on an idle machine. The table goes into its section of
benchmarks/RESULTS.md. Exits with 1 when the goal is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.run import RESULTS, machine, put_section
from simulator.large_xplane import Shape, generate
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.launches import launch_of
from tb_gpu_doctor.analysis.lost_events import find_launches
from tb_gpu_doctor.analysis.results import Steps, Window
from tb_gpu_doctor.analysis.steps import find_steps, find_window
from tb_gpu_doctor.traces.columns import StringTable, Trace
from tb_gpu_doctor.traces.xplane import read_xplane

TITLE = "Kernel analysis"
# Seconds for a million device events.
GOAL_S = 0.15


@dataclass(frozen=True)
class Timing:
    """What one case took in its best round, in seconds by the clock and of CPU."""

    case: str
    clock: float
    cpu: float
    note: str


def eager(trace: Trace) -> Trace:
    """The same trace with kernels named as PyTorch names elementwise ones."""
    names = []
    for index, name in enumerate(trace.strings):
        if name.startswith(("loop_", "input_", "wrapped_")):
            name = f"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, {index}>"
        names.append(name)
    return replace(trace, strings=StringTable.of(names))


def measure(case: str, trace: Trace, window: Window | None, steps: Steps, rounds: int) -> Timing:
    """The kernel table, ``rounds`` times."""
    clock, cpu = [], []
    for _ in range(rounds):
        start, start_cpu = time.perf_counter(), time.process_time()
        table = kernel_table(trace, window, steps)
        clock.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    note = f"{len(table.rows):,} rows, {sum(candidate.runs for candidate in table.fusion):,} fusible runs in the list"
    return Timing(case, min(clock), min(cpu), note)


def table(timings: Sequence[Timing], events: int, rounds: int) -> str:
    """The results as Markdown."""
    bound = GOAL_S * events / 1e6
    rows = [f"| {t.case} | {t.clock:.3f} | {t.cpu:.3f} | {t.note} |" for t in timings]
    verdicts = [f"- {t.case}: {t.cpu:.3f} s: {'met' if t.cpu <= bound else 'MISSED'}" for t in timings]
    return "\n".join(
        [
            f"{events:,} device events, decoded before the clock starts; the best of {rounds} rounds.",
            "",
            "| | seconds | CPU seconds | result |",
            "| --- | ---: | ---: | --- |",
            *rows,
            "",
            f"Goal: {bound:g} CPU seconds.",
            "",
            *verdicts,
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the section; 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="device events, and as many host events")
    parser.add_argument("--rounds", type=int, default=9, help="how often each case is measured (default 9)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table goes")
    arguments = parser.parse_args(argv)
    where = machine()
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as folder:
        path = Path(folder) / "source.xplane.pb"
        generate(path, Shape(arguments.events, arguments.events))
        trace = read_xplane(str(path))
    launch = launch_of(trace)
    steps = find_steps(trace, launch, causality(trace), find_launches(trace))
    window = find_window(trace, steps)
    timings = [
        measure("kernels of a compiler", trace, window, steps, arguments.rounds),
        measure("kernels of an eager framework", eager(trace), window, steps, arguments.rounds),
    ]
    body = table(timings, len(trace.device_events), arguments.rounds)
    put_section(TITLE, f"{body}\n\n{where}", arguments.results)
    print(body)
    return int(any(t.cpu > GOAL_S * len(trace.device_events) / 1e6 for t in timings))


if __name__ == "__main__":
    sys.exit(main())
