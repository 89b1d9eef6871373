"""Event files that survive a full disk: TensorBoard's records, written by TensorBoard's own writer of records.

TensorBoard's `EventFileWriter` ends at the first error, and may import TensorFlow for its file layer. So only
its framing and its messages are used here; below them stands a file that keeps what could not be written.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import Any, Protocol

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tb_gpu_doctor.monitor.origin import Origin
from tb_gpu_doctor.recording_format import PLUGIN_NAME

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
    """

    def __init__(self, folder: str, origin: Origin, suffix: str = "") -> None:
        began_ns = origin.now_ns()
        host = origin.host.replace("/", "_")
        name = f"events.out.tfevents.{began_ns // 1_000_000_000:010d}.{host}.{origin.process_id}.0{suffix}"
        separator = "/" if is_remote(folder) else os.sep
        self.path = f"{folder.rstrip(separator)}{separator}{name}"
        self._remote = is_remote(folder)
        self._target: _Target | None = None
        self._framed = _Framed()
        self._records = RecordWriter(self._framed)
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        # Bytes of the first pending record that the file holds already: its rest must follow.
        self._written_of_first = 0
        self._unsynced = False
        self.dropped_records = 0
        self._add(
            event_pb2.Event(
                wall_time=began_ns / 1e9,
                file_version="brain.Event:2",
                source_metadata=event_pb2.SourceMetadata(writer="tb_gpu_doctor.monitor"),
            )
        )

    def scalars(self, values: list[tuple[str, float]], step: int, wall_s: float) -> None:
        """Add one point of several series."""
        summary = summary_pb2.Summary()
        for tag, value in values:
            summary.value.add(tag=tag, simple_value=value)
        self._add(event_pb2.Event(wall_time=wall_s, step=step, summary=summary))

    def record(self, tag: str, content: bytes, number: int, wall_s: float) -> None:
        """Add a record under the plugin's own name; numbers of one tag must grow."""
        event = event_pb2.Event(wall_time=wall_s, step=number)
        value = event.summary.value.add(tag=tag)
        value.metadata.plugin_data.plugin_name = PLUGIN_NAME
        value.metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.tensor_shape.SetInParent()
        value.tensor.string_val.append(content)
        self._add(event)

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
