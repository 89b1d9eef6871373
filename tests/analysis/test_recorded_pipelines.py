"""Pipelines as TensorFlow itself records them: the planted slow stage is named, and the stats are as written."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.input_stages import InputPipeline
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.analysis.recorded_pipelines import BATCH, SLEEP_S, STEPS
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

PS_PER_S = 10**12


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Profiles of the pipelines, recorded now."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    folder = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, "-m", "tests.analysis.recorded_pipelines", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    return folder


def file_of(folder: Path, name: str) -> Path:
    (path,) = (folder / name).rglob("*.xplane.pb")
    return path


def pipeline_of(folder: Path, name: str) -> InputPipeline:
    """The one pipeline of a profile without GPUs: analysed over the recorded time."""
    analysis = analyse(read_xplane(str(file_of(folder, name))))
    assert analysis.window is None
    (found,) = analysis.pipelines
    assert (found.start, found.end) == analysis.recorded
    return found


@pytest.mark.parametrize(
    ("name", "stages", "calls_python", "prefetched"),
    [
        ("python_map", {"MapAndBatch"}, True, True),
        ("heavy_map", {"MapAndBatch"}, False, True),
        ("autotuned_map", {"MapAndBatch"}, False, True),
        ("generator", {"Generator"}, True, True),  # TensorFlow adds a prefetch by itself
        ("in_the_loop", {"Generator"}, True, False),
        ("reader", {"TFRecord", "FlatMap"}, False, True),
    ],
)
def test_the_planted_slow_stage_limits(
    recorded: Path, name: str, stages: set[str], calls_python: bool, prefetched: bool
) -> None:
    pipeline = pipeline_of(recorded, name)
    slow = pipeline.slowest
    assert slow is not None and slow.name in stages, [(s.path, s.utilization) for s in pipeline.stages]
    assert slow.calls_python == calls_python and pipeline.prefetched == prefetched
    assert pipeline.fetches == STEPS and pipeline.fetch_time > 0
    assert pipeline.element_bytes == BATCH * {"python_map": 8, "generator": 8, "in_the_loop": 8}.get(name, 4)
    assert slow.utilization == max(s.utilization for s in pipeline.stages)


def test_settings_are_those_of_the_program(recorded: Path) -> None:
    heavy, auto = (pipeline_of(recorded, name) for name in ("heavy_map", "autotuned_map"))
    assert heavy.slowest is not None and auto.slowest is not None
    assert (heavy.slowest.parallelism, heavy.slowest.autotuned) == (1, False)
    assert auto.slowest.autotuned and (auto.slowest.parallelism or 0) >= 1
    assert [s.buffer for s in heavy.stages if s.role == "prefetch"] == [2]
    assert heavy.cpu_budget is not None and heavy.cpu_budget >= 1


def test_the_time_of_an_element_is_at_least_the_planted_one(recorded: Path) -> None:
    for name in ("python_map", "generator"):
        slow = pipeline_of(recorded, name).slowest
        assert slow is not None and slow.per_element is not None
        # A loaded machine sleeps longer, never shorter.
        assert SLEEP_S <= slow.per_element / PS_PER_S < 10 * SLEEP_S
        assert slow.busy <= 1.1 * slow.calls * slow.per_element + slow.per_element


def test_stats_equal_those_that_tensorflow_reads(recorded: Path) -> None:
    schema = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    for name in ("heavy_map", "reader"):
        space = schema.XSpace()
        space.ParseFromString(file_of(recorded, name).read_bytes())
        told: dict[str, list[tuple[str, int | str]]] = defaultdict(list)
        for plane in space.planes:
            if not plane.name.startswith("/host:CPU"):
                continue
            names = {key: value.name for key, value in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    text = plane.event_metadata[event.metadata_id].name
                    for stat in event.stats:
                        kind = stat.WhichOneof("value")
                        value = getattr(stat, kind)
                        if kind == "ref_value":
                            value = names[value]
                        elif kind == "uint64_value" and value >= 1 << 63:
                            value -= 1 << 64
                        told[names[stat.metadata_id]].append((text, value))
        trace = read_xplane(str(file_of(recorded, name)))
        assert {"id", "parent_id", "parallelism", "element_size", "cpu_budget"} <= set(trace.host_stats)
        told["traced"] = [(text, 1) for text, how in told["tf_function_call"] if str(how).startswith("traced")]
        for stat_name, found in trace.host_stats.items():
            texts = [trace.strings[int(i)] for i in trace.host_events.name[found.rows]]
            values = [trace.strings[int(v)] if stat_name == "autotune" else int(v) for v in found.values]
            kind_of_value = str if stat_name == "autotune" else int
            expected = [
                pair
                for pair in told[stat_name]
                if isinstance(pair[1], kind_of_value)
                and (
                    stat_name in ("tracing_count", "traced")  # of calls of a tf.function; the others are tf.data's
                    or pair[0].startswith(("Iterator", "InstantiatedCapturedFunction::", "Executor", "MultiDevice"))
                )
            ]
            assert sorted(zip(texts, values, strict=True)) == sorted(expected), stat_name  # type: ignore[type-var]
