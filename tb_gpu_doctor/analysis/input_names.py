"""Names of tf.data's iterators and events, as tables: where a stage stands and what kind of work it does."""

from __future__ import annotations

import re

from tb_gpu_doctor.analysis.input_results import StageRole

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
