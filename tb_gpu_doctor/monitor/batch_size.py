"""`find_batch_size`: grows the batch until it no longer pays or no longer fits.

def make_step(batch_size):
    model, batch = build(batch_size)
    return lambda: train_step(model, batch)

result = tb_gpu_doctor.find_batch_size(make_step, logdir="logs")
print(result.recommended)
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from tb_gpu_doctor.isolated_python import isolated, safe_path
from tb_gpu_doctor.monitor.batch_measure import (
    PROBLEM_MEMORY,
    BadFactory,
    Fit,
    MakeStep,
    Measure,
    Point,
    fit,
    measure,
    predicted_peak,
    recommend,
)
from tb_gpu_doctor.monitor.frameworks import module

# A size that is not faster than the best so far by this share brings nothing.
GAIN = 0.02
MOST_GROWTH = 1e6
PROBLEM_KILLED, PROBLEM_TIMEOUT = "killed", "timeout"
_TAIL = 2000


class OutOfRange(ValueError):
    """An argument that makes no sense: its ``name`` and ``value``."""

    def __init__(self, name: str, value: float) -> None:
        super().__init__(f"{name}={value} is out of range")
        self.name, self.value = name, value


class BatchError(Exception):
    """Not even the first size could be measured; the message says why, with the end of what was printed."""


@dataclass(frozen=True)
class BatchResult:
    """A sweep.

    Attributes:
        points: one a size, in order; the last one may not have fitted.
        fit: time of a step = fixed + per sample x batch; None for under two sizes.
        recommended: the smallest batch within 5 % of the best throughput; None where nothing was measured.
        headroom: share of memory that it leaves; None where memory is unknown.
        stopped: why no larger size was tried: ``memory``, ``memory_predicted``, ``no_gain``, ``max_batch``
            or ``problem``.
        exact_memory: False where all sizes were measured in one process, whose peak never falls.
        run: folder below the logdir that holds the sweep, None where it was not written.
    """

    points: tuple[Point, ...]
    fit: Fit | None
    recommended: int | None
    headroom: float | None
    stopped: str
    exact_memory: bool
    run: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is written, and as ``gpu-doctor batch --json`` prints it."""
        line = self.fit
        return {
            "points": [asdict(point) for point in self.points],
            "fixed_seconds": None if line is None else line.fixed_seconds,
            "per_sample_seconds": None if line is None else line.per_sample_seconds,
            "fit_error": None if line is None else line.error,
            "recommended": self.recommended,
            "headroom": self.headroom,
            "stopped": self.stopped,
            "exact_memory": self.exact_memory,
            "run": self.run,
        }


