"""Servers of this process for tests: Google's storage, FTP and SFTP, each with the library that speaks for real."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "me", "hid@den/one"
ENCODED = "hid%40den%2Fone"
_INSTALL = "is not installed (pip install 'tb-gpu-doctor[test]')"


@dataclass
class Gcs:
    """A bucket of an emulator of Google's storage.

    Attributes:
        asked: what it was asked for, one line a request.
    """

    storage: Any
    bucket: str
    asked: list[str] = field(default_factory=list)

    def put(self, files: Mapping[str, bytes], folder: str = "logs") -> str:
        """Put files and return their folder's address."""
        import fsspec

        store = fsspec.filesystem("gs", skip_instance_cache=True)
        for path, content in files.items():
            store.pipe_file(f"{self.bucket}/{folder}/{path}", content)
        return f"gs://{self.bucket}/{folder}"


@contextmanager
def gcs_server() -> Iterator[Gcs]:
    """An emulator whose address is in the environment as long as it runs."""
    pytest.importorskip("gcsfs", reason=f"gcsfs {_INSTALL}")
    server_module = pytest.importorskip("gcp_storage_emulator.server", reason=f"gcp-storage-emulator {_INSTALL}")
    from tests.remote_stores import environment

    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    server = server_module.create_server("127.0.0.1", 0, in_memory=True, default_bucket=bucket)
    server.start()
    while server._api._httpd is None:
        time.sleep(0.01)
    gcs = Gcs(server._storage, bucket)
    handler = server_module.RequestHandler

    class Counting(handler):  # type: ignore[misc, valid-type]
        def handle_one_request(self) -> None:
            super().handle_one_request()
            if getattr(self, "requestline", ""):
                gcs.asked.append(self.requestline)

    server._api._httpd.RequestHandlerClass = lambda *arguments: Counting(server._storage, *arguments)
    place = f"http://127.0.0.1:{server._api._httpd.server_port}"
    # The writing side of the tests would otherwise ask by gRPC, which the emulator does not speak.
    with environment({"STORAGE_EMULATOR_HOST": place, "NO_GCE_CHECK": "true"}):
        try:
            yield gcs
        finally:
            server.stop()


@contextmanager
def ftp_server(folder: Path, lacks: tuple[str, ...] = ()) -> Iterator[str]:
    """``host:port`` of an FTP server for `USER` and for nobody in particular, which may lack commands."""
    authorizers = pytest.importorskip("pyftpdlib.authorizers", reason=f"pyftpdlib {_INSTALL}")
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.servers import ThreadedFTPServer

    logging.getLogger("pyftpdlib").setLevel(logging.ERROR)
    users = authorizers.DummyAuthorizer()
    users.add_user(USER, PASSWORD, str(folder), perm="elr")
    users.add_anonymous(str(folder))
    commands = {name: command for name, command in FTPHandler.proto_cmds.items() if name not in lacks}
    settings = {"authorizer": users, "auth_failed_timeout": 0.1, "proto_cmds": commands}
    handler = type("Handler", (FTPHandler,), settings)
    server = ThreadedFTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"timeout": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        server.close_all()
        thread.join(5)


class Sftp:
    """An SFTP server of a folder.

    Attributes:
        place: ``host:port``.
        key: its own.
    """

    def __init__(self, folder: Path) -> None:
        import paramiko

        self._folder = folder
        self.key = paramiko.RSAKey.generate(2048)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._lines: list[Any] = []
        self.place = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def lines(self) -> int:
        """How many have come so far."""
        return len(self._lines)

    def cut_lines(self) -> None:
        """Break all lines that are open, as a server does with idle ones."""
        for line in self._lines:
            line.close()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for the next line
        self._socket.close()
        self.cut_lines()

    def _serve(self) -> None:
        import paramiko

        server, folder = _sftp_classes()
        with contextlib.suppress(OSError):
            while True:
                line = paramiko.Transport(self._socket.accept()[0])
                line.add_server_key(self.key)
                line.set_subsystem_handler("sftp", paramiko.SFTPServer, folder, self._folder)
                self._lines.append(line)
                with contextlib.suppress(Exception):
                    line.start_server(server=server())


def _sftp_classes() -> tuple[Any, Any]:
    import paramiko

    class Server(paramiko.ServerInterface):
        def check_auth_password(self, username: str, password: str) -> int:
            known = (username, password) == (USER, PASSWORD)
            return paramiko.AUTH_SUCCESSFUL if known else paramiko.AUTH_FAILED

        def check_channel_request(self, _kind: str, _number: int) -> int:
            return paramiko.OPEN_SUCCEEDED

        def get_allowed_auths(self, _username: str) -> str:
            return "password"

    class Folder(paramiko.SFTPServerInterface):
        def __init__(self, _server: Any, root: Path, *arguments: Any, **named: Any) -> None:
            super().__init__(_server, *arguments, **named)
            self._root = root

        def _real(self, path: str) -> str:
            return str(self._root) + self.canonicalize(path)

        def list_folder(self, path: str) -> Any:
            try:
                return [
                    paramiko.SFTPAttributes.from_stat(entry.stat(follow_symlinks=False), entry.name)
                    for entry in os.scandir(self._real(path))
                ]
            except OSError as error:
                return paramiko.SFTPServer.convert_errno(error.errno)

        def stat(self, path: str) -> Any:
            try:
                return paramiko.SFTPAttributes.from_stat(os.stat(self._real(path)))
            except OSError as error:
                return paramiko.SFTPServer.convert_errno(error.errno)

        lstat = stat

        def open(self, path: str, _flags: int, _attributes: Any) -> Any:
            try:
                handle = paramiko.SFTPHandle()
                handle.readfile = open(self._real(path), "rb")  # noqa: SIM115  # paramiko closes it
                handle.stat = lambda: paramiko.SFTPAttributes.from_stat(os.fstat(handle.readfile.fileno()))
            except OSError as error:
                return paramiko.SFTPServer.convert_errno(error.errno)
            return handle

    return Server, Folder


@contextmanager
def sftp_server(folder: Path) -> Iterator[Sftp]:
    """An SFTP server for `USER`."""
    pytest.importorskip("paramiko", reason=f"paramiko {_INSTALL}")
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    server = Sftp(folder)
    try:
        yield server
    finally:
        server.close()
