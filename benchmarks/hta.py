"""The whole diagnosis against HolisticTraceAnalysis (HTA), on the same files of PyTorch.

    python -m benchmarks.hta                     # generated jobs, and recorded ones where they are present
    python -m benchmarks.hta --only "8 ranks"    # some of them
    python -m benchmarks.hta --large             # also one rank of 1 M events: HTA needs minutes for it

HTA is installed into an environment of its own in a temporary folder (``--hta-python`` names one that has it).
Each measurement is a process of its own, imports not counted; the two take turns. The comparison goes to the
terminal and into benchmarks/HTA.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.run import machine, put_section
from simulator.large_torch_job import write_job
from tests.hta_definitions import RULES, figures, idle_by_stream

RESULTS = Path(__file__).parent / "HTA.md"
REPOSITORY = Path(__file__).resolve().parent.parent
RECORDED = REPOSITORY.parent / "shared" / "traces"
REQUIREMENT = "HolisticTraceAnalysis==0.5.0"
GOAL = 1 / 20
# A whole diagnosis of what lies below a folder, printed as JSON; imports come before the clock.
_OURS = """
import importlib, json, resource, sys, time
import tb_gpu_doctor
for name in ("analysis.analyse", "diagnosis.engine", "report.diagnosis_report", "traces.trace_json"):
    importlib.import_module(f"tb_gpu_doctor.{name}")
def cpu():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
if __name__ == "__main__":
    start, before = time.perf_counter(), cpu()
    report = tb_gpu_doctor.diagnose(sys.argv[1]).to_dict()
    seconds = time.perf_counter() - start
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu() - before, "peak_bytes": peak,
                      "devices": report["devices"], "verdict": report["verdict"]}))
"""
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One folder; ``rounds`` fresh processes of each."""

    title: str
    folder: Path
    rounds: int


@dataclass(frozen=True)
class Outcome:
    """What both said in each round. The least counts: what else a machine does only adds to a time."""

    ours: list[Json]
    theirs: list[Json]

    def least(self, who: list[Json], quantity: str) -> float:
        """One quantity in the round that had least of it."""
        return min(float(run[quantity]) for run in who)

    @property
    def ratio(self) -> float:
        """Our time over theirs."""
        return self.least(self.ours, "seconds") / self.least(self.theirs, "seconds")


def install(folder: Path) -> Path:
    """HTA in an environment below a folder; its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", REQUIREMENT], check=True)
    return python


def answer(command: Sequence[str | Path], timeout_s: float = 3600.0) -> Json:
    """The last line that a command prints, which is JSON.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(part) for part in command]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def measure(case: Case, python: Path) -> Outcome:
    """Both on one folder, in turns."""
    outcome = Outcome([], [])
    with tempfile.TemporaryDirectory() as folder:
        # Copies, away from this folder: HTA's own package has the name of this module.
        script = Path(folder) / "ours.py"
        script.write_text(_OURS, encoding="utf-8")
        theirs = shutil.copy(Path(__file__).with_name("hta_case.py"), folder)
        for number in range(case.rounds):
            print(f"  {case.title}, round {number + 1}/{case.rounds} ...", end="", flush=True, file=sys.stderr)
            outcome.ours.append(answer([sys.executable, script, case.folder]))
            outcome.theirs.append(answer([python, theirs, case.folder]))
            last = outcome.ours[-1]["seconds"], outcome.theirs[-1]["seconds"]
            print(f" {last[0]:.2f} s, HTA {last[1]:.2f} s", file=sys.stderr)
    return outcome