def find_batch_size(
    make_step: MakeStep | str,
    *,
    logdir: str | os.PathLike[str] | None = None,
    start: int = 8,
    max_batch: int = 1 << 20,
    growth: float = 2.0,
    patience: int | None = 3,
    memory_fraction: float = 0.95,
    measure_as: Measure | None = None,
    timeout_s: float = 900.0,
    in_process: bool | None = None,
    on_point: Callable[[Point], None] | None = None,
) -> BatchResult:
    """Measure growing batch sizes and recommend one.

    Args:
        make_step: ``make_step(batch_size)`` builds everything and returns a function that does one training
            step; or ``"module:function"``. Each size runs in a process of its own, for which it must be
            importable: a function at the top of a module.
        logdir: the sweep is written here, for the tab to draw.
        start: the first size.
        max_batch: no larger size is tried.
        growth: factor from one size to the next.
        patience: end after so many sizes in a row that bring under 2 % more throughput; None to go on until
            memory ends.
        memory_fraction: a size that by extrapolation needs more of the memory than this is not tried.
        measure_as: warm-up and repeats.
        timeout_s: of one size.
        in_process: measure in this process; the default where ``make_step`` cannot be imported, as in a
            notebook. Running out of memory is then caught, and memory figures are less exact.
        on_point: called with each point as soon as it is measured.

    Raises:
        ValueError: arguments that make no sense; `BadFactory` where ``make_step`` names nothing.
        BatchError: the first size cannot be measured, for another reason than memory.
    """
    how = measure_as or Measure()
    for name, value, in_range in (
        ("start", start, start >= 1),
        ("max_batch", max_batch, max_batch >= start),
        ("growth", growth, 1 < growth <= MOST_GROWTH),
        ("memory_fraction", memory_fraction, 0 < memory_fraction <= 1),
        ("repeats", how.repeats, how.repeats >= 1),
        ("timeout_s", timeout_s, timeout_s > 0),
    ):
        if not in_range:
            raise OutOfRange(name, value)
    factory = make_step if isinstance(make_step, str) else importable_name(make_step)
    if in_process is None:
        in_process = factory is None
    if not in_process and factory is None:
        raise ValueError("in_process=False needs a function at the top of a module that can be imported")
    if in_process and isinstance(make_step, str):
        from tb_gpu_doctor.monitor.batch_measure import load_factory

        make_step = load_factory(make_step)

    def measure(size: int) -> Point:
        if in_process:
            return _measure_here(make_step, size, how)  # type: ignore[arg-type]
        return _measure_in_child(str(factory), size, how, timeout_s)

    points, stopped = _sweep(measure, start, max_batch, growth, patience, memory_fraction, on_point)
    chosen = recommend(points)
    headroom = None
    if chosen is not None and chosen.peak_bytes is not None and chosen.limit_bytes:
        headroom = max(0.0, 1 - chosen.peak_bytes / chosen.limit_bytes)
    result = BatchResult(
        tuple(points), fit(points), None if chosen is None else chosen.batch_size, headroom, stopped, not in_process
    )
    if logdir is not None:
        result = replace(result, run=write_sweep(result, os.fspath(logdir)))
    return result


def _sweep(
    measure: Callable[[int], Point],
    start: int,
    max_batch: int,
    growth: float,
    patience: int | None,
    memory_fraction: float,
    on_point: Callable[[Point], None] | None,
) -> tuple[list[Point], str]:
    """Measured points of growing batches, and why no larger one was tried."""
    points: list[Point] = []
    stopped = "max_batch"
    size, best, without_gain = start, 0.0, 0
    while True:
        point = measure(size)
        points.append(point)
        if on_point is not None:
            on_point(point)
        if point.problem is not None:
            if len(points) == 1 and point.problem not in (PROBLEM_MEMORY, PROBLEM_KILLED, PROBLEM_TIMEOUT):
                raise BatchError(point.problem)
            points[-1] = replace(point, problem=point.problem.splitlines()[0])
            stopped = "memory" if point.problem in (PROBLEM_MEMORY, PROBLEM_KILLED) else "problem"
            break
        rate = point.samples_per_s or 0.0
        without_gain = 0 if rate > best * (1 + GAIN) else without_gain + 1
        best = max(best, rate)
        if patience is not None and without_gain >= patience:
            stopped = "no_gain"
            break
        following = max(size + 1, round(size * growth))
        if following > max_batch:
            break
        needed = predicted_peak(points, following)
        if needed is not None and point.limit_bytes and needed > memory_fraction * point.limit_bytes:
            stopped = "memory_predicted"
            break
        size = following
    return points, stopped


def importable_name(function: Any) -> str | None:
    """``module:function``, or the file's path where that is the program; None for what lives in this process only."""
    name = getattr(function, "__qualname__", "")
    module_name = getattr(function, "__module__", None)
    if not module_name or not name or "<" in name or getattr(function, "__self__", None) is not None:
        return None
    if module_name == "__main__":
        main: Any = sys.modules.get("__main__")
        path = getattr(main, "__file__", None)
        spec = getattr(main, "__spec__", None)
        if spec is not None and getattr(spec, "name", None):
            return f"{spec.name}:{name}"
        # A notebook has no file, or one that holds none of its cells.
        if not path or not str(path).endswith(".py") or not os.path.isfile(path):
            return None
        with contextlib.suppress(OSError, TypeError):
            if os.path.abspath(inspect.getsourcefile(function) or "") != os.path.abspath(path):
                return None
        return f"{os.path.abspath(path)}:{name}"
    found: Any = sys.modules.get(module_name)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module_name}:{name}" if found is function else None


