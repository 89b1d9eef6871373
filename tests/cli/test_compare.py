"""``gpu-doctor compare`` and ``baseline`` as their users call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main


def test_the_demos_compare(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(demo_logs / "input_bound"), str(demo_logs / "healthy"), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "FASTER" in out and "solved  Input too slow" in out and "confidence" in out
    assert main(["compare", str(demo_logs / "healthy"), str(demo_logs / "input_bound"), "--lang", "es"]) == 0
    out = capsys.readouterr().out
    assert "MÁS LENTO" in out and "nuevo  Entrada demasiado lenta" in out


def test_a_baseline_stands_for_its_run(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    assert main(["baseline", str(demo_logs / "slow_gpu"), "-o", str(path), "--lang", "en"]) == 0
    assert "written" in capsys.readouterr().err and [entry.name for entry in tmp_path.iterdir()] == ["baseline.json"]
    assert main(["compare", str(path), str(demo_logs / "slow_gpu"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["outcome"] == "same" and abs(data["change"]["value"]) < 1e-6
    assert main(["baseline", str(demo_logs / "slow_gpu")]) == 0
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")


def test_differences_in_json_add_up(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(demo_logs / "slow_gpu"), str(demo_logs / "healthy"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    moved = data["after"]["time_ms"] - data["before"]["time_ms"]
    assert sum(part["difference_ms"]["value"] for part in data["parts"]) == pytest.approx(moved)
    total = data["kernel_time_after_ms"] - data["kernel_time_before_ms"]
    assert sum(kernel["difference_ms"] for kernel in data["kernels"]) == pytest.approx(total)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "/nowhere/a", "/nowhere/b"], "/nowhere/a does not exist"),
        (["compare", "a"], "missing: B."),
        (["compare", "a", "b", "--batch-before", "0"], "whole number above zero"),
        (["compare", "a", "b", "--batch-after", "many"], "whole number above zero"),
    ],
)
def test_bad_calls_get_one_clear_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--lang", "en"]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_named(demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baseline", str(demo_logs / "healthy"), "-o", "/nowhere/baseline.json", "--lang", "en"]) == 2
    assert "/nowhere/baseline.json cannot be written" in capsys.readouterr().err


@pytest.mark.slow
def test_packs_stand_for_what_was_packed(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before, after = tmp_path / "before.gpudoctor.zip", tmp_path / "after.zip"
    assert main(["pack", str(demo_logs / "input_bound"), "-o", str(before), "--redact", "--slim"]) == 0
    assert main(["pack", str(demo_logs / "healthy"), "-o", str(after)]) == 0
    assert main(["compare", str(demo_logs / "input_bound"), str(demo_logs / "healthy"), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["compare", str(before), str(after), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["before"]["label"], found["after"]["label"]) == ("before", "after")
    for key in ("outcome", "change", "parts", "headline"):
        assert found[key] == expected[key], key
    changes = [[(entry["kind"], entry["change"]) for entry in data["findings"]] for data in (found, expected)]
    assert changes[0] == changes[1]
    after.write_bytes(after.read_bytes()[:5000])
    assert main(["compare", str(before), str(after), "--lang", "en"]) == 2
    err = capsys.readouterr().err
    assert "after.zip is damaged or cut off" in err and err.count("\n") == 1
    assert not list((tmp_path / "temporary").iterdir()), "nothing stays behind"
