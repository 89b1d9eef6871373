"""HolisticTraceAnalysis on one folder, in this process: ``python hta_case.py FOLDER`` prints one line of JSON.

Runs in HTA's own environment and so imports nothing of this project. The clock starts after the imports.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import resource
import sys
import time

from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found, unused-ignore]


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def peak_bytes() -> int:
    """The largest resident size of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def main() -> None:
    """Loads the folder and runs the analyses that our diagnosis is held against."""
    logging.disable(logging.CRITICAL)
    start, cpu = time.perf_counter(), cpu_seconds()
    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_dir=sys.argv[1])
        loaded = time.perf_counter()
        ranks = sorted(analysis.t.traces)
        idle, _ = analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        breakdown = analysis.get_temporal_breakdown(visualize=False)
    end = time.perf_counter()
    answer = {
        "seconds": end - start,
        "load_seconds": loaded - start,
        "cpu_seconds": cpu_seconds() - cpu,
        "peak_bytes": peak_bytes(),
        "events": int(sum(len(frame) for frame in analysis.t.traces.values())),
        "breakdown": json.loads(breakdown.to_json(orient="records")),
        "overlap": json.loads(overlap.to_json(orient="records")),
        "idle": json.loads(idle.to_json(orient="records")),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