def _measure_here(make_step: MakeStep, size: int, how: Measure) -> Point:
    """In this process: what a size leaves behind is cleared as far as the frameworks allow."""
    _forget_peaks()
    try:
        return measure(make_step, size, how, baseline_rss=False)
    except Exception as error:
        return Point(size, problem=f"{type(error).__name__}: {error}")
    finally:
        gc.collect()
        _forget_peaks()


def _forget_peaks() -> None:
    torch: Any = module("torch")
    tensorflow: Any = module("tensorflow")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(Exception):
        if tensorflow is not None:
            for index in range(len(tensorflow.config.list_logical_devices("GPU"))):
                tensorflow.config.experimental.reset_memory_stats(f"GPU:{index}")


def _measure_in_child(factory: str, size: int, how: Measure, timeout_s: float) -> Point:
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-") as folder:
        request, result, log = (os.path.join(folder, name) for name in ("request.json", "result.json", "log.txt"))
        # The factory may lie in the current folder, whose other modules shall not stand in for installed ones.
        path = [*safe_path(), os.getcwd()]
        with open(request, "w", encoding="utf-8") as file:
            json.dump({"factory": factory, "batch_size": size, "how": asdict(how), "path": path}, file)
        command = isolated("tb_gpu_doctor.monitor.batch_measure", [request, result])
        with open(log, "wb") as output:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            try:
                status = child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return Point(size, problem=PROBLEM_TIMEOUT)
            finally:
                child.kill()
                child.wait()
        try:
            with open(result, encoding="utf-8") as file:
                answer = json.load(file)
        except (OSError, ValueError):
            return Point(size, problem=_death(status, _tail(log)))
        if "bad_factory" in answer:
            raise BadFactory(**answer["bad_factory"])
        if "point" in answer:
            return Point(**answer["point"])
        return Point(size, problem=f"{answer['error']}\n{answer['traceback'][-_TAIL:]}")


def _death(status: int, tail: str) -> str:
    """Why a child ended without a result."""
    from tb_gpu_doctor.monitor.batch_measure import is_out_of_memory

    if status == -getattr(signal, "SIGKILL", 9):
        return PROBLEM_KILLED  # on Linux this is how the kernel, or a container, ends what uses too much memory
    if is_out_of_memory(RuntimeError(tail)):
        return PROBLEM_MEMORY
    reason = f"the process ended with status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):
            reason = f"the process was ended by {signal.Signals(-status).name}"
    return f"{reason}\n{tail}"


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def write_sweep(result: BatchResult, logdir: str) -> str:
    """Write a sweep where telemetry is looked for; also as curves over the batch size for the Scalars tab.

    Returns the run, the folder below the logdir.

    Raises:
        OSError: the logdir cannot be written; remote ones raise their own errors.
    """
    from tb_gpu_doctor.monitor.event_file import EventFile, Origin, RunFolders
    from tb_gpu_doctor.recording_format import FILE_SUFFIX, TAG_FACTS

    origin = Origin()
    now_ns = time.time_ns()
    folder, run = RunFolders(logdir, origin).claim("batch_size")
    file = EventFile(folder, origin, FILE_SUFFIX)
    for point in result.points:
        if point.samples_per_s is not None and point.step_seconds is not None:
            values = [("batch/samples_per_s", point.samples_per_s), ("batch/step_ms", point.step_seconds * 1e3)]
            if point.peak_bytes is not None:
                values.append(("batch/peak_bytes", float(point.peak_bytes)))
            file.scalars(values, point.batch_size, now_ns / 1e9)
    content = {**result.to_dict(), "run": run, "wall_ns": now_ns}
    file.record(TAG_FACTS + "batch_sweep", json.dumps(content).encode(), 0, now_ns / 1e9)
    file.close()
    return run
