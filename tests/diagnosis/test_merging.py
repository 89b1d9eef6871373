"""Findings with one root are one finding; two faults stay two."""

from __future__ import annotations

import dataclasses

import pytest

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.comparison.check import Limits, check
from tb_gpu_doctor.comparison.compare import compare_findings
from tb_gpu_doctor.comparison.summarize import summarize
from tb_gpu_doctor.diagnosis.merging import MERGES, Merge, merge_findings
from tb_gpu_doctor.diagnosis.model import Finding, Phrase
from tb_gpu_doctor.diagnosis.rule import rule_of, rules
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.texts import has_text
from tests.analysis.small_traces import Recorder
from tests.diagnosis.build import arrivals, profile
from tests.diagnosis.loops import host, loop
from tests.hosts import AnalysedFile, context_of, diagnosed

T = Thresholds()
EVERY_FOURTH = {3: 9_000.0, 7: 9_000.0, 11: 9_000.0}


def timed(*profiles: AnalysedFile) -> list[Finding]:
    return [finding for finding in diagnosed(profiles).findings if finding.rule.lengthens_steps]


def keys(finding: Finding) -> list[str]:
    return [phrase.key for phrase in finding.explanation]


def test_the_table_names_kinds_and_sentences_that_exist() -> None:
    for merge in MERGES:
        assert rule_of(merge.absorbing).lengthens_steps and rule_of(merge.absorbed).lengthens_steps
        assert merge.absorbing != merge.absorbed
        if merge.adds == "sentence":
            assert has_text(f"findings.{merge.absorbed}.merged")
    pairs = [(merge.absorbing, merge.absorbed) for merge in MERGES]
    assert len(pairs) == len(set(pairs))
    assert not {(b, a) for a, b in pairs} & set(pairs), "nobody takes in who takes it in"
    causes = {rule.idle_cause.id for rule in rules() if rule.idle_cause is not None}
    assert causes == {"input", "launch", "sync", "compile", "checkpoint", "host_other", "allocator", "queued"}


# -- slow steps ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("SaveV2", "checkpoint_stall"), ("XlaCompile", "compile_stall")])
def test_slow_steps_that_save_or_compile_are_told_with_it(name: str, kind: str) -> None:
    def stop(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step in EVERY_FOURTH:
            recorder.call("python", name, free - 2_000, launch - 5)

    (finding,) = timed(host(loop(stop, EVERY_FOURTH, steps=14)))
    assert finding.kind == kind
    merged = next(p for p in finding.explanation if p.key == "findings.step_outliers.merged")
    assert merged.params["numbers"] == (103, 107, 111) and merged.params["count"] == 3


def test_a_pause_beside_saving_stays_a_finding_of_its_own() -> None:
    def stop(recorder: Recorder, step: int, free: float, launch: float) -> None:
        if step in EVERY_FOURTH:
            recorder.call("python", "SaveV2", free - 2_000, launch - 5)
        elif step == 5:
            recorder.call("python", "$train.py:88 rotate_logs", free - 2_000, launch - 5)

    found = timed(host(loop(stop, {**EVERY_FOURTH, 5: 60_000.0}, steps=14)))
    assert [finding.kind for finding in found] == ["host_bound", "checkpoint_stall"], "the dearer one first"
    assert [part.kind for part in found[0].absorbed] == ["step_outliers"]


def test_a_cause_of_every_step_does_not_take_in_the_few_slow_ones() -> None:
    def wait(recorder: Recorder, step: int, free: float, launch: float) -> None:
        recorder.call("python", "cuStreamSynchronize", free - 3_000, free + 4)
        recorder.call("python", "$train.py:77 log", free + 6, launch - 5)

    pauses = dict.fromkeys(range(14), 8_000.0) | {6: 30_000.0}
    found = timed(host(loop(wait, pauses, steps=14)))
    assert [finding.kind for finding in found] == ["sync_stall", "host_bound"]
    assert [part.kind for part in found[1].absorbed] == ["step_outliers"]


# -- launches behind an empty queue --------------------------------------------------------


def synced(launches: float, waits: float) -> AnalysedFile:
    """One GPU: in each step a gap for the root, then ten for launches."""
    return profile(1, idle={Cause.INPUT: waits, Cause.LAUNCH: launches}, gaps_per_step=2)


def test_launches_that_follow_a_larger_cause_are_told_with_it() -> None:
    (finding,) = timed(synced(0.06, 0.30))
    assert finding.kind == "input_bound"
    merged = next(p for p in finding.explanation if p.key == "findings.launch_bound.merged")
    assert merged.params["share"] == pytest.approx(0.06)
    # Mending the input lets the host run ahead: both are gone.
    assert finding.saving_ps_per_step == pytest.approx(0.36 * 100e9)
    assert finding.share == pytest.approx(0.30)


def test_launches_that_cost_as_much_are_a_second_fault() -> None:
    assert [finding.kind for finding in timed(synced(0.25, 0.30))] == ["input_bound", "launch_bound"]
    assert [finding.kind for finding in timed(synced(0.30, 0.25))] == ["launch_bound", "input_bound"]


def test_launches_in_other_steps_are_a_second_fault() -> None:
    made = synced(0.08, 0.30)
    costs = made.analysis.step_costs
    assert costs is not None
    idle = costs.idle.copy()
    idle[5:, :, Cause.INPUT] = 0  # the input is late in half of the steps only
    made = AnalysedFile(
        made.label,
        made.trace,
        dataclasses.replace(made.analysis, step_costs=dataclasses.replace(costs, idle=idle)),
    )
    assert {finding.kind for finding in timed(made)} == {"input_bound", "launch_bound"}


def test_launches_on_other_gpus_are_a_second_fault() -> None:
    made = profile(
        2, idle=[{Cause.INPUT: 0.4}, {Cause.LAUNCH: 0.05}], gaps_per_step=2, compute_per_step=[[50.0] * 10] * 2
    )
    assert {finding.kind for finding in timed(made)} == {"input_bound", "launch_bound"}


# -- who is late ---------------------------------------------------------------------------


def late(causes: list[dict[Cause, float]]) -> AnalysedFile:
    """GPU 2 comes 30 ms late in each step of 100."""
    return profile(
        3, idle=causes, lateness=arrivals([[0, 0, 30]] * 10), communication=[0.31, 0.31, 0.01],
        compute_per_step=[[50.0] * 10] * 3, gaps_per_step=2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "kind", "reason"),
    [(Cause.INPUT, "input_bound", "late_input"), (Cause.LAUNCH, "launch_bound", "late_host"),
     (Cause.CHECKPOINT, "checkpoint_stall", "late_host"), (Cause.COMPILE, "compile_stall", "late_host")],
)  # fmt: skip
def test_a_gpu_that_is_late_for_its_own_reason_is_one_finding(cause: Cause, kind: str, reason: str) -> None:
    (finding,) = timed(late([{}, {}, {cause: 0.29}]))
    assert (finding.kind, finding.cause) == ("imbalance", reason)
    assert [gpu.id for gpu in finding.gpus] == [2] and [gpu.id for gpu in finding.victims] == [0, 1]
    assert f"findings.{kind}.explanation" in keys(finding)
    assert any(phrase.key.startswith(f"findings.{kind}.advice") for phrase in finding.advice)
    assert len(finding.evidence) <= T.max_evidence
    whats = {item.what if isinstance(item.what, str) else item.what.key for item in finding.evidence}
    assert "report.evidence.others_waited" in whats and len(whats) > 1, "both are shown"