def compared(case: Case, outcome: Outcome) -> list[list[str]]:
    """Rows of HTA's figures, ours by its definition, the difference, and ours by our own."""
    from tb_gpu_doctor.traces.trace_json import read_trace_json

    breakdown = {row["rank"]: row for row in outcome.theirs[-1]["breakdown"]}
    overlaps = {row["rank"]: row["comp_comm_overlap_pctg"] for row in outcome.theirs[-1]["overlap"]}
    devices = {device.get("rank"): device for device in outcome.ours[-1]["devices"]}
    rows = []
    for path in sorted(case.folder.glob("*.json*")):
        trace = read_trace_json(str(path))
        rank = trace.rank if trace.rank is not None else 0
        if rank not in breakdown:
            continue
        marked = marks_steps_on_gpu(path)
        found = figures(trace, marked)
        own = devices.get(trace.rank) or next(iter(devices.values()))
        apart = own["communication_ms"] + own["transfer_ms"]
        theirs = breakdown[rank]
        for name, key, mine, ours in (
            ("span", "kernel_time(us)", found.kernel_us, own["wall_ms"]),
            ("compute", "compute_time(us)", found.compute_us, own["compute_ms"]),
            ("non-compute", "non_compute_time(us)", found.non_compute_us, apart),
            ("idle", "idle_time(us)", found.idle_us, own["idle_ms"]),
        ):
            rows.append([str(rank), f"{name}, ms", *_cells(theirs[key] / 1e3, mine / 1e3, 3), f"{ours:.3f}"])
        by_stream = idle_by_stream(trace, marked)
        for row in outcome.theirs[-1]["idle"]:
            if row["rank"] == rank:
                mine = by_stream.get((row["stream"], row["idle_category"]), math.nan)
                what = f"idle of stream {row['stream']}, {row['idle_category']}, ms"
                rows.append([str(rank), what, *_cells(row["idle_time"] / 1e3, mine / 1e3, 3), "–"])
        if overlaps.get(rank) is not None:
            rows.append([str(rank), "overlap, %", *_cells(overlaps[rank], round(100 * found.overlap, 2), 2), "–"])
    return rows


def _cells(theirs: float, mine: float, digits: int) -> list[str]:
    return [f"{theirs:.{digits}f}", f"{mine:.{digits}f}", f"{mine - theirs:.{digits}f}"]


def marks_steps_on_gpu(path: Path) -> bool:
    """Whether a file holds the steps as the GPU saw them."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return b'"gpu_user_annotation"' in data and b"ProfilerStep" in data


def _is_generated(title: str) -> bool:
    return title.endswith("events")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with numbers to the right."""
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def times_table(found: dict[str, Outcome]) -> str:
    """Times, memory and the goal, a line a folder."""
    rows = []
    for title, outcome in found.items():
        numbers = [
            f"{outcome.least(who, quantity) / unit:.{digits}f}"
            for quantity, unit, digits in (("seconds", 1, 2), ("cpu_seconds", 1, 2), ("peak_bytes", 1e6, 0))
            for who in (outcome.ours, outcome.theirs)
        ]
        share = f"1/{1 / outcome.ratio:.1f}"
        if _is_generated(title):
            share += ": goal met" if outcome.ratio <= GOAL else ": goal MISSED"
        processor = outcome.least(outcome.theirs, "cpu_seconds") / outcome.least(outcome.ours, "cpu_seconds")
        rows.append([title, share, f"1/{processor:.1f}", *numbers])
    header = ["files", "our time is", "our CPU time is", "s", "HTA", "CPU s", "HTA", "peak MB", "HTA"]
    return table(header, rows)


def explained(rows: list[list[str]]) -> str:
    """How many figures agree, and the table."""
    apart = [row for row in rows if not math.isclose(float(row[4]), 0, abs_tol=1e-9)]
    said = f"{len(rows) - len(apart)} of {len(rows)} figures by HTA's definitions are HTA's own, digit for digit."
    shown = [row for row in rows if "stream" not in row[1] or row in apart or len(rows) < 20]
    if len(shown) < len(rows):
        said += f" {len(rows) - len(shown)} equal ones, idle time by stream and cause, are left out of the table."
    if apart:
        said += " The others are explained below the tables."
    header = ["rank", "figure", "HTA", "ours by its definition", "difference", "the doctor's own"]
    return f"{said}\n\n{table(header, shown)}"


