"""What the command takes, and what it says of what it does not take."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path

import pytest

from tb_gpu_doctor.cli import arguments
from tb_gpu_doctor.cli.main import command_names, main
from tb_gpu_doctor.texts import languages, template

Output = pytest.CaptureFixture[str]


def said(capsys: Output, *given: str, lang: str = "en") -> str:
    assert main(["--lang", lang, *given]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    return err


@pytest.mark.parametrize("lang", languages())
def test_every_message_of_argparse_has_its_placeholders(lang: str) -> None:
    for message, key in arguments._MESSAGES.items():
        found = template(f"cli.argparse.{key}", lang)
        assert found, key
        placeholder = r"%(?:\(\w+\))?[sr]"
        ours, theirs = re.findall(placeholder, found), re.findall(placeholder, message)
        named = all("(" in each for each in theirs)
        assert set(ours) <= set(theirs) if named else ours == theirs, (message, found)


def test_the_messages_are_those_of_argparse() -> None:
    """Of this Python: a message that it words anew would be said in English."""
    asked = set(re.findall(r"\b_\(\s*'([^']*)'", inspect.getsource(argparse)))
    known = arguments._MESSAGES.keys() & asked
    for part in ("usage", "positional", "options", "unrecognized", "required: ", "expected one", "explicit", "allowed"):
        assert any(part in message for message in known), part


def test_argparse_speaks_english_again() -> None:
    before = vars(argparse)["_"]
    with arguments.argparse_in("es"):
        assert vars(argparse)["_"]("options") == "opciones" and vars(argparse)["_"]("xyz") == "xyz"
    assert vars(argparse)["_"] is before


def test_a_path_alone_is_diagnosed(demo_logs: Path, capsys: Output) -> None:
    path = str(demo_logs / "input_bound")
    assert main(["diagnose", path, "--lang", "en"]) == 0
    expected = capsys.readouterr().out
    for given in ([path, "--lang", "en"], ["--lang", "en", path], ["--no-color", path, "--lang=en"]):
        assert main(given) == 0
        assert capsys.readouterr().out == expected


def test_a_mistyped_word_gets_a_suggestion(capsys: Output) -> None:
    assert "Did you mean diagnose?" in said(capsys, "diagnos", "x")
    assert "Did you mean" not in said(capsys, "xyzzy")
    assert "¿Quería decir --session?" in said(capsys, "diagnose", "x", "--sesion", "y", lang="es")
    assert "/nowhere/x does not exist" in said(capsys, "/nowhere/x")


@pytest.mark.slow
def test_every_command_takes_what_any_takes(demo_logs: Path, tmp_path: Path, capsys: Output) -> None:
    pack, run = str(tmp_path / "run.gpudoctor.zip"), demo_logs / "low_occupancy"
    assert main(["pack", str(run), "-o", pack]) == 0
    one = str(next(run.glob("plugins/profile/*/*.xplane.pb")))
    for path in (pack, str(run), one):
        for command in (["diagnose", "--brief"], ["kernels"], ["history"], ["baseline"], ["check"], ["compare", path]):
            assert main([*command, path, "--lang", "en"]) in ((0, 1) if command == ["check"] else (0,)), (command, path)
        for command in ("report", "pack"):
            assert main([command, path, "-o", str(tmp_path / "out")]) == 0
    assert str(tmp_path) not in capsys.readouterr().out.replace(one, "")


def test_nothing_in_a_file_is_an_error(tmp_path: Path, capsys: Output) -> None:
    plain, target = tmp_path / "plain.txt", tmp_path / "out"
    plain.write_text("hello", encoding="utf-8")
    for command in ("diagnose", "kernels", "history", "baseline", "check", "view"):
        assert "plain.txt is not" in said(capsys, command, str(plain))
    for command in ("report", "pack"):
        assert "plain.txt is not" in said(capsys, command, str(plain), "-o", str(target))
    assert not target.exists()


def test_briefly(demo_logs: Path, capsys: Output) -> None:
    assert main(["diagnose", str(demo_logs / "input_bound"), "--brief", "--lang", "en"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "CRITICAL" in lines[0] and "all 4 GPUs" in lines[1] and "input 44%" in lines[1].replace("\xa0", " ")
    assert lines[2].startswith("1. ") and "per step" in lines[2]


def test_every_command_is_documented_in_its_help(capsys: Output) -> None:
    for name in command_names():
        for lang in languages():
            with pytest.raises(SystemExit):
                main([name, "--help", "--lang", lang])
            out = capsys.readouterr().out
            assert f"gpu-doctor {name}" in out and "--lang" in out and ("uso:" in out) == (lang == "es")
