"""Writes a monitor's event files anew without names of hosts, processes and users."""

from __future__ import annotations

import json
import re
import struct
from typing import Any, BinaryIO

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.metrics import BY_ID
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.telemetry.recordings import lock_stacks

_FILE = re.compile(
    r"^(?P<head>events\.out\.tfevents\.\d+)\.(?P<host>.+)\.(?P<pid>\d+)\.(?P<number>\d+)(?P<end>\.\w+)?$"
)
_PART = re.compile(r"part_\d{1,9}" + re.escape(form.PART_SUFFIX))
_HEAD = struct.Struct("<Q4x")
_FOOT_BYTES = 4
_FIELD_NAME = re.compile(r"^[a-z][a-z0-9_]{0,63}$|^[\d-]+$")
_GPU_LABEL = re.compile(r"^gpu\d+(?:_\w{1,12})?$|^process(?:_\d+)?$")
_SCALAR_TAG = re.compile(r"^(?:gpu|training)/[a-z0-9_]{1,64}$")
# Reports of the machine: paths, versions of everything installed, who else uses the GPUs.
_REPORT = "environment"
_OF_REPORT = ("memory_growth",)

# What rules read of notes and of the head: the monitor's own words, and those of the driver, which name nobody.
_SAID = {
    "gpu": _GPU_LABEL,
    "ended": re.compile("normal|error"),
    "reason": re.compile(
        r"(?:GPU is lost|Driver Not Loaded|NVML Shared Library Not Found|Insufficient Permissions|Uninitialized|Timeout"
        r"|RM has detected an NVML/RM version mismatch|Unknown Error|Not Supported|GPU Not Found|Not Found)\.?\s*"
    ),
}