HOW = f"""Repeat with

    python -m benchmarks.hta

which installs {REQUIREMENT.replace("==", " ")} into an environment of its own. Timed: for HTA `TraceAnalysis(...)`,
`get_idle_time_breakdown` of all ranks, `get_comm_comp_overlap` and `get_temporal_breakdown`; for us everything from
the folder to the finished diagnosis. Fresh processes that take turns, imports not counted, both with as many
processes as they start by themselves; the least of the rounds. The goal for whole jobs is 1/{round(1 / GOAL)} of HTA's
time. Generated jobs come from `simulator/large_torch_job.py`; the recorded ones are not part of the repository. The
peak is that of the main process."""


# What looks like a mistake of HTA's; seen in the recorded files.
ODDITIES = (
    "Anything that carries an argument `stream` counts as GPU work for HTA. In `kineto_eager_b200` that is one "
    "operator of the host, hence 73 us more of compute and less of idle time.",
    "A kernel whose launch was not recorded is joined with the first event of the file. In `kineto_dlrm_8xv100` that "
    "makes some gaps of ranks 1 and 3 `host_wait` instead of `kernel_wait`.",
)


def why() -> str:
    """Where the definitions differ."""
    return "\n".join(f"- {line}" for line in (*RULES, *ODDITIES))


def cases(arguments: argparse.Namespace, folder: Path) -> list[Case]:
    """The folders to compare; the generated ones are written now."""
    found = []
    for title, ranks, events, rounds, wanted in (
        (f"8 ranks of {arguments.events:,} events", 8, arguments.events, arguments.rounds, True),
        (f"one rank of {4 * arguments.events:,} events", 1, 4 * arguments.events, arguments.rounds, True),
        (f"one rank of {20 * arguments.events:,} events", 1, 20 * arguments.events, 1, arguments.large),
    ):
        if wanted and (not arguments.only or arguments.only in title):
            write_job(folder / f"job{len(found)}", ranks, events)
            found.append(Case(title, folder / f"job{len(found)}", rounds))
    recorded = sorted(RECORDED.glob("kineto_*")) if RECORDED.is_dir() else []
    if not recorded:
        print(f"recorded profiles not present ({RECORDED})", file=sys.stderr)
    named = [Case("the demo run `pytorch_ddp`", REPOSITORY / "demo_logs" / "pytorch_ddp", arguments.rounds)]
    named += [Case(f"`{path.name}`", path, arguments.rounds) for path in recorded]
    return found + [case for case in named if not arguments.only or arguments.only in case.title]


def main(argv: Sequence[str] | None = None) -> int:
    """Compares; 1 when a generated job misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes of each (default 3)")
    parser.add_argument("--events", type=int, default=50_000, help="events of a rank; the single one has 4 times more")
    parser.add_argument("--large", action="store_true", help="also one rank of 20 times more, one round")
    parser.add_argument("--only", metavar="TEXT", help="only folders whose title holds this text")
    parser.add_argument("--hta-python", type=Path, help="an interpreter that has HTA installed")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables go")
    arguments = parser.parse_args(argv)
    where = machine()
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-hta-") as name:
        python = arguments.hta_python or install(Path(name) / "venv")
        chosen = cases(arguments, Path(name))
        found = {case.title: measure(case, python) for case in chosen}
        parts = [times_table(found), where]
        if not arguments.results.exists():
            arguments.results.write_text("# Beside HolisticTraceAnalysis\n", encoding="utf-8")
        put_section("How to repeat", HOW, arguments.results)
        put_section("Time and memory", "\n\n".join(parts), arguments.results)
        for case in chosen:
            put_section(f"Figures of {case.title}", explained(compared(case, found[case.title])), arguments.results)
        put_section("Where the definitions differ", why(), arguments.results)
    print(parts[0])
    generated = [outcome.ratio for title, outcome in found.items() if _is_generated(title)]
    return int(any(ratio > GOAL for ratio in generated))


if __name__ == "__main__":
    sys.exit(main())
