"""The answer of ``collectives`` on jobs with planted arrivals and on recorded ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tb_gpu_doctor.analysis.job import analyse_job
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.plugin.collectives_view import collectives_answer
from tb_gpu_doctor.plugin.session_view import SessionView
from tb_gpu_doctor.plugin.timeline import Timeline
from tb_gpu_doctor.traces.columns import PS_PER_MS
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.analysis.jobs import Job, random_job
from tests.analysis.small_traces import US
from tests.conftest import SHARED_TRACES
from tests.hosts import facts_of


def answer_of(planted: Job) -> dict:
    traces, analyses = planted.analysed()
    job = analyse_job(facts_of(traces, analyses))
    hosts = [trace.host for trace in traces]
    answer = collectives_answer(traces, analyses, job, Timeline(traces, analyses, hosts, hosts, job.clocks))
    json.dumps(answer, allow_nan=False)
    return answer


@pytest.mark.parametrize("hosts", [1, 3])
def test_sums_are_those_of_the_planted_collectives(hosts: int) -> None:
    planted = random_job(11, hosts=hosts, gpus=2, count=30, steps=5, end_spread=1)
    answer = answer_of(planted)
    assert answer["method"] == ("one_clock" if hosts == 1 else "aligned")
    starts, ends = np.array(planted.starts), np.array(planted.ends)
    error = answer["error_ms"] * PS_PER_MS / US
    used = sum(row["count"] for row in answer["rows"])
    assert 0.8 * len(starts) <= used <= len(starts)
    for row in answer["rows"]:
        mine = np.array([name == row["name"] for name in planted.names])
        if used == len(starts):
            assert row["count"] == mine.sum()
            wait = (starts.max(axis=1, keepdims=True) - starts)[mine].sum(axis=0)
            for gpu, planted_wait in zip(row["per_gpu"], wait.tolist(), strict=True):
                assert gpu["wait_ms"] * PS_PER_MS / US == pytest.approx(planted_wait, abs=(error + 1) * row["count"])
                inside = (ends - starts)[mine][:, gpu["lane"]].sum()
                assert gpu["inside_ms"] * PS_PER_MS == pytest.approx(inside * US)
        for gpu in row["per_gpu"]:
            assert gpu["moving_ms"] + gpu["wait_ms"] == pytest.approx(gpu["inside_ms"])
        assert row["algorithm_gb_per_s"] is None and row["size_bytes"] is None
        assert row["kind"] in ("all_reduce", "all_gather")
    assert answer["groups"] == [{"id": 0, "name": None, "lanes": list(range(2 * hosts))}]


def test_who_came_last_is_counted() -> None:
    planted = Job([0], gpus=3)
    for index in range(10):
        base = 100 + 300 * index
        late = 2 if index < 7 else 0
        starts = [base + (50 if gpu == late else gpu) for gpu in range(3)]
        planted.collective(starts, [base + 100] * 3)
    answer = answer_of(planted)
    assert [gpu["last"] for gpu in answer["gpus"]] == [3, 0, 7]
    assert [gpu["matched"] for gpu in answer["gpus"]] == [10, 10, 10]
    assert answer["gpus"][2]["behind_ms"] == pytest.approx((7 * 50 + 3 * 1) / 10 / 1000)


def test_nothing_to_compare() -> None:
    answer = answer_of(random_job(1, hosts=1, gpus=1))
    assert answer["method"] is None and answer["rows"] == [] and answer["groups"] == []


def test_recorded_megatron() -> None:
    folder = SHARED_TRACES / "kineto_megatron_tp8_a100"
    if not folder.is_dir():
        pytest.skip(f"real profile not present ({folder})")
    session = find_sessions(str(folder)).sessions[0]
    view = SessionView(session, diagnose_session(session, with_columns=True))
    answer = json.loads(view.collectives_json)
    rows = answer["rows"]
    assert {row["kind"] for row in rows} == {"all_reduce"} and sum(row["count"] for row in rows) == 84
    assert all(len(row["per_gpu"]) == 8 for row in rows)
    last = {gpu["lane"]: gpu["last"] for gpu in answer["gpus"]}
    ranks = [gpu["gpu"] for gpu in answer["gpus"]]
    most = sorted(last, key=last.__getitem__)[-2:]
    assert sorted(ranks[lane] for lane in most) == [0, 6]
    steps, gaps = json.loads(view.steps_json), view.gaps.answer(3)
    assert steps["total_steps"] == len(steps["steps"])
    assert len(gaps["gaps"]) == 3 and gaps["total_ms"] > 0
