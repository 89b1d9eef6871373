"""Shows a pack, or any folder, in TensorBoard: unpacked into a folder of its own that is gone in the end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, Any

from tb_gpu_doctor.errors import PackError, ProfileError, RemoteError
from tb_gpu_doctor.files.addresses import is_remote, shown
from tb_gpu_doctor.files.fetching import local_copy
from tb_gpu_doctor.files.system import files_at
from tb_gpu_doctor.isolated_python import isolated
from tb_gpu_doctor.packing.archive import unpack_archive
from tb_gpu_doctor.packing.pack import MANIFEST
from tb_gpu_doctor.traces.sessions import find_sessions

_ADDRESS = re.compile(r"TensorBoard \S+ at (?P<url>http://\S+)")
# By which TensorBoard opens with the tab in front.
_TAB = "#gpu_doctor"
_TAKEN = ("could not bind", "already in use", "Unable to get first address", "could not be reached")
_MAX_LINES = 50
_MAX_MANIFEST_BYTES = 1 << 20
_PATIENCE_S = 10.0


@contextmanager
def opened(path: str) -> Iterator[str]:
    """A folder with what a pack holds, deleted at the end; a folder's own path for a folder.

    Raises:
        PackError: it is no pack, or not to be trusted.
        ProfileError: there is nothing in it to show.
    """
    if _is_folder(path):
        _must_hold_something(path, path)
        yield path
        return
    address, path = path, shown(path)
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-view-") as folder:
        try:
            with local_copy(address) as here:
                unpack_archive(here, folder, shown=path)
        except FileNotFoundError:
            raise PackError("missing", path) from None
        except OSError as error:
            if isinstance(error, RemoteError):
                raise ProfileError(error.code, path, **error.params) from None
            raise PackError("unreadable", path, reason=error.strerror or str(error)) from None
        _must_hold_something(folder, path)
        yield folder


def _is_folder(path: str) -> bool:
    if not is_remote(path) or path.endswith(".zip"):
        return os.path.isdir(path)
    files = files_at(path)
    try:
        files.stat(path)
    except RemoteError as error:
        raise ProfileError(error.code, shown(path), **error.params) from None
    except OSError:
        return False
    return files.isdir(path)


def manifest(folder: str) -> dict[str, Any]:
    """What a pack says of itself; empty for any other folder."""
    try:
        with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
            content = json.loads(file.read(_MAX_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _must_hold_something(folder: str, path: str) -> None:
    scan = find_sessions(folder)
    if not scan.sessions:
        if folder != path:
            raise PackError("nothing_in_it", path)
        raise scan.problems[0] if scan.problems else ProfileError("nothing_found", path, searched=list(scan.searched))


def serve(folder: str, host: str, port: int | None, ready: Callable[[str], None]) -> None:
    """Run TensorBoard on a folder until it ends, or until Ctrl+C, which ends both.

    Args:
        folder: the logdir.
        host: which address to listen at.
        port: None takes the first free one from TensorBoard's usual one on.
        ready: called once with the address of the tab.

    Raises:
        PackError: ``no_tensorboard``, ``port_taken``, ``tensorboard_needs_setuptools`` or ``tensorboard_ended``.
        KeyboardInterrupt: the user ended it.
    """
    arguments = ["--logdir", folder, "--host", host]
    if port is not None:
        arguments += ["--port", str(port)]
    try:
        process = subprocess.Popen(
            isolated("tensorboard.main", arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise PackError("no_tensorboard", reason=error.strerror or str(error)) from None
    try:
        said = _listen(process, ready)
    finally:
        _end(process)
    if any(word in line for line in said for word in _TAKEN):
        raise PackError("port_taken", host=host, port=str(port or 6006))
    last = next((line for line in reversed(said) if line.strip()), "")
    # TensorBoard up to 2.20 asks for it, setuptools from 82 on lacks it
    code = "tensorboard_needs_setuptools" if "No module named 'pkg_resources'" in last else "tensorboard_ended"
    raise PackError(code, reason=last.strip())


def _listen(process: subprocess.Popen[str], ready: Callable[[str], None]) -> list[str]:
    """Read what TensorBoard says until it ends, and return the last lines."""
    said: list[str] = []
    stream: IO[str] | None = process.stdout
    assert stream is not None
    told = False
    for line in stream:
        said.append(line)
        del said[:-_MAX_LINES]
        found = _ADDRESS.search(line)
        if found and not told:
            told = True
            ready(found["url"].rstrip("/") + "/" + _TAB)
    process.wait()
    return said


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Take SIGTERM for Ctrl+C, so that nothing stays behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, before)
