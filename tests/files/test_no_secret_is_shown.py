"""Every command on addresses that hold a password and cannot be read: one line, and the password is nowhere in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.remote_servers import ENCODED, PASSWORD, USER, sftp_server

SECRET = "very-hidden"
ADDRESSES = (
    f"gpudoctor://me:{SECRET}@host/logs",
    f"sftp://me:{SECRET}@127.0.0.1:9/logs",
    f"s3://KEY:{SECRET}/x@/logs",
    f"filecache::s3://me:{SECRET}@bucket/logs",
    f"zip://run::sftp://me:{SECRET}@host/logs.zip",
    f"http://127.0.0.1:9/logs?sig={SECRET}",
)
COMMANDS = (
    ["diagnose"],
    ["kernels"],
    ["history"],
    ["baseline"],
    ["check"],
    ["check", ".", "--baseline"],
    ["compare"],
    ["pack", "-o", "out.zip"],
    ["view", "--no-open"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for lang in ("en", "es"):
        for address in ADDRESSES:
            places = [address] * (2 if command == ["compare"] else 1)
            assert main([*command, *places, "--lang", lang]) != 0
            out, err = capsys.readouterr()
            assert SECRET not in out + err and "Traceback" not in err, address


@pytest.mark.slow
def test_a_folder_that_is_read_with_a_password(
    demo_logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is read, remembered and packed names the place without it, however it is written."""
    secrets = (PASSWORD, ENCODED)
    kept = tmp_path / "cache"
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(kept))
    monkeypatch.setattr("tb_gpu_doctor.cache.session_state._SETTLED_S", 0.0)
    with sftp_server(demo_logs) as server:
        address = f"sftp://{USER}:{ENCODED}@{server.place}/slow_gpu"
        assert main(["diagnose", address, "--json"]) == 0
        assert main(["compare", address, address, "--lang", "es"]) == 0
        assert main(["pack", address, "-o", str(tmp_path / "run.zip")]) == 0
        assert main(["view", address + "/nothing", "--lang", "en"]) != 0
        out, err = capsys.readouterr()
    assert not any(secret in out + err for secret in secrets)
    files = [*kept.iterdir(), tmp_path / "run.zip"]
    assert len(files) >= 2
    for file in files:
        content = file.read_bytes()
        assert not any(secret.encode() in content for secret in secrets)
