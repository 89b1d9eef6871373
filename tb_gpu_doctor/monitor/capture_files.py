"""Where a finished profile goes: its session's name, and how the workers of one job agree on it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PROFILES = os.path.join("plugins", "profile")
_TORCH = ".pt.trace.json"
_SUFFIXES = (".xplane.pb", ".pt.trace.json.gz", ".pt.trace.json", ".trace.json.gz", ".trace.json")
# Workers reach a step within seconds of each other; clocks of hosts and retries need the rest.
AGREE_WITHIN_S = 600


@dataclass(frozen=True)
class Delivery:
    """What was put into the logdir: session name, paths below the logdir, bytes."""

    session: str
    files: tuple[str, ...]
    size_bytes: int


def is_remote(path: str) -> bool:
    """Whether only TensorFlow's or TensorBoard's file layer reaches it."""
    return "://" in path


def session_name(start_ns: int, first: int, last: int) -> str:
    """Like the profiler's own, by which tools sort, and the steps."""
    return f"{time.strftime('%Y_%m_%d_%H_%M_%S', time.localtime(start_ns // 10**9))}_steps_{first}_{last}"


def free_bytes(path: str) -> int | None:
    """Room left where ``path`` is or will be; None where that cannot be told."""
    if is_remote(path):
        return None
    path = os.path.abspath(path)
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def deliver(folder: str, logdir: str, session: str, shared: str | None, start_ns: int) -> Delivery:
    """Move the files that a profiler wrote below ``folder`` into ``logdir``.

    Args:
        folder: where the profiler was told to write.
        logdir: may be remote.
        session: name for it.
        shared: names a profile that every worker of the job takes; they then meet in one session.
        start_ns: when it began, Unix nanoseconds.

    Raises:
        OSError: the logdir cannot be written.
        FileNotFoundError: the profiler wrote nothing.
    """
    found = sorted(_files(folder))
    if not found:
        raise FileNotFoundError("the profiler wrote no file")
    torch = all(_TORCH in os.path.basename(path) for path in found)
    job = job_token() if shared is not None and not torch else None
    target = logdir if torch else _join(logdir, _PROFILES, session)
    if job is not None:
        session = _agree(logdir, f"{job}|{shared}", session, start_ns)
        target = _join(logdir, _PROFILES, session)
        if any(_exists(_join(target, os.path.basename(path))) for path in found) and not _same_host_workers():
            # A job that was started again within minutes: the claim, and the session, are the old one's.
            _withdraw(logdir, f"{job}|{shared}", session)
            mine = session_name(time.time_ns(), 0, 0).partition("_steps")[0] + "_steps" + session.partition("_steps")[2]
            session = _agree(logdir, f"{job}|{shared}", mine, start_ns)
            target = _join(logdir, _PROFILES, session)
    elif not torch:
        session = _own_session(logdir, session)
        target = _join(logdir, _PROFILES, session)
    written, size = [], 0
    for path in found:
        size += os.path.getsize(path)
        place = _move(path, target, os.path.basename(path))
        written.append(place[len(logdir) :].lstrip("/\\") if place.startswith(logdir) else place)
    return Delivery("" if torch else session, tuple(written), size)


def job_token() -> str | None:
    """The same for all processes of one distributed job, None for a process alone."""
    config = os.environ.get("TF_CONFIG")
    if config:
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            cluster = json.loads(config).get("cluster") or {}
            if sum(len(tasks) for tasks in cluster.values()) > 1:
                return hashlib.sha256(json.dumps(cluster, sort_keys=True).encode()).hexdigest()[:16]
    distributed: Any = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if state is not None and (getattr(state, "num_processes", 0) or 0) > 1:
        return hashlib.sha256(str(getattr(state, "coordinator_address", "")).encode()).hexdigest()[:16]
    return None


