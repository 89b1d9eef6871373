"""Each rule speaks at its threshold and is silent below it, and blames the right GPUs."""

from __future__ import annotations

import dataclasses

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding, GpuRef
from tb_gpu_doctor.diagnosis.rules import input_bound, launch_bound
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tests.analysis.small_traces import Recorder
from tests.diagnosis.build import HOST_EVENT, MS, kernel, profile
from tests.hosts import AnalysedFile, diagnosed

T = Thresholds()
INPUT, LAUNCH = input_bound.Limits(), launch_bound.Limits()


def only(diagnosis: Diagnosis, kind: str) -> Finding:
    found = [finding for finding in diagnosis.findings if finding.kind == kind]
    assert len(found) == 1, [finding.kind for finding in diagnosis.findings]
    return found[0]


def kinds(*profiles: AnalysedFile) -> list[str]:
    return [finding.kind for finding in diagnosed(profiles).findings]


def test_a_healthy_run_is_called_healthy() -> None:
    diagnosis = diagnosed([profile(4, idle={Cause.INPUT: 0.02, Cause.LAUNCH: 0.01, Cause.KERNEL_GAP: 0.02})])
    assert diagnosis.verdict == "ok"
    assert diagnosis.findings == () and diagnosis.reasons == ()


# -- input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "severity"),
    [(INPUT.warning - 0.001, None), (INPUT.warning, "warning"), (INPUT.critical - 0.001, "warning"),
     (INPUT.critical, "critical"), (0.9, "critical")],
)  # fmt: skip
def test_input_speaks_from_its_thresholds_on(share: float, severity: str | None) -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.INPUT: share})])
    if severity is None:
        assert diagnosis.verdict == "ok" and not diagnosis.findings
        return
    finding = only(diagnosis, "input_bound")
    assert (finding.severity, diagnosis.verdict) == (severity, severity)
    assert finding.share == pytest.approx(share)
    # ten steps of 100 ms: the same share of 100 ms
    assert finding.saving_ps_per_step == pytest.approx(share * 100 * MS)
    assert finding.gpus == (GpuRef("worker0", 0), GpuRef("worker0", 1))
    assert finding.victims == () and finding.cause is None


def test_input_names_only_the_gpus_that_wait() -> None:
    diagnosis = diagnosed([profile(3, idle=[{Cause.INPUT: 0.4}, {Cause.INPUT: 0.04}, {Cause.INPUT: 0.2}])])
    finding = only(diagnosis, "input_bound")
    assert [gpu.id for gpu in finding.gpus] == [0, 2]
    assert finding.share == pytest.approx(0.3)
    # The second GPU is busy for 96 ms of each step, so no step can become shorter than that.
    assert finding.saving_ps_per_step == pytest.approx(4 * MS)


def test_gpus_near_the_threshold_share_the_trouble_of_the_others() -> None:
    shares = [0.09, INPUT.warning - 0.001, 0.046, 0.044, INPUT.warning / 2 - 0.001]
    made = profile(5, idle=[{Cause.INPUT: share} for share in shares])
    assert [gpu.id for gpu in only(diagnosed([made]), "input_bound").gpus] == [0, 1, 2]
    alike = profile(2, idle=[{Cause.INPUT: INPUT.warning - 0.001}] * 2)
    assert diagnosed([alike]).findings == (), "one at least must reach it"


def test_input_points_at_gaps_threads_and_steps() -> None:
    finding = only(diagnosed([profile(2, idle={Cause.INPUT: 0.3})]), "input_bound")
    assert len(finding.evidence) == T.max_evidence
    assert {item.gpu for item in finding.evidence[:2]} == {0, 1}, "every GPU is shown before any is shown twice"
    first = finding.evidence[0]
    assert (first.what, first.thread, first.step) == (HOST_EVENT, "python", 20)
    assert first.end - first.start == 30 * MS
    held_up_by = next(p for p in finding.explanation if p.key == "findings.input_bound.held_up_by")
    assert held_up_by.params["name"] == HOST_EVENT


def test_without_steps_there_is_a_share_and_no_saving() -> None:
    finding = only(diagnosed([profile(2, steps=0, idle={Cause.INPUT: 0.3})]), "input_bound")
    assert finding.share == pytest.approx(0.3)
    assert finding.saving_ps_per_step is None


