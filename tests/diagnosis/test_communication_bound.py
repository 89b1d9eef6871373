"""Moving data without computing is found; waiting, hiding and what cannot be told are not mistaken for it."""

from __future__ import annotations

import dataclasses

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.traces.columns import EventClass
from tests.analysis.jobs import Job
from tests.analysis.small_traces import US, Recorder
from tests.analysis.test_job_collectives import with_arguments
from tests.hosts import AnalysedFile, diagnosed

T = Thresholds()


def found_in(traces: list, kind: str = "communication_bound") -> Finding | None:
    profiles = [AnalysedFile(f"host{i}", trace, analyse(trace)) for i, trace in enumerate(traces)]
    found = [finding for finding in diagnosed(profiles).findings if finding.kind == kind]
    assert len(found) <= 1
    return found[0] if found else None


def loop(moving: int, late: int = 0, hidden: bool = False, steps: int = 10, gpus: int = 2) -> Recorder:
    """Steps of 1000: compute, then a collective that the last GPU enters ``late`` after the others."""
    record = Recorder(gpus=gpus)
    for step in range(steps):
        base = 1000 * step
        record.step("main", step, base, base + 999)
        for gpu in range(gpus):
            begin = 1000 - moving - (0 if gpu == gpus - 1 else late)
            correlation = 100 * step + 10 * gpu + 1
            until = 1000 if hidden else begin
            record.launch("main", base + 1, base + 5, base + until, correlation, gpu=gpu)
            record.launch(
                "main", base + 3, base + begin, base + 1000, correlation + 1, gpu=gpu, stream=1,
                klass=EventClass.COMMUNICATION, name="ncclDevKernel_AllReduce",
            )  # fmt: skip
    return record


@pytest.mark.parametrize(
    ("share", "severity"), [(0.098, None), (0.102, "warning"), (0.298, "warning"), (0.302, "critical")]
)
def test_it_speaks_from_its_thresholds_on(share: float, severity: str | None) -> None:
    finding = found_in([loop(round(1000 * share)).trace()])
    assert (finding.severity if finding else None) == severity
    if finding is not None:
        assert finding.share == pytest.approx(share, abs=0.002)
        assert [gpu.id for gpu in finding.gpus] == [0, 1]
        assert finding.saving_ps_per_step == pytest.approx(share * 1000 * US, rel=0.01)
        assert finding.evidence and "AllReduce" in str(finding.evidence[0].what)


def test_waiting_is_not_moving() -> None:
    recorded = loop(50, late=400).trace()
    assert found_in([recorded]) is None
    assert found_in([recorded], "imbalance") is not None


def test_both_at_once_are_told_apart() -> None:
    finding = found_in([loop(200, late=300).trace()])
    assert finding is not None and finding.share == pytest.approx(0.2, abs=0.002)
    waiting = next(phrase for phrase in finding.explanation if phrase.key.endswith("waiting"))
    assert waiting.params["waiting"] == pytest.approx(0.15, abs=0.002), "one of two GPUs waits"


def test_what_compute_hides_costs_nothing() -> None:
    assert found_in([loop(400, hidden=True).trace()]) is None


def test_no_more_is_saved_than_can_be_hidden() -> None:
    finding = found_in([loop(800).trace()])
    assert finding is not None
    assert finding.saving_ps_per_step == pytest.approx(195 * US, rel=0.02), "the compute of a step"


def test_one_rank_alone_gets_a_warning_with_its_size() -> None:
    finding = found_in([loop(300, gpus=1).trace()])
    assert finding is not None and finding.severity == "warning" and finding.saving_ps_per_step is None
    assert finding.share == pytest.approx(0.3, abs=0.002)
    assert finding.title.key.endswith("title_unsplit")


def test_files_with_clocks_of_their_own_and_known_sizes() -> None:
    job = Job([0, 4_321], steps=5)
    for k in range(10):
        job.collective([1000 * k + 100, 1000 * k + 400], [1000 * k + 900] * 2, "ncclDevKernel_AllReduce")
    traces = [with_arguments(trace, ["g"] * 10, [10_000_000] * 10) for trace in job.traces()]
    finding = found_in(traces)
    assert finding is not None and finding.severity == "critical"
    assert finding.share == pytest.approx(0.5, abs=0.03)
    rate = next(phrase for phrase in finding.explanation if phrase.key.endswith("bandwidth"))
    # 20 MB in 500 us, by 2 ranks
    assert rate.params["rate"] == pytest.approx(40, rel=0.01)


def test_with_missing_ranks_movement_may_be_waiting() -> None:
    trace = loop(300).trace()
    known = found_in([dataclasses.replace(trace, rank=0, world_size=1)])
    assert known is not None and known.severity == "critical" and known.saving_ps_per_step
    lost = found_in([dataclasses.replace(trace, rank=0, world_size=3)])
    assert lost is not None and lost.severity == "warning" and lost.saving_ps_per_step is None
    (phrase,) = [phrase for phrase in lost.explanation if phrase.key.endswith(".missing")]
    assert phrase.params["ranks"] == ("1", "2")


@pytest.mark.parametrize(
    ("every", "told"), [(4, ["communication_bound"]), (None, ["communication_bound", "step_outliers"])]
)
def test_steps_that_communicate_by_schedule_are_no_outliers(every: int | None, told: list[str]) -> None:
    """Where gradients accumulate each fourth step reduces; what strikes without a rhythm is an accident of its own."""
    at = set(range(3, 40, every)) if every else {3, 5, 14, 15, 22, 30, 31, 33, 34}
    record, base = Recorder(gpus=2), 0
    for step in range(40):
        length = 3000 if step in at else 1000
        record.step("main", step, base, base + length - 1)
        for gpu in range(2):
            correlation = 100 * step + 10 * gpu + 1
            record.launch("main", base + 1, base + 5, base + 1000, correlation, gpu=gpu)
            if step in at:
                record.launch(
                    "main", base + 3, base + 1000, base + length, correlation + 1, gpu=gpu, stream=1,
                    klass=EventClass.COMMUNICATION, name="ncclDevKernel_AllReduce",
                )  # fmt: skip
        base += length
    trace = record.trace()
    found = diagnosed([AnalysedFile("host", trace, analyse(trace))]).findings
    assert sorted(f.kind for f in found if f.severity != "info") == told
