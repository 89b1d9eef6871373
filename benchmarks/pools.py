"""Pools of worker processes beside each other: ``python -m benchmarks.pools``; writes ``benchmarks/POOLS.md``.

The doctor starts worker processes of its own (`tb_gpu_doctor/parallel/processes.py`). Here kept libraries do the same
work, and are asked what the doctor needs of a pool: that a script without a main-module guard is not run again, that a
worker that dies takes no other file with it, that no worker outlives its parent. Each answer is a fresh process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.run import machine
from simulator.large_job import write_job

RESULTS = Path(__file__).with_name("POOLS.md")
WORKERS = 2
DEADLINE_S = 90
WHY = """`pip install loky joblib` first; joblib's pool is loky's. Results travel through a scratch file with our own
processes (the parent maps them), through pipes with the others; since the parent keeps only facts of a file and not
its columns, that costs little. What decides is what happens when something ends: a worker that is killed, by the
system for want of memory for instance, breaks the whole pool of the others, with the files that were read beside it,
and their workers outlive a parent that is killed. The processes of TensorBoard's plugin moreover need a low priority,
give memory back after each task, and end when idle. So the doctor keeps its own."""
POOLS = {
    "our own": "from tb_gpu_doctor.parallel.processes import WorkerProcesses\npool = WorkerProcesses(WORKERS)\n",
    "loky": "import loky\npool = loky.ProcessPoolExecutor(WORKERS)\n",
    "joblib": (
        "import joblib\nfrom joblib.externals.loky import get_reusable_executor\n"
        "pool = get_reusable_executor(WORKERS)\n"
    ),
    "concurrent.futures, spawn": (
        "import concurrent.futures, multiprocessing\n"
        "pool = concurrent.futures.ProcessPoolExecutor(WORKERS, multiprocessing.get_context('spawn'))\n"
    ),
}
# These import the main module again in each worker; they are measured with the guard that they need.
GUARDED = ("concurrent.futures, spawn",)
_HEAD = "import json, os, resource, signal, sys, time\nWORKERS = {workers}\nbegan = time.monotonic()\n"
_FIRST = "pool.submit(os.getpid).result()\nprint(json.dumps(time.monotonic() - began))\n"
_JOB = """
from tb_gpu_doctor.parallel import many_files
from tb_gpu_doctor.traces.sessions import find_sessions
(session,) = find_sessions({job!r}).sessions
many_files._Work._alone = None  # no second try by our own processes
began = time.monotonic()
outcomes = many_files.read_files(session.files, lambda *_: None, pool)
seconds = time.monotonic() - began
assert not [one for one in outcomes if isinstance(one, BaseException)], outcomes
with open("/proc/self/status") as status:
    own = {{line.split(":")[0]: int(line.split()[1]) * 1024 for line in status if line.startswith("Rss")}}
pool.shutdown(wait=True)
of_all = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({{
    "seconds": seconds,
    "cpu_seconds": sum(used.ru_utime + used.ru_stime for used in of_all),
    "parent_bytes": own["RssAnon"],
}}))
"""
_GUARD = "open('started', 'a').write('x')\n"
_DIES = """
others = [pool.submit(time.sleep, 1.0) for _ in range(3)]
dying = pool.submit(os._exit, 9)
def told(future):
    try:
        future.result(timeout=60)
    except BaseException:
        return False
    return True
answers = [told(other) for other in others]
told(dying)
try:
    answers.append(told(pool.submit(os.getpid)))
except BaseException:
    answers.append(False)
print(json.dumps([all(answers[:3]), answers[3]]))
"""
_ORPHANS = """
pids = {pool.submit(os.getpid).result() for _ in range(8)}
busy = [pool.submit(time.sleep, 60) for _ in range(4)]
time.sleep(1)
print(json.dumps(sorted(pids)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True)
class Answers:
    """What is known of one pool; times in seconds, memory in bytes."""

    first_s: float
    job_s: float
    cpu_s: float
    parent_bytes: float
    runs_once: bool
    runs_from_stdin: bool
    others_finish: bool
    goes_on: bool
    orphans: int


def answers(name: str, job: Path, rounds: int, scratch: Path) -> Answers:
    """Ask one pool everything."""

    def said(body: str, before: str = "", stdin: bool = False) -> Any:
        whole = body.startswith("if __name__")
        source = body if whole else before + _HEAD.format(workers=WORKERS) + POOLS[name] + body
        (scratch / "train.py").write_text(source)
        command = [sys.executable, "-" if stdin else str(scratch / "train.py")]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        # To a file: a worker that outlives its parent would hold a pipe open.
        with (scratch / "said").open("w+") as out, (scratch / "train.py").open() as typed:
            try:
                subprocess.run(
                    command, stdin=typed if stdin else subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                    cwd=scratch, env=environment, timeout=DEADLINE_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return None
            out.seek(0)
            lines = out.read().splitlines()
        return json.loads(lines[-1]) if lines else None

    guarded = partial(_guarded, name) if name in GUARDED else str
    runs = [said(guarded(_JOB.format(job=str(job)))) for _ in range(rounds)]
    firsts = [said(guarded(_FIRST)) for _ in range(rounds)]
    (scratch / "started").unlink(missing_ok=True)
    once = said(_FIRST, _GUARD) is not None and (scratch / "started").read_text() == "x"
    from_stdin = said(_FIRST, stdin=True) is not None
    died = said(guarded(_DIES)) or [False, False]
    pids = said(guarded(_ORPHANS)) or []
    time.sleep(5)
    left = [pid for pid in pids if _is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    least = min(runs, key=lambda run: run["seconds"])
    return Answers(
        statistics.median(firsts), least["seconds"], min(run["cpu_seconds"] for run in runs),
        statistics.median(run["parent_bytes"] for run in runs), once, from_stdin, died[0], died[1], len(left),
    )  # fmt: skip


def _guarded(name: str, body: str) -> str:
    """The script as a pool wants it that imports the main module again."""
    whole = (_HEAD.format(workers=WORKERS) + POOLS[name] + body).splitlines()
    return "\n".join(("if __name__ == '__main__':", *(f"    {line}" for line in whole), "    sys.exit()", ""))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def page(found: dict[str, Answers], shape: str) -> str:
    """What POOLS.md says."""
    lines = [
        "# Pools of worker processes",
        "",
        f"Written by `python -m benchmarks.pools`: {WORKERS} workers, {shape}; medians, of the job the least. "
        f"{machine()}",
        "",
        "| pool | first answer, s | job, s | CPU of all, s | parent's own memory, MB | an unguarded script runs once "
        "| from standard input | a worker dies: others finish | and it goes on | left 5 s after the parent is killed |",
        "|---|---:|---:|---:|---:|---|---|---|---|---:|",
    ]
    for name, one in found.items():
        facts = " | ".join("yes" if fact else "**no**" for fact in (
            one.runs_once, one.runs_from_stdin, one.others_finish, one.goes_on,
        ))  # fmt: skip
        lines.append(
            f"| {name} | {one.first_s:.2f} | {one.job_s:.2f} | {one.cpu_s:.2f} | {one.parent_bytes / 1e6:.0f} "
            f"| {facts} | {one.orphans} |"
        )
    lines += ["", WHY]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=50_000, help="of a rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        job, scratch = Path(folder) / "job", Path(folder) / "scratch"
        scratch.mkdir()
        write_job(job, "kineto", options.ranks, options.events)
        for name in POOLS:
            found[name] = answers(name, job, options.rounds, scratch)
            print(name, found[name], flush=True)
    text = page(found, f"a PyTorch job of {options.ranks} ranks of {options.events:,} events")
    options.results.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
