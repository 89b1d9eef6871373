"""Whatever is thrown at the command: one understandable line and exit status 2, or a diagnosis; never a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

import tb_gpu_doctor.api  # noqa: F401
from simulator.xplane_writer import Space
from tb_gpu_doctor.cli import main as command
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.report.diagnosis_report import schema
from tests.cli.profiles import MS, session_file, training, write

Output = pytest.CaptureFixture[str]


def refused(capsys: Output, *arguments: str | Path) -> str:
    """The one line on stderr of a command that could not diagnose."""
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    assert err.startswith("gpu-doctor: error: ")
    return err


def diagnosed(capsys: Output, path: Path) -> dict:  # type: ignore[type-arg]
    """The JSON of a profile that could be diagnosed, in both languages and as a summary too."""
    for lang in ("es", "en"):
        assert main(["diagnose", str(path), "--lang", lang]) == 0
        out, _ = capsys.readouterr()
        assert not [c for c in out if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"]
        assert main(["diagnose", str(path), "--json", "--lang", lang]) == 0
        data = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator(schema()).validate(data)
    return data


# -- files and folders ---------------------------------------------------------------------


def test_missing_path(tmp_path: Path, capsys: Output) -> None:
    assert "does not exist" in refused(capsys, "diagnose", tmp_path / "nope")


def test_empty_logdir_says_where_it_looked(tmp_path: Path, capsys: Output) -> None:
    err = refused(capsys, "diagnose", tmp_path)
    assert str(tmp_path) in err and "plugins/profile" in err


def test_spanish_refusals(tmp_path: Path, capsys: Output) -> None:
    assert "no existe" in refused(capsys, "diagnose", tmp_path / "nope", "--lang", "es")


CONTENTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "text": (lambda _: b"this is a text file, not a profile\n" * 20, "is not an XPlane profile"),
    "json": (lambda _: b'{"traceEvents": []}', "is not an XPlane profile"),
    "random": (lambda _: random.Random(7).randbytes(5000), "is not an XPlane profile"),
    "zeros": (lambda _: bytes(1000), ""),
    "truncated": (lambda whole: whole[:60], "ends too early"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_that_is_no_profile(tmp_path: Path, capsys: Output, name: str) -> None:
    whole = b"".join(training(marked=True).chunks())
    make, says = CONTENTS[name]
    path = session_file(tmp_path)
    path.write_bytes(make(whole))
    assert says in refused(capsys, "diagnose", tmp_path)
    assert path.name in refused(capsys, "diagnose", path)


@pytest.mark.parametrize("seed", range(60))
def test_bytes_out_of_place_never_make_a_traceback(tmp_path: Path, capsys: Output, seed: int) -> None:
    draw = random.Random(seed)
    data = bytearray(b"".join(training(steps=3).chunks()))
    for _ in range(draw.choice([1, 3, 30])):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path = session_file(tmp_path)
    path.write_bytes(data)
    status = main(["diagnose", str(tmp_path), "--json"])
    out, err = capsys.readouterr()
    assert status in (0, 2) and "Traceback" not in err and "Unexpected failure" not in err
    if status == 0:
        jsonschema.Draft202012Validator(schema()).validate(json.loads(out))


def test_riegeli_says_what_to_do(tmp_path: Path, capsys: Output) -> None:
    session_file(tmp_path).with_name("worker0.xplane.riegeli").write_bytes(b"\x83\xaf\x70\xd1" * 20)
    assert "riegeli" in refused(capsys, "diagnose", tmp_path)


def test_a_remote_address(capsys: Output) -> None:
    assert "gpudoctor://" in refused(capsys, "diagnose", "gpudoctor://me:secret@bucket/logs")


@pytest.mark.parametrize("path", ["\0", "x" * 5000, "a\x1b[31mb\nc"])
def test_odd_paths(capsys: Output, path: str) -> None:
    err = refused(capsys, "diagnose", path)
    assert "\x1b" not in err


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """A folder that others may enter, with the rights of nobody where the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    root = os.geteuid() == 0
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        for path in folder.rglob("*"):
            path.chmod(0o755)
        shutil.rmtree(folder)


def give_up_rights() -> None:
    if os.geteuid() == 0:
        os.seteuid(65534)


def test_a_folder_without_permission(ordinary_user: Path, capsys: Output) -> None:
    logs = ordinary_user / "logs"
    write(training(), session_file(logs))
    assert main(["diagnose", str(logs)]) == 0  # whatever is imported late is imported now
    capsys.readouterr()
    logs.chmod(0)
    give_up_rights()
    assert "may not be read" in refused(capsys, "diagnose", logs)