def _same_host_workers() -> bool:
    """Whether several workers of the job run on one host, as far as TF_CONFIG tells."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        cluster = json.loads(os.environ.get("TF_CONFIG", "")).get("cluster") or {}
        hosts = [str(task).rpartition(":")[0] for tasks in cluster.values() for task in tasks]
        return len(set(hosts)) < len(hosts)
    return False


def _agree(logdir: str, what: str, mine: str, start_ns: int) -> str:
    """The session name of the worker that came first.

    It is put down in a file that only one worker can create; one of an earlier job is too old to count.
    """
    if is_remote(logdir):
        return _agree_remotely(logdir, what, mine, start_ns)
    path = _claim_path(logdir, what)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for _ in range(3):
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            session = _fresh(_read_when_written(path), start_ns)
            if session is not None:
                return session
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            continue
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"session": mine, "start_unix_ns": start_ns}, file)
        return mine
    return mine


def _own_session(logdir: str, name: str) -> str:
    """``name``, or with a number behind it where two profiles begin in the same second; creates the folder."""
    if is_remote(logdir):
        return name
    os.makedirs(_join(logdir, _PROFILES), exist_ok=True)
    for number in range(1, 1000):
        chosen = name if number == 1 else f"{name}_{number}"
        try:
            os.mkdir(_join(logdir, _PROFILES, chosen))
            return chosen
        except FileExistsError:
            continue
    return name


def _claim_path(logdir: str, what: str) -> str:
    return _join(logdir, "gpu_doctor", "profiles", hashlib.sha256(what.encode()).hexdigest()[:20] + ".json")


def _withdraw(logdir: str, what: str, session: str) -> None:
    """Forget an old agreement, unless another worker has already made the new one."""
    path = _claim_path(logdir, what)
    with contextlib.suppress(Exception):
        if is_remote(path):
            _store(path).remove(path)
        elif session in _read_when_written(path):
            os.unlink(path)


def _agree_remotely(logdir: str, what: str, mine: str, start_ns: int) -> str:
    path = _claim_path(logdir, what)
    gfile = _store(path)
    if gfile.exists(path):
        with gfile.GFile(path, "r") as file:
            session = _fresh(file.read(), start_ns)
        if session is not None:
            return session
    gfile.makedirs(os.path.dirname(path))
    with gfile.GFile(path, "w") as file:
        file.write(json.dumps({"session": mine, "start_unix_ns": start_ns}))
    return mine


def _read_when_written(path: str) -> str:
    """Content of a file that another process has just created and may not have filled yet."""
    for _ in range(20):
        with contextlib.suppress(OSError):
            with open(path, encoding="utf-8") as file:
                content = file.read()
            if content:
                return content
        time.sleep(0.01)
    return ""


def _fresh(content: str, start_ns: int) -> str | None:
    try:
        claim = json.loads(content)
        session, then = str(claim["session"]), int(claim["start_unix_ns"])
    except (ValueError, KeyError, TypeError):
        return None
    return session if abs(start_ns - then) < AGREE_WITHIN_S * 10**9 else None


def _files(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            if _TORCH in name or _PROFILES in parent:
                yield os.path.join(parent, name)


def _own_name(name: str) -> str:
    """``name`` with the process's number behind the host's, for where another process of the host came first."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return f"{name[: -len(suffix)]}_{os.getpid()}{suffix}"
    return f"{name}_{os.getpid()}"


def _move(source: str, folder: str, name: str) -> str:
    """Put a file into the logdir under its name, or its own one if that is taken; the path it got."""
    names = (name, _own_name(name))
    if is_remote(folder):
        gfile = _store(folder)
        gfile.makedirs(folder)
        target = _join(folder, names[gfile.exists(_join(folder, name))])
        gfile.copy(source, target, overwrite=True)
        return target
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f".{name}.{os.getpid()}.part")
    try:
        shutil.move(source, part)
        for candidate in names:
            target = os.path.join(folder, candidate)
            if _claim(part, target):
                return target
        os.replace(part, target)
        return target
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _claim(part: str, target: str) -> bool:
    """Give a complete file its name, unless another process has taken it in this moment."""
    try:
        os.link(part, target)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return False
        os.replace(part, target)
        return True


def _exists(path: str) -> bool:
    return bool(_store(path).exists(path)) if is_remote(path) else os.path.exists(path)


def _join(*parts: str) -> str:
    return "/".join(part.rstrip("/") for part in parts) if is_remote(parts[0]) else os.path.join(*parts)


def _store(path: str) -> Any:
    """TensorFlow's or TensorBoard's file layer, for what is no local path."""
    # Here: its module loads TensorBoard's messages, which a local logdir has no need of.
    from tb_gpu_doctor.monitor.event_file import file_layer

    return file_layer(path)
