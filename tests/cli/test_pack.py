"""``gpu-doctor pack`` as its users call it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main


@pytest.mark.slow
def test_a_pack_without_names_tells_what_it_is(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.gpudoctor.zip"
    arguments = ["pack", str(demo_logs / "input_bound"), "-o", str(path), "--redact", "--slim"]
    assert main([*arguments, "--lang", "en"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "1 session" in err and "Unpacked:" in err and "same findings and numbers" in err
    assert f"gpu-doctor view {path}" in err and "names" in err
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert not [name for name in zipfile.ZipFile(path).namelist() if "gpu-node" in name]
    before = path.read_bytes()
    assert main([*arguments, "--lang", "es"]) == 0
    assert "mismos hallazgos" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_whoever_keeps_names_is_told(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.zip"
    assert main(["pack", str(demo_logs), "-o", str(path), "--run", "low_occupancy", "--lang", "en"]) == 0
    assert "--redact" in capsys.readouterr().err
    assert "low_occupancy/plugins/profile/2026_03_05_14_02_56/gpu-node-0.xplane.pb" in zipfile.ZipFile(path).namelist()


def test_errors_are_one_line(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(demo_logs / "low_occupancy")
    for arguments in (
        ["pack", str(tmp_path / "nothing")],
        ["pack", str(tmp_path)],
        ["pack", source, "-o", str(tmp_path / "no" / "folder.zip")],
        ["pack", source, "-o", str(tmp_path)],
        ["pack", source, "--run", "nobody"],
        ["pack", source, "--session", "nothing"],
    ):
        assert main([*arguments, "--lang", "en"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("gpu-doctor: error: ") and err.count("\n") == 1, err
    assert list(tmp_path.iterdir()) == []
