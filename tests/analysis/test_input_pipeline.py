"""Input pipelines: stages, own time, the one that limits, and whether GPUs waited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.models import resnet
from simulator.scenarios import SimulatedRun, input_bound, new_devices, new_simulation, slow_gpu, tf_run
from simulator.tf_input import InputSpec
from simulator.tf_program import TfRun
from simulator.truth import Truth
from tb_gpu_doctor.analysis import input_stages
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.callers import causality
from tb_gpu_doctor.analysis.idle import no_gaps
from tb_gpu_doctor.analysis.input_pipeline import find_pipelines
from tb_gpu_doctor.analysis.results import Cause, Gaps
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.analysis.pipelines import DONE, PROCESS, RUN, RUN_ASYNC, InputRecorder, stage
from tests.analysis.small_traces import US
from tests.real_traces import XPLANE_FOLDERS, real_trace

# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Iterator::Root", ("Root",)),
        ("Iterator::Prefetch::Generator", ("Prefetch", "Generator")),
        (
            "Iterator::Root::ParallelInterleaveV4[7]::FlatMap[0]::TFRecord",
            ("Root", "ParallelInterleaveV4", "FlatMap", "TFRecord"),
        ),
        ("Iterator::Root::Zip[1]::Map", ("Root", "Zip[1]", "Map")),
        (
            "Iterator::Root::ForeverRepeat[3]::MemoryCacheImpl::Map",
            ("Root", "ForeverRepeat", "MemoryCache", "Map"),
        ),
        ("Iterator::Root::Zip[99]::Map", ("Root", "Zip", "Map")),
    ],
)
def test_a_name_tells_the_path(name: str, path: tuple[str, ...]) -> None:
    assert input_stages.path_of(name) == path


def test_the_consumer_of_a_stage() -> None:
    assert input_stages.parent_path(("Root", "Zip[1]", "Map")) == ("Root", "Zip")
    assert input_stages.parent_path(("Root", "Map")) == ("Root",)
    assert input_stages.parent_path(("Root",)) == ()


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("Root", "glue"), ("Model", "glue"), ("ForeverRepeat", "glue"), ("FiniteTake", "glue"), ("Zip", "glue"),
        ("Map", "map"), ("ParallelMapV2", "map"), ("MapAndBatch", "map"), ("Filter", "map"),
        ("BatchV2", "batch"), ("ParallelBatch", "batch"), ("PaddedBatchV2", "batch"), ("Rebatch", "batch"),
        ("Prefetch", "prefetch"), ("Shuffle", "shuffle"), ("ShuffleAndRepeat", "shuffle"), ("MemoryCache", "cache"),
        ("TFRecord", "read"), ("ParallelInterleaveV4", "read"), ("FlatMap", "read"), ("TextLine", "read"),
        ("DataServiceDatasetV2", "remote"), ("Range", "other"), ("TensorSlice", "other"),
        ("Prefetch::Generator", "feed"), ("BatchV2::FlatMap::Generator", "python"),
    ],
)  # fmt: skip
def test_the_role_of_a_stage(path: str, role: str) -> None:
    assert input_stages.role_of(tuple(path.split("::"))) == role


# -- one thread ------------------------------------------------------------------------------------


def in_the_loop() -> InputRecorder:
    """map and batch in the training thread: nothing prefetches. Two batches of two elements."""
    made = InputRecorder(gpus=0)
    for at in (0, 100):
        made.on("python", "IteratorGetNextOp::DoCompute", at, at + 60, element_size=4096 + at)
        made.iterator("python", "Root", at + 1, at + 59)
        made.iterator("python", "Root::BatchV2", at + 2, at + 58)
        for element in (at + 3, at + 30):
            made.iterator("python", "Root::BatchV2::Map", element, element + 25)
            made.iterator("python", "Root::BatchV2::Map::TFRecord", element, element + 5)
    return made


def test_a_stage_costs_its_own_time_only() -> None:
    (pipeline,) = in_the_loop().pipelines()
    assert [s.path for s in pipeline.stages] == [
        "Root", "Root::BatchV2", "Root::BatchV2::Map", "Root::BatchV2::Map::TFRecord",
    ]  # fmt: skip
    root, batch, mapped, reader = pipeline.stages
    assert (root.busy, batch.busy, mapped.busy, reader.busy) == (4 * US, 12 * US, 80 * US, 20 * US)
    assert (root.calls, batch.calls, mapped.calls, reader.calls) == (2, 2, 4, 4)
    assert mapped.per_element == 20 * US and reader.per_element == 5 * US
    assert all(not s.background and s.waited == 0 for s in pipeline.stages)
    assert pipeline.slowest is mapped and not pipeline.prefetched
    assert (pipeline.fetches, pipeline.fetch_time) == (2, 120 * US)
    assert pipeline.element_bytes == 4146  # the median
    assert mapped.utilization == pytest.approx(80 / 160)


def test_only_the_stretch_counts() -> None:
    (pipeline,) = in_the_loop().pipelines(90, 150)
    mapped = stage(pipeline, "Root::BatchV2::Map")
    # [108, 128) of the first element, [135, 150) of the second
    assert (mapped.busy, mapped.calls, pipeline.fetches) == (35 * US, 2, 1)
    assert mapped.per_element == 20 * US  # an element that began in it counts as a whole
    assert pipeline.fetch_time == 50 * US


@st.composite
def nests(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """(thread, start, end, depth): properly nested events of a pipeline of four stages."""
    found: list[tuple[int, int, int, int]] = []

    def fill(thread: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and depth < 4 and draw(st.booleans()):
            start = draw(st.integers(at, high))
            end = draw(st.integers(start, high))
            found.append((thread, start, end, depth))
            fill(thread, start, end, depth + 1)
            at = end + 1

    for thread in range(draw(st.integers(1, 3))):
        fill(thread, 0, 30, 0)
    return found


NAMES = ("Root", "BatchV2", "Map", "TFRecord")


@given(nests(), st.integers(0, 20), st.integers(1, 20))
def test_own_time_is_what_a_sweep_finds(events: list[tuple[int, int, int, int]], low: int, length: int) -> None:
    made = InputRecorder(gpus=0, unit=1)
    for thread, start, end, depth in events:
        made.iterator(f"thread {thread}", "::".join(NAMES[: depth + 1]), start, end)
    if not events:
        return
    high = low + length
    busy, walls = [0] * 4, [set() for _ in range(4)]  # type: ignore[var-annotated]
    for instant in range(low, high):
        for thread in {e[0] for e in events}:
            running = [e for e in events if e[0] == thread and e[1] <= instant < e[2]]
            if running:
                depth = max(e[3] for e in running)
                busy[depth] += 1
                walls[depth].add(instant)
    (pipeline,) = made.pipelines(low, high)
    for at, found in enumerate(pipeline.stages):
        assert (found.busy, found.wall) == (busy[at], len(walls[at])), found.path
        assert found.calls == sum(1 for e in events if e[3] == at and low <= e[1] < high)


# -- background stages -----------------------------------------------------------------------------


def parallel_map(parallelism: int, call_us: int, *, read_us: int = 2, batch_us: int = 4, elements: int = 12,
                 recorded: bool = True) -> InputRecorder:  # fmt: skip
    """Prefetch, batch, ParallelMap, reader, each on the threads that TensorFlow uses; the map's calls in
    ``parallelism`` lanes of the pool."""
    made = InputRecorder(gpus=0)
    free = [0.0] * parallelism
    reader = 0.0
    done: list[float] = []
    stats = {"parallelism": parallelism, "autotune": "false"} if recorded else {}
    for element in range(elements):
        lane = min(range(parallelism), key=free.__getitem__)
        start = max(reader, free[lane] - read_us)
        made.on("runner", "ParallelMapProduce", start, start + read_us + 1)
        made.iterator("runner", "Root::Prefetch::BatchV2::ParallelMapV2::TFRecord", start, start + read_us)
        made.on("runner", RUN_ASYNC, start + read_us, start + read_us + 1, id=-1_000 - element)
        reader = start + read_us + 1
        begin = max(reader, free[lane])
        made.on(f"pool/{lane}", PROCESS, begin, begin + call_us - 1, id=-1_000 - element)
        made.on(f"pool/{lane}", DONE, begin + call_us - 1, begin + call_us, id=-1_000 - element)
        free[lane] = begin + call_us
        done.append(free[lane])
    at = 0.0
    for first in range(0, elements, 4):
        end = max(max(done[first : first + 4]), at) + batch_us
        made.on("prefetcher", "PrefetchProduce", at, end)
        made.iterator("prefetcher", "Root::Prefetch::BatchV2", at, end)
        for element in range(first, first + 4):
            until = max(done[element], at)
            path = "Root::Prefetch::BatchV2::ParallelMapV2"
            made.iterator("prefetcher", path, at, until, **stats)  # type: ignore[arg-type]
            at = until
        made.on("getter", "IteratorGetNextOp::DoCompute", at, end)
        made.iterator("getter", "Root", at, end, cpu_budget=4)
        made.iterator("getter", "Root::Prefetch", at, end, buffer_limit=2, autotune="true")
        at = end
    return made


def test_a_background_stage_costs_what_its_calls_take() -> None:
    (pipeline,) = parallel_map(1, 50).pipelines()
    slow = pipeline.slowest
    assert slow is not None and slow.name == "ParallelMapV2"
    assert (slow.calls, slow.per_element, slow.busy) == (12, 50 * US, 600 * US)
    assert (slow.parallelism, slow.concurrency, slow.at_once, slow.autotuned) == (1, 1, 1, False)
    assert slow.background and slow.waited > 500 * US and slow.utilization > 0.95
    assert pipeline.prefetched
    prefetch = stage(pipeline, "Root::Prefetch")
    assert (prefetch.buffer, prefetch.autotuned, prefetch.background) == (2, True, True)
    batch = stage(pipeline, "Root::Prefetch::BatchV2")
    assert (batch.busy, batch.background) == (12 * US, False)
    reader = stage(pipeline, "Root::Prefetch::BatchV2::ParallelMapV2::TFRecord")
    assert (reader.busy, reader.per_element) == (24 * US, 2 * US)
    assert pipeline.cpu_budget == 4
    work = sum(s.busy for s in pipeline.stages) + 12 * US  # and what starting the calls costs
    assert pipeline.cpu_share == pytest.approx(work / 4 / (pipeline.end - pipeline.start))


def test_more_at_once_make_a_stage_faster() -> None:
    (pipeline,) = parallel_map(4, 50, read_us=30).pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.name == "TFRecord"  # 30 + 1 against 50 / 4
    mapped = stage(pipeline, "Root::Prefetch::BatchV2::ParallelMapV2")
    assert mapped.parallelism == 4 and mapped.utilization == pytest.approx(600 / 4 / (12 * 31 + 50), rel=0.15)


def test_a_slow_batch_is_named() -> None:
    (pipeline,) = parallel_map(4, 20, batch_us=300).pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.name == "BatchV2"


def test_parallelism_that_is_not_recorded_is_what_was_seen() -> None:
    (pipeline,) = parallel_map(3, 50, recorded=False).pipelines()
    mapped = stage(pipeline, "Root::Prefetch::BatchV2::ParallelMapV2")
    assert mapped.parallelism is None and mapped.autotuned is None
    assert mapped.concurrency == mapped.at_once == 3


def test_parallelism_is_the_last_known_one() -> None:
    made = in_the_loop()
    for at, value in ((0, 1), (10, 3), (20, 2)):
        made.iterator("other", "Root::ParallelMapV2", at, at + 5, parallelism=value, autotune="true")
    made.iterator("other", "Root::ParallelMapV2", 30, 35, autotune="true")  # "unavailable" at that moment
    found = [s for p in made.pipelines() for s in p.stages if s.name == "ParallelMapV2"]
    assert [(s.parallelism, s.autotuned) for s in found] == [(2, True)]


def test_negative_settings_are_none() -> None:
    record = InputRecorder()
    given = {"parallelism": -(1 << 63) + 1, "buffer_limit": -5, "cpu_budget": -7, "element_size": -9}
    record.iterator("python", "Root::ParallelMapV2", 0, 10, id=2, parent_id=1, **given)
    record.iterator("python", "Root", 0, 20, id=1, parent_id=0, **given)
    (pipeline,) = record.pipelines()
    mapped = stage(pipeline, "Root::ParallelMapV2")
    assert (mapped.parallelism, mapped.buffer, pipeline.cpu_budget, pipeline.element_bytes) == (None,) * 4


def test_a_generator_sets_the_pace() -> None:
    made = InputRecorder(gpus=0)
    for at in range(0, 400, 40):
        made.on("resource", "PrefetchProduce", at, at + 40)
        made.iterator("resource", "Root::Prefetch::FlatMap", at, at + 39)
        made.iterator("resource", "Root::Prefetch::FlatMap[0]::Generator", at + 1, at + 38)
        made.on("resource", RUN, at + 2, at + 37, id=at + 5)
        made.on("pool", PROCESS, at + 3, at + 36, id=at + 5)
        made.on("pool", "PyFunc:PyFunc", at + 4, at + 35)
        made.on("getter", "IteratorGetNextOp::DoCompute", at, at + 40)
        made.iterator("getter", "Root", at, at + 40)
        made.iterator("getter", "Root::Prefetch", at, at + 40)
    (pipeline,) = made.pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.name == "Generator"
    assert pipeline.slowest.calls_python and pipeline.slowest.role == "python"
    assert pipeline.slowest.per_element == 37 * US  # the call on the pool is not counted again


def test_starting_a_generator_is_no_stage_of_its_own() -> None:
    made = InputRecorder(gpus=0)
    made.iterator("resource", "Root::FlatMap", 0, 500)  # runs the Python that makes the generator
    for at in range(0, 200, 40):
        made.iterator("resource", "Root::FlatMap", 500 + at, 540 + at)
        made.iterator("resource", "Root::FlatMap[0]::Generator", 501 + at, 539 + at)
    made.iterator("getter", "Root", 0, 700)
    (pipeline,) = made.pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.name == "Generator"


def test_python_inside_a_map_is_noticed() -> None:
    made = parallel_map(2, 50)
    assert not any(s.calls_python for s in made.pipelines()[0].stages)
    first = next(row for row in made.host_rows if row["name"] == made.names[PROCESS])
    start = first["start"] / US
    made.on(made.threads[first["thread"]], "EagerPyFunc:EagerPyFunc", start, start + 5)
    assert [s.name for s in made.pipelines()[0].stages if s.calls_python] == ["ParallelMapV2"]


def test_files_of_an_interleave_are_one_stage() -> None:
    made = InputRecorder(gpus=0)
    for at in range(0, 200, 20):
        for file in range(2):
            made.on(f"pool/{file}", "ParallelInterleaveProduce", at, at + 20)
            path = f"Root::Prefetch::ParallelInterleaveV4[{file}]::FlatMap"
            made.iterator(f"pool/{file}", path, at, at + 20)
            made.iterator(f"pool/{file}", f"{path}[0]::TFRecord", at + 1, at + 20)
        made.on("resource", "PrefetchProduce", at, at + 20)
        made.iterator("resource", "Root::Prefetch::ParallelInterleaveV4", at, at + 20, parallelism=2)
        made.iterator("getter", "Root", at, at + 20)
        made.iterator("getter", "Root::Prefetch", at, at + 20)
    (pipeline,) = made.pipelines()
    reader = stage(pipeline, "Root::Prefetch::ParallelInterleaveV4::FlatMap::TFRecord")
    assert (reader.calls, reader.concurrency, len(reader.threads)) == (20, 2, 2)
    assert pipeline.slowest is reader and reader.utilization == pytest.approx(0.95)
    assert reader.busy == 2 * reader.wall == 380 * US


def test_what_a_prefetch_waits_for_may_not_be_recorded() -> None:
    made = InputRecorder(gpus=0)
    made.iterator("getter", "Root", 0, 100)
    made.iterator("getter", "Root::Prefetch", 0, 100)
    (pipeline,) = made.pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.name == "Prefetch"
    assert pipeline.slowest.waited == 100 * US and pipeline.slowest.busy == 0
    assert pipeline.slowest.calls == 1 and pipeline.slowest.per_element is None


def test_a_data_service_works_elsewhere() -> None:
    made = InputRecorder(gpus=0)
    for at in range(0, 100, 10):
        made.on("resource", "PrefetchProduce", at, at + 10)
        made.iterator("resource", "Root::Prefetch::DataServiceDatasetV3", at, at + 9)
        made.iterator("getter", "Root", at, at + 10)
        made.iterator("getter", "Root::Prefetch", at, at + 10)
    (pipeline,) = made.pipelines()
    assert pipeline.slowest is not None and pipeline.slowest.role == "remote"
    assert pipeline.slowest.background and pipeline.slowest.per_element == 9 * US


# -- which events belong together ------------------------------------------------------------------


def tree(made: InputRecorder, thread: str, at: float, ids: dict[str, int]) -> None:
    """Nested events of a chain of stages given as path: id."""
    above = {}
    for depth, (path, ident) in enumerate(ids.items()):
        made.iterator(thread, path, at + depth, at + 20 - depth, id=ident, **above)
        above = {"parent_id": ident}


def test_pipelines_that_look_alike_at_the_head_are_told_apart_by_ids() -> None:
    made = InputRecorder(gpus=0)
    tree(made, "a", 0, {"Root": 1, "Root::Prefetch": 2, "Root::Prefetch::Map": 3})
    tree(made, "b", 100, {"Root": 11, "Root::Prefetch": 12, "Root::Prefetch::BatchV2": 13})
    found = {tuple(s.path for s in p.stages) for p in made.pipelines()}
    assert found == {
        ("Root", "Root::Prefetch", "Root::Prefetch::Map"),
        ("Root", "Root::Prefetch", "Root::Prefetch::BatchV2"),
    }


def test_the_next_epoch_is_the_same_pipeline() -> None:
    made = InputRecorder(gpus=0)
    tree(made, "a", 0, {"Root": 1, "Root::Prefetch": 2, "Root::Prefetch::Map": 3})
    tree(made, "a", 100, {"Root": -7, "Root::Prefetch": -8, "Root::Prefetch::Map": -9})
    (pipeline,) = made.pipelines()
    assert [s.calls for s in pipeline.stages] == [2, 2, 2]


def test_parts_whose_head_was_cut_off_find_their_pipeline() -> None:
    made = InputRecorder(gpus=0)
    tree(made, "a", 0, {"Root": 1, "Root::Prefetch": 2})
    # its parent, 3, was still running when the recording ended
    made.iterator("b", "Root::Prefetch::BatchV2::Map", 10, 30, id=4, parent_id=3)
    (pipeline,) = made.pipelines()
    assert [(s.path, s.calls) for s in pipeline.stages] == [
        ("Root", 1), ("Root::Prefetch", 1), ("Root::Prefetch::BatchV2", 0), ("Root::Prefetch::BatchV2::Map", 1),
    ]  # fmt: skip


def test_the_gpus_own_prefetch_joins_the_pipeline_of_the_host() -> None:
    made = InputRecorder(gpus=2)
    for gpu in range(2):
        made.on(f"getter/{gpu}", "IteratorGetNextAsOptionalOp::DoCompute", 0, 90)
        made.iterator(f"getter/{gpu}", "Root", 1, 89, id=10 + gpu)
        made.iterator(f"getter/{gpu}", "Root::Prefetch", 2, 88, id=20 + gpu, parent_id=10 + gpu, buffer_limit=1)
        made.on(f"resource/{gpu}", "PrefetchProduce", 2, 87)
        made.iterator(f"resource/{gpu}", "Root::Prefetch::Generator", 3, 86, id=30 + gpu, parent_id=20 + gpu)
    made.iterator("multi", "Root", 4, 80, id=1)
    made.iterator("multi", "Root::Map", 5, 79, id=2, parent_id=1)
    (pipeline,) = made.pipelines()
    assert [s.path for s in pipeline.stages] == [
        "Root", "Root::Prefetch", "Root::Prefetch::Generator", "Root", "Root::Map",
    ]  # fmt: skip
    assert pipeline.slowest is not None and pipeline.slowest.path == "Root::Map"
    assert pipeline.fetches == 2 and pipeline.prefetched


def test_a_gpus_own_prefetch_alone_blames_nobody() -> None:
    made = InputRecorder(gpus=1)
    made.iterator("getter", "Prefetch", 0, 90, id=1)
    made.on("resource", "PrefetchProduce", 0, 90)
    made.iterator("resource", "Prefetch::Generator", 0, 90, id=2, parent_id=1)
    (pipeline,) = made.pipelines()
    assert pipeline.limiting is None and pipeline.slowest is None


def test_names_that_no_tf_data_wrote_cost_little() -> None:
    made = InputRecorder(gpus=0, unit=1)
    for at in range(3_000):
        made.iterator("a", f"Root::Stage{at}", at, at + 1, id=at, parent_id=5_000 + at)
    made.iterator("a", "::".join(["Deep"] * 5_000), 4_000, 4_001)
    made.iterator("a", "", 4_002, 4_003)
    assert sum(len(p.stages) for p in made.pipelines()) < 1_000


# -- whether GPUs waited ---------------------------------------------------------------------------


def gaps_of(spans: list[tuple[int, int, int, int]]) -> Gaps:
    """(device, start, end, charged to input) in microseconds."""
    charged = np.zeros((len(spans), len(Cause)), np.int64)
    charged[:, Cause.INPUT] = [s[3] * US for s in spans]
    charged[:, Cause.LAUNCH] = [(s[2] - s[1] - s[3]) * US for s in spans]
    none = np.full(len(spans), -1, np.int64)
    return Gaps(
        np.array([s[0] for s in spans], np.int32), np.array([s[1] * US for s in spans], np.int64),
        np.array([s[2] * US for s in spans], np.int64), none, none, none, charged,
        charged.argmax(axis=1).astype(np.uint8), none,
    )  # fmt: skip


def test_idle_time_by_input_goes_to_the_pipeline_that_was_asked() -> None:
    made = in_the_loop()  # asked in [0, 60) and [100, 160)
    made.gpus = 2
    gaps = gaps_of([(0, 10, 50, 30), (0, 120, 200, 60), (1, 60, 100, 20)])
    (pipeline,) = made.pipelines(0, 200, gaps)
    # The first gap: 30 of 40 asked. The second: 40 asked at most. The third was not asked for.
    assert pipeline.waited == ((30 + 40) * US, 0)


def test_two_pipelines_share_a_gap() -> None:
    made = InputRecorder(gpus=1)
    made.iterator("a", "Root", 0, 100, id=1)
    made.iterator("a", "Root::Map", 0, 90, id=2, parent_id=1)
    made.iterator("b", "Root", 0, 50, id=3)
    made.iterator("b", "Root::BatchV2", 0, 40, id=4, parent_id=3)
    first, second = made.pipelines(0, 100, gaps_of([(0, 0, 100, 90)]))
    assert (first.stages[1].name, first.waited, second.waited) == ("Map", (60 * US,), (30 * US,))
    assert sum(first.waited + second.waited) == 90 * US


def test_without_gaps_nobody_waited() -> None:
    assert in_the_loop().pipelines(0, 200, no_gaps())[0].waited == (0,) * 0
    assert InputRecorder(gpus=0).trace().host_stats == {}
    empty = InputRecorder(gpus=0).trace()
    assert find_pipelines(empty, None, causality(empty)) == ()
    assert find_pipelines(empty, (0, 100), causality(empty)) == ()


# -- Python loaders --------------------------------------------------------------------------------


def test_a_python_loader_is_one_stage() -> None:
    made = InputRecorder(gpus=1)
    for at in (0, 100):
        made.step("python", at, at, at + 90)
        made.call("python", "$data_loader.py:30 __next__", at, at + 40)
        made.call("python", "$data_loader.py:55 _read", at + 5, at + 35)
        made.call("python", "$builtins sleep", at + 6, at + 30)
    (pipeline,) = made.pipelines(0, 200)
    loader = pipeline.slowest
    assert loader is not None and (pipeline.source, len(pipeline.stages)) == ("python", 1)
    assert (loader.name, loader.calls, loader.per_element) == ("$data_loader.py:30 __next__", 2, 40 * US)
    assert not loader.background and loader.calls_python and not pipeline.prefetched
    assert pipeline.fetch_time == loader.busy == 80 * US


def test_a_python_loader_on_a_thread_of_its_own_works_in_the_background() -> None:
    made = InputRecorder(gpus=1)
    made.step("python", 1, 0, 100)
    made.call("Thread-3", "$data_loader.py:30 __next__", 0, 40)
    (pipeline,) = made.pipelines(0, 100)
    assert pipeline.slowest is not None and pipeline.slowest.background and pipeline.prefetched


def test_a_python_loader_around_tf_data_is_not_told_twice() -> None:
    made = in_the_loop()
    made.call("python", "$my_data.py:5 __next__", 0, 61)
    made.call("python", "$my_data.py:5 __next__", 99, 161)
    assert [p.source for p in made.pipelines()] == ["tf_data"]


# -- against the simulator and real files ----------------------------------------------------------


def simulated(run: SimulatedRun, folder: Path) -> tuple[TraceAnalysis, Truth]:
    """(analysis, truth) of a simulated run, through a file."""
    path = folder / "gpu-node-0.xplane.pb"
    path.write_bytes(run.space.encode())
    return analyse(read_xplane(str(path))), run.truth


def custom(spec: InputSpec, seed: int = 5) -> SimulatedRun:
    devices = new_devices(new_simulation(seed=seed), 2)
    run = TfRun(steps=6, plan=lambda replica: resnet(replica, scale=0.4), input=spec)
    return tf_run("custom", ("session", 1_772_442_845_123_456_789), devices, run)


@pytest.mark.slow
def test_the_simulated_slow_map_is_named_with_its_time(tmp_path: Path) -> None:
    analysis, truth = simulated(input_bound(), tmp_path)
    (pipeline,) = analysis.pipelines
    slow = pipeline.slowest
    assert slow is not None and slow.name == "ParallelMapV2" and slow.path.endswith("BatchV2::ParallelMapV2")
    assert slow.at_once == 1 and slow.utilization > 0.97
    assert slow.per_element == pytest.approx(2_900 * US, rel=0.02)
    assert stage(pipeline, slow.path + "::TFRecord").per_element == pytest.approx(45 * US, rel=0.1)
    assert analysis.window is not None
    for gpu, waited in enumerate(pipeline.waited):
        told = truth.accounting(gpu, (analysis.window.start, analysis.window.end)).idle_by_cause["input"]
        assert waited == pytest.approx(told, rel=0.02)
        assert waited <= analysis.accounting[gpu].idle_of(Cause.INPUT)


@pytest.mark.slow
def test_gpus_do_not_wait_for_a_simulated_pipeline_that_keeps_up(tmp_path: Path) -> None:
    analysis, _ = simulated(slow_gpu(), tmp_path)
    (pipeline,) = analysis.pipelines
    assert analysis.window is not None
    assert max(pipeline.waited) < 0.001 * analysis.window.length
    assert all(s.utilization < 0.2 for s in pipeline.stages)


@pytest.mark.parametrize(
    ("spec", "slowest", "at_once"),
    [
        (InputSpec(elements=16, map_us=2_000, parallelism=4), "ParallelMapV2", 4),
        (InputSpec(elements=16, map_us=200, read_us=900, parallelism=4), "TFRecord", 1),
        (InputSpec(elements=16, map_us=700, read_us=300, prefetch=False), "Map", 2),
        (InputSpec(elements=16, map_us=100, read_us=900, prefetch=False), "TFRecord", 2),
    ],
)
def test_whatever_is_slow_in_the_simulator_is_named(
    spec: InputSpec, slowest: str, at_once: int, tmp_path: Path
) -> None:
    analysis, _ = simulated(custom(spec), tmp_path)
    (pipeline,) = analysis.pipelines
    assert pipeline.slowest is not None
    assert (pipeline.slowest.name, pipeline.slowest.at_once) == (slowest, at_once)
    assert pipeline.prefetched == spec.prefetch
    assert pipeline.slowest.per_element == pytest.approx(max(spec.map_us, spec.read_us) * US, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_real_files(folder: str) -> None:
    analysis = analyse(real_trace(folder))
    assert len(analysis.pipelines) == (folder == "tf_bert_8gpu")
    for pipeline in analysis.pipelines:
        # One fetch each by GPU 4 and GPU 6, through a pipeline of their own whose rest was not recorded.
        assert [s.path for s in pipeline.stages] == ["Prefetch", "Prefetch::Generator"]
        assert (pipeline.fetches, pipeline.limiting, pipeline.stages[0].buffer) == (2, None, 1)
        assert pipeline.stages[1].per_element == pytest.approx((6_251.0 + 6_726.0) / 2 * US, rel=1e-4)


def test_a_stat_that_is_not_recorded() -> None:
    trace = in_the_loop().trace()
    bare = replace(trace, host_stats={})
    found, plain = (find_pipelines(t, (0, 160 * US), causality(t)) for t in (trace, bare))
    assert replace(found[0], element_bytes=None) == plain[0]
