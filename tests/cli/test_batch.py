"""``gpu-doctor batch`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main

STEPS = "tests.monitor.batch_steps"
QUICK = ["--warmup", "1", "--repeats", "1"]


@pytest.mark.slow
def test_it_prints_each_size_and_what_to_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["batch", f"{STEPS}:fails_above_32", "--start", "16", *QUICK, "--logdir", str(tmp_path)]
    assert main([*command, "--lang", "es"]) == 0
    out, err = capsys.readouterr()
    assert "Tamaño de lote recomendado: 32" in out and "memoria agotada" in out and err == ""
    assert list(tmp_path.rglob("*.gpu_doctor"))


@pytest.mark.slow
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", f"{STEPS}:linear", "--max", "16", *QUICK, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert [point["batch_size"] for point in result["points"]] == [8, 16] and len(err.splitlines()) == 3


def test_nothing_that_fits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", f"{STEPS}:fails_above_32", "--start", "64", *QUICK]) == 0
    assert "not even 64" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([f"{STEPS}:nothing"], "no function nothing"),
        (["nothing_at_all:f"], "nothing_at_all"),
        ([STEPS], "module:function"),
        ([f"{STEPS}:linear", "--start", "0"], "start=0"),
        ([f"{STEPS}:linear", "--start", "many"], "--start"),
        ([], "MODULE:FUNCTION"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and len(err.splitlines()) == 1


def test_a_bug_in_the_factory_shows_their_code_and_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", f"{STEPS}:has_a_bug", *QUICK]) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("gpu-doctor: error:") and "no such layer" in err
    assert "batch_steps.py" in err and "batch_measure.py" not in err


def test_a_logdir_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    command = ["batch", f"{STEPS}:linear", "--max", "8", *QUICK, "--logdir", str(tmp_path / "file")]
    assert main(command) == 2
    assert "file" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no es módulo:función"),
        (["nowhere.py:f"], "no existe ese archivo"),
        (["nowhere_at_all:f"], "no hay ningún módulo nowhere_at_all"),
        (["tests.monitor.batch_steps:nothing"], "no tiene ninguna función nothing"),
        (["tests.monitor.batch_steps:linear", "--growth", "inf"], "growth=inf está fuera de lo permitido"),
        (["tests.monitor.batch_steps:linear", "--growth", "nan"], "growth=nan está fuera de lo permitido"),
    ],
)
def test_mistakes_are_told_in_the_language_asked_for(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", *arguments, "--lang", "es"]) == 2
    err = capsys.readouterr().err
    assert words in err and err.count("\n") == 1
