"""Late GPUs are found, whatever their number; noise, hidden waits and single accidents are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.step_costs import gain_per_step
from tb_gpu_doctor.analysis.stragglers import split_late
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tests.diagnosis.build import MS, arrivals, kernel, profile
from tests.hosts import diagnosed

T = Thresholds()


def imbalance(*profiles: object) -> Finding | None:
    found = [f for f in diagnosed(profiles).findings if f.kind == "imbalance"]  # type: ignore[arg-type]
    assert len(found) <= 1
    return found[0] if found else None


def with_late(late_ms: Sequence[float], steps: int = 10, step_ms: float = 100, **options: object) -> Finding | None:
    """GPUs that arrive ``late_ms`` behind the first in every step; the others wait in communication meanwhile."""
    last = max(late_ms)
    shares = [(last - late + 1) / step_ms for late in late_ms]
    made = profile(
        len(late_ms), steps=steps, step_ms=step_ms, communication=shares,
        lateness=arrivals([list(late_ms)] * steps, step_ms), **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return imbalance(made)


def test_one_late_gpu_of_four() -> None:
    finding = with_late([0, 0, 30, 0])
    assert finding is not None
    assert [gpu.id for gpu in finding.gpus] == [2]
    assert [gpu.id for gpu in finding.victims] == [0, 1, 3]
    assert finding.share == pytest.approx(0.3)
    assert finding.saving_ps_per_step == pytest.approx(30 * MS)
    assert finding.severity == "critical" and finding.cause == "slow_gpu", "it computes while the others wait"


def test_half_of_the_gpus_late() -> None:
    finding = with_late([0, 0, 0, 0, 25, 25, 25, 25])
    assert finding is not None
    assert [gpu.id for gpu in finding.gpus] == [4, 5, 6, 7]
    assert finding.share == pytest.approx(0.25)


def test_two_gpus() -> None:
    finding = with_late([15, 0])
    assert finding is not None and [gpu.id for gpu in finding.gpus] == [0]
    assert finding.severity == "warning"


@pytest.mark.parametrize(("late", "severity"), [(9.9, None), (10.1, "warning"), (19.9, "warning"), (20.1, "critical")])
def test_it_speaks_from_its_thresholds_on(late: float, severity: str | None) -> None:
    finding = with_late([0, 0, 0, late])
    assert (finding.severity if finding else None) == severity


def test_one_early_gpu_of_eight_is_no_loss_for_the_run() -> None:
    assert with_late([30] * 7 + [0]) is None


def test_most_gpus_late_counts_by_the_waiting_of_all() -> None:
    # Five of eight late by 40 %: three wait, 15 % of all GPU time is lost.
    finding = with_late([40] * 5 + [0] * 3)
    assert finding is not None and len(finding.gpus) == 5


def test_a_wait_that_compute_hides_costs_nothing() -> None:
    late = arrivals([[0, 0, 0, 30]] * 10)
    assert imbalance(profile(4, lateness=late, communication=0.02)) is None


def test_the_loss_is_bounded_by_what_the_others_really_waited() -> None:
    late = arrivals([[0, 0, 0, 60]] * 10)
    finding = imbalance(profile(4, lateness=late, communication=[0.16, 0.16, 0.16, 0.01]))
    assert finding is not None
    assert finding.share == pytest.approx(0.15)
    assert finding.saving_ps_per_step == pytest.approx(15 * MS)


def test_two_steps_are_no_habit() -> None:
    assert with_late([0, 0, 0, 30], steps=2) is None
    assert with_late([0, 0, 0, 30], steps=3) is not None


def test_one_accident_is_no_habit() -> None:
    behind = [[0.0, 0, 0, 0]] * 9 + [[0.0, 0, 0, 400]]
    assert imbalance(profile(4, lateness=arrivals(behind), communication=[0.4, 0.4, 0.4, 0.0])) is None


def test_turns_taken_at_being_late_are_noise() -> None:
    behind = [[30.0 if gpu == step % 4 else 0.0 for gpu in range(4)] for step in range(12)]
    assert imbalance(profile(4, steps=12, lateness=arrivals(behind), communication=0.3)) is None


def test_without_collectives_the_longer_compute_counts() -> None:
    compute = [[60.0] * 10, [60.0] * 10, [90.0] * 10]
    finding = imbalance(profile(3, compute_per_step=compute, communication=[0.35, 0.35, 0.05]))
    assert finding is not None
    assert [gpu.id for gpu in finding.gpus] == [2]
    assert finding.share == pytest.approx(0.3)
    assert any("slower_kernels" in phrase.key for phrase in finding.explanation)


def test_without_collectives_and_steps_nothing_is_said() -> None:
    compute = [[60.0] * 10, [90.0] * 10]
    assert imbalance(profile(2, compute_per_step=compute, communication=[0.35, 0.05], source="inferred")) is None


def test_one_gpu_has_nobody_to_wait_for_it() -> None:
    assert imbalance(profile(1)) is None


@pytest.mark.parametrize(
    ("compute", "kernels", "idle", "hint", "cause"),
    [([50, 50, 80], [100, 100, 101], {}, "slower_kernels", "slow_gpu"),
     ([50, 50, 80], [100, 100, 160], {}, "more_kernels", "uneven_work"),
     ([50, 50, 51], [100, 100, 100], {}, "starts_late", None),
     ([50, 50, 51], [100, 100, 100], {Cause.INPUT: 0.28}, "late_input", "late_input"),
     ([50, 50, 51], [100, 100, 100], {Cause.HOST_OTHER: 0.28}, "late_host", "late_host")],
)  # fmt: skip
def test_the_facts_decide_what_to_try_first(
    compute: list[float], kernels: list[int], idle: dict[Cause, float], hint: str, cause: str | None
) -> None:
    made = profile(
        3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01], idle=[{}, {}, idle],
        compute_per_step=[[value] * 10 for value in compute], kernel_counts=kernels,
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None
    assert finding.cause == cause
    assert any(phrase.key == f"findings.imbalance.hints.{hint}" for phrase in finding.explanation)


def rows(device: int, calls: int, each_ms: float, grid: int = 20, name: str = "gemm") -> KernelRow:
    """A kernel of one GPU: so many calls of so many milliseconds."""
    base = kernel(name, device, in_window_ms=calls * each_ms)
    return dataclasses.replace(base, calls=calls, grid=(grid, 1, 1))


@pytest.mark.parametrize(
    ("slow", "cause"),
    [
        ([rows(2, 100, 8)], "slow_gpu"),  # the same kernels, each longer
        ([rows(2, 160, 5)], "uneven_work"),  # more of the same
        ([rows(2, 100, 5), rows(2, 10, 30, name="extra")], "uneven_work"),  # some more
        ([rows(2, 100, 8, grid=32)], "uneven_work"),  # the same kernel over more data
        ([rows(2, 102, 7.9)], "slow_gpu"),  # a few more, but mainly longer
    ],
)
def test_kernels_tell_a_slow_gpu_from_one_with_more_work(slow: list[KernelRow], cause: str) -> None:
    made = profile(
        3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01],
        compute_per_step=[[50.0] * 10, [50.0] * 10, [80.0] * 10], kernels=[rows(0, 100, 5), rows(1, 100, 5), *slow],
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None and finding.cause == cause


def test_the_saving_is_that_of_the_steps_critical_path() -> None:
    # GPU 2 comes 30 ms late of 100: brought to the others' pace each step takes 70.
    finding = with_late([0, 0, 30])
    made = profile(3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01])
    costs = made.analysis.step_costs
    assert finding is not None and costs is not None
    removed = np.zeros_like(costs.wall)
    removed[:, 2] = 30 * MS
    assert finding.saving_ps_per_step == pytest.approx(float(np.mean(gain_per_step(costs, removed))))


def test_each_host_is_judged_on_its_own_clock() -> None:
    slow = profile(2, label="a", lateness=arrivals([[0, 30]] * 10), communication=[0.31, 0.01])
    fine = profile(2, label="b", lateness=arrivals([[0, 0]] * 10), communication=0.01)
    finding = imbalance(slow, fine)
    assert finding is not None
    assert [(gpu.host, gpu.id) for gpu in finding.gpus] == [("a", 1)]
    assert [(gpu.host, gpu.id) for gpu in finding.victims] == [("a", 0)]


def test_evidence_shows_who_waited_for_whom() -> None:
    finding = with_late([0, 0, 30, 0])
    assert finding is not None
    item = finding.evidence[0]
    assert (item.gpu, item.end - item.start) == (2, 30 * MS)
    assert item.step is not None and 20 <= item.step < 30


def test_which_kernels_are_slow_and_by_how_much() -> None:
    slow = [rows(2, 100, 7.5), rows(2, 10, 6, name="norm"), rows(2, 5, 1, name="same")]
    usual = [rows(gpu, 100, 5) for gpu in (0, 1)] + [rows(gpu, 10, 4, name="norm") for gpu in (0, 1)]
    usual += [rows(gpu, 5, 1, name="same") for gpu in (0, 1)]
    made = profile(
        3, lateness=arrivals([[0, 0, 27]] * 10), communication=[0.31, 0.31, 0.01],
        compute_per_step=[[54.5] * 10, [54.5] * 10, [81.5] * 10], kernels=[*usual, *slow],
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None and finding.cause == "slow_gpu"
    named = next(phrase for phrase in finding.explanation if phrase.key.endswith("slow_kernels"))
    assert named.params["kernels"] == ("gemm", "norm")
    assert named.params["times"] == pytest.approx(815 / 545)


def test_what_the_late_host_did_is_named() -> None:
    made = profile(
        3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01],
        idle=[{}, {}, {Cause.HOST_OTHER: 0.28}], host_event="$train.py:12 log",
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None and finding.cause == "late_host"
    named = next(phrase for phrase in finding.explanation if phrase.key.endswith("host_event"))
    assert named.params["name"] == "$train.py:12 log"
    assert named.params["what"].key == "report.causes.host_other"


@pytest.mark.parametrize(("explained", "cause"), [(0.23, None), (0.25, "late_input")])
def test_a_cause_is_named_only_if_it_covers_most_of_the_lateness(explained: float, cause: str | None) -> None:
    made = profile(
        3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01],
        idle=[{}, {}, {Cause.INPUT: explained}], compute_per_step=[[50.0] * 10] * 3,
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None and finding.cause == cause


def test_more_work_is_shared_out_not_gone() -> None:
    made = profile(
        3, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01],
        compute_per_step=[[50.0] * 10, [50.0] * 10, [80.0] * 10], kernel_counts=[100, 100, 160],
    )  # fmt: skip
    finding = imbalance(made)
    assert finding is not None and finding.cause == "uneven_work"
    # 50, 50 and 80 ms of work: 60 each, so a step of 80 gets 20 shorter
    assert finding.saving_ps_per_step == pytest.approx(20 * MS)


def test_stragglers_that_take_turns() -> None:
    """Two of six GPUs hold up every second collective, one after the other."""
    rng = np.random.default_rng(3)
    behind = rng.uniform(0, 2, (40, 6))
    behind[0::4, 1] += 70
    behind[2::4, 4] += 60
    shares = [(behind.max(axis=1) - behind[:, gpu]).mean() / 100 + 0.01 for gpu in range(6)]
    finding = imbalance(
        profile(
            6, steps=40, lateness=arrivals(behind.tolist()), communication=shares, compute_per_step=[[50.0] * 40] * 6
        )
    )
    assert finding is not None
    assert [gpu.id for gpu in finding.gpus] == [1, 4]
    assert any(phrase.key.endswith("not_always") for phrase in finding.explanation)
    assert finding.saving_ps_per_step == pytest.approx(33 * MS, rel=0.1)


# -- the split itself ----------------------------------------------------------------------


@given(
    devices=st.integers(2, 16),
    steps=st.integers(6, 40),
    noise=st.floats(0.0, 4.0),
    late=st.floats(15.0, 60.0),
    data=st.data(),
)
def test_steady_lateness_is_found_through_small_noise(
    devices: int, steps: int, noise: float, late: float, data: st.DataObject
) -> None:
    slow = data.draw(st.sets(st.integers(0, devices - 1), min_size=1, max_size=devices // 2))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    behind = rng.uniform(0, noise, (steps, devices))
    behind[:, sorted(slow)] += late
    found = split_late(behind, 100.0, T.of("imbalance"))
    assert found is not None
    assert set(found.late) == slow
    assert set(found.early) == set(range(devices)) - slow
    assert np.median(found.excess) == pytest.approx(late, abs=noise + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("steps", [3, 10, 30])
def test_noise_alone_hardly_ever_looks_like_a_habit(devices: int, steps: int) -> None:
    """Arrivals that scatter by a fifth of the step (exponential, the same for all GPUs)."""
    rng = np.random.default_rng(devices * 100 + steps)
    wrong = 0
    for _ in range(400):
        behind = rng.exponential(20.0, (steps, devices))
        behind -= behind.min(axis=1, keepdims=True)
        wrong += split_late(behind, 100.0, T.of("imbalance")) is not None
    print(devices, steps, wrong / 400)
    assert wrong / 400 < 0.05


@pytest.mark.parametrize("devices", [2, 8, 32])
@pytest.mark.parametrize("units", [20, 84])
@pytest.mark.parametrize("kind", ["exponential", "rare"])
def test_noise_in_collectives_hardly_ever_looks_like_turns(devices: int, units: int, kind: str) -> None:
    rng = np.random.default_rng(devices * 1000 + units)
    wrong = 0
    for _ in range(100):
        if kind == "exponential":
            behind = rng.exponential(30.0, (units, devices))
        else:  # one GPU in a while is very late
            behind = rng.uniform(0, 5, (units, devices)) + 300 * (rng.random((units, devices)) < 0.05)
        behind -= behind.min(axis=1, keepdims=True)
        wrong += split_late(behind, 100.0, T.of("imbalance")) is not None
    assert wrong / 100 < 0.05
