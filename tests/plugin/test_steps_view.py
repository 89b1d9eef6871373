"""The answer of ``steps``: parts that sum to each step, over hosts, and few columns for many steps."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import numpy as np
import pytest

from simulator.faults.cases import all_cases
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.plugin import steps_view
from tb_gpu_doctor.plugin.steps_view import steps_answer
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.traces.columns import Trace
from tests.analysis.jobs import random_job
from tests.hosts import facts_of, read_run, split

Answer = dict


def answer_of(traces: list[Trace], analyses: list[TraceAnalysis]) -> Answer:
    job = analyse_job(facts_of(traces, analyses))
    hosts = [trace.host for trace in traces]
    answer = steps_answer(traces, analyses, job, Timeline(traces, analyses, hosts, hosts, job.clocks))
    json.dumps(answer, allow_nan=False)
    return answer


@cache
def recorded(case: str, hosts: int) -> tuple[list[Trace], list[TraceAnalysis]]:
    trace = read_run(all_cases()[case].run(0))
    traces = list(split(trace, [index * 7_000_000_000 for index in range(hosts)])) if hosts > 1 else [trace]
    return traces, [analyse(trace) for trace in traces]


CASES = ["imbalance.slow_gpu.medium/keras/4", "input_bound.map.medium/jax/2", "healthy.plain/jax/4"]


def cases() -> list[str]:
    return [name for name in CASES if name in all_cases()] + ["imbalance.late_host.strong/jax/4"]


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("hosts", [1, 2])
def test_the_parts_of_a_cell_sum_to_its_wall(case: str, hosts: int) -> None:
    traces, analyses = recorded(case, hosts)
    answer = answer_of(traces, analyses)
    wall = np.array(answer["wall_ps"], np.int64)
    assert (sum(np.array(part, np.int64) for part in answer["parts_ps"].values()) == wall).all()
    assert set(answer["parts_ps"]) <= set(answer["parts"])
    # each GPU's steps cover the window of its file but for where other GPUs' steps begin or end
    lane = 0
    for trace, analysis in zip(traces, analyses, strict=True):
        complete = np.flatnonzero(analysis.steps.complete)
        for device in trace.devices:
            steps = analysis.steps
            assert wall[lane].tolist() == (steps.end - steps.start)[complete, device.index].tolist()
            account = analysis.accounting[device.index]
            # the accounting of the window cut to the steps, computed there another way
            for part, total in (("compute", account.compute), ("transfer", account.transfer)):
                assert sum(answer["parts_ps"].get(part, [[0]] * 99)[lane]) <= total
            outside = account.wall - int(wall[lane].sum())
            shown = {part: sum(values[lane]) for part, values in answer["parts_ps"].items()}
            communication = sum(value for part, value in shown.items() if part.startswith("communication"))
            assert 0 <= account.communication - communication <= outside
            assert 0 <= account.compute - shown["compute"] <= outside
            lane += 1


@pytest.mark.slow
def test_who_waits_and_who_is_late() -> None:
    traces, analyses = recorded("imbalance.slow_gpu.medium/keras/4", 2)
    (fault,) = all_cases()["imbalance.slow_gpu.medium/keras/4"].run(0).truth.faults
    answer = answer_of(traces, analyses)
    late = np.array(answer["late_ps"]).sum(axis=1)
    waiting = np.array(answer["parts_ps"]["communication_wait"]).sum(axis=1)
    assert [int(late.argmax())] == list(fault.gpus) and int(waiting.argmin()) == int(late.argmax())
    assert [gpu["lane"] for gpu in answer["gpus"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("columns", [1, 3, 4])
def test_many_steps_share_columns(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    traces, analyses = random_job(3, hosts=2, gpus=2, count=40, steps=20).analysed()
    whole = answer_of(traces, analyses)
    monkeypatch.setattr(steps_view, "MAX_COLUMNS", columns)
    some = answer_of(traces, analyses)
    each = some["steps_per_column"]
    assert len(some["steps"]) <= columns and some["total_steps"] == whole["total_steps"] == len(whole["steps"])
    assert sum(step["count"] for step in some["steps"]) == some["total_steps"]
    for table in ("wall_ps", "late_ps"):
        for row, full in zip(some[table], whole[table], strict=True):
            assert row == [sum(v or 0 for v in full[i : i + each]) for i in range(0, len(full), each)]
    for row, full in zip(some["longest_ps"], whole["wall_ps"], strict=True):
        assert row == [max(v or 0 for v in full[i : i + each]) for i in range(0, len(full), each)]


def test_without_steps_there_is_nothing_to_show() -> None:
    traces, analyses = random_job(4, hosts=2, count=1).analysed()
    answer = answer_of(traces, analyses)
    assert answer["steps"] == [] and answer["source"] == "none" and answer["total_steps"] == 0
    assert len(answer["gpus"]) == 2 and answer["wall_ps"] == [[], []]
    assert answer_of([], [])["gpus"] == []


def test_a_host_that_lacks_steps_has_empty_cells() -> None:
    other, alone = random_job(6, hosts=2, count=20, steps=10).analysed()
    steps, transfers = alone[1].steps, alone[1].transfers
    assert transfers is not None
    first = np.arange(len(steps.number)) < 4
    alone[1] = dataclasses.replace(
        alone[1],
        steps=dataclasses.replace(steps, complete=steps.complete & first),
        transfers=dataclasses.replace(
            transfers,
            step_exposed=transfers.step_exposed[first[steps.complete]],
            step_late=transfers.step_late[first[steps.complete]],
        ),
    )
    answer = answer_of(other, alone)
    assert answer["total_steps"] == alone[0].steps.count
    there = [value is not None for value in answer["wall_ps"][1]]
    assert sum(there) == alone[1].steps.count < len(there)
