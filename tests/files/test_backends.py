"""What stores say of their files, each in its own words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files.backends import _options, install_command, open_backend
from tb_gpu_doctor.files.infos import modified_ns, tag_of

WHEN = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=timezone.utc)
NS = 1_772_368_215_250_000_000


@pytest.mark.parametrize(
    "info",
    [
        {"LastModified": WHEN},
        {"LastModified": WHEN.astimezone(timezone(timedelta(hours=5)))},
        {"mtime": WHEN.timestamp()},
        {"mtime": WHEN, "created": WHEN - timedelta(days=1)},
        {"updated": "2026-03-01T12:30:15.250Z"},
        {"last_modified": WHEN},
        {"modificationTime": int(WHEN.timestamp() * 1000)},
        {"created": WHEN.replace(tzinfo=None)},
    ],
)
def test_times(info: dict[str, Any]) -> None:
    assert modified_ns(info) == NS


def test_a_time_of_a_web_server() -> None:
    assert modified_ns({"Last-Modified": "Sun, 01 Mar 2026 12:30:15 GMT"}) == NS - 250_000_000


@pytest.mark.parametrize("value", ["", "yesterday", None, -5, float("nan"), float("inf"), [], "9" * 400, True])
def test_odd_times_are_no_times(value: Any) -> None:
    assert modified_ns({"mtime": value}) in (0, 1_000_000_000)
    assert modified_ns({"mtime": value, "created": WHEN}) in (NS, 1_000_000_000)


def test_tags() -> None:
    assert tag_of({"ETag": '"abc"'}) != tag_of({"ETag": '"abd"'})
    assert tag_of({"generation": "1"}) != tag_of({"generation": "2"})
    assert tag_of({"size": 3, "name": "x"}) == ""


def test_the_server_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "S3_USE_HTTPS", "S3_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert _options("s3", {}) == {}
    monkeypatch.setenv("S3_ENDPOINT", "http://minio:9000")
    assert _options("s3", {}) == {"endpoint_url": "http://minio:9000"} and "endpoint_url" not in _options("gs", {})
    assert _options("s3", {"s3": {"endpoint_url": "http://mine"}}) == {}
    monkeypatch.setenv("S3_ENDPOINT", "minio:9000")
    assert _options("s3", {}) == {"endpoint_url": "https://minio:9000"}
    monkeypatch.setenv("S3_USE_HTTPS", "0")
    assert _options("s3", {}) == {"endpoint_url": "http://minio:9000"}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://aws")
    assert _options("s3", {}) == {}


@pytest.mark.parametrize(
    ("scheme", "extra"),
    [
        ("gs", "gcs"),
        ("s3a", "s3"),
        ("hdfs", "hdfs"),
        ("abfss", "azure"),
        ("https", "http"),
        ("ssh", "sftp"),
        ("ftp", "remote"),
    ],
)
def test_every_extra_exists(scheme: str, extra: str) -> None:
    from tests.conftest import REPOSITORY

    assert install_command(scheme) == f"pip install 'tb-gpu-doctor[{extra}]'"
    assert f'"{extra}": [' in (REPOSITORY / "setup.py").read_text(encoding="utf-8")


def test_what_fsspec_asks_for_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dropboxdrivefs", None)
    with pytest.raises(RemoteError) as raised:
        open_backend("dropbox://x/y")
    assert raised.value.code == "remote_backend" and "dropboxdrivefs" in raised.value.params["command"]
