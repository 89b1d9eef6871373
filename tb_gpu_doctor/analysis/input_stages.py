"""The stages of an input pipeline: what is known of each, and what tf.data's names for them mean.

The names are tables: where a stage stands in its pipeline, and what kind of work it does.
"""

from __future__ import annotations

import re
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


Path = tuple[str, ...]

ITERATOR = "Iterator::"
PRODUCE = re.compile(r"^\w+Produce$")
RUN_PREFIX = "InstantiatedCapturedFunction::"
RUN_ASYNC = "InstantiatedCapturedFunction::RunAsync"
# Spans of a function call on the thread pool; its `id` is that of the call.
PROCESS = ("ExecutorState::Process", "ExecutorDoneCallback")
GET_NEXT = re.compile(r"^(?:Multi(?:Device)?)?Iterator\w*GetNext\w*::DoCompute|^IteratorGetNext")
PYTHON_FUNCTION = re.compile(r"(?:^|:)(?:Eager)?PyFunc(?:Stateless)?(?::|$)")
# Background stages; what the recording shows of their inputs comes first (`tf_data`).
BACKGROUND = re.compile(r"^(?:Prefetch|Parallel|MapAndBatch|DataService|LegacyParallel)")
# Stages whose inputs work side by side, one per element of the cycle.
INTERLEAVE = re.compile(r"Interleave")

_INDEX = re.compile(r"\[(\d+)\]$")
# Stages with a fixed number of inputs, which stay apart; other indices count files, epochs and the like.
_FIXED_INPUTS = re.compile(r"^(?:Zip|Concatenate|DirectedInterleave|SampleFromDatasets|ChooseFromDatasets)")
_MAX_INPUTS = 16
# Iterators that the same stage uses inside.
_SAME_STAGE = {"MemoryCacheImpl": "MemoryCache", "FileCacheImpl": "FileCache"}

_ROLES: tuple[tuple[StageRole, re.Pattern[str]], ...] = (
    ("glue", re.compile(
        r"^(?:Root|Model|Options|MaxIntraOpParallelism|PrivateThreadPool|AutoShard|Assert\w+|Finite\w+|ForeverRepeat"
        r"|Repeat|Take|Skip|Zip|Enumerate|Identity|Shard|BytesProduced\w*|LatencyAllEdges|SetStatsAggregator)"
        r"(?:V\d)?$")),
    ("python", re.compile(r"^Generator")),
    ("remote", re.compile(r"^DataService")),
    ("prefetch", re.compile(r"^Prefetch")),
    ("shuffle", re.compile(r"^Shuffle")),
    ("cache", re.compile(r"Cache")),
    ("map", re.compile(r"^(?:Parallel)?(?:Map|Filter|Scan)|^(?:Parallel)?ParseExample|^MapAndBatch|Predicate")),
    ("batch", re.compile(r"Batch|^Window|^GroupBy|^Rebatch|^Ragged|^Unbatch")),
    ("read", re.compile(
        r"TFRecord|TextLine|FixedLength|SSTable|RecordIO|LMDB|Parquet|Csv|CSV|Avro|Arrow|Snapshot|Files?$|Interleave"
        r"|^FlatMap|Bigtable|BigQuery|Sql")),
)  # fmt: skip


def path_of(name: str) -> Path:
    """The stage that an iterator's event belongs to: ``Iterator::Root::Map[2]::Range`` is (Root, Map, Range)."""
    parts = []
    for part in name[len(ITERATOR) :].split("::"):
        found = _INDEX.search(part)
        if found:
            bare = part[: found.start()]
            part = part if _FIXED_INPUTS.match(bare) and int(found.group(1)) < _MAX_INPUTS else bare
        parts.append(_SAME_STAGE.get(part, part))
    return tuple(parts)


def parent_path(path: Path) -> Path:
    """The stage that takes a stage's elements; () for the first one."""
    if len(path) < 2:
        return ()
    return (*path[:-2], _INDEX.sub("", path[-2]))


def role_of(path: Path) -> StageRole:
    """What kind of work a stage does."""
    name = path[-1]
    if name.startswith("Generator") and not any(part.startswith("FlatMap") for part in path):
        return "feed"  # Dataset.from_generator always stands in a FlatMap; this one asks a MultiDeviceIterator
    return next((role for role, pattern in _ROLES if pattern.search(name)), "other")
