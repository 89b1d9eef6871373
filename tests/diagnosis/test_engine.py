"""What the engine makes of the rules' findings: order, verdict, and the numbers around them."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.engine import MAX_KERNELS, order_findings
from tb_gpu_doctor.diagnosis.model import Finding, Phrase, Severity
from tb_gpu_doctor.diagnosis.rule import kinds
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.errors import ProfileError
from tests.diagnosis.build import MS, arrivals, kernel, profile
from tests.hosts import diagnosed

KINDS = sorted(kinds())


def finding(kind: str, severity: Severity, share: float | None, saving: float | None) -> Finding:
    return Finding(kind, severity, Phrase("t"), (), (), share=share, saving_ps_per_step=saving)


@given(
    st.lists(
        st.builds(
            finding,
            st.sampled_from(KINDS),
            st.sampled_from(["critical", "warning", "info"]),
            st.none() | st.floats(0, 1),
            st.none() | st.floats(0, 1e12),
        ),
        max_size=12,
    )
)
def test_order(findings: list[Finding]) -> None:
    ordered = order_findings(findings)
    assert sorted(map(id, ordered)) == sorted(map(id, findings))
    timed = [f for f in ordered if f.rule.lengthens_steps]
    assert list(ordered[: len(timed)]) == timed, "what costs time comes first"
    for first, second in itertools.pairwise(timed):
        savings = (first.saving_ps_per_step or 0, second.saving_ps_per_step or 0)
        assert savings[0] >= savings[1]
        if savings[0] == savings[1]:
            assert (first.share or 0) >= (second.share or 0)
    rest = [f.is_about_profile for f in ordered[len(timed) :]]
    assert rest == sorted(rest), "what the profile lacks comes last"


def test_the_most_expensive_comes_first() -> None:
    made = profile(
        2, idle=[{Cause.INPUT: 0.10}, {Cause.INPUT: 0.10}], communication=[0.3, 0.0],
        lateness=arrivals([[0, 30]] * 10), kernels=[kernel(occupancy=0.1)],
    )  # fmt: skip
    diagnosis = diagnosed([made])
    assert [f.kind for f in diagnosis.findings] == ["imbalance", "input_bound", "low_occupancy"]
    assert diagnosis.verdict == "critical"


def test_an_unexplained_idle_gpu_is_no_healthy_one() -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.NO_EVIDENCE: 0.5})])
    assert diagnosis.verdict == "cannot_tell"
    assert [finding.kind for finding in diagnosis.findings] == ["unexplained_idle"]
    (reason,) = diagnosis.reasons
    assert reason.key == "findings.unexplained_idle.doubt"


def test_a_little_unexplained_idle_time_is_no_doubt() -> None:
    assert diagnosed([profile(2, idle={Cause.NO_EVIDENCE: 0.09})]).verdict == "ok"


def test_time_that_no_finding_tells_of_is_a_doubt() -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.SYNC: 0.6})])
    assert diagnosis.verdict == "cannot_tell"
    (reason,) = diagnosis.reasons
    assert reason.key == "report.doubts.untold_idle"
    assert reason.params["part"] == Phrase("report.causes.sync")
    assert reason.params["share"] == pytest.approx(0.6)


def test_another_finding_never_silences_that_doubt() -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.SYNC: 0.4, Cause.INPUT: 0.2})])
    assert diagnosis.verdict == "critical"
    assert [reason.key for reason in diagnosis.reasons] == ["report.doubts.untold_idle"]


@given(st.lists(st.tuples(st.sampled_from(list(Cause)), st.floats(0, 0.3)), max_size=4), st.floats(0, 0.3))
def test_ok_means_that_nearly_all_is_computing(causes: list[tuple[Cause, float]], communication: float) -> None:
    idle: dict[Cause, float] = {}
    for cause, share in causes:
        idle[cause] = min(idle.get(cause, 0.0) + share, 0.3)
    made = profile(2, idle=idle, communication=[communication, communication])
    diagnosis = diagnosed([made])
    if diagnosis.verdict == "ok":
        for gpu in diagnosis.gpus:
            assert gpu.wall and gpu.compute is not None
            assert gpu.compute >= (1 - Thresholds().untold - 1e-9) * gpu.wall


def test_a_finding_outweighs_a_doubt() -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.NO_EVIDENCE: 0.5, Cause.INPUT: 0.3})])
    assert diagnosis.verdict == "critical"
    assert len(diagnosis.reasons) == 1


def test_idle_gpus_have_a_row_that_adds_up() -> None:
    diagnosis = diagnosed([profile(3, working=[1])])
    assert [gpu.gpu.id for gpu in diagnosis.gpus] == [0, 1, 2]
    for gpu in diagnosis.gpus:
        assert gpu.compute is not None and gpu.communication is not None and gpu.transfer is not None
        assert gpu.idle is not None and gpu.idle_by_cause is not None
        assert gpu.compute + gpu.communication + gpu.transfer + gpu.idle == gpu.wall == 1000 * MS
        assert sum(gpu.idle_by_cause) == gpu.idle


def test_waits_inside_collectives_are_summed_within_the_window() -> None:
    made = profile(3, lateness=arrivals([[0, 5, 30]] * 10), communication=0.02)
    waits = [gpu.communication_wait for gpu in diagnosed([made]).gpus]
    assert waits == [300 * MS, 250 * MS, 0]
    assert [gpu.communication_wait for gpu in diagnosed([profile(2)]).gpus] == [None, None]
    # A collective that begins inside the window and waits beyond its end counts up to the end.
    late = arrivals([[0.0, 80.0]] * 10)
    made = profile(2, lateness=late)
    assert diagnosed([made]).gpus[0].communication_wait == (9 * 80 + 50) * MS


def test_kernels_are_merged_over_gpus_and_weighted_by_time() -> None:
    rows = [
        kernel("a", 0, occupancy=0.4, in_window_ms=100),
        kernel("a", 1, occupancy=0.8, in_window_ms=300, limiter="blocks"),
        kernel("b", 0, occupancy=None, limiter=None, in_window_ms=50),
        kernel("a", 0, occupancy=None, limiter=None, in_window_ms=100),
    ]
    first, second = diagnosed([profile(2, kernels=rows)]).kernels
    assert (first.name, first.calls, first.total, first.limiter) == ("a", 30, 500 * MS, "blocks")
    assert first.occupancy == pytest.approx((0.4 * 100 + 0.8 * 300) / 400)
    assert (second.name, second.occupancy, second.limiter) == ("b", None, None)


def test_only_the_longest_kernels_are_listed() -> None:
    rows = [kernel(f"k{i}", in_window_ms=i + 1) for i in range(MAX_KERNELS + 20)]
    kernels = diagnosed([profile(1, kernels=rows)]).kernels
    assert [k.name for k in kernels] == [f"k{i}" for i in range(MAX_KERNELS + 19, 19, -1)]


def test_warnings_tell_of_files_left_out_and_of_repairs() -> None:
    failure = ProfileError("truncated", "/logs/b.xplane.pb", offset=5, missing_bytes=9)
    made = profile(1, warnings=["careful"], errors=["broken"], notes=[Phrase("notes.negative_durations", {"count": 3})])
    diagnosis = diagnosed([made], failures=[failure])
    assert diagnosis.warnings == (
        Phrase("report.unreadable_file", {"error": failure}),
        "broken",
        "careful",
        Phrase("notes.negative_durations", {"count": 3}),
    )


def test_a_file_that_could_not_be_read_takes_the_green_away_and_is_named() -> None:
    failures = [
        ProfileError("truncated", f"/logs/{name}", missing_bytes=9)
        for name in ("b.c.xplane.pb", "d_1.7.pt.trace.json.gz")
    ]
    whole = diagnosed([profile(1)])
    assert (whole.verdict, whole.incomplete, whole.reasons) == ("ok", None, ())
    part = diagnosed([profile(1)], failures=failures)
    told = Phrase("report.doubts.files_missing", {"count": 2, "total": 3, "hosts": ("b.c", "d_1.7")})
    assert (part.verdict, part.incomplete, part.reasons) == ("cannot_tell", told, (told,))
    sick = diagnosed([profile(1, idle={Cause.INPUT: 0.6})], failures=failures)
    assert (sick.verdict, sick.incomplete) == ("critical", told)
    assert len(diagnosed([profile(1)], failures=failures * 20).reasons[0].params["hosts"]) == 17


def test_steps_are_those_of_the_hosts_together() -> None:
    diagnosis = diagnosed([profile(1, label="a", steps=9), profile(1, label="b", steps=10, step_ms=200)])
    assert (diagnosis.steps.count, diagnosis.steps.source) == (10, "marked")
    assert diagnosis.steps.median == 200 * MS
    assert diagnosis.window == 2000 * MS
    nothing = diagnosed([profile(1, steps=0)])
    assert (nothing.steps.count, nothing.steps.source, nothing.steps.median) == (0, "none", None)


def test_no_profile_at_all_is_no_verdict() -> None:
    diagnosis = diagnosed([])
    assert diagnosis.verdict == "cannot_tell" and diagnosis.findings == ()


def test_a_diagnosis_is_frozen() -> None:
    diagnosis = diagnosed([profile(1)])
    with pytest.raises(dataclasses.FrozenInstanceError):
        diagnosis.verdict = "ok"  # type: ignore[misc]