def test_inferred_steps_give_a_saving_by_their_mean_length() -> None:
    made = profile(2, idle={Cause.INPUT: 0.3}, source="inferred")
    finding = only(diagnosed([made]), "input_bound")
    assert finding.saving_ps_per_step == pytest.approx(30 * MS)


def test_idle_time_of_another_cause_is_no_input() -> None:
    for cause in set(Cause) - {Cause.INPUT, Cause.LAUNCH}:
        assert "input_bound" not in kinds(profile(2, idle={cause: 0.3}))


# -- launch --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (LAUNCH.warning - 0.001, None),
        (LAUNCH.warning, "warning"),
        (LAUNCH.critical, "critical"),
    ],
)
def test_launch_speaks_from_its_thresholds_on(share: float, severity: str | None) -> None:
    diagnosis = diagnosed([profile(2, idle={Cause.LAUNCH: share}, gaps_per_step=20)])
    assert [f.severity for f in diagnosis.findings if f.kind == "launch_bound"] == ([severity] if severity else [])


def test_a_few_pauses_before_launches_are_no_habit() -> None:
    pauses = profile(1, steps=LAUNCH.min_gaps - 1, idle={Cause.LAUNCH: 0.1})
    assert "launch_bound" not in kinds(pauses)
    assert "launch_bound" in kinds(profile(1, steps=LAUNCH.min_gaps, idle={Cause.LAUNCH: 0.1}))


def test_single_long_pauses_are_told_from_many_short_ones() -> None:
    made = profile(1, idle={Cause.LAUNCH: 0.4}, gaps_per_step=5)
    finding = only(diagnosed([made]), "launch_bound")
    assert finding.explanation[0].key == "findings.launch_bound.explanation"
    assert finding.explanation[0].params["gaps"] == 50
    assert finding.explanation[0].params["gap"] == pytest.approx(8 * MS)
    # The same loss, most of it in one pause.
    gaps = made.analysis.gaps
    gaps.by_cause[:, Cause.LAUNCH] = MS
    gaps.by_cause[7, Cause.LAUNCH] = 400 * MS - 49 * MS
    finding = only(diagnosed([made]), "launch_bound")
    assert finding.explanation[0].key == "findings.launch_bound.explanation_few"
    assert finding.explanation[0].params["half"] == 1
    assert finding.advice[0].key == "findings.launch_bound.advice.warm_up"


# -- idle GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("total", "working", "severity"), [(8, 7, "warning"), (8, 4, "critical"), (5, 3, "critical")])
def test_gpus_without_work_are_found(total: int, working: int, severity: str) -> None:
    finding = only(diagnosed([profile(total, working=range(working))]), "idle_gpus")
    assert finding.severity == severity
    assert [gpu.id for gpu in finding.gpus] == list(range(working, total))
    assert finding.share == 1.0 and finding.saving_ps_per_step is None


def test_no_gpu_is_idle_where_none_works() -> None:
    assert "idle_gpus" not in kinds(profile(4, working=()))


# -- occupancy -----------------------------------------------------------------------------


def test_low_occupancy_needs_both_a_low_value_and_enough_time() -> None:
    assert kinds(profile(1, kernels=[kernel(occupancy=0.25)])) == []
    assert kinds(profile(1, kernels=[kernel(occupancy=None, limiter=None)])) == []
    assert kinds(profile(1, kernels=[kernel(occupancy=0.1, share=0.0099)])) == []
    assert kinds(profile(1, kernels=[kernel(occupancy=0.1, in_window_ms=0)])) == []
    finding = only(diagnosed([profile(1, kernels=[kernel(occupancy=0.1)])]), "low_occupancy")
    assert (finding.severity, finding.cause, finding.saving_ps_per_step) == ("warning", "registers", None)
    assert finding.share == pytest.approx(0.5)


def test_low_occupancy_in_little_time_is_a_remark() -> None:
    made = profile(1, kernels=[kernel(occupancy=0.1, in_window_ms=49), kernel("other", in_window_ms=800)])
    diagnosis = diagnosed([made])
    assert only(diagnosis, "low_occupancy").severity == "info"
    assert diagnosis.verdict == "ok"


