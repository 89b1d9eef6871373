"""Stores for tests: in memory, an S3 server of this process, a web server, and one that lists whatever a test wants."""

from __future__ import annotations

import functools
import http.server
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its relative name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def in_memory(files: Mapping[str, bytes]) -> str:
    """The address of a new logdir in memory that holds these files."""
    store = fsspec.filesystem("memory")
    name = f"gpu-doctor-{uuid.uuid4().hex}"
    store.mkdir(f"/{name}")
    for path, content in files.items():
        store.pipe_file(f"/{name}/{path}", content)
    return f"memory://{name}"


class S3:
    """A bucket of an S3 server."""

    def __init__(self, store: Any, bucket: str) -> None:
        self.store, self.bucket = store, bucket

    def put(self, files: Mapping[str, bytes], folder: str = "logs") -> str:
        """Put files and return their folder's address."""
        for path, content in files.items():
            self.store.pipe_file(f"{self.bucket}/{folder}/{path}", content)
        return f"s3://{self.bucket}/{folder}"

    def names(self) -> set[str]:
        """Everything in the bucket."""
        self.store.invalidate_cache()
        return set(self.store.find(self.bucket))


@contextmanager
def s3_server() -> Iterator[S3]:
    """An S3 server of this process, whose address and keys are in the environment as long as it runs."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (pip install 'tb-gpu-doctor[test]')")
    server_module = pytest.importorskip("moto.server", reason="moto is not installed")
    server = server_module.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key-id",
        "AWS_SECRET_ACCESS_KEY": "very-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with environment(settings):
        try:
            store = fsspec.filesystem("s3", skip_instance_cache=True)
            bucket = f"bucket-{uuid.uuid4().hex[:12]}"
            store.mkdir(bucket)
            yield S3(store, bucket)
        finally:
            server.stop()


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment, as they were before afterwards."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Quiet(http.server.SimpleHTTPRequestHandler):
    status: int | None = None

    def log_message(self, *_arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.status is not None:
            self.send_error(self.status)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        if self.status is not None:
            self.send_error(self.status)
        else:
            super().do_HEAD()


@contextmanager
def web_server(folder: Path, status: int | None = None) -> Iterator[str]:
    """``host:port`` of a web server that lists a folder, or answers everything with a status."""
    handler = type("Handler", (_Quiet,), {"status": status})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class OddStore(AbstractFileSystem):
    """Lists what its class attributes say; reads only, and counts what it is asked."""

    protocol = "oddstore"
    listings: ClassVar[dict[str, list[Any]]] = {}
    contents: ClassVar[dict[str, bytes]] = {}
    sizes: ClassVar[dict[str, int | None]] = {}
    times: ClassVar[dict[str, float]] = {}
    endless = False
    read_wait_s = 0.0
    wait_s = 0.0
    error: BaseException | None = None
    listed: ClassVar[list[str]] = []
    lock = threading.Lock()

    @classmethod
    def reset(cls) -> None:
        """Make it an empty store that answers at once."""
        cls.listings, cls.contents, cls.sizes, cls.times, cls.listed = {}, {}, {}, {}, []
        cls.read_wait_s = 0.0
        cls.endless, cls.wait_s, cls.error = False, 0.0, None

    def ls(self, path: str, detail: bool = True, **_options: Any) -> Any:
        with self.lock:
            self.listed.append(path)
        time.sleep(self.wait_s)
        if self.error is not None:
            raise self.error
        path = path.rstrip("/")
        if self.endless:
            return [{"name": f"{path}/{name}", "type": "directory", "size": 0} for name in ("a", "b", "c")]
        if path not in self.listings:
            raise FileNotFoundError(path)
        return self.listings[path]

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        path = path.rstrip("/")
        if path in self.contents:
            size = self.sizes.get(path, len(self.contents[path]))
            return {"name": path, "type": "file", "size": size, "mtime": self.times.get(path, 1.7e9)}
        if self.endless or path in self.listings:
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> Any:
        assert mode == "rb", "the logdir was opened for writing"
        return _OddFile(self.contents[path], self.sizes.get(path, len(self.contents[path])), self.read_wait_s)


class _OddFile:
    def __init__(self, content: bytes, size: int, wait_s: float = 0.0) -> None:
        self.content, self.size, self.at, self.wait_s = content, size, 0, wait_s

    def __enter__(self) -> _OddFile:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def read(self, count: int = -1) -> bytes:
        time.sleep(self.wait_s)
        piece = self.content[self.at : self.at + count]
        self.at += len(piece)
        return piece


@contextmanager
def odd_store() -> Iterator[type[OddStore]]:
    """`OddStore` behind ``oddstore://``."""
    OddStore.reset()
    fsspec.register_implementation("oddstore", OddStore, clobber=True)
    try:
        yield OddStore
    finally:
        OddStore.reset()
