"""Event files in folders of their own that survive a full disk, framed by TensorBoard's own writer of records.

TensorBoard's `EventFileWriter` gives up at the first error, and may import TensorFlow for its file layer. So only
its framing and its messages are used here, on top of a file that keeps what could not be written yet.

TensorBoard drops points whose step does not grow within a run. Hence every run gets a folder that nobody else
has: neither another monitor on the same logdir nor the training that is started again.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_gpu_doctor.recording_format import FOLDER, PLUGIN_NAME


def host_name() -> str:
    """This machine's name as the profiler of TensorFlow and JAX names its files."""
    return socket.gethostname() or "localhost"


@dataclass(frozen=True)
class Origin:
    """By default this process; a simulation is another one at another time."""

    host: str = field(default_factory=host_name)
    process_id: int = field(default_factory=os.getpid)
    now_ns: Callable[[], int] = time.time_ns


# What waits for a disk that is full or a server that does not answer: many minutes of 8 GPUs.
MAX_PENDING_BYTES = 16 << 20


def is_remote(path: str) -> bool:
    """Tell whether a path names a store that only TensorBoard's or TensorFlow's file layer can reach."""
    return "://" in path


def file_layer(path: str) -> Any:
    """TensorFlow's file layer where training has loaded TensorFlow and it knows such addresses, else TensorBoard's."""
    loaded = sys.modules.get("tensorflow")
    try:
        if loaded is not None and path.split("://")[0] in loaded.io.gfile.get_registered_schemes():
            return loaded.io.gfile
    except AttributeError:
        pass  # an old TensorFlow, or one that is being imported now
    from tensorboard.compat.tensorflow_stub.io import gfile

    return gfile


class _Target(Protocol):
    def write(self, data: bytes) -> int:
        """Write some of ``data`` and return how much.

        Raises:
            Exception: nothing more can be written now.
        """

    def sync(self) -> None:
        """Have all that was written outlive this process."""

    def close(self) -> None: ...


class _LocalTarget:
    """A file without a buffer of its own: what is written is the kernel's, and outlives the process."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        # Each system has one of them: Windows would else end lines its own way.
        flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o666)

    def write(self, data: bytes) -> int:
        return os.write(self._file, data)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        os.close(self._file)


class _RemoteTarget:
    """A file behind TensorBoard's or TensorFlow's file layer, which may hold it here until it is flushed."""

    def __init__(self, path: str) -> None:
        self._file = file_layer(path).GFile(path, "wb")

    def write(self, data: bytes) -> int:
        self._file.write(data)
        return len(data)

    def sync(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _Framed:
    """Takes what `RecordWriter` writes: one whole record a call."""

    def __init__(self) -> None:
        self.record = b""

    def write(self, data: bytes) -> None:
        self.record = data


class EventFile:
    """One event file. Records queue up in memory; `flush` writes them, and keeps them where it cannot.

    Only one thread may use it at a time.

    Args:
        folder: an existing folder, this file's alone.
        origin: whose file it is.
        suffix: end of the file's name.
        name: another name than TensorBoard's files have, so that it does not read this one.

    Attributes:
        size_bytes: of all records that were added.
    """

    def __init__(self, folder: str, origin: Origin, suffix: str = "", name: str | None = None) -> None:
        began_ns = origin.now_ns()
        host = origin.host.replace("/", "_")
        if name is None:
            name = f"events.out.tfevents.{began_ns // 1_000_000_000:010d}.{host}.{origin.process_id}.0{suffix}"
        separator = "/" if is_remote(folder) else os.sep
        self.path = f"{folder.rstrip(separator)}{separator}{name}"
        self._remote = is_remote(folder)
        self._target: _Target | None = None
        self._framed = _Framed()
        self._records = RecordWriter(self._framed)
        self._pending: deque[bytes] = deque()
        self._pending_bytes = self.size_bytes = 0
        # Bytes of the first pending record that the file holds already: its rest must follow.
        self._written_of_first = 0
        self._unsynced = False
        self.dropped_records = 0
        first = event_pb2.Event(wall_time=began_ns / 1e9, file_version="brain.Event:2")
        if hasattr(first, "source_metadata"):  # since TensorBoard 2.12
            first.source_metadata.writer = "tb_gpu_doctor.monitor"
        self._add(first)

    def scalars(self, values: list[tuple[str, float]], step: int, wall_s: float) -> None:
        """Add one point of several series."""
        summary = summary_pb2.Summary()
        for tag, value in values:
            summary.value.add(tag=tag, simple_value=value)
        self._add(event_pb2.Event(wall_time=wall_s, step=step, summary=summary))

    def record(self, tag: str, content: bytes, number: int, wall_s: float, plugin: str = PLUGIN_NAME) -> None:
        """Add a record under the plugin's own name; numbers of one tag must grow."""
        event = event_pb2.Event(wall_time=wall_s, step=number)
        value = event.summary.value.add(tag=tag)
        value.metadata.plugin_data.plugin_name = plugin
        value.metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.tensor_shape.SetInParent()
        value.tensor.string_val.append(content)
        self._add(event)

    def text(self, tag: str, markdown: str, step: int, wall_s: float) -> None:
        """Add a text for TensorBoard's Text tab."""
        self.record(tag, markdown.encode("utf-8", "replace"), step, wall_s, plugin="text")

    def flush(self) -> None:
        """Write what is pending.

        Raises:
            Exception: the file cannot be written now; what is left stays pending.
        """
        if not self._pending and not self._unsynced:
            return
        if self._target is None:
            self._target = _RemoteTarget(self.path) if self._remote else _LocalTarget(self.path)
        # One write for all: a store behind the network counts them.
        data = b"".join(self._pending)
        at = self._written_of_first
        try:
            while at < len(data):
                self._unsynced = True
                at += self._target.write(data[at:])
        finally:
            self._forget(at)
        # What the layer below has taken it keeps: if this fails it is not written again, only synced again.
        self._target.sync()
        self._unsynced = False

    @property
    def vanished(self) -> bool:
        """Whether somebody has deleted the file that is being written."""
        return self._target is not None and not self._remote and not os.path.exists(self.path)

    def close(self) -> None:
        """Flush and close.

        Raises:
            Exception: as `flush`; the file is closed all the same.
        """
        try:
            self.flush()
        finally:
            target, self._target = self._target, None
            if target is not None:
                target.close()

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._pending.append(self._framed.record)
        self._pending_bytes += len(self._framed.record)
        self.size_bytes += len(self._framed.record)
        while self._pending_bytes > MAX_PENDING_BYTES and len(self._pending) > 2:
            # The file's first record makes it an event file, and the one begun must be ended: these stay.
            kept = self._pending.popleft()
            self._pending_bytes -= len(self._pending.popleft())
            self._pending.appendleft(kept)
            self.dropped_records += 1

    def _forget(self, written: int) -> None:
        while self._pending and written >= len(self._pending[0]):
            written -= len(self._pending[0])
            self._pending_bytes -= len(self._pending.popleft())
        self._written_of_first = written