@pytest.mark.parametrize("family", ["matmul", "convolution", "attention"])
def test_low_occupancy_by_design_is_a_remark_at_most(family: str) -> None:
    diagnosis = diagnosed([profile(1, kernels=[kernel(occupancy=0.1, family=family, in_window_ms=990)])])
    assert only(diagnosis, "low_occupancy").severity == "info"
    assert diagnosis.verdict == "ok"


def test_communication_and_persistent_kernels_on_most_of_the_chip_are_no_findings() -> None:
    for row in (kernel(occupancy=0.1, sm_share=0.2, family="communication"),
                kernel(occupancy=0.1, sm_share=0.8, persistent=True)):  # fmt: skip
        assert kinds(profile(1, kernels=[row])) == []


def test_a_persistent_kernel_without_enough_work_leaves_the_chip_empty() -> None:
    assert kinds(profile(1, kernels=[kernel(occupancy=0.1, sm_share=0.2, persistent=True)])) == ["underfilled_gpu"]


def test_low_occupancy_is_told_per_limiter() -> None:
    rows = [
        kernel("a", occupancy=0.1, limiter="registers", in_window_ms=300),
        kernel("b", occupancy=0.2, limiter="shared_memory", in_window_ms=200),
        kernel("c", occupancy=0.2, limiter="registers", in_window_ms=100, family="matmul"),
    ]
    found = [f for f in diagnosed([profile(1, kernels=rows)]).findings if f.kind == "low_occupancy"]
    assert [(f.cause, f.severity, round(f.share or 0, 3)) for f in found] == [
        ("registers", "warning", 0.3), ("shared_memory", "warning", 0.2), ("registers", "info", 0.1)]  # fmt: skip


# -- underfilled ---------------------------------------------------------------------------


def test_underfilled_counts_the_empty_part_of_the_chip() -> None:
    finding = only(
        diagnosed([profile(1, kernels=[kernel(sm_share=0.2, in_window_ms=250), kernel("b", in_window_ms=700)])]),
        "underfilled_gpu",
    )
    assert finding.share == pytest.approx(0.25 * 0.8)
    assert finding.severity == "warning"


@pytest.mark.parametrize(("milliseconds", "severity"), [(24, None), (26, "info"), (124, "info"), (126, "warning")])
def test_underfilled_speaks_from_its_thresholds_on(milliseconds: float, severity: str | None) -> None:
    rows = [kernel(sm_share=0.2, in_window_ms=milliseconds), kernel("b", in_window_ms=800)]
    found = diagnosed([profile(1, kernels=rows)]).findings
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_kernels_side_by_side_are_not_counted_twice() -> None:
    # 4 s of kernels inside a window of 1 s that is all compute: four ran at once.
    rows = [kernel(f"k{i}", sm_share=0.25, in_window_ms=1000) for i in range(4)]
    finding = only(diagnosed([profile(1, kernels=rows)]), "underfilled_gpu")
    assert finding.share == pytest.approx(0.75)


# -- the profile itself --------------------------------------------------------------------

PERMISSION = "Insufficient privilege to run libcupti (you need root permission)."
MISSING = "Failed to load libcupti (is it installed and accessible?)"
NO_GPU = "No GPU detected."


@pytest.mark.parametrize(
    ("errors", "cause"),
    [((PERMISSION,), "cupti_permission"), ((MISSING,), "cupti_missing"), ((NO_GPU,), "no_gpu"),
     ((NO_GPU, PERMISSION), "cupti_permission"), (("Something else went wrong",), None), ((), "host_only")],
)  # fmt: skip
def test_why_there_is_no_gpu(errors: tuple[str, ...], cause: str | None) -> None:
    diagnosis = diagnosed([profile(0, working=(), errors=errors)])
    assert only(diagnosis, "no_gpu_plane").cause == cause
    assert diagnosis.verdict == "cannot_tell"
    assert [reason.key for reason in diagnosis.reasons] == ["report.doubts.no_gpu_data"]


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("names", [("cudaLaunchKernel",), ("cuLaunchKernel", "cuMemcpyHtoDAsync"), ("fused_gemm",)])
@pytest.mark.parametrize(
    ("errors", "cause"),
    [((), "launched"), ((MISSING,), "launched"), ((NO_GPU,), "launched"), ((PERMISSION,), "cupti_permission")],
)
def test_launches_prove_that_a_gpu_was_used(
    gpus: int, names: tuple[str, ...], errors: tuple[str, ...], cause: str
) -> None:
    record = Recorder(gpus=gpus)
    for i in range(20):
        record.call("python", names[i % len(names)], 10 * i, 10 * i + 3, 1 + i)
    trace = dataclasses.replace(record.trace(), errors=errors)
    diagnosis = diagnosed([AnalysedFile("host", trace, analyse(trace))])
    finding = only(diagnosis, "empty_gpu_plane" if gpus else "no_gpu_plane")
    assert finding.cause == cause and diagnosis.verdict == "cannot_tell"
    assert [f.kind for f in diagnosis.findings] == [finding.kind]


