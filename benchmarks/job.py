"""A whole job at once: many ranks in one folder, read by one process and by all cores.

    python -m benchmarks.job                       64 ranks of 100,000 events, XPlane and Kineto
    python -m benchmarks.job --ranks 8 --rounds 1

Each measurement is a process of its own. The table goes into its section of benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cases import peak_bytes
from benchmarks.run import RESULTS, machine, put_section
from simulator.large_job import FORMATS, write_job
from tb_gpu_doctor.parallel.plan import VARIABLE
from tb_gpu_doctor.parallel.resources import usable_cores

TITLE = "A job of {ranks} ranks"
MEGABYTE = 1e6


@dataclass(frozen=True)
class JobMeasurement:
    """One run.

    Attributes:
        seconds: of the whole diagnosis, from the listing of the folder on.
        job_seconds: CPU of all that comes after the files: matching, clocks, findings.
        view_seconds: CPU of laying out the tab's answers, which comes on top.
        cpu_seconds: of this process and its workers.
        peak_bytes: the largest resident size of this process, mapped files included.
        own_bytes: memory of this process behind the diagnosis that no file backs.
        worker_peak_bytes: the largest resident size of any worker; 0 without workers.
        note: what the diagnosis says.
    """

    seconds: float
    job_seconds: float
    view_seconds: float
    cpu_seconds: float
    peak_bytes: int
    own_bytes: int
    worker_peak_bytes: int
    note: str


def measure_here(folder: str) -> JobMeasurement:
    """Diagnose a folder in this process, with as many workers as the environment says."""
    for module in ("diagnosis.engine", "parallel.many_files", "report.diagnosis_report", "plugin.session_view"):
        importlib.import_module(f"tb_gpu_doctor.{module}")  # which the work imports when called
    from tb_gpu_doctor.api import diagnose_session
    from tb_gpu_doctor.plugin.session_view import SessionView
    from tb_gpu_doctor.traces.sessions import find_sessions

    began_diagnosing = 0.0

    def report(stage: str, _done: float) -> None:
        nonlocal began_diagnosing
        if stage == "diagnosing" and not began_diagnosing:
            began_diagnosing = time.process_time()

    start, cpu = time.perf_counter(), time.process_time()
    (session,) = find_sessions(folder).sessions
    result = diagnose_session(session, report, with_columns=True)
    end, cpu_end = time.perf_counter(), time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = {
        "seconds": end - start,
        "job_seconds": cpu_end - began_diagnosing,
        "cpu_seconds": cpu_end - cpu + children.ru_utime + children.ru_stime,
        "peak_bytes": peak_bytes(),
        "own_bytes": _anonymous_bytes(),
        "worker_peak_bytes": children.ru_maxrss * 1024,
        "note": f"{result.diagnosis.verdict}, {len(result.diagnosis.findings)} findings",
    }
    start = time.process_time()
    SessionView(session, result)
    return JobMeasurement(view_seconds=time.process_time() - start, **measured)


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status names no RssAnon")


def run_case(folder: Path, workers: int, timeout_s: float = 3600.0) -> JobMeasurement:
    """One measurement in a fresh process.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.job", "--case", str(folder)],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {VARIABLE: str(workers)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return JobMeasurement(**json.loads(done.stdout.splitlines()[-1]))


Runs = dict[int, list[JobMeasurement]]


def best(runs: Sequence[JobMeasurement], quantity: str) -> float:
    """The least of a quantity over the rounds: what others on the machine take only adds to it."""
    return min(float(getattr(run, quantity)) for run in runs)


def row(form: str, ranks: int, size_bytes: int, runs: Runs) -> list[str]:
    """One line of the table: one process against several, and what a rank costs."""
    alone, several = runs[1], runs[max(runs)]
    return [
        form,
        f"{ranks}",
        f"{size_bytes / MEGABYTE:,.0f}",
        f"{best(alone, 'seconds'):.1f}",
        f"{best(several, 'seconds'):.1f}",
        f"{best(alone, 'seconds') / best(several, 'seconds'):.2f}",
        f"{best(several, 'cpu_seconds') / best(alone, 'cpu_seconds'):.2f}",
        f"{best(several, 'cpu_seconds') / ranks * 1000:.0f}",
        f"{best(several, 'job_seconds') / ranks * 1000:.1f}",
        f"{best(several, 'view_seconds') / ranks * 1000:.1f}",
        f"{best(alone, 'peak_bytes') / MEGABYTE:,.0f}",
        f"{best(several, 'peak_bytes') / MEGABYTE:,.0f}",
        f"{best(several, 'own_bytes') / MEGABYTE:,.0f}",
        f"{best(several, 'worker_peak_bytes') / MEGABYTE:,.0f}",
        several[-1].note,
    ]


HEADER = (
    "format", "ranks", "MB", "seconds, 1 process", "seconds, {n}", "ratio", "CPU, {n} over 1", "CPU ms a rank",
    "job ms a rank", "tab ms a rank", "peak MB, 1 process", "peak MB, {n}", "of it its own", "peak MB of a worker",
    "result",
)  # fmt: skip
EXPLAINED = """{events:,} events of each rank, half of them the GPU's, one file a rank, all in one folder; the least of
{rounds} round(s), each in a fresh process. CPU is that of all processes. "Job" is the CPU of what comes after the files
(matching, clocks, findings), "tab" that of the tab's answers, which come on top: both should not grow faster than the
ranks. The peak counts mapped files; "its own" is what no file backs. Where others use the cores as well, seconds and
their ratio say little (the load is below), and the CPU says what the processes cost beyond the work itself.

Repeat with `python -m benchmarks.job`."""


def measure_job(form: str, ranks: int, events: int, workers: int, rounds: int) -> list[str]:
    """Write a job, read it by one process and by several in turn; the table's line."""
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as name:
        folder = Path(name)
        print(f"  {form}, {ranks} ranks: writing ...", file=sys.stderr, flush=True)
        size = write_job(folder, form, ranks, events)
        runs: Runs = {1: [], workers: []}
        for number in range(rounds):
            for count, measured in runs.items():
                measured.append(run_case(folder, count))
                seconds = measured[-1].seconds
                print(f"  round {number + 1}/{rounds}: {count} at once: {seconds:.2f} s", file=sys.stderr, flush=True)
    return row(form, ranks, size, runs)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--events", type=int, default=100_000, help="of each rank")
    parser.add_argument("--rounds", type=int, default=2, help="fresh processes per case (default 2)")
    parser.add_argument("--workers", type=int, default=max(2, usable_cores()), help="processes (default: all cores)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table goes")
    parser.add_argument("--case", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        print(json.dumps(asdict(measure_here(options.case))))
        return 0
    where = machine()
    header = [cell.format(n=f"{options.workers} processes") for cell in HEADER]
    rows = [header, ["---", *["---:"] * (len(header) - 2), "---"]]
    for form in FORMATS:
        for ranks in dict.fromkeys((max(2, options.ranks // 4), options.ranks)):
            rows.append(measure_job(form, ranks, options.events, options.workers, options.rounds))
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
    body = f"{EXPLAINED.format(events=options.events, rounds=options.rounds)}\n\n{table}\n\n{where}"
    title = TITLE.format(ranks=options.ranks)
    put_section(title, body, options.results)
    print(f"\n## {title}\n\n{body}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
