"""``gpu-doctor view`` as its users call it: a real TensorBoard on a real pack."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main

pytestmark = pytest.mark.slow

_PATIENCE_S = 120.0


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", "view", *arguments, "--lang", "en"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "http://" in line:
            return line.split("http://")[1].split("/")[0]
    raise AssertionError("".join(said))


def sessions_at(address: str) -> list[dict[str, object]]:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"http://{address}/data/plugin/gpu_doctor/sessions", timeout=60) as answer:
            found = json.loads(answer.read())
        if not found["scanning"]:
            return list(found["sessions"])
        time.sleep(0.1)
    raise AssertionError("still scanning")


def test_a_pack_is_shown_until_it_is_ended_and_leaves_nothing(demo_logs: Path, tmp_path: Path) -> None:
    pack = tmp_path / "run.gpudoctor.zip"
    assert main(["pack", str(demo_logs / "low_occupancy"), "-o", str(pack), "--redact", "--slim"]) == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(tmp_path, str(pack), "--no-open", "--port", "0")
        try:
            shown = sessions_at(address_of(process))
            assert [(entry["session"], entry["hosts"]) for entry in shown] == [("2026_03_05_14_02_56", ["host1"])]
            assert list((tmp_path / "tmp").glob("gpu-doctor-view-*"))
            process.send_signal(number)
            assert process.wait(_PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
        assert not list((tmp_path / "tmp").glob("gpu-doctor-view-*"))


def test_a_port_that_is_taken_is_told(demo_logs: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = start(tmp_path, str(demo_logs / "healthy"), "--no-open", "--port", port, "--host", "127.0.0.1")
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(_PATIENCE_S) == 2
    assert f"Port {port} of 127.0.0.1 cannot be used" in said and "Traceback" not in said


def test_errors_are_one_line(demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.zip").write_text("no zip")
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as pack:
        pack.writestr("readme.txt", "nothing here")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as pack:
        pack.writestr("../evil.txt", "evil")
    data = (tmp_path / "empty.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[:40])
    words = {
        "text.zip": "no zip file", "folder": "", "empty.zip": "no profile", "evil.zip": "leads out",
        "cut.zip": "cut off", "nothing.zip": "does not exist",
    }  # fmt: skip
    for name, word in words.items():
        assert main(["view", str(tmp_path / name), "--no-open", "--lang", "en"]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("gpu-doctor: error: ") and err.count("\n") == 1 and word in err, err
    for port in ("x", "-1", "70000", "1.5"):
        assert main(["view", str(demo_logs), f"--port={port}", "--no-open", "--lang", "es"]) == 2
        assert "65" in capsys.readouterr().err
    assert not (tmp_path.parent / "evil.txt").exists()