def test_a_file_without_permission(ordinary_user: Path, capsys: Output) -> None:
    path = write(training(), session_file(ordinary_user))
    assert main(["diagnose", str(ordinary_user)]) == 0
    capsys.readouterr()
    path.chmod(0)
    give_up_rights()
    assert "may not be read" in refused(capsys, "diagnose", ordinary_user)


def test_one_run_without_permission_does_not_hide_the_others(ordinary_user: Path, capsys: Output) -> None:
    write(training(), session_file(ordinary_user, run="good"))
    write(training(), session_file(ordinary_user, run="secret"))
    assert main(["diagnose", str(ordinary_user)]) == 0
    capsys.readouterr()
    (ordinary_user / "secret").chmod(0)
    give_up_rights()
    assert main(["diagnose", str(ordinary_user)]) == 0
    out, err = capsys.readouterr()
    assert "good" in out and "secret" in err and "may not be read" in err


def test_one_broken_host_does_not_hide_the_others(tmp_path: Path, capsys: Output) -> None:
    write(training(), session_file(tmp_path, "a"))
    session_file(tmp_path, "b").write_bytes(b"junk" * 100)
    session_file(tmp_path, "c").write_bytes(b"")
    data = diagnosed(capsys, tmp_path)
    assert data["profile"]["hosts"] == ["a"]
    missing, first, second = data["profile"]["warnings"]
    assert "2 of 3 files missing: b and c" in missing and missing == data["profile"]["incomplete"]
    assert "b.xplane.pb" in first and "c.xplane.pb" in second


# -- what profiles can contain -------------------------------------------------------------


def kinds(data: dict) -> list[str]:  # type: ignore[type-arg]
    return [finding["kind"] for finding in data["findings"]]


def test_host_only(tmp_path: Path, capsys: Output) -> None:
    space = training()
    space.planes = [plane for plane in space.planes if plane.name.startswith("/host")]
    write(space, session_file(tmp_path))
    data = diagnosed(capsys, tmp_path)
    # the host's markers tell how fast steps come without any GPU
    told = {"count": 5, "source": "marked", "median_ms": pytest.approx(10), "samples": None, "samples_per_s": None}
    assert data["steps"] == told
    assert kinds(data) == ["no_gpu_plane"] and data["findings"][0]["cause"] == "launched"
    assert data["verdict"] == "cannot_tell" and data["devices"] == []


def test_gpu_planes_without_lines(tmp_path: Path, capsys: Output) -> None:
    space = Space(errors=("Insufficient privilege to run libcupti (you need root permission).",))
    space.plane("/device:GPU:0", 1)
    space.plane("/device:GPU:1", 2)
    write(space, session_file(tmp_path))
    data = diagnosed(capsys, tmp_path)
    assert kinds(data) == ["empty_gpu_plane"] and data["findings"][0]["cause"] == "cupti_permission"
    assert data["verdict"] == "cannot_tell" and data["devices"][0]["wall_ms"] is None


def test_device_stats_missing(tmp_path: Path, capsys: Output) -> None:
    write(training(stats=False), session_file(tmp_path))
    data = diagnosed(capsys, tmp_path)
    assert data["devices"][0]["occupancy"] is None and data["devices"][0]["name"] is None


@pytest.mark.parametrize("details", ["regs:2191500840 static_shared:0 dynamic_shared:0 grid:1,1,1 block:9999,1,1",
                                     "regs:x grid:,, block:-1,0,0", "", "grid:99999999999999999999,1,1",
                                     "\x1b[31m"])  # fmt: skip
def test_garbage_in_kernel_details(tmp_path: Path, capsys: Output, details: str) -> None:
    write(training(details=details), session_file(tmp_path))
    assert diagnosed(capsys, tmp_path)["kernels"][0]["limiter"] is None


def test_zero_and_negative_durations(tmp_path: Path, capsys: Output) -> None:
    write(training(durations=[MS, 0, -5 * MS, MS]), session_file(tmp_path))
    data = diagnosed(capsys, tmp_path)
    assert any("before" in warning for warning in data["profile"]["warnings"])


def test_overlaps_inside_one_stream(tmp_path: Path, capsys: Output) -> None:
    write(training(durations=[3 * MS, MS]), session_file(tmp_path))
    device = diagnosed(capsys, tmp_path)["devices"][0]
    assert device["compute_ms"] <= device["wall_ms"]