def test_input_that_all_wait_for_is_a_second_fault() -> None:
    found = timed(late([{Cause.INPUT: 0.1}, {Cause.INPUT: 0.1}, {Cause.INPUT: 0.39}]))
    assert {finding.kind for finding in found} == {"imbalance", "input_bound"}


def test_a_slow_gpu_does_not_take_in_its_input() -> None:
    made = profile(
        3, idle=[{}, {}, {Cause.INPUT: 0.06}], lateness=arrivals([[0, 0, 30]] * 10),
        communication=[0.31, 0.31, 0.01], compute_per_step=[[50.0] * 10, [50.0] * 10, [80.0] * 10],
    )  # fmt: skip
    found = timed(made)
    assert [(finding.kind, finding.cause) for finding in found] == [("imbalance", "slow_gpu"), ("input_bound", None)]


# -- what was taken in is still there ------------------------------------------------------


def found(kind: str) -> Finding:
    """A finding as a rule makes it; only its kind matters here."""
    facts = {"gpus": ("0",), "share": 0.1, "count": 1, "numbers": (1,), "step": 1.0}
    title = Phrase(f"findings.{kind}.title", facts)
    return Finding(kind, "warning", title, (Phrase(f"findings.{kind}.explanation", facts),), (), share=0.1)


@pytest.mark.parametrize("merge", MERGES, ids=lambda merge: f"{merge.absorbing}-{merge.absorbed}")
def test_a_comparison_finds_what_was_taken_in(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    always = dataclasses.replace(merge, condition=lambda *_: True)
    monkeypatch.setattr("tb_gpu_doctor.diagnosis.merging.MERGES", (always,))
    made = profile(2, idle={Cause.INPUT: 0.3})
    context = context_of(made)
    apart = (found(merge.absorbing), found(merge.absorbed))
    merged = tuple(merge_findings(context, apart))
    assert [finding.kind for finding in merged] == [merge.absorbing]
    assert [part.kind for part in merged[0].absorbed] == [merge.absorbed]
    diagnosis = diagnosed([made])
    two, one = (
        summarize(dataclasses.replace(diagnosis, findings=given), context.files, context.job, Joined(), "run")
        for given in (apart, merged)
    )
    assert {(f.kind, f.part_of) for f in one.findings} == {
        (merge.absorbing, None), (merge.absorbed, merge.absorbing),
    }  # fmt: skip
    for before, after in ((two, one), (one, two)):
        assert {entry.change for entry in compare_findings(before, after)} == {"unchanged"}
    forbidden = check(one, Limits(kinds=(merge.absorbed,)))
    assert [(item.id, item.status) for item in forbidden.items] == [(f"findings.{merge.absorbed}", "finding")]


def test_what_was_taken_in_twice_is_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (
        Merge("launch_bound", "step_outliers", lambda *_: True),
        Merge("input_bound", "launch_bound", lambda *_: True),
    )
    monkeypatch.setattr("tb_gpu_doctor.diagnosis.merging.MERGES", table)
    given = [found(kind) for kind in ("input_bound", "launch_bound", "step_outliers")]
    (finding,) = merge_findings(context_of(profile(2, idle={Cause.INPUT: 0.3})), given)
    assert [part.kind for part in finding.absorbed] == ["launch_bound", "step_outliers"]
    assert not any(part.absorbed for part in finding.absorbed)


def test_nothing_to_merge_is_left_as_it_is() -> None:
    made = [profile(2, idle={Cause.INPUT: 0.3})]
    context = context_of(*made)
    findings = list(diagnosed(made).findings)
    assert merge_findings(context, findings) == findings
    assert merge_findings(context, []) == []
