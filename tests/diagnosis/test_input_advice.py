"""What the finding about input says of the stage that sets the pace, and the advice that fits it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage, StageRole
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.input_advice import FULL_HOST, LEAST_BLAME
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.texts import text
from tests.diagnosis.build import MS, profile
from tests.hosts import AnalysedFile, diagnosed

WALL = 1_000 * MS  # ten steps of 100 ms


def made_stage(role: StageRole = "map", **given: object) -> InputStage:
    """A stage that works all the time, four milliseconds per element."""
    usual = InputStage(
        name="ParallelMapV2", path="Root::Prefetch::BatchV2::ParallelMapV2", role=role, calls=250, busy=WALL,
        wall=WALL, per_element=4.0 * MS, parallelism=1, concurrency=1, autotuned=False, buffer=None, background=True,
        threads=(0,), waited=0, utilization=1.0, calls_python=False,
    )  # fmt: skip
    return replace(usual, **given)  # type: ignore[arg-type]


PREFETCH = made_stage(
    "prefetch", name="Prefetch", path="Root::Prefetch", busy=0, parallelism=None, autotuned=None, buffer=2
)


def made_pipeline(slow: InputStage, waited: tuple[float, ...] = (0.3, 0.3), **given: object) -> InputPipeline:
    usual = InputPipeline(
        source="tf_data", start=0, end=WALL, stages=(PREFETCH, slow), limiting=1, fetches=10, fetch_time=300 * MS,
        consumers=(0,), element_bytes=3 << 20, prefetched=True, cpu_budget=8, cpu_share=0.2,
        waited=tuple(round(share * WALL) for share in waited),
    )  # fmt: skip
    return replace(usual, **given)  # type: ignore[arg-type]


def with_pipelines(*pipelines: InputPipeline, label: str = "worker0") -> AnalysedFile:
    """Two GPUs that wait for input during 30 % of the window."""
    made = profile(2, idle={Cause.INPUT: 0.3}, label=label)
    return replace(made, analysis=replace(made.analysis, pipelines=pipelines))


def finding_of(*pipelines: InputPipeline) -> Finding:
    (found,) = [f for f in diagnosed([with_pipelines(*pipelines)]).findings if f.kind == "input_bound"]
    return found


def advice_of(found: Finding) -> list[str]:
    assert found.check.key == "findings.input_bound.check"
    return [phrase.key.rsplit(".", 1)[1] for phrase in found.advice]


def said_of(found: Finding) -> list[str]:
    return [p.key.rsplit(".", 1)[1] for p in found.explanation if p.key.startswith("findings.input_bound.stage.")]


def test_the_slow_stage_is_named_with_its_numbers() -> None:
    found = finding_of(made_pipeline(made_stage()))
    assert said_of(found) == ["fixed", "fetch_bytes", "buffer"]
    words = " ".join(text(p.key, "en", **p.params) for p in found.explanation)
    assert "The stage ParallelMapV2 sets the pace: 4.00\N{NO-BREAK SPACE}ms per element, 1 at a time" in words
    assert "A batch of 3.0\N{NO-BREAK SPACE}MiB arrives 30.0\N{NO-BREAK SPACE}ms after it is asked for" in words
    assert "A prefetch buffer of 2 stands in front of ParallelMapV2" in words
    assert advice_of(found) == ["stage_map", "cache_tf_data", "measure_tf_data", "fewer_bytes"]
    assert "num_parallel_calls=tf.data.AUTOTUNE" in text(found.advice[0].key, "es", **found.advice[0].params)


@pytest.mark.parametrize(
    ("stage", "pipeline", "said", "advice"),
    [
        ({"autotuned": True, "parallelism": 8}, {}, "autotuned", ["cheaper_map", "cache_tf_data"]),
        ({"parallelism": 8}, {}, "fixed", ["cheaper_map", "cache_tf_data"]),
        ({"parallelism": 4}, {"cpu_share": FULL_HOST}, "fixed", ["cheaper_map", "data_service", "cache_tf_data"]),
        ({"parallelism": 4}, {"cpu_share": FULL_HOST - 0.01}, "fixed", ["stage_map", "cache_tf_data"]),
        ({"parallelism": None, "autotuned": None}, {"cpu_budget": None, "cpu_share": None}, "seen",
         ["stage_map", "cache_tf_data"]),
        ({"parallelism": 2, "autotuned": None}, {}, "seen", ["stage_map", "cache_tf_data"]),
        ({"name": "Map", "parallelism": None, "autotuned": None, "background": False}, {"prefetched": False}, "serial",
         ["prefetch_tf_data", "stage_map", "cache_tf_data"]),
        ({"calls_python": True}, {"cpu_share": 0.99}, "fixed", ["python_map", "cache_tf_data"]),
        ({"role": "python", "name": "Generator", "calls_python": True, "background": False, "parallelism": None,
          "autotuned": None}, {}, "serial", ["generator", "cache_tf_data"]),
        ({"role": "read", "name": "TFRecord", "background": False, "parallelism": None, "autotuned": None}, {},
         "serial", ["stage_read", "cache_tf_data"]),
        ({"role": "batch", "name": "BatchV2", "background": False, "parallelism": None, "autotuned": None}, {},
         "serial", ["stage_batch"]),
        ({"role": "shuffle", "name": "Shuffle", "background": False, "parallelism": None, "autotuned": None}, {},
         "serial", ["stage_shuffle"]),
        ({"role": "remote", "name": "DataServiceDatasetV3", "parallelism": None, "autotuned": None}, {}, "seen",
         ["remote_workers"]),
        ({"role": "other", "name": "Range", "parallelism": None, "autotuned": None}, {}, "seen",
         ["parallel_map_tf_data"]),
        ({"role": "prefetch", "name": "Prefetch", "per_element": None}, {}, "unseen", ["parallel_map_tf_data"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lang", ["en", "es"])
def test_each_kind_of_stage_has_its_advice(
    stage: dict[str, object], pipeline: dict[str, object], said: str, advice: list[str], lang: str
) -> None:
    slow = made_stage(**stage)  # type: ignore[arg-type]
    found = finding_of(made_pipeline(slow, **pipeline))  # type: ignore[arg-type]
    assert said_of(found)[0] == said
    assert advice_of(found) == [*advice, "measure_tf_data", "fewer_bytes"]
    assert ("calls_python" in said_of(found)) == slow.calls_python
    assert ("no_prefetch" in said_of(found)) == (pipeline.get("prefetched") is False)
    words = [text(p.key, lang, **p.params) for p in (*found.explanation, *found.advice)]
    assert any(slow.name in sentence for sentence in words)
    assert not any("unknown" in s or "desconocido" in s for s in words)


def test_a_python_loader_gets_the_advice_of_its_framework() -> None:
    loader = made_stage("python", name="$data_loader.py:30 __next__", calls_python=True, background=False)
    alone = made_pipeline(
        loader, source="python", stages=(loader,), limiting=0, prefetched=False, cpu_budget=None, cpu_share=None
    )
    found = finding_of(alone)
    assert said_of(found) == ["loader", "no_prefetch"]
    assert "workers_jax" in advice_of(found) or "prefetch_tf_data" in advice_of(found)
    assert any("$data_loader.py:30 __next__" in text(p.key, "en", **p.params) for p in found.explanation)


def test_the_pipeline_that_was_waited_for_is_blamed() -> None:
    slow = made_pipeline(made_stage(name="Slow"), (0.2, 0.2))
    other = made_pipeline(made_stage(name="Other"), (0.1, 0.1))
    found = finding_of(other, slow)
    assert {p.params["stage"] for p in found.explanation if "stage" in p.params} == {"Slow"}


@pytest.mark.parametrize(("part", "blamed"), [(LEAST_BLAME, True), (LEAST_BLAME - 0.01, False), (0.0, False)])
def test_a_pipeline_that_nobody_waited_for_is_not_blamed(part: float, blamed: bool) -> None:
    found = finding_of(made_pipeline(made_stage(), (0.3 * part, 0.3 * part)))
    assert bool(said_of(found)) == blamed
    assert ("stage_map" in advice_of(found)) == blamed


def test_without_a_slowest_stage_the_advice_is_general() -> None:
    found = finding_of(made_pipeline(made_stage(), limiting=None))
    assert said_of(found) == [] and "stage_map" not in advice_of(found) and len(found.advice) >= 3


def test_each_host_has_its_own_pipeline() -> None:
    fast = with_pipelines(made_pipeline(made_stage(name="Fast"), (0.1, 0.1)), label="worker0")
    slow = with_pipelines(made_pipeline(made_stage(name="Slow"), (0.3, 0.3)), label="worker1")
    (found,) = [f for f in diagnosed([fast, slow]).findings if f.kind == "input_bound"]
    assert {p.params["stage"] for p in found.explanation if "stage" in p.params} == {"Slow"}
