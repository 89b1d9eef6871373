"""One measurement in this process: ``python -m benchmarks.cases CASE PATH`` prints it as a line of JSON.

Imports come before the clock starts; the file is in the page cache, since it was just written.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Measurement:
    """One run: seconds by the clock, seconds of CPU in all threads, and the process's largest resident size."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    note: str = ""


def peak_bytes() -> int:
    """The largest resident size of this process (``ru_maxrss`` would count the parent's)."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status names no VmHWM")


def measure(work: Callable[[], str]) -> Measurement:
    """Runs the work once."""
    start, cpu = time.perf_counter(), time.process_time()
    note = work()
    return Measurement(time.perf_counter() - start, time.process_time() - cpu, peak_bytes(), note)


def read_only(path: str) -> Callable[[], str]:
    """The floor: read the file plane by plane, as the decoder does, and nothing more."""
    from tb_gpu_doctor.traces.xspace import walk

    return lambda: f"{sum(len(item.data) for item in walk(path)):,} bytes"


def decode_compiled(path: str) -> Callable[[], str]:
    """Every plane to columns, by the compiled decoder."""
    from tb_gpu_doctor.traces.wire import compiled, decode_plane_compiled
    from tb_gpu_doctor.traces.xspace import walk

    module = compiled()
    if module is None:
        raise RuntimeError("the compiled decoder is not built: pip install -e . builds it")
    planes = (item.data for item in walk(path) if item.kind == "plane")
    return lambda: f"{sum(len(decode_plane_compiled(module, data).line) for data in planes):,} events"


def decode_numpy(path: str) -> Callable[[], str]:
    """Every plane to columns, by the numpy twin."""
    from tb_gpu_doctor.traces.wire_numpy import decode_plane_numpy
    from tb_gpu_doctor.traces.xspace import walk

    planes = (item.data for item in walk(path) if item.kind == "plane")
    return lambda: f"{sum(len(decode_plane_numpy(data).line) for data in planes):,} events"


def read_trace(path: str) -> Callable[[], str]:
    """The file to a trace: decoded, classified, sorted."""
    from tb_gpu_doctor.traces.xplane import read_xplane

    def work() -> str:
        trace = read_xplane(path)
        return f"{len(trace.device_events):,} + {len(trace.host_events):,} events"

    return work


def diagnose(path: str) -> Callable[[], str]:
    """From the path to the findings."""
    import tb_gpu_doctor

    for module in ("analysis.analyse", "diagnosis.engine", "report.diagnosis_report", "traces.xplane"):
        importlib.import_module(f"tb_gpu_doctor.{module}")  # which it imports when called

    def work() -> str:
        diagnosis = tb_gpu_doctor.diagnose(path).to_dict()
        return f"{diagnosis['verdict']}, {len(diagnosis['findings'])} findings"

    return work


def kernel_stats(path: str) -> Callable[[], str]:
    """The stock Profiler's kernel table of the same file."""
    from xprof.convert import raw_to_tool_data

    def work() -> str:
        data, _ = raw_to_tool_data.xspace_to_tool_data([path], "kernel_stats", {})
        if not data:
            raise RuntimeError("xprof gave no kernel table")
        return f"{len(json.loads(data)['rows']):,} kernels"

    return work


CASES: dict[str, Callable[[str], Callable[[], str]]] = {
    case.__name__: case for case in (read_only, decode_compiled, decode_numpy, read_trace, diagnose, kernel_stats)
}


def main() -> None:
    """Measures the case named on the command line."""
    case, path = sys.argv[1:]
    print(json.dumps(asdict(measure(CASES[case](path)))))


if __name__ == "__main__":
    main()
