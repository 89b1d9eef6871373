"""When a crowded host becomes a finding."""

from __future__ import annotations

import dataclasses

import pytest

from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.report.sentences import say
from tests.analysis.test_launches import run
from tests.diagnosis.loops import host
from tests.hosts import AnalysedFile, diagnosed

T = Thresholds()


def found(profile: AnalysedFile) -> tuple[Finding | None, list[str]]:
    findings = diagnosed([profile]).findings
    matching = [finding for finding in findings if finding.kind == "cpu_contention"]
    return (matching[0] if matching else None), [finding.kind for finding in findings]


def test_launching_that_takes_three_times_as_long() -> None:
    profile = host(run(4))
    finding, kinds = found(profile)
    assert finding is not None and finding.severity == "critical"
    (measured,) = profile.analysis.contention
    accounting = profile.analysis.accounting[0]
    assert finding.share == pytest.approx(measured.lost / accounting.wall)
    assert finding.saving_ps_per_step == pytest.approx(measured.step_part.mean())
    # launching keeps only what it would cost beside few workers
    launch = next(f for f in diagnosed([profile]).findings if f.kind == "launch_bound")
    whole = accounting.idle_by_cause[1] + accounting.idle_by_cause[5]
    assert launch.share is not None and launch.share < whole / accounting.wall - finding.share + 0.01
    assert kinds.index("cpu_contention") >= 0


@pytest.mark.parametrize("lang", ["en", "es"])
def test_it_says_what_it_compared_and_never_how_many_processors_there_are(lang: str) -> None:
    finding, _ = found(host(run(4)))
    assert finding is not None
    said = " ".join(say(phrase, lang) for phrase in (finding.title, *finding.explanation, *finding.advice))
    assert "tf_data_private_threadpool/" in said
    assert "private_threadpool_size" in said and "max_intra_op_parallelism" in said
    assert "set_inter_op_parallelism_threads" in said and "set_intra_op_parallelism_threads" in said
    assert "Mul" in said or "cuLaunchKernel" in said
    (first,) = finding.evidence
    assert first.thread is not None and first.thread.startswith("tf_data_private")


def test_a_smaller_slowdown_proves_nothing() -> None:
    assert found(host(run(1.5)))[0] is None


def test_a_slowdown_that_costs_nothing_is_none() -> None:
    profile = host(run(4))
    (measured,) = profile.analysis.contention
    small = dataclasses.replace(
        measured, lost=int(0.9 * T.of("cpu_contention").warning * profile.analysis.accounting[0].wall)
    )
    cheap = AnalysedFile(profile.label, profile.trace, dataclasses.replace(profile.analysis, contention=(small,)))
    assert found(cheap)[0] is None
