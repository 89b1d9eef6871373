"""Measures one batch size; run as a program, in a process of its own.

    python -m tb_gpu_doctor.monitor.batch_measure REQUEST.json RESULT.json

A process that runs out of memory takes its CUDA context, its allocator's arenas or itself with it: the
next size starts in a clean one. `fit` and `recommend` turn the measured points into a line and a choice.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tb_gpu_doctor.monitor.frameworks import AllocatorReading, Frameworks

# The smallest batch that has this share of the best throughput is recommended.
ENOUGH = 0.95


@dataclass(frozen=True)
class Point:
    """One batch size.

    Attributes:
        batch_size: samples of one step.
        samples_per_s, step_seconds: None where it could not be measured.
        spread: half the range of the middle half of the repeats, as a share of ``step_seconds``.
        peak_bytes: of the GPU that used most, or of the process where there is no GPU; None where unknown.
        limit_bytes: what it may use.
        problem: why it could not be measured: ``out_of_memory``, ``killed``, ``timeout`` or an error's words.
    """

    batch_size: int
    samples_per_s: float | None = None
    step_seconds: float | None = None
    spread: float | None = None
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Fit:
    """Time of a step = ``fixed_seconds`` + ``per_sample_seconds`` x batch.

    ``error`` is the mean of the absolute deviations, as a share of the measured times.
    """

    fixed_seconds: float
    per_sample_seconds: float
    error: float


def fit(points: Sequence[Point]) -> Fit | None:
    """The line with the least sum of relative deviations, neither part below 0; None for under 2 sizes.

    Relative ones, since noise grows with the time and small batches must count; absolute instead of
    squared ones, so that one disturbed size does not move the line. Such a line goes through two of the
    points, or through one and an end of the allowed range, so that trying them all is exact.
    """
    measured = [(point.batch_size, point.step_seconds) for point in points if point.step_seconds]
    if len({batch for batch, _ in measured}) < 2:
        return None
    lines: list[tuple[float, float]] = []
    for index, (batch, seconds) in enumerate(measured):
        lines += [(0.0, seconds / batch), (seconds, 0.0)]
        for other, other_seconds in measured[index + 1 :]:
            if other != batch:
                slope = (other_seconds - seconds) / (other - batch)
                lines.append((seconds - slope * batch, slope))
    best: Fit | None = None
    for fixed, slope in lines:
        if fixed < 0 or slope < 0:
            continue
        error = sum(abs(fixed + slope * batch - seconds) / seconds for batch, seconds in measured) / len(measured)
        if best is None or error < best.error:
            best = Fit(fixed, slope, error)
    return best


def recommend(points: Sequence[Point]) -> Point | None:
    """The smallest batch within 5 % of the best throughput; None where nothing was measured."""
    measured = [point for point in points if point.samples_per_s]
    if not measured:
        return None
    enough = ENOUGH * max(point.samples_per_s or 0.0 for point in measured)
    return min((p for p in measured if (p.samples_per_s or 0.0) >= enough), key=lambda point: point.batch_size)


def predicted_peak(points: Sequence[Point], batch: int) -> float | None:
    """Bytes that ``batch`` will need, by the line through the two largest sizes; None where that cannot be told."""
    known = [(point.batch_size, point.peak_bytes) for point in points if point.peak_bytes and not point.problem]
    if len(known) < 2:
        return None
    (small, small_bytes), (large, large_bytes) = sorted(known)[-2:]
    slope = max(large_bytes - small_bytes, 0) / (large - small)
    return large_bytes + slope * (batch - large)


MakeStep = Callable[[int], Callable[[], Any]]
_OUT_OF_MEMORY = (
    "resource_exhausted", "resourceexhausted", "out of memory", "out_of_memory", "outofmemory", "oom when allocating",
    "failed to allocate", "alloc_failed", "cannot allocate memory", "unable to allocate",
)  # fmt: skip
PROBLEM_MEMORY = "out_of_memory"
# Repeats that differ by more (half the range of the middle half, as a share) are not enough.
NOISY = 0.05


@dataclass(frozen=True)
class Measure:
    """How a size is measured.

    Attributes:
        warmup: steps before anything is timed: compilation, autotuning, caches.
        repeats: blocks of steps that are timed; the median counts. Up to three times as many where they differ.
        block_seconds: a block has as many steps as last this long, at least one.
        max_seconds: no further block begins after this time.
    """

    warmup: int = 3
    repeats: int = 5
    block_seconds: float = 0.2
    max_seconds: float = 60.0


class BadFactory(ValueError):
    """What is to be measured cannot be found; the message says why.

    Attributes:
        code: ``batch.errors.factory.<code>`` of the catalogues says it.
        params: what that text needs.
    """

    def __init__(self, code: str, **params: str) -> None:
        from tb_gpu_doctor.texts import text

        super().__init__(text(f"batch.errors.factory.{code}", **params))
        self.code, self.params = code, params


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of TensorFlow, JAX, PyTorch, numpy or Python says that memory ran out."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, MemoryError):
            return True
        words = f"{type(current).__name__} {current}".lower()
        if any(sign in words for sign in _OUT_OF_MEMORY):
            return True
        current = current.__cause__ or current.__context__
    return False


def measure(make_step: MakeStep, batch_size: int, how: Measure, baseline_rss: bool = True) -> Point:
    """Time the steps of one batch size, in this process.

    Args:
        make_step: gives a function of no arguments that does one step; what it returns is waited for.
        batch_size: its argument.
        how: warm-up and repeats.
        baseline_rss: take the process's memory for the peak where no GPU is used.

    Raises:
        Exception: whatever ``make_step`` or the step raises, except for running out of memory.
    """
    try:
        seconds, spread = _time(make_step(batch_size), how)
    except Exception as error:
        if is_out_of_memory(error):
            return Point(batch_size, problem=PROBLEM_MEMORY)
        raise
    peak, limit = _memory(baseline_rss)
    return Point(batch_size, batch_size / seconds, seconds, spread, peak, limit)


def _time(step: Callable[[], Any], how: Measure) -> tuple[float, float]:
    """(seconds, spread) of a step."""
    frameworks = Frameworks()
    for _ in range(max(how.warmup, 1)):
        wait(step(), frameworks)
    begin = time.perf_counter()
    wait(step(), frameworks)
    once = max(time.perf_counter() - begin, 1e-7)
    # A number of steps per wait, so that launching ahead, as training does, is part of it.
    steps = max(1, min(1000, round(how.block_seconds / once)))
    times: list[float] = []
    end = time.perf_counter() + how.max_seconds
    collecting = gc.isenabled()
    gc.disable()
    try:
        while _more(times, how.repeats) and (not times or time.perf_counter() < end):
            begin = time.perf_counter()
            for _ in range(steps):
                result = step()
            wait(result, frameworks)
            times.append((time.perf_counter() - begin) / steps)
    finally:
        if collecting:
            gc.enable()
    return statistics.median(times), _spread(times)


def _more(times: list[float], repeats: int) -> bool:
    """Whether to time another block: as many as asked for, and more on a machine that is not quiet."""
    if len(times) < max(repeats, 1):
        return True
    return len(times) < 3 * repeats and _spread(times) > NOISY


def _spread(times: list[float]) -> float:
    if len(times) < 2:
        return 0.0
    quarters = statistics.quantiles(times, n=4)
    return (quarters[2] - quarters[0]) / 2 / statistics.median(times)


def wait(result: Any, frameworks: Frameworks) -> None:
    """Until a step's result exists and the devices are done."""
    block = getattr(sys.modules.get("jax"), "block_until_ready", None)
    if block is not None:
        block(result)
    for framework in frameworks.loaded():
        if framework.name != "jax":
            framework.synchronize()