def test_times_beyond_seven_days(tmp_path: Path, capsys: Output) -> None:
    week = 8 * 24 * 3600 * 10**12
    write(training(durations=[MS, week, MS]), session_file(tmp_path))
    data = diagnosed(capsys, tmp_path)
    assert any("7 days" in warning for warning in data["profile"]["warnings"])
    assert data["profile"]["window_ms"] < 1e6


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\x1b]0;owned\x07\x1b[31m", "[bold]x[/bold]",
                                  "k" * 100_000, "‮drowssap", "{gpus} %s \\n"])  # fmt: skip
def test_names_with_markup_control_characters_or_100_kilobytes(tmp_path: Path, capsys: Output, name: str) -> None:
    write(training(kernel=name, host_event=name, warnings=[name]), session_file(tmp_path, session="s"))
    data = diagnosed(capsys, tmp_path)
    assert len(data["kernels"][0]["name"]) <= 1000
    assert data["verdict"] == "ok"


# -- arguments, and the world around the process -------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [(), ("nope",), ("diagnose",), ("diagnose", "--bogus", "x"), ("diagnose", "x", "y"),
     ("diagnose", "x", "--lang", "fr"), ("diagnose", "x", "--run"), ("--bogus",),
     ("diagnose", "x", "--json=1"), ("diagnose", "x", "--ses", "y")],
)  # fmt: skip
def test_arguments_that_make_no_sense(capsys: Output, arguments: tuple[str, ...]) -> None:
    assert "--help" in refused(capsys, *arguments)


def test_complaints_in_spanish(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "es_ES.UTF-8")
    assert "argumento desconocido: --bogus." in refused(capsys, "diagnose", "x", "--bogus")
    assert "falta: RUTA." in refused(capsys, "diagnose")
    assert "falta: ORDEN." in refused(capsys)
    assert "--lang no puede ser 'fr'; posible: 'en', 'es'." in refused(capsys, "diagnose", "x", "--lang", "fr")


def test_help_and_version(capsys: Output) -> None:
    for arguments in (["--help"], ["diagnose", "--help"], ["diagnose", "-h", "--lang", "es"], ["--version"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
        out, err = capsys.readouterr()
        assert out and not err
        if "es" in arguments:
            assert not [word for word in ("usage", "options", "arguments", "show this") if word in out]
            assert "uso:" in out and "opciones" in out


def test_a_failure_inside_is_one_line(capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_path: str) -> None:
        raise RuntimeError("a\x1b[31mbug")

    monkeypatch.setattr("tb_gpu_doctor.traces.sessions.find_sessions", fail)
    err = refused(capsys, "diagnose", tmp_path)
    assert "RuntimeError" in err and "\x1b" not in err


def test_ctrl_c_is_no_traceback(capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(_path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tb_gpu_doctor.traces.sessions.find_sessions", interrupt)
    assert main(["diagnose", str(tmp_path)]) == command.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    write(training(), session_file(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "diagnose", str(tmp_path), "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0 and errors == ""


@pytest.mark.slow
def test_a_real_ctrl_c(tmp_path: Path) -> None:
    """SIGINT in the middle of the work of another process."""
    fifo = tmp_path / "never.xplane.pb"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "diagnose", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (2, command.INTERRUPTED) and "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "status", "words"), [(">/dev/full", 2, "No space left on device"), (">&-", 0, "")]
)
def test_an_output_that_takes_nothing(demo_logs: Path, redirection: str, status: int, words: str):
    command = f'"$0" -m tb_gpu_doctor.cli.main check "$1" --lang en {redirection}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(demo_logs / "healthy")],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=os.environ | {"COLUMNS": "80"},
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr and "Unexpected" not in done.stderr
    assert done.stderr.count("\n") == (1 if words else 0)


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", ["baseline", "report"])
def test_an_output_that_is_no_file_is_written_through_and_stays(demo_logs: Path, tmp_path: Path, subcommand: str):
    # A rename would put a file in the place of the device or the link.
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("")
    link.symlink_to(target)
    os.mkfifo(pipe)
    healthy = str(demo_logs / "healthy")
    assert main([subcommand, healthy, "-o", str(link)]) == 0
    assert link.is_symlink() and target.stat().st_size > 1000
    with subprocess.Popen(["wc", "-c", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert main([subcommand, healthy, "-o", str(pipe)]) == 0
        assert int(reader.communicate(timeout=60)[0].split()[0]) == target.stat().st_size
    assert pipe.is_fifo() and {path.name for path in tmp_path.iterdir()} == {"target", "link", "pipe"}
