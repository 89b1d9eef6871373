"""Opening a server: once for all who wait, anew where it failed, and with little patience."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files import connection as module
from tb_gpu_doctor.files.connection import Connection
from tb_gpu_doctor.files.patience import VARIABLE


class Backend:
    """Answers with the path that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @staticmethod
    def _strip_protocol(path: str) -> str:
        return path.partition("://")[2]

    def info(self, path: str) -> str:
        self.asked.append(path)
        return path


@pytest.mark.parametrize(
    ("address", "inner"),
    [
        ("sftp://me:pass@host:22/a b/c?d#e%20", "/a b/c?d#e%20"),
        ("ftp://host", "/"),
        ("hdfs:///logs/x", "/logs/x"),
        ("webhdfs://me@host:9870/a?b", "/a?b"),
        ("s3://key:se/cret@bucket/a?b", "bucket/a?b"),
        ("http://me:pass@host/a/b?sig=1", "http://me:pass@host/a/b?sig=1"),
        ("gs://bucket/a#1", "bucket/a#1"),
        ("abfs://container@account.dfs.core.windows.net/a", "container@account.dfs.core.windows.net/a"),
    ],
)
def test_what_the_backend_is_asked_for(monkeypatch: pytest.MonkeyPatch, address: str, inner: str) -> None:
    from tb_gpu_doctor.files.addresses import shown, split_address

    opened: list[str] = []

    def open_backend(place: str) -> Backend:
        opened.append(place)
        return Backend()

    monkeypatch.setattr(module, "open_backend", open_backend)
    scheme, user, place, query = split_address(address)
    connection = Connection(scheme + place.partition("/")[0])
    connection.learn(user, scheme + place, query)
    assert connection.ask("info", shown(address)) == inner
    assert opened == [f"{scheme}{user}{place.partition('/')[0]}"]


def test_many_wait_for_one_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    gate = threading.Event()

    def open_backend(place: str) -> Any:
        opened.append(place)
        gate.wait(10)
        if len(opened) == 1:
            raise RemoteError("remote_denied", scheme="gs", reason="no")
        return Backend()

    monkeypatch.setattr(module, "open_backend", open_backend)
    connection = Connection("gs://bucket")
    failed: list[str] = []

    def ask() -> None:
        try:
            connection.ask("info", "gs://bucket/a")
        except RemoteError as error:
            failed.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    gate.set()
    for thread in threads:
        thread.join(10)
    assert (len(opened), failed) == (1, ["remote_denied"] * 8)
    assert connection.ask("info", "gs://bucket/a") == "bucket/a" and len(opened) == 2


@pytest.mark.slow
def test_an_opening_that_hangs_is_given_up_and_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(module, "_STUCK_FACTOR", 1.5)
    gate = threading.Event()
    opened: list[str] = []

    def open_backend(place: str) -> Any:
        opened.append(place)
        if len(opened) == 1:
            gate.wait(30)
        return Backend()

    monkeypatch.setattr(module, "open_backend", open_backend)
    connection = Connection("gs://bucket")
    began = time.monotonic()
    with pytest.raises(RemoteError) as raised:
        connection.ask("info", "gs://bucket/a")
    assert (raised.value.code, raised.value.params["seconds"]) == ("remote_timeout", 1)
    assert time.monotonic() - began < 5
    time.sleep(0.6)
    assert connection.ask("info", "gs://bucket/a") == "bucket/a" and len(opened) == 2
    gate.set()


@pytest.mark.parametrize("address", ["gs://", "s3:///logs", "az://", "http://", "sftp:///logs"])
def test_an_address_without_a_place_is_not_asked_for(address: str) -> None:
    with pytest.raises(FileNotFoundError):
        Connection(address.partition("://")[0] + "://").ask("info", address)


@pytest.mark.parametrize("said", ["p@ss/word", "p%40ss%2Fword", "me:p%40ss%2Fword"])
def test_what_a_backend_says_holds_no_password(said: str) -> None:
    connection = Connection("sftp://host")
    connection.learn("me:p%40ss%2Fword@", "sftp://host/a", "")
    found = connection.translated(ValueError(f"cannot log in with {said} here"))
    assert isinstance(found, RemoteError) and found.params["reason"] == "cannot log in with here"
