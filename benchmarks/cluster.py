"""How the cost of a session grows with its hosts, 1 to 256, and what a cluster would send.

    python -m benchmarks.cluster                    1, 4, 16, 64 and 256 hosts of 5,000 events
    python -m benchmarks.cluster --hosts 1 16 64

Every number of hosts is measured in a fresh process. Writes benchmarks/CLUSTER.md.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import peak_bytes
from benchmarks.run import machine
from simulator.large_job import write_job

RESULTS = Path(__file__).parent / "CLUSTER.md"
HOSTS = (1, 4, 16, 64, 256)
ON_PAPER = 4_096
# What takes less is noise, and counts as this much where growth is computed.
_LEAST_S = 0.005
# Of the host whose bytes are counted.
BIG_EVENTS = 100_000


@dataclass(frozen=True)
class Growth:
    """One number of hosts.

    Attributes:
        file_seconds: CPU of decoding and analysing all files, which workers share.
        unpack_seconds: CPU of reading what workers tell.
        match_seconds: CPU of matching collectives.
        clock_seconds: CPU of aligning clocks.
        job_seconds: CPU of the rest of what looks at all GPUs: lateness, waiting, communication.
        rule_seconds: CPU of rules and their report, telemetry left out.
        text_seconds: CPU of the report for a terminal and as JSON.
        told_bytes: what workers tell of their files.
        answer_bytes: questions to them, and their answers.
        rounds: how often questions go to the workers, those to all at a time.
        column_bytes: what workers have in memory.
        peak_bytes: the largest resident size of the process that asked; its questions are answered by itself, a host
            at a time, from files.
        text_lines: of the report for a terminal.
        json_bytes: of the report as JSON.
    """

    hosts: int
    file_seconds: float
    unpack_seconds: float
    match_seconds: float
    clock_seconds: float
    job_seconds: float
    rule_seconds: float
    text_seconds: float
    told_bytes: int
    column_bytes: int
    peak_bytes: int
    text_lines: int
    json_bytes: int


def measure_here(folder: str) -> Growth:
    """Diagnose a folder as the head of a cluster does, and stop the time of each part."""
    from rich.console import Console

    from tb_gpu_doctor.analysis.clocks import find_clocks
    from tb_gpu_doctor.analysis.job_collectives import match_collectives
    from tb_gpu_doctor.diagnosis.context import Context
    from tb_gpu_doctor.diagnosis.engine import diagnose_context
    from tb_gpu_doctor.parallel.cluster import packed_facts, sent_facts
    from tb_gpu_doctor.parallel.one_file import read_file
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.report.diagnosis_text import print_report
    from tb_gpu_doctor.traces.sessions import find_sessions

    (session,) = find_sessions(folder).sessions
    first = read_file(session.files[0], with_columns=True)  # what the first call sets up belongs to no host
    columns = column_bytes(first.columns) * len(session.files)
    del first
    seconds: list[float] = []
    mark = time.process_time()

    def lap() -> None:
        nonlocal mark
        now = time.process_time()
        seconds.append(now - mark)
        mark = time.process_time()

    told = [packed_facts(read_file(file).facts) for file in session.files]
    lap()
    sent = [sent_facts(content, file) for content, file in zip(told, session.files, strict=True)]
    files = tuple(found for found in sent if not isinstance(found, Exception))
    lap()
    collectives = match_collectives(files)
    lap()
    find_clocks(collectives, len(files))
    lap()
    context = Context(files)
    _ = context.job
    lap()
    diagnosis = diagnose_context(context)
    lap()
    report = DiagnosisReport.of(diagnosis)
    said = io.StringIO()
    print_report(report, Console(file=said, width=120), "en")
    as_json = report.to_json("en")
    lap()
    work, unpacking, matching, clocks, whole_job, rules, words = seconds
    return Growth(
        len(session.files), work, unpacking, matching, clocks, max(0.0, whole_job - matching - clocks), rules, words,
        sum(map(len, told)), columns, peak_bytes(), said.getvalue().count("\n"), len(as_json),
    )  # fmt: skip


def column_bytes(value: Any) -> int:
    """About how much memory the arrays, texts and records of a value take."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, dict):
        return sum(column_bytes(item) for item in value.values())
    if isinstance(value, (tuple, list)):
        return sum(column_bytes(item) for item in value)
    if hasattr(type(value), "__dataclass_fields__"):
        return 64 + sum(column_bytes(getattr(value, spec.name)) for spec in fields(value))
    return 32


