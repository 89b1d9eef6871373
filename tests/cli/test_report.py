"""``gpu-doctor report``: one file, told where and how large; clear words where it cannot be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main


@pytest.mark.slow
def test_it_writes_a_file_and_says_its_size(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out.html"
    assert main(["report", str(demo_logs), "--run", "healthy", "-o", str(target), "--lang", "en"]) == 0
    told = capsys.readouterr().err
    assert str(target) in told and "healthy/" in told
    [size] = re.findall(r"([\d.]+)\sKiB", told)
    assert float(size) == pytest.approx(target.stat().st_size / 1024, abs=0.1)
    page = target.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert str(demo_logs) not in page
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]
    # The same profile gives the same file.
    again = tmp_path / "again.html"
    assert main(["report", str(demo_logs), "--run", "healthy", "-o", str(again), "--lang", "en"]) == 0
    assert again.read_bytes() == target.read_bytes()


@pytest.mark.slow
def test_the_words_follow_the_language(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out.html"
    assert main(["report", str(demo_logs), "--run", "input_bound", "-o", str(target), "--lang", "es"]) == 0
    assert "escrito" in capsys.readouterr().err
    assert '<html lang="es">' in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "{tmp}"], "is a folder"),
        (["-o", "{tmp}/none/x.html"], "does not exist"),
        (["--run", "none", "-o", "{tmp}/x.html"], "none"),
        (["--session", "none", "-o", "{tmp}/x.html"], "none"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
):
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    assert main(["report", str(demo_logs), *given, "--lang", "en"]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("gpu-doctor: error: ") and words in told and "\n" not in told
    assert not list(tmp_path.iterdir())


def test_it_reads_on_this_machine_only(demo_logs: Path, capsys: pytest.CaptureFixture[str]):
    # Nearly every column of a profile goes into the page, and a cluster's workers keep those with them.
    assert main(["report", str(demo_logs), "--dask", "tcp://localhost:8786", "--lang", "en"]) == 2
    told = capsys.readouterr().err
    assert "unknown argument --dask" in told and "See: gpu-doctor report --help" in told