def rewrite_events(path: str, out: BinaryIO, names: Names) -> None:
    """Write the event file ``path`` anew; what is not the monitor's own is left out, and so is a damaged end.

    Raises:
        OSError: it cannot be read.
    """
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    writer = RecordWriter(out)
    with open(path, "rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            (length,) = _HEAD.unpack(head)
            if length > form.MAX_BLOCK_BYTES:
                return
            data = file.read(length + _FOOT_BYTES)
            if len(data) < length + _FOOT_BYTES:
                return
            try:
                event = event_pb2.Event.FromString(data[:length])
            except Exception:  # protobuf's own exceptions differ by implementation
                return
            new = event_pb2.Event(wall_time=event.wall_time, step=event.step)
            if event.file_version:
                new.file_version = event.file_version
                # TensorBoard has this since 2.12.
                if getattr(getattr(event, "source_metadata", None), "writer", "") == "tb_gpu_doctor.monitor":
                    new.source_metadata.writer = event.source_metadata.writer
            else:
                for value in event.summary.value:
                    if value.HasField("simple_value") and _SCALAR_TAG.match(value.tag):
                        new.summary.value.add(tag=value.tag, simple_value=value.simple_value)
                    elif value.tensor.string_val and (content := _record(value.tag, value.tensor.string_val[0], names)):
                        copy = new.summary.value.add()
                        copy.CopyFrom(value)
                        copy.tensor.string_val[0] = content
                if not new.summary.value:
                    continue
            writer.write(new.SerializeToString())


def append_stacks(path: str, out: BinaryIO, names: Names | None) -> None:
    """Add what lies beside the recording ``path`` of a process that holds Python's lock, as a fact of the recording."""
    found = lock_stacks(path)
    if found is None or not path.endswith(form.FILE_SUFFIX):
        return
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    values: dict[str, Any] = {"resumed": False, "written_unix_ns": found.written_ns}
    values["threads"] = form.parse_stacks(found.text, None)
    if names is not None:
        values = _plain(values, names)
    event = event_pb2.Event(wall_time=found.written_ns / 1e9)
    value = event.summary.value.add(tag=form.TAG_FACTS + form.FACT_LOCK_HELD)
    value.metadata.plugin_data.plugin_name = form.PLUGIN_NAME
    value.metadata.data_class = summary_pb2.DATA_CLASS_TENSOR
    value.tensor.dtype = 7  # DT_STRING
    value.tensor.string_val.append(json.dumps(values, ensure_ascii=False).encode())
    RecordWriter(out).write(event.SerializeToString())


def redacted_file_name(name: str, names: Names) -> str:
    """The name of an event file without its host and process."""
    match = _FILE.match(name)
    if match is None:
        return name if _PART.fullmatch(name) else names.name(name)
    host, pid = names.host(match["host"]), names.pid(int(match["pid"]))
    return f"{match['head']}.{host}.{pid}.{match['number']}{match['end'] or ''}"


def redacted_run(run: str, names: Names) -> str:
    """``<run>/gpu_doctor/<host>/<gpu>`` without the names of run and host."""
    parts = run.replace("\\", "/").split("/")
    at = len(parts) - 1 - parts[::-1].index(form.FOLDER) if form.FOLDER in parts else len(parts)
    new = [names.name(part) for part in parts[:at]] + parts[at : at + 1]
    for index, part in enumerate(parts[at + 1 :]):
        new.append(names.host(part) if index == 0 else part if _GPU_LABEL.match(part) else names.name(part))
    return "/".join(new)


def _record(tag: str, content: bytes, names: Names) -> bytes | None:
    if tag in (form.TAG_SAMPLES, form.TAG_STEPS, form.TAG_HISTORY, form.TAG_HISTORY_STEPS):
        return content
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if tag == form.TAG_RECORDING and isinstance(values, dict):
        values = _header(values, names)
    elif tag == form.TAG_SPANS and isinstance(values, list):
        values = [_span(span, names) for span in values if isinstance(span, list) and len(span) == 5]
    elif tag == form.TAG_NOTES and isinstance(values, list):
        values = [_note(note, names) for note in values if isinstance(note, dict)]
    elif tag.startswith(form.TAG_FACTS) and isinstance(values, dict):
        if tag == form.TAG_FACTS + _REPORT:
            values = {key: values[key] for key in _OF_REPORT if key in values}
        values = _plain(values, names)
    else:
        return None
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _header(header: dict[str, Any], names: Names) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for key, value in header.items():
        if not _FIELD_NAME.match(key):
            continue
        if key == "host":
            new[key] = names.host(str(value))
        elif key == "process_id":
            new[key] = names.pid(value) if isinstance(value, int) else 0
        elif key == "metrics" and isinstance(value, list):
            new[key] = [metric if metric in BY_ID else names.name(str(metric)) for metric in value]
        elif key == "run":
            new[key] = redacted_run(str(value), names)
        elif key == "gpus" and isinstance(value, list):
            new[key] = [_gpu(gpu, names) for gpu in value if isinstance(gpu, dict)]
        else:
            new[key] = _of_field(key, value, names)
    return new


def _gpu(gpu: dict[str, Any], names: Names) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for key, value in gpu.items():
        if not _FIELD_NAME.match(key):
            continue
        if key == "uuid" and isinstance(value, str):
            new[key] = names.other("GPU-", value)
        elif key == "run" and isinstance(value, str):
            new[key] = redacted_run(value, names)
        elif (key == "name" and isinstance(value, str)) or (key == "label" and _GPU_LABEL.match(str(value))):
            new[key] = value
        else:
            new[key] = _plain(value, names)
    return new


def _span(span: list[Any], names: Names) -> list[Any]:
    kind, start, end, step, note = span
    return [kind if isinstance(kind, str) and _FIELD_NAME.match(kind) else "", start, end, step, _plain(note, names)]


def _note(note: dict[str, Any], names: Names) -> dict[str, Any]:
    key = note.get("key")
    return {
        "key": key if isinstance(key, str) and re.fullmatch(r"[a-z_.]{1,80}", key) else "",
        "params": _plain(note.get("params", {}), names),
        "sentence": _plain(str(note.get("sentence", "")), names),
    }


def _plain(value: Any, names: Names) -> Any:
    """Numbers as they are, names replaced; fields of the monitor's own keep theirs."""
    if isinstance(value, dict):
        return {
            key if _FIELD_NAME.match(key) else names.name(key): _of_field(key, part, names)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_plain(part, names) for part in value]
    return names.name(value) if isinstance(value, str) else value


def _of_field(key: str, value: Any, names: Names) -> Any:
    if key in ("pid", "process_id") and isinstance(value, int):
        return names.pid(value)
    if key in ("metric", "code") and value in BY_ID:
        return value
    if key in ("host", "hostname") and isinstance(value, str):
        return names.host(value)
    if isinstance(value, str) and key in _SAID and _SAID[key].fullmatch(value):
        return value
    return _plain(value, names)
