"""A check passes only what it can judge."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.analysis.step_costs import PART_IDS
from tb_gpu_doctor.comparison.check import EXIT_STATUS, FAILURES, CheckResult, Limits, check, read_limits
from tb_gpu_doctor.comparison.summary import FindingSum, RunSummary
from tb_gpu_doctor.diagnosis.rule import kinds
from tb_gpu_doctor.errors import DocumentError
from tests.comparison.summaries import MS, summary
from tests.comparison.test_compare import finding, noisy


def statuses(result: CheckResult) -> dict[str, str]:
    return {item.id: item.status for item in result.items}


def test_without_limits_only_critical_findings_fail() -> None:
    assert check(summary(), Limits()).status == "pass"
    assert check(summary(findings=(finding("input_bound"),)), Limits()).status == "pass"
    bad = check(summary(findings=(finding("input_bound", "critical"),), verdict="critical"), Limits())
    assert bad.status == "finding" and statuses(bad) == {"findings.input_bound": "finding"}
    blind = check(summary([], verdict="cannot_tell", models=(), doubts=("no_gpu_plane",)), Limits())
    assert blind.status == "cannot_tell" and EXIT_STATUS[blind.status] == 2


@pytest.mark.parametrize(
    ("after", "status"),
    [
        (noisy(80, seed=1), "pass"),
        (noisy(100.5, seed=1), "pass"),
        (noisy(120, seed=1), "regression"),
        (noisy(102, noise=0.3, seed=2), "cannot_tell"),
        (noisy(50, 3), "cannot_tell"),
        ([], "cannot_tell"),
    ],
)
def test_time_against_a_baseline(after: list[float], status: str) -> None:
    result = check(summary(after), Limits(), summary(noisy(100)))
    assert (statuses(result)["step_time"], result.status) == (status, status)


SHARES = {"compute": 0.5, "input": 0.25, "launch": 0.125, "communication_wait": 0.125}


@pytest.mark.parametrize(
    ("ident", "allowed", "exceeded"),
    [
        ("step_time_ms", "[limits]\nstep_time_ms = 128", "[limits]\nstep_time_ms = 127.999"),
        ("idle_share", "[limits]\nidle_share = 0.375", "[limits]\nidle_share = 0.374999"),
        ("waiting_share", "[limits]\nwaiting_share = 0.125", "[limits]\nwaiting_share = 0.124999"),
        ("occupancy", "[limits]\noccupancy = 0.5", "[limits]\noccupancy = 0.500001"),
        *(
            (f"idle.{cause}", f"[limits.idle]\n{cause} = {SHARES.get(cause, 0.0)}",
             f"[limits.idle]\n{cause} = {SHARES[cause] - 1e-6}" if cause in SHARES else None)
            for cause in CAUSE_IDS
        ),
    ],
)  # fmt: skip
def test_each_limit_of_the_file_fires_and_passes_at_its_border(
    ident: str, allowed: str, exceeded: str | None, tmp_path: Path
) -> None:
    shares = np.zeros(len(PART_IDS))
    for part, share in SHARES.items():
        shares[PART_IDS.index(part)] = share
    run = summary([128.0] * 8, window_parts=shares, occupancy=0.5)
    for content, status in ((allowed, "pass"), (exceeded, "limit_exceeded")):
        if content is not None:
            (tmp_path / "gpu-doctor.toml").write_text(content, encoding="utf-8")
            result = check(run, read_limits(str(tmp_path / "gpu-doctor.toml"), kinds()))
            assert (statuses(result)[ident], result.status) == (status, status)


@pytest.mark.parametrize(
    ("step", "status"), [(104.9, "pass"), (105.0, "regression"), (95.0, "pass"), (100.0, "pass"), (110.0, "regression")]
)
def test_steps_that_never_vary_fall_on_either_side_of_the_border(step: float, status: str) -> None:
    assert statuses(check(summary([step] * 6), Limits(), summary([100.0] * 6)))["step_time"] == status


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_kind_can_be_forbidden_and_allowed(kind: str) -> None:
    about_profile = kind in kinds("profile")
    found = {"doubts": (kind,)} if about_profile else {"findings": (finding(kind, "info"),)}
    run = summary(telemetry={"power_watts": 1.0}, **found)
    assert statuses(check(run, Limits(kinds=(kind,)))) == {f"findings.{kind}": "finding"}
    assert check(run, Limits(kinds=(kind,), allowed=(kind,))).status == "pass"
    assert check(run, Limits()).status == "pass"


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_each_severity_fails_only_where_it_is_named(severity: str) -> None:
    run = summary(findings=(finding("sync_stall", severity),))
    for named in ("critical", "warning", "info"):
        expected = "regression" if named == severity else "pass"
        assert check(run, Limits(severities=(named,))).status == ("finding" if named == severity else "pass")
        against = check(run, Limits(severities=(), new_findings=(named,)), summary())
        assert against.status == expected


def test_a_profile_with_files_that_could_not_be_read_never_passes() -> None:
    part = summary(unread=2)
    assert statuses(check(part, Limits())) == {"files": "cannot_tell", "findings": "pass"}
    assert check(part, Limits(), summary()).status == "cannot_tell"
    comparison = check(part, Limits(), summary()).comparison
    assert comparison is not None and "compare.obstacles.unread" in {phrase.key for phrase in comparison.obstacles}


def test_what_cannot_be_compared_never_passes() -> None:
    result = check(summary(noisy(50), models=("GPU Y", "GPU Y")), Limits(), summary(noisy(100)))
    assert result.status == "cannot_tell"


def test_a_tighter_limit_on_the_step_is_kept() -> None:
    slower = summary(noisy(103, noise=0.002, seed=1))
    before = summary(noisy(100, noise=0.002))
    assert check(slower, Limits(), before).status == "pass"
    assert check(slower, Limits(step_time_increase=0.02), before).status == "regression"


@pytest.mark.parametrize(
    ("limits", "ident", "status"),
    [
        (Limits(step_time_ms=101), "step_time_ms", "pass"),
        (Limits(step_time_ms=99), "step_time_ms", "limit_exceeded"),
        (Limits(idle_share=0.11), "idle_share", "pass"),
        (Limits(idle_share=0.09), "idle_share", "limit_exceeded"),
        (Limits(idle_by_cause={"input": 0.09}), "idle.input", "limit_exceeded"),
        (Limits(idle_by_cause={"launch": 0.0}), "idle.launch", "pass"),
        (Limits(waiting_share=0.0), "waiting_share", "pass"),
        (Limits(occupancy=0.5), "occupancy", "cannot_tell"),
    ],
)
def test_each_limit_judges_its_own_number(limits: Limits, ident: str, status: str) -> None:
    assert statuses(check(summary(), limits))[ident] == status


def test_occupancy_and_few_steps() -> None:
    assert statuses(check(summary(occupancy=0.4), Limits(occupancy=0.5)))["occupancy"] == "limit_exceeded"
    assert statuses(check(summary(occupancy=0.6), Limits(occupancy=0.5)))["occupancy"] == "pass"
    assert statuses(check(summary([100.0]), Limits(step_time_ms=500)))["step_time_ms"] == "cannot_tell"


def test_findings_may_be_forbidden_allowed_or_new() -> None:
    run = summary(findings=(finding("input_bound"), FindingSum("low_occupancy", "registers", "info", 0.2, None)))
    assert check(run, Limits(kinds=("low_occupancy",))).status == "finding"
    assert check(run, Limits(severities=("warning",), allowed=("input_bound",))).status == "pass"
    against = check(run, Limits(), summary())
    assert statuses(against) == {"step_time": "pass", "findings.input_bound": "regression"}
    assert check(run, Limits(new_findings=()), summary()).status == "pass"
    assert check(run, Limits(), run).status == "pass"
    assert MS == 10**9


def test_several_findings_of_a_kind_are_one_item() -> None:
    """The loudest; of two as loud the costlier one."""
    mild, dear = finding("low_occupancy", "warning"), finding("low_occupancy", "critical")
    cheap = dataclasses.replace(dear, cause="registers", saving_ps_per_step=1.0)
    dear = dataclasses.replace(dear, saving_ps_per_step=2.0 * MS)
    (item,) = check(summary(findings=(mild, cheap, dear, mild)), Limits()).items
    assert (item.id, item.status) == ("findings.low_occupancy", "finding")
    assert item.message.params["cost"] == 2.0 * MS


def test_what_is_told_as_a_part_of_another_finding_is_forbidden_all_the_same() -> None:
    part = dataclasses.replace(finding("input_bound", "critical"), part_of="imbalance")
    run = summary(findings=(finding("imbalance"), part))
    assert check(run, Limits()).status == "pass", "the story is a warning"
    assert statuses(check(run, Limits(kinds=("input_bound",)))) == {"findings.input_bound": "finding"}
    assert statuses(check(run, Limits(allowed=("imbalance",)))) == {"findings.input_bound": "finding"}
    alone = summary(findings=(finding("input_bound"), finding("imbalance")))
    assert check(run, Limits(), alone).status == "pass", "it was there, if by itself"
    assert statuses(check(run, Limits(), summary(findings=(finding("imbalance"),))))["findings.input_bound"] == (
        "regression"
    )


def test_surely_no_slower_passes_though_it_may_be_faster() -> None:
    # the interval reaches from some percent faster to hardly slower: no regression, whatever it is
    after = summary(noisy(95, noise=0.06, seed=3))
    result = check(after, Limits(), summary(noisy(100, noise=0.06)))
    assert result.comparison is not None and result.comparison.outcome == "inconclusive"
    assert result.comparison.change is not None and result.comparison.change.high < 0.05
    assert statuses(result)["step_time"] == "pass"
    assert check(summary([50.0] * 3), Limits(), summary(noisy(100))).status == "cannot_tell", "three steps tell nothing"


def test_a_recording_without_gpu_work_never_passes() -> None:
    recording = summary([], models=(), format="telemetry", verdict="warning", findings=(finding("low_utilization"),))
    assert statuses(check(recording, Limits())) == {"findings": "cannot_tell"}


def test_kinds_about_the_profile_and_of_telemetry_are_not_passed_over() -> None:
    serial = summary(doubts=("serialized_kernels",))
    assert check(serial, Limits()).status == "pass"
    forbidden = check(serial, Limits(kinds=("serialized_kernels",)))
    assert statuses(forbidden) == {"findings.serialized_kernels": "finding"}
    assert check(serial, Limits(kinds=("serialized_kernels",), allowed=("serialized_kernels",))).status == "pass"
    limits = Limits(kinds=("thermal_throttle",))
    assert statuses(check(summary(), limits)) == {"findings.thermal_throttle": "cannot_tell"}
    assert check(summary(telemetry={"power_watts": 300.0}), limits).status == "pass"


def test_what_the_baseline_could_not_show_is_not_called_new() -> None:
    hot = summary(findings=(finding("thermal_throttle"),), telemetry={"power_watts": 300.0})
    result = check(hot, Limits(), summary())
    assert statuses(result) == {"step_time": "pass", "findings.thermal_throttle": "cannot_tell"}
    watched = check(hot, Limits(), summary(telemetry={"power_watts": 300.0}))
    assert statuses(watched)["findings.thermal_throttle"] == "regression"


def test_a_baseline_that_the_profiler_made_slower_lets_nothing_pass() -> None:
    result = check(summary(noisy(100)), Limits(), summary(noisy(120, seed=1), doubts=("serialized_kernels",)))
    assert statuses(result)["step_time"] == "cannot_tell"


def test_a_remark_that_became_a_fault_is_new() -> None:
    remarked, fault = (summary(findings=(finding("power_throttle", severity),), telemetry={"power_watts": 1.0})
                       for severity in ("info", "warning"))  # fmt: skip
    assert statuses(check(fault, Limits(), remarked))["findings.power_throttle"] == "regression"
    assert check(remarked, Limits(), fault).status == check(fault, Limits(), fault).status == "pass"


def test_kernels_that_are_a_larger_part_of_shorter_steps_are_no_regression() -> None:
    # the same 10 ms of every step: a tenth of 100 ms, a fifth of 50 ms
    before = summary(noisy(100), findings=(FindingSum("low_occupancy", None, "info", 0.1, None),))
    after = summary(noisy(50, seed=1), findings=(FindingSum("low_occupancy", None, "warning", 0.2, None),))
    assert check(after, Limits(), before).status == "pass"
    worse = summary(noisy(50, seed=1), findings=(FindingSum("low_occupancy", None, "warning", 0.5, None),))
    assert statuses(check(worse, Limits(), before))["findings.low_occupancy"] == "regression"


def test_low_utilization_is_nothing_that_a_profile_tells() -> None:
    (item,) = (i for i in check(summary(telemetry={"utilization": 0.2}), Limits(kinds=("low_utilization",))).items)
    assert (item.status, item.message.key) == ("cannot_tell", "check.profile_knows_better")


def written(tmp_path: Path, content: str | bytes) -> str:
    path = tmp_path / "gpu-doctor.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_every_setting_arrives(tmp_path: Path) -> None:
    content = """
        [check]
        baseline = "ci/baseline.json"
        [limits]
        step_time_ms = 120
        step_time_increase = 0.03
        idle_share = 0.15
        waiting_share = 0.1
        occupancy = 0.3
        [limits.idle]
        input = 0.05
        launch = 0.03
        [findings]
        severities = ["critical", "warning"]
        kinds = ["tensor_cores_unused"]
        allowed = ["imbalance"]
        new = []
    """
    assert read_limits(written(tmp_path, content), kinds()) == Limits(
        step_time_ms=120.0,
        step_time_increase=0.03,
        idle_share=0.15,
        idle_by_cause={"input": 0.05, "launch": 0.03},
        waiting_share=0.1,
        occupancy=0.3,
        severities=("critical", "warning"),
        kinds=("tensor_cores_unused",),
        allowed=("imbalance",),
        new_findings=(),
        baseline=str(tmp_path / "ci" / "baseline.json"),
    )
    assert read_limits(written(tmp_path, ""), kinds()) == Limits()


@pytest.mark.parametrize(
    ("content", "code", "name"),
    [
        ("x = 1", "unknown_setting", "x"),
        ("[limit]", "unknown_setting", "limit"),
        ("[limits]\nstep_time = 3", "unknown_setting", "limits.step_time"),
        ("[limits.idle]\ninputs = 3", "unknown_setting", "limits.idle.inputs"),
        ("[limits]\nidle = 3", "bad_setting", "limits.idle"),
        ("[limits]\nidle_share = '3'", "bad_setting", "limits.idle_share"),
        ("[limits]\nidle_share = true", "bad_setting", "limits.idle_share"),
        ("[limits]\nidle_share = -1", "bad_setting", "limits.idle_share"),
        ("[limits]\nidle_share = 15", "bad_share", "limits.idle_share"),
        ("[limits]\noccupancy = 30", "bad_share", "limits.occupancy"),
        ("[limits]\nstep_time_increase = 5", "bad_share", "limits.step_time_increase"),
        ("[limits]\nstep_time_increase = 0", "bad_setting", "limits.step_time_increase"),
        ("[limits.idle]\ninput = 5", "bad_share", "limits.idle.input"),
        ("[limits]\nidle_share = nan", "bad_setting", "limits.idle_share"),
        ("[findings]\nkinds = ['inputbound']", "bad_setting", "findings.kinds"),
        ("[findings]\nseverities = 'critical'", "bad_setting", "findings.severities"),
        ("[findings]\nallowed = [['x']]", "bad_setting", "findings.allowed"),
        ("[check]\nbaseline = 3", "bad_setting", "[check] baseline"),
        ("[", "bad_toml", None),
        (b"\xff", "bad_toml", None),
    ],
)
def test_what_cannot_be_meant_is_an_error(tmp_path: Path, content: str | bytes, code: str, name: str | None) -> None:
    with pytest.raises(DocumentError) as caught:
        read_limits(written(tmp_path, content), kinds())
    assert (caught.value.code, caught.value.params.get("name")) == (code, name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        read_limits(str(tmp_path / "none.toml"), kinds())
    assert caught.value.code == "unreadable_file"


def test_every_rule_is_a_kind() -> None:
    assert {"input_bound", "imbalance", "thermal_throttle"} <= kinds() and len(kinds()) >= 25


def test_a_mark_at_the_beginning_and_lines_of_windows_are_read(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf[limits]\r\nidle_share = 0.5\r\n"
    assert read_limits(written(tmp_path, content), kinds()).idle_share == 0.5


def test_what_the_baseline_has_is_known_unless_it_became_worse() -> None:
    def run(severity: str, share: float) -> RunSummary:
        fault = dataclasses.replace(finding("input_bound", severity), share=share, saving_ps_per_step=None)
        return summary(findings=(fault,), verdict=severity)

    same = check(run("critical", 0.4), Limits(), run("critical", 0.4))
    assert same.status == "pass"
    [item] = [item for item in same.items if item.id == "findings.input_bound"]
    assert item.status == "pass" and item.message.key.startswith("check.known_finding")
    for before in (run("critical", 0.2), run("warning", 0.2)):
        worse = check(run("critical", 0.4), Limits(), before)
        assert statuses(worse)["findings.input_bound"] == "regression"
        assert worse.items[1].message.key.startswith("check.worse_finding")
    new = check(run("critical", 0.4), Limits(), summary())
    assert statuses(new)["findings.input_bound"] == "regression"
    # who names severities or kinds wants them gone
    for limits in (Limits(severities=("critical",)), Limits(kinds=("input_bound",))):
        assert check(run("critical", 0.4), limits, run("critical", 0.4)).status == "finding"


def test_the_weightiest_failure_is_the_result() -> None:
    fault = summary(noisy(120, seed=1), findings=(finding("input_bound", "critical"),), verdict="critical")
    limits = Limits(step_time_ms=1)
    assert check(fault, limits, summary(noisy(100))).status == "regression"
    assert check(fault, limits).status == "finding"
    assert check(summary(), limits).status == "limit_exceeded"
    assert {EXIT_STATUS[status] for status in FAILURES} == {1}
