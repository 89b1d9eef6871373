"""Every command on a logdir in S3: the same output as on this machine, one clear line for what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.remote_stores import S3, files_below, s3_server

pytestmark = pytest.mark.slow

SECRET = "very-hidden"
Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as store:
        yield store


@pytest.fixture(scope="module")
def places(s3: S3, demo_logs: Path) -> dict[str, tuple[str, str]]:
    """Demos by name: the address and the folder."""
    return {
        name: (s3.put(files_below(demo_logs / name), name), str(demo_logs / name)) for name in ("slow_gpu", "healthy")
    }


def output(capsys: Output, *arguments: str, status: int = 0) -> str:
    found = main([*arguments, "--lang", "en"])
    out, err = capsys.readouterr()
    assert found == status, err
    return out


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnose", "--json"],
        ["diagnose", "--no-color"],
        ["kernels", "--json"],
        ["kernels"],
        ["history"],
        ["baseline"],
    ],
)
def test_the_same_words(places: dict[str, tuple[str, str]], capsys: Output, arguments: list[str]) -> None:
    address, folder = places["slow_gpu"]
    command, *options = arguments
    there = output(capsys, command, address, *options)
    here = output(capsys, command, folder, *options)
    assert there == here and there


def test_compare_and_check(places: dict[str, tuple[str, str]], s3: S3, tmp_path: Path, capsys: Output) -> None:
    slow, healthy = places["slow_gpu"], places["healthy"]
    here = output(capsys, "compare", slow[1], healthy[1], "--json")
    assert output(capsys, "compare", slow[0], healthy[0], "--json") == here
    assert output(capsys, "compare", slow[0], healthy[1], "--json") == here
    baseline = output(capsys, "baseline", healthy[1])
    address = s3.put({"baseline.json": baseline.encode()}, "kept")
    before = s3.names()
    (tmp_path / "gpu-doctor.toml").write_text(f'[check]\nbaseline = "{address}/baseline.json"\n')
    passed = output(capsys, "check", healthy[0], "--baseline", f"{address}/baseline.json", "--format", "json")
    (tmp_path / "baseline.json").write_text(baseline)
    kept = output(capsys, "check", healthy[1], "--baseline", str(tmp_path / "baseline.json"), "--format", "json")
    assert json.loads(passed)["status"] == json.loads(kept)["status"]
    output(capsys, "check", healthy[0], "--config", str(tmp_path / "gpu-doctor.toml"))
    assert s3.names() == before, "something was written into the logdir"


def refused(capsys: Output, lang: str, *arguments: str) -> str:
    assert main([*arguments, "--lang", lang]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and SECRET not in err and "Traceback" not in err
    return err


@pytest.mark.parametrize("command", ["diagnose", "kernels", "history", "baseline", "check"])
@pytest.mark.parametrize(
    ("address", "en", "es"),
    [
        (f"gpudoctor://me:{SECRET}@b/logs", "nothing here can open gpudoctor://", "nada puede abrir"),
        (f"http://me:{SECRET}@127.0.0.1:9/logs?sig={SECRET}", "cannot be reached", "no se puede contactar"),
        ("memory://no/such/logs", "does not exist", "no existe"),
    ],
)
def test_one_clear_line(capsys: Output, command: str, address: str, en: str, es: str) -> None:
    assert en in refused(capsys, "en", command, address)
    assert es in refused(capsys, "es", command, address)


def test_a_bucket_without_keys(s3: S3, capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "no credentials for s3:// were found" in refused(capsys, "en", "diagnose", "s3://bucket-without-keys/logs")
    assert "no se encontraron credenciales" in refused(capsys, "es", "diagnose", "s3://other-without-keys/logs")


def test_a_bucket_that_is_not_there(s3: S3, capsys: Output) -> None:
    assert "does not exist" in refused(capsys, "en", "diagnose", "s3://no-such-bucket/logs")
    assert "No profile found" in refused(capsys, "en", "diagnose", s3.put({"a/b.txt": b"1"}, "empty"))


def test_without_the_backend_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['gcsfs'] = None\n"
        "from tb_gpu_doctor.cli.main import main\n"
        "sys.exit(main(['diagnose', 'gs://bucket/logs', '--lang', sys.argv[1]]))"
    )
    for lang in ("en", "es"):
        done = subprocess.run([sys.executable, "-c", code, lang], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "pip install 'tb-gpu-doctor[gcs]'" in done.stderr
        assert done.stderr.count("\n") == 1


def test_several_jobs_name_no_password(
    demo_logs: Path, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command to copy names the address without what was secret in it."""
    from tests.remote_stores import web_server

    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tb_gpu_doctor.cache.session_state._SETTLED_S", 0.0)
    with web_server(demo_logs) as place:
        assert main(["diagnose", f"http://me:{SECRET}@{place}/", "--no-color", "--lang", "en"]) == 0
    out, err = capsys.readouterr()
    assert SECRET not in out + err and "GPU Doctor" in out
    kept = [path.read_bytes() for path in tmp_path.iterdir()]
    assert kept and not any(SECRET.encode() in content for content in kept)


def test_a_second_look_comes_from_the_cache(
    places: dict[str, tuple[str, str]], capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tb_gpu_doctor.cache.session_state._SETTLED_S", 0.0)
    first = output(capsys, "diagnose", places["healthy"][0], "--json")
    assert len(os.listdir(tmp_path)) == 1
    monkeypatch.setattr("tb_gpu_doctor.api.diagnose_session", None)
    assert output(capsys, "diagnose", places["healthy"][0], "--json") == first
