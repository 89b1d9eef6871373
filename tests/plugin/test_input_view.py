"""The answer of ``input``: who takes from whom, and the numbers of the analysis in milliseconds."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from typing import Any

import pytest

from simulator.faults.cases import all_cases
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.input_stages import InputStage, StageRole
from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.plugin import input_view
from tb_gpu_doctor.plugin.input_view import input_answer, takers_of
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.traces.columns import Trace
from tests.hosts import facts_of, read_run

Answer = dict[str, Any]
CASE = "input_bound.map.medium/keras/2"


def answer_of(traces: list[Trace], analyses: list[TraceAnalysis]) -> Answer:
    hosts = [trace.host for trace in traces]
    job = analyse_job(facts_of(traces, analyses))
    answer = input_answer(traces, analyses, hosts, Timeline(traces, analyses, hosts, hosts, job.clocks))
    json.dumps(answer, allow_nan=False)
    return answer


@cache
def recorded(hosts: int = 1) -> tuple[list[Trace], list[TraceAnalysis]]:
    name = CASE if CASE in all_cases() else next(n for n in sorted(all_cases()) if n.startswith("input_bound."))
    trace = read_run(all_cases()[name].run(0))
    analysis = analyse(trace)
    # further hosts whose GPUs waited less and less
    others = [
        dataclasses.replace(
            analysis,
            pipelines=tuple(
                dataclasses.replace(p, waited=tuple(time // (host + 1) for time in p.waited))
                for p in analysis.pipelines
            ),
        )
        for host in range(hosts)
    ]
    return [dataclasses.replace(trace, host=f"host{host}") for host in range(hosts)][::-1], others[::-1]


def stage(path: str, role: StageRole = "map") -> InputStage:
    return InputStage(
        name=path.split("::")[-1], path=path, role=role, calls=1, busy=1, wall=1, per_element=1.0, parallelism=None,
        concurrency=1, autotuned=None, buffer=None, background=False, threads=(), waited=0, utilization=0.0,
        calls_python=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stages", "takers"),
    [
        ([], []),
        ([stage("Root", "glue"), stage("Root::Map"), stage("Root::Map::Range")], [[], [0], [1]]),
        # two inputs of one stage
        (
            [stage("Zip", "glue"), stage("Zip[0]::Map"), stage("Zip[0]::Map::Range"), stage("Zip[1]::Range")],
            [[], [0], [1], [0]],
        ),
        # each GPU's own stages in front of the pipeline on the host
        (
            [
                stage("Prefetch", "prefetch"), stage("Prefetch::Generator", "feed"), stage("Prefetch", "prefetch"),
                stage("Prefetch::Generator", "feed"), stage("Root", "glue"), stage("Root::Batch", "batch"),
            ],
            [[], [0], [], [2], [1, 3], [4]],
        ),
        # two pipelines' worth of roots without any feed: the training takes from both
        ([stage("Root", "glue"), stage("Root", "glue"), stage("Root::Map")], [[], [], [1]]),
        # a stage whose taker no event showed
        ([stage("Root::Batch::Map")], [[]]),
    ],
)  # fmt: skip
def test_who_takes_from_whom(stages: list[InputStage], takers: list[list[int]]) -> None:
    assert takers_of(stages) == takers


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_numbers_are_those_of_the_analysis(hosts: int) -> None:
    traces, analyses = recorded(hosts)
    answer = answer_of(traces, analyses)
    assert not answer["truncated"] and answer["pipelines"]
    flat = {(file, p.source, p.fetch_time): p for file, a in enumerate(analyses) for p in a.pipelines}
    assert len(answer["pipelines"]) == len([p for a in analyses for p in a.pipelines])
    for shown in answer["pipelines"]:
        file = [trace.host for trace in traces].index(shown["host"])
        pipeline = flat[(file, shown["source"], round(shown["fetch_ms"] * 1e9))]
        assert [s["name"] for s in shown["stages"]] == [s.name for s in pipeline.stages]
        assert shown["limiting"] == pipeline.limiting and shown["fetches"] == pipeline.fetches
        for mine, its in zip(shown["stages"], pipeline.stages, strict=True):
            assert mine["busy_ms"] * 1e9 == pytest.approx(its.busy) and mine["utilization"] == its.utilization
            assert mine["thread_count"] == len(its.threads) >= len(mine["threads"])
        for taker in (index for s in shown["stages"] for index in s["taken_by"]):
            assert 0 <= taker < len(shown["stages"])
        assert sum(one["ms"] for one in shown["waited"]) * 1e9 == pytest.approx(sum(pipeline.waited))
    waited = [sum(one["ms"] for one in p["waited"]) for p in answer["pipelines"]]
    assert waited == sorted(waited, reverse=True) and waited[0] > 0
    # no GPU waited longer for a pipeline than it was idle for input, nor longer than its window
    for gpu in answer["gpus"]:
        mine = sum(one["ms"] for p in answer["pipelines"] for one in p["waited"] if one["lane"] == gpu["lane"])
        assert 0 < mine <= gpu["input_ms"] * (1 + 1e-9) <= gpu["wall_ms"]
    idle = [account.idle_of(Cause.INPUT) / 1e9 for a in analyses for account in a.accounting]
    assert [gpu["input_ms"] for gpu in answer["gpus"]] == idle


def test_the_planted_stage_is_the_one_marked() -> None:
    traces, analyses = recorded()
    shown = answer_of(traces, analyses)["pipelines"][0]
    assert shown["sets_pace"] is True and shown["stages"][shown["limiting"]]["role"] in ("map", "read", "python")


def test_a_pipeline_that_keeps_up_holds_up_nobody() -> None:
    traces, analyses = recorded()
    pipeline = analyses[0].pipelines[0]
    rested = [dataclasses.replace(s, utilization=0.05, background=True) for s in pipeline.stages]
    calm = dataclasses.replace(pipeline, stages=tuple(rested))
    shown = answer_of(traces, [dataclasses.replace(analyses[0], pipelines=(calm,))])["pipelines"][0]
    assert shown["limiting"] == pipeline.limiting and shown["sets_pace"] is False
    unknown = dataclasses.replace(pipeline, limiting=None)
    shown = answer_of(traces, [dataclasses.replace(analyses[0], pipelines=(unknown,))])["pipelines"][0]
    assert shown["limiting"] is None and shown["sets_pace"] is None


def test_answers_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    traces, analyses = recorded()
    pipeline = analyses[0].pipelines[0]
    many = [dataclasses.replace(analyses[0], pipelines=(pipeline,) * 40)]
    answer = answer_of(traces, many)
    assert answer["truncated"] and len(answer["pipelines"]) == input_view.MAX_PIPELINES
    monkeypatch.setattr(input_view, "MAX_STAGES", 2 * len(pipeline.stages))
    assert len(answer_of(traces, many)["pipelines"]) == 2
    # one that is larger alone is shown all the same
    monkeypatch.setattr(input_view, "MAX_STAGES", 1)
    assert len(answer_of(traces, many)["pipelines"]) == 1


def test_without_any_pipeline() -> None:
    traces, analyses = recorded()
    answer = answer_of(traces, [dataclasses.replace(analyses[0], pipelines=())])
    assert answer["pipelines"] == [] and len(answer["gpus"]) == len(traces[0].devices)
    assert answer_of([], []) == {"gpus": [], "pipelines": [], "truncated": False}
