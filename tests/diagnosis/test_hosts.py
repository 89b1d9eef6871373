"""Jobs of several files: who holds the others back is found across clocks, and healthy jobs are left alone."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from simulator.faults.cases import all_cases
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding
from tb_gpu_doctor.report.diagnosis_report import to_dict
from tb_gpu_doctor.traces.columns import PS_PER_MS as MS
from tb_gpu_doctor.traces.columns import PS_PER_US, DeviceEvents, Trace
from tests.diagnosis.build import profile
from tests.hosts import AnalysedFile, context_of, diagnosed, profiles, read_run, split


@cache
def recorded(case: str) -> Trace:
    return read_run(all_cases()[case].run(0))


def planted(case: str) -> tuple[tuple[int, ...], str | None]:
    (fault,) = all_cases()[case].run(0).truth.faults
    return fault.gpus, fault.cause


def of_kind(diagnosis: Diagnosis, kind: str) -> Finding | None:
    found = [finding for finding in diagnosis.findings if finding.kind == kind]
    assert len(found) <= 1
    return found[0] if found else None


def offsets(hosts: int, seed: int = 1) -> list[int]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 9_000 * MS, hosts).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "hosts"),
    [
        ("imbalance.slow_gpu.medium/jax/2", 2),
        ("imbalance.slow_gpu.medium/keras/4", 4),
        ("imbalance.uneven_work.mild/jax/4", 2),
        ("imbalance.uneven_work.strong/keras/4", 4),
        ("imbalance.late_host.strong/jax/4", 4),
        ("imbalance.late_host.mild/keras/8", 4),
        ("imbalance.late_host.mild/keras/8", 1),
        ("imbalance.late_input.medium/keras/8", 4),
        ("imbalance.slow_gpu.strong/jax/8", 8),
    ],
)
def test_the_culprit_is_found_across_clocks(case: str, hosts: int) -> None:
    trace = recorded(case)
    each = len(trace.devices) // hosts
    late, cause = planted(case)
    diagnosis = diagnosed(profiles(split(trace, offsets(hosts))))
    finding = of_kind(diagnosis, "imbalance")
    assert finding is not None
    assert [(gpu.host, gpu.id) for gpu in finding.gpus] == [(f"host{gpu // each}", gpu % each) for gpu in late]
    assert len(finding.victims) == len(trace.devices) - len(late)
    assert finding.cause == cause
    assert finding.saving_ps_per_step is not None and finding.saving_ps_per_step > 0
    (cost,) = all_cases()[case].costs(0, all_cases()[case].run(0))  # by simulating it without the fault
    assert finding.share == pytest.approx(cost, abs=0.06)
    assert of_kind(diagnosis, "communication_bound") is None, "waiting is no movement"


@pytest.mark.parametrize("case", ["healthy.plain/keras/4", "healthy.jittery/jax/4", "healthy.slightly_slow/keras/4"])
@pytest.mark.parametrize("hosts", [2, 4])
def test_healthy_jobs_are_left_alone(case: str, hosts: int) -> None:
    diagnosis = diagnosed(profiles(split(recorded(case), offsets(hosts))))
    assert [f.kind for f in diagnosis.findings if f.severity != "info"] == []
    assert diagnosis.verdict == "ok"


def test_what_is_said_of_the_clocks() -> None:
    shifts = offsets(4)
    made = profiles(split(recorded("imbalance.slow_gpu.medium/keras/4"), shifts))
    clocks = context_of(*made).job.clocks
    true = np.array([shifts[clocks.reference] - shift for shift in shifts], np.int64)
    assert (clocks.low <= true).all() and (true <= clocks.high).all()
    assert (np.abs(clocks.offset - true) <= 5 * PS_PER_US).all()
    finding = of_kind(diagnosed(made), "clock_skew")
    assert finding is not None and finding.severity == "info" and finding.is_about_profile
    assert finding.title.params["count"] == 4 and finding.title.params["error"] == int(clocks.error.max())
    # all files are of one simulated clock, so each one's wall clock is ahead by what was planted
    for item in finding.evidence:
        assert isinstance(item.what, str) is False
        shift = shifts[int(item.host[4:])] - shifts[clocks.reference]
        phrase = item.what
        assert not isinstance(phrase, str)
        assert phrase.key.endswith("ahead" if shift >= 0 else "behind")
        assert phrase.params["offset"] == pytest.approx(abs(shift), abs=5 * PS_PER_US)
        assert phrase.params["error"] <= phrase.params["offset"] + int(clocks.error.max())


def test_waiting_is_reported_for_all_hosts() -> None:
    trace = recorded("imbalance.slow_gpu.medium/jax/2")
    apart = to_dict(diagnosed(profiles(split(trace, offsets(2)))))
    together = to_dict(diagnosed(profiles([trace])))
    values = [[device["communication_wait_ms"] for device in report["devices"]] for report in (apart, together)]
    assert values[0] == pytest.approx(values[1], rel=0.05, abs=0.5)


@pytest.mark.slow
def test_hosts_that_share_nothing_are_judged_alone() -> None:
    one, other = recorded("imbalance.slow_gpu.mild/keras/2"), recorded("healthy.plain/keras/2")
    (first,), (second,) = split(one, [0]), split(other, [0])
    second = dataclasses.replace(second, host="host1")
    made = profiles([first, second])
    diagnosis = diagnosed(made)
    finding = of_kind(diagnosis, "imbalance")
    assert finding is not None and {gpu.host for gpu in (*finding.gpus, *finding.victims)} == {"host0"}
    skew = of_kind(diagnosis, "clock_skew")
    assert skew is not None
    assert any(phrase.key.endswith("problems.contradiction") for phrase in skew.explanation)


def test_missing_ranks_are_named() -> None:
    made = split(recorded("healthy.plain/keras/4"), offsets(4))
    ranked = [dataclasses.replace(trace, rank=rank, world_size=6) for rank, trace in enumerate(made)]
    report = to_dict(diagnosed(profiles(ranked)))
    assert [device["rank"] for device in report["devices"]] == [0, 1, 2, 3]
    assert any("4 and 5 (2)" in warning for warning in report["profile"]["warnings"])
    whole = [dataclasses.replace(trace, rank=rank, world_size=4) for rank, trace in enumerate(made)]
    assert to_dict(diagnosed(profiles(whole)))["profile"]["warnings"] == []


def test_one_file_has_nothing_to_say_of_clocks() -> None:
    diagnosis = diagnosed(profiles([recorded("healthy.plain/keras/4")]))
    assert of_kind(diagnosis, "clock_skew") is None
    apart = diagnosed([profile(1, label="a"), profile(1, label="b")])
    assert of_kind(apart, "clock_skew") is None, "no collectives, so no two clocks matter to each other"


# -- idle GPUs over several processes ------------------------------------------------------------


def test_a_gpu_that_another_process_of_the_host_used_is_not_idle() -> None:
    def process(label: str, working: int, host: str) -> object:
        made = profile(2, working=[working], label=label)
        return dataclasses.replace(made, trace=dataclasses.replace(made.trace, host=host))

    same = diagnosed([process("a", 0, "node"), process("b", 1, "node")])  # type: ignore[list-item]
    assert of_kind(same, "idle_gpus") is None
    twice = of_kind(diagnosed([process("a", 0, "node"), process("b", 0, "node")]), "idle_gpus")  # type: ignore[list-item]
    assert twice is not None and len(twice.gpus) == 1 and twice.title.params["total"] == 2
    apart = of_kind(diagnosed([process("a", 0, "n1"), process("b", 1, "n2")]), "idle_gpus")  # type: ignore[list-item]
    assert apart is not None and len(apart.gpus) == 2 and apart.title.params["total"] == 4


def test_a_rank_whose_gpu_does_next_to_nothing_is_idle() -> None:
    def rank(number: int, part: float) -> AnalysedFile:
        made = profile(1, label=f"rank{number}")
        events = made.trace.device_events
        kept = np.arange(len(events)) < max(1, round(part * len(events)))
        fewer = {spec.name: getattr(events, spec.name)[kept] for spec in dataclasses.fields(events)}
        steps = dataclasses.replace(made.analysis.steps, event_step=made.analysis.steps.event_step[kept])
        return dataclasses.replace(
            made,
            trace=dataclasses.replace(made.trace, device_events=DeviceEvents(**fewer)),
            analysis=dataclasses.replace(made.analysis, steps=steps),
        )

    full = [rank(number, 1.0) for number in range(3)]
    busy = full[0].trace.device_events.duration
    small = max(1, int(0.019 * len(busy))) / len(busy)
    last = rank(3, small)
    if last.trace.device_events.duration.sum() >= 0.02 * busy.sum():  # one kernel is too long a part
        short = dataclasses.replace(
            last.trace.device_events, duration=np.full(len(last.trace.device_events), busy.sum() // 100)
        )
        last = dataclasses.replace(last, trace=dataclasses.replace(last.trace, device_events=short))
    found = of_kind(diagnosed([*full, last]), "idle_gpus")
    assert found is not None and [gpu.host for gpu in found.gpus] == ["rank3"]
    assert found.title.key.endswith("title_nearly") and 0.98 < (found.share or 0) < 1
    assert of_kind(diagnosed(full), "idle_gpus") is None
    assert of_kind(diagnosed([last]), "idle_gpus") is None, "nobody to compare with"


def test_another_model_of_gpu_is_the_reason_and_no_more_work() -> None:
    """The same work takes a slower model longer, with kernels of its own."""
    name = "imbalance.slow_gpu.strong/keras/4"
    late, _ = planted(name)
    made = [
        dataclasses.replace(
            trace,
            devices=tuple(
                dataclasses.replace(device, name="A100" if rank in late else "H100") for device in trace.devices
            ),
        )
        for rank, trace in enumerate(split(recorded(name), offsets(4)))
    ]
    finding = of_kind(diagnosed(profiles(made)), "imbalance")
    assert finding is not None and finding.cause == "slow_gpu"
    told = next(phrase for phrase in finding.explanation if phrase.key.endswith("hints.other_model"))
    assert (told.params["models"], told.params["other_models"]) == (("A100",), ("H100",))