def _memory(process_too: bool) -> tuple[int | None, int | None]:
    """(peak, limit) in bytes: of the GPU that is fullest, else of this process."""
    readings = []
    framework = Frameworks().training()
    if framework is not None:
        try:
            readings = list(framework.allocator())
        except Exception:
            readings = []
    if readings:
        fullest = max(readings, key=lambda reading: reading.peak_bytes)
        return fullest.peak_bytes, fullest.limit_bytes or _gpu_memory(fullest)
    if not process_too:
        return None, None
    return _process_peak(), available_memory()


def _gpu_memory(reading: AllocatorReading) -> int | None:
    """Memory of a GPU by the driver; of the first where the numbers may differ, for such GPUs are alike."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            sizes = {
                int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).total)
                for index in range(count)
            }
        finally:
            pynvml.nvmlShutdown()
    except Exception:
        return None
    return sizes.pop() if len(sizes) == 1 else None


def _process_peak() -> int | None:
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except (ImportError, OSError):
        return None
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def available_memory(root: str = "/") -> int | None:
    """Bytes that this process may use: the cgroup's limit, or the machine's memory."""
    from tb_gpu_doctor.monitor.environment_host import memory_limit

    return memory_limit(root)


def load_factory(spec: str) -> MakeStep:
    """``module:function`` or ``path/to/file.py:function``.

    Raises:
        BadFactory: it is neither, or leads to nothing that can be called; the message says what is wrong.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise BadFactory("not_a_name", name=spec)
    if place.endswith(".py"):
        if not os.path.isfile(place):
            raise BadFactory("no_file", path=place)
        # As an imported module would: `if __name__ == "__main__":` does not run.
        file_spec = importlib.util.spec_from_file_location("__gpu_doctor_main__", place)
        if file_spec is None or file_spec.loader is None:
            raise BadFactory("no_import", path=place)
        found: Any = importlib.util.module_from_spec(file_spec)
        sys.modules[file_spec.name] = found
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        file_spec.loader.exec_module(found)
    else:
        try:
            found = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not (place == error.name or place.startswith(error.name + ".")):
                raise
            raise BadFactory("no_module", name=place) from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadFactory("no_function", path=place, name=name)
    return found  # type: ignore[no-any-return]


def _their_part(error: BaseException) -> str:
    """The traceback without this module's own frames."""
    import traceback

    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename == __file__:
        place = place.tb_next
    return "".join(traceback.format_exception(type(error), error, place, chain=False))


def main(arguments: list[str]) -> int:
    """Read the request, measure, write the result; 0 unless this process dies on the way."""
    with open(arguments[0], encoding="utf-8") as file:
        request = json.load(file)
    sys.path[:] = request["path"]
    result: dict[str, Any]
    try:
        make_step = load_factory(request["factory"])
        result = {"point": asdict(measure(make_step, request["batch_size"], Measure(**request["how"])))}
    except BadFactory as error:
        result = {"bad_factory": {"code": error.code, **error.params}}
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}", "traceback": _their_part(error)}
    part = arguments[1] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(part, arguments[1])
    # What was measured is written: destructors of a driver in trouble shall not change the exit status.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