MOST_RUNS = 100_000


def safe_name(name: str) -> str:
    """``name`` as one part of a path."""
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "_"


class RunFolders:
    """The folders of one monitor below ``<logdir>/gpu_doctor/<host>``."""

    def __init__(self, logdir: str, origin: Origin) -> None:
        self._host = safe_name(origin.host)
        self._remote = is_remote(logdir)
        self._separator = "/" if self._remote else os.sep
        self._base = self._join((logdir or ".").rstrip(self._separator), FOLDER, self._host)
        # Object stores make no folder atomically: there the name itself is unique.
        began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(origin.now_ns() / 1e9))
        self._unique = f"{began}-{origin.process_id}-{os.urandom(2).hex()}"

    def claim(self, name: str) -> tuple[str, str]:
        """Create and return a folder that nobody else has: (its path, its run below the logdir).

        ``name`` if it is free, else ``name_2``, ``name_3``, ...

        Raises:
            OSError: it cannot be created; of remote stores also their own exceptions.
        """
        if self._remote:
            return self._claim_remote(name)
        os.makedirs(self._base, exist_ok=True)
        number = self._likely_number(name)
        while number < MOST_RUNS:
            chosen = name if number == 1 else f"{name}_{number}"
            try:
                os.mkdir(self._join(self._base, chosen))
            except FileExistsError:
                number += 1
                continue
            return self._join(self._base, chosen), self._run(chosen)
        raise FileExistsError(f"{MOST_RUNS} runs called {name} in {self._base}")

    def _likely_number(self, name: str) -> int:
        """A free number, unless another process takes it: so a thousand restarts cost one look, not a thousand."""
        pattern = re.compile(re.escape(name) + r"(?:_(\d{1,6}))?")
        taken = [int(match[1] or 1) for entry in os.listdir(self._base) if (match := pattern.fullmatch(entry))]
        return max(taken, default=0) + 1

    def _claim_remote(self, name: str) -> tuple[str, str]:
        chosen = f"{name}_{self._unique}"
        path = self._join(self._base, chosen)
        file_layer(path).makedirs(path)
        return path, self._run(chosen)

    def _join(self, *parts: str) -> str:
        return self._separator.join(parts)

    def _run(self, chosen: str) -> str:
        return f"{FOLDER}/{self._host}/{chosen}"