def run_case(folder: Path, rounds: int) -> Growth:
    """The measurement with the least CPU time of several fresh processes.

    Raises:
        RuntimeError: one failed.
    """
    found = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cluster", "--case", str(folder)],
            cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-500:])
        found.append(Growth(**json.loads(done.stdout.splitlines()[-1])))
    return min(found, key=head_seconds)


def head_seconds(growth: Growth) -> float:
    """CPU of what one process does after the workers."""
    return (
        growth.unpack_seconds + growth.match_seconds + growth.clock_seconds + growth.job_seconds
        + growth.rule_seconds + growth.text_seconds
    )  # fmt: skip


def table(found: Sequence[Growth]) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "| hosts | files, CPU s | unpacking, s | matching, s | clocks, s | rest of the job, s | rules, s | report, s "
        "| head, ms a host | peak MB | facts, KB a host | columns, KB a host "
        "| lines of text | JSON, KB |",
        "|" + "---:|" * 14,
    ]
    for g in found:
        cells = [
            f"{g.hosts}", f"{g.file_seconds:.2f}", f"{g.unpack_seconds:.3f}", f"{g.match_seconds:.3f}",
            f"{g.clock_seconds:.3f}", f"{g.job_seconds:.3f}", f"{g.rule_seconds:.3f}", f"{g.text_seconds:.3f}",
            f"{1e3 * head_seconds(g) / g.hosts:.1f}", f"{g.peak_bytes / 1e6:,.0f}",
            f"{g.told_bytes / g.hosts / 1e3:,.1f}",
            f"{g.column_bytes / g.hosts / 1e3:,.0f}", f"{g.text_lines}", f"{g.json_bytes / 1e3:,.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


PARTS = {
    "file_seconds": "files (shared by all workers)", "unpack_seconds": "unpacking", "match_seconds": "matching",
    "clock_seconds": "clocks", "job_seconds": "rest of the job", "rule_seconds": "rules", "text_seconds": "report",
}  # fmt: skip


def ratios(found: Sequence[Growth]) -> list[str]:
    """How each part grows from the last but one number of hosts to the last, and what that makes of 4,096."""
    if len(found) < 2:
        return []
    before, after = found[-2], found[-1]
    times = after.hosts / before.hosts
    lines = [
        f"| part | {before.hosts} hosts, s | {after.hosts} hosts, s | ratio ({times:.0f} is linear) | exponent "
        f"| on paper for {ON_PAPER:,}, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, words in PARTS.items():
        first, last = max(getattr(before, name), _LEAST_S), max(getattr(after, name), _LEAST_S)
        exponent = math.log(last / first) / math.log(times)
        paper = last * (ON_PAPER / after.hosts) ** max(1.0, exponent)
        lines.append(f"| {words} | {first:.3f} | {last:.3f} | {last / first:.1f} | {exponent:.2f} | {paper:,.0f} |")
    return lines


def clocks_of_many(folder: Path, hosts: int) -> str:
    """What aligning clocks takes for ``hosts`` hosts made of copies."""
    from tb_gpu_doctor.analysis.clocks import find_clocks
    from tb_gpu_doctor.analysis.job_collectives import match_collectives
    from tb_gpu_doctor.parallel.one_file import read_file
    from tb_gpu_doctor.traces.sessions import find_sessions

    (session,) = find_sessions(str(folder)).sessions
    read = [read_file(file).facts for file in session.files]
    found = match_collectives(read)
    if found is None:
        return "nothing to align"
    copies = -(-hosts // len(read))
    many = replace(
        found,
        trace=np.arange(copies * len(found.trace), dtype=np.int32), device=np.tile(found.device, copies),
        row=np.tile(found.row, copies), start=np.tile(found.start, copies), end=np.tile(found.end, copies),
        expected=found.expected * copies, unmatched=np.tile(found.unmatched, copies),
    )  # fmt: skip
    begun = time.process_time()
    find_clocks(many, len(many.trace))
    return f"{time.process_time() - begun:.1f} s of CPU for {len(found)} collectives"


def big_host() -> list[str]:
    """What a host of 100,000 events tells, beside its columns."""
    from tb_gpu_doctor.parallel.cluster import packed_facts, sent_facts
    from tb_gpu_doctor.parallel.one_file import read_file
    from tb_gpu_doctor.traces.sessions import find_sessions

    lines = [
        "| format | columns, MB | facts, KB | packing, CPU ms | unpacking, CPU ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for form in ("xplane", "kineto"):
        with tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as name:
            write_job(Path(name), form, 1, BIG_EVENTS)
            (session,) = find_sessions(name).sessions
            outcome = read_file(session.files[0], with_columns=True)
        packing, unpacking = [], []
        for _ in range(5):
            begun = time.process_time()
            told = packed_facts(outcome.facts)
            half = time.process_time()
            sent_facts(told, session.files[0])
            packing.append(half - begun)
            unpacking.append(time.process_time() - half)
        lines.append(
            f"| {form} | {column_bytes(outcome.columns) / 1e6:.1f} | {len(told) / 1e3:.1f} "
            f"| {1e3 * min(packing):.1f} | {1e3 * min(unpacking):.1f} |"
        )
    return lines


def on_dask(hosts: int) -> str:
    """What a real cluster of two workers on this machine sends for big hosts, in a sentence."""
    import distributed

    from tb_gpu_doctor.api import diagnose_session
    from tb_gpu_doctor.parallel.cluster import dask_cluster
    from tb_gpu_doctor.traces.sessions import find_sessions

    with (
        tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as name,
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as local,
        dask_cluster(local.scheduler_address) as cluster,
    ):
        write_job(Path(name), "xplane", hosts, BIG_EVENTS)
        (session,) = find_sessions(name).sessions
        last, marks = "", [time.perf_counter()]

        def note(stage: str, _done: float) -> None:
            nonlocal last
            if stage == "diagnosing" != last:
                marks.append(time.perf_counter())
            last = stage

        diagnose_session(session, note, executor=cluster)
        marks.append(time.perf_counter())
        received = cluster.received_bytes
    return (
        f"A real Dask cluster of two workers on this machine, {hosts} hosts of {BIG_EVENTS:,} events: "
        f"{received / hosts / 1e3:.0f} KB a host came, {marks[1] - marks[0]:.1f} s until all had told, "
        f"{marks[2] - marks[1]:.1f} s for the rest."
    )


TEXT = """# Sessions with many hosts

Written by `python -m benchmarks.cluster`; [docs/cluster.md](../docs/cluster.md) says how to use a cluster.

## From {first} to {last} hosts

Simulated hosts of {events:,} events (one GPU each, all in the same collectives, each host on its own clock), one file a
host. Everything ran one after the other in one process: "files" is the work that workers share; what follows is
done by the one process that asked ("the head"). The least of {rounds} round(s) in fresh processes; CPU time, since
others use the cores as well. The peak is that of a process which read all hosts, one after the other, and held their
facts.

{table}

{ratios}

On paper: every part goes on with its exponent, and with 1 at least; what takes less than {least:.0f} ms counts as
that. Measured: aligning the clocks of {paper:,} hosts, made by repeating the collectives of the largest job, takes
{measured}.
At {paper:,} hosts about {gigabytes:.2f} GB travel.

## What a host of {big:,} events tells

Its facts: steps, accounting, kernel table, collectives, evidence. They grow with these, and not with the events; the
diagnosis is the same, bit for bit, as without a cluster.

{big_table}

{dask}

{where}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=list(HOSTS))
    parser.add_argument("--events", type=int, default=5_000, help="of each host")
    parser.add_argument("--rounds", type=int, default=2, help="fresh processes per number of hosts")
    parser.add_argument("--dask-hosts", type=int, default=16, help="hosts on a real cluster of two workers")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the page goes")
    parser.add_argument("--case", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        print(json.dumps(asdict(measure_here(options.case))))
        return 0
    found, measured = [], ""
    for hosts in options.hosts:
        with tempfile.TemporaryDirectory(prefix="gpu-doctor-bench-") as name:
            write_job(Path(name), "xplane", hosts, options.events)
            found.append(run_case(Path(name), options.rounds))
            if hosts == options.hosts[-1]:
                measured = clocks_of_many(Path(name), ON_PAPER)
        print(f"  {found[-1]}", file=sys.stderr, flush=True)
    page = TEXT.format(
        first=found[0].hosts, last=found[-1].hosts, events=options.events, rounds=options.rounds,
        table="\n".join(table(found)), ratios="\n".join(ratios(found)), paper=ON_PAPER, measured=measured,
        least=1e3 * _LEAST_S,
        gigabytes=ON_PAPER * found[-1].told_bytes / found[-1].hosts / 1e9, big=BIG_EVENTS,
        big_table="\n".join(big_host()), dask=on_dask(options.dask_hosts), where=machine(),
    )  # fmt: skip
    options.results.write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
