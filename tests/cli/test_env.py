"""``gpu-doctor env`` as a user runs it."""

from __future__ import annotations

import json

import pytest

from tb_gpu_doctor.cli.main import main


@pytest.mark.parametrize("lang", ["en", "es"])
def test_it_prints_a_report(lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--framework", "none", "--lang", lang]) == 0
    out, err = capsys.readouterr()
    assert out.startswith({"en": "Environment", "es": "Entorno"}[lang]) and "Python" in out and err == ""


def test_json_has_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--framework", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["version"] == 1
    for problem in report["problems"]:
        assert problem["text"] and problem["fix"]


def test_a_framework_that_is_not_installed_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    from tb_gpu_doctor.monitor.environment_probe import installed

    if installed("jax"):
        pytest.skip("JAX is installed here")
    assert main(["env", "--framework", "jax"]) == 0
    assert "not installed" in capsys.readouterr().out


def test_an_unknown_framework_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--framework", "mxnet"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