@pytest.mark.parametrize(("step_ms", "verdict"), [(0.09, "cannot_tell"), (0.11, "critical")])
def test_microseconds_prove_nothing_neither_good_nor_bad(step_ms: float, verdict: str) -> None:
    found = diagnosed([profile(1, idle={Cause.INPUT: 0.5}, steps=10, step_ms=step_ms)])
    assert found.verdict == verdict
    assert ("short_profile" in [f.kind for f in found.findings]) == (verdict == "cannot_tell")


@pytest.mark.parametrize(("learns", "said"), [(False, "few_passes"), (True, "few_steps")])
def test_forward_passes_are_told_as_what_they_are(learns: bool, said: str) -> None:
    record = Recorder(unit=1_000_000_000)
    record.call("python", "nn.Module: Net_0", 0, 40)
    for i in range(10):
        record.launch("python", 3 * i, 3 * i + 2, 3 * i + 4, 1 + i)
    if learns:
        record.call("python", "autograd::engine::evaluate_function: MmBackward0", 30, 38)
    trace = record.trace()
    finding = only(diagnosed([AnalysedFile("host", trace, analyse(trace))]), "short_profile")
    assert finding.explanation[0].key == f"findings.short_profile.{said}"
    assert ("more_passes" in finding.advice[0].key) == (not learns)


def test_an_empty_file_is_not_called_host_only() -> None:
    diagnosis = diagnosed([profile(0, working=(), with_host_events=False)])
    assert only(diagnosis, "no_gpu_plane").cause is None


@pytest.mark.parametrize(("errors", "cause"), [((PERMISSION,), "cupti_permission"), ((), None)])
def test_gpu_planes_without_events(errors: tuple[str, ...], cause: str | None) -> None:
    diagnosis = diagnosed([profile(4, working=(), errors=errors)])
    assert only(diagnosis, "empty_gpu_plane").cause == cause
    assert [finding.kind for finding in diagnosis.findings] == ["empty_gpu_plane"]
    assert diagnosis.verdict == "cannot_tell"
    assert all(gpu.wall is None and gpu.idle is None for gpu in diagnosis.gpus)


def test_a_silent_host_beside_working_ones() -> None:
    working, silent = profile(2, label="a"), profile(2, working=(), label="b")
    assert kinds(working, silent) == ["idle_gpus"]
    denied = profile(2, working=(), label="b", errors=[PERMISSION])
    assert "empty_gpu_plane" in kinds(working, denied)


@pytest.mark.parametrize(
    "message",
    ["Detected GPU events dropped on H: 123 events dropped because total device(activity) events reaches max: 2097152",
     "5 events dropped because total driver(callback) events reaches max", "cupti activity buffer full"],
)  # fmt: skip
def test_dropped_events_take_the_ok_away(message: str) -> None:
    diagnosis = diagnosed([profile(2, warnings=[message])])
    assert only(diagnosis, "dropped_events").severity == "warning"
    assert diagnosis.verdict == "cannot_tell"
    assert message in diagnosis.warnings


def test_other_warnings_drop_nothing() -> None:
    assert kinds(profile(2, warnings=["Some steps were dropped by the viewer", "clock skew"])) == []


