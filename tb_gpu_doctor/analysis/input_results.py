"""What the analysis of the input pipelines returns: frozen dataclasses, times in picoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StageRole = Literal["read", "python", "map", "batch", "shuffle", "cache", "prefetch", "remote", "feed", "glue", "other"]


@dataclass(frozen=True)
class InputStage:
    """One stage of an input pipeline over the analysed stretch.

    Attributes:
        name: as the profiler names it (``ParallelMapV2``), or the Python frame.
        path: where it stands, consumer first (``Root::Prefetch::ParallelMapV2``).
        role: what kind of work it does; ``feed`` hands another pipeline's elements to one GPU,
            ``glue`` does nothing by itself.
        calls: elements that were begun in the stretch.
        busy: its own time without what it asks of the stages behind it, summed over threads; of a
            stage that calls a function on other threads the time of those calls.
        wall: union of that time.
        per_element: mean own time of one element in picoseconds, None when there was none.
        parallelism: as recorded last, None when not recorded.
        concurrency: most elements at once that were seen.
        autotuned: whether tf.data sets the parallelism or the buffer by itself; None when not recorded.
        buffer: elements it keeps ready, as recorded last, None when not recorded.
        background: works on other threads than the one that takes its elements.
        threads: where it works (indices into ``Trace.threads``).
        waited: time in which its consumer stood waiting for its elements (background stages).
        utilization: share of the stretch for which it works, of all that it may do at once.
        calls_python: its function runs Python code (``tf.py_function`` and the like).
    """

    name: str
    path: str
    role: StageRole
    calls: int
    busy: int
    wall: int
    per_element: float | None
    parallelism: int | None
    concurrency: int
    autotuned: bool | None
    buffer: int | None
    background: bool
    threads: tuple[int, ...]
    waited: int
    utilization: float
    calls_python: bool

    @property
    def at_once(self) -> int:
        """How many elements it works on at once: as recorded, else as seen."""
        return self.parallelism if self.parallelism is not None else max(self.concurrency, 1)


@dataclass(frozen=True)
class InputPipeline:
    """One input pipeline: how the elements of a training step come to be.

    Attributes:
        source: ``tf_data``, or ``python`` for a loader that the Python tracer shows.
        start, end: the stretch that was analysed (the window, else the recorded time).
        stages: consumer first, each followed by the stages behind it.
        limiting: index of the stage that sets the pace, None when nothing tells.
        fetches: elements that were taken out.
        fetch_time: time spent taking them, the sum over the consumers' threads.
        consumers: threads that take them.
        element_bytes: median size of one, None when not recorded.
        prefetched: whether elements are made ready in the background before they are asked for.
        cpu_budget: CPU cores that tf.data may use, None when not recorded.
        cpu_share: part of those cores that the stages kept busy, None when the budget is unknown.
        waited: per device index, idle time charged to input while a fetch from this pipeline ran.
    """

    source: Literal["tf_data", "python"]
    start: int
    end: int
    stages: tuple[InputStage, ...]
    limiting: int | None
    fetches: int
    fetch_time: int
    consumers: tuple[int, ...]
    element_bytes: int | None
    prefetched: bool
    cpu_budget: int | None
    cpu_share: float | None
    waited: tuple[int, ...]

    @property
    def slowest(self) -> InputStage | None:
        """The limiting stage."""
        return None if self.limiting is None else self.stages[self.limiting]
