"""``gpu-doctor.toml``: what is written is what is checked; anything misspelt is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpu_doctor.comparison.limits import Limits, read_limits
from tb_gpu_doctor.diagnosis.rules import KINDS
from tb_gpu_doctor.traces.errors import TraceError


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
    assert read_limits(written(tmp_path, content), KINDS) == Limits(
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
    assert read_limits(written(tmp_path, ""), KINDS) == Limits()


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
    with pytest.raises(TraceError) as caught:
        read_limits(written(tmp_path, content), KINDS)
    assert (caught.value.code, caught.value.params.get("name")) == (code, name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read_limits(str(tmp_path / "none.toml"), KINDS)
    assert caught.value.code == "unreadable_file"


def test_every_rule_is_a_kind() -> None:
    assert {"input_bound", "imbalance", "thermal_throttle"} <= KINDS and len(KINDS) >= 25


def test_a_mark_at_the_beginning_and_lines_of_windows_are_read(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf[limits]\r\nidle_share = 0.5\r\n"
    assert read_limits(written(tmp_path, content), KINDS).idle_share == 0.5