@pytest.mark.parametrize(
    ("names", "first"),
    [(("PjitFunction(step)",), "jax"), (("ExecutorState::Process",), "custom_loop"),
     (("ExecutorState::Process", "keras/dense"), "keras"), ((), "custom_loop"),
     (("PjitFunction(predict)",), "passes_jax"), (("PjitFunction(predict)", "train_step"), "jax"),
     (("ExecutorState::Process", "vllm::rms_norm"), "passes_tensorflow"),
     (("vllm::a", "Optimizer.step"), "custom_loop")],
)  # fmt: skip
def test_no_steps_shows_how_to_mark_them(names: tuple[str, ...], first: str) -> None:
    made = profile(2, steps=0, names=names, host_event="work")
    diagnosis = diagnosed([made])
    finding = only(diagnosis, "no_steps")
    assert finding.severity == "info" and diagnosis.verdict == "ok"
    assert finding.advice[0].key == f"findings.no_steps.advice.{first}"


@pytest.mark.parametrize(("confidence", "unsure"), [(1.0, False), (0.75, True)])
def test_inferred_steps_are_said_to_be_with_their_confidence(confidence: float, unsure: bool) -> None:
    made = profile(2, source="inferred", names=("PjitFunction(step)",))
    steps = dataclasses.replace(made.analysis.steps, confidence=confidence)
    made = AnalysedFile(made.label, made.trace, dataclasses.replace(made.analysis, steps=steps))
    diagnosis = diagnosed([made])
    finding = only(diagnosis, "no_steps")
    assert finding.title.key == "findings.no_steps.title_inferred" and diagnosis.steps.source == "inferred"
    first = finding.explanation[0]
    assert first.key == "findings.no_steps.inferred"
    assert first.params == {"count": 10, "median": 100 * MS, "confidence": confidence}
    assert any(phrase.key.endswith("unsure") for phrase in finding.explanation) == unsure
    assert finding.advice[0].key == "findings.no_steps.advice.jax"


def test_two_inferred_steps_are_no_complete_profile() -> None:
    diagnosis = diagnosed([profile(2, steps=2, source="inferred")])
    assert [finding.kind for finding in diagnosis.findings] == ["short_profile", "no_steps"]
    assert diagnosis.verdict == "cannot_tell"


def test_steps_on_one_host_are_enough() -> None:
    assert kinds(profile(1, label="a"), profile(1, steps=0, label="b")) == []


@pytest.mark.parametrize(
    ("steps", "found"), [(1, True), (T.min_complete_steps - 1, True), (T.min_complete_steps, False)]
)
def test_too_few_complete_steps(steps: int, found: bool) -> None:
    diagnosis = diagnosed([profile(2, steps=steps)])
    assert [f.kind for f in diagnosis.findings] == (["short_profile"] if found else [])
    assert diagnosis.verdict == ("cannot_tell" if found else "ok")


@pytest.mark.parametrize(("recorded", "found"), [(2001, True), (2000, False), (None, False)])
def test_a_window_under_half_of_the_recording(recorded: float | None, found: bool) -> None:
    diagnosis = diagnosed([profile(2, recorded_ms=recorded)])
    assert [f.kind for f in diagnosis.findings] == (["short_profile"] if found else [])
    assert diagnosis.verdict == ("cannot_tell" if found else "ok")
    if found:
        (item,) = only(diagnosis, "short_profile").evidence
        assert (item.start, item.end) == (1000 * MS, 2001 * MS)


def test_no_marked_steps_are_not_too_few_steps() -> None:
    assert kinds(profile(2, steps=0)) == ["no_steps"]


# -- several hosts -------------------------------------------------------------------------


def test_findings_of_several_hosts_are_one_finding() -> None:
    hosts = [profile(2, label=name, idle={Cause.INPUT: share}) for name, share in (("a", 0.3), ("b", 0.15), ("c", 0.0))]
    diagnosis = diagnosed(hosts)
    finding = only(diagnosis, "input_bound")
    assert finding.gpus == (GpuRef("a", 0), GpuRef("a", 1), GpuRef("b", 0), GpuRef("b", 1))
    assert finding.share == pytest.approx(0.225)
    assert finding.severity == "critical"
    assert {item.host for item in finding.evidence} == {"a", "b"}
    assert len(diagnosis.gpus) == 6 and diagnosis.hosts == ("a", "b", "c")


def test_a_custom_table_is_obeyed() -> None:
    lax = Thresholds({"input_bound": input_bound.Limits(warning=0.5)})
    assert diagnosed([profile(2, idle={Cause.INPUT: 0.3})], thresholds=lax).findings == ()
