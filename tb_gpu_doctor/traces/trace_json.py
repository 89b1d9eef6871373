"""Decode a trace in Chrome's JSON format, by PyTorch or TensorFlow, into a `Trace`."""

from __future__ import annotations

import gc
from collections.abc import Callable

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.json_document import Document, parse_document
from tb_gpu_doctor.traces.json_file import read_json_bytes
from tb_gpu_doctor.traces.kineto import kineto_trace
from tb_gpu_doctor.traces.kineto_events import DEVICE_CATEGORIES, HOST_CATEGORIES
from tb_gpu_doctor.traces.sessions import host_of
from tb_gpu_doctor.traces.tf_json import is_tf_export, tf_trace

# Shares of the work: unpacking, then parsing; the rest is making columns.
_READ, _PARSED = 0.2, 0.6


def read_trace_json(path: str, host: str | None = None, progress: Callable[[float], None] | None = None) -> Trace:
    """Decode one ``*.json`` or ``*.json.gz`` file; which profiler wrote it is told from its content.

    Args:
        path: the file.
        host: label of its host or process; by default from the file's name.
        progress: called with the share that is done, 0..1.

    Raises:
        ProfileError: see `json_file.read_json_bytes` and `json_document.parse_document`; ``not_trace_json``
            also for JSON that no profiler of PyTorch or TensorFlow wrote.
    """

    def report(done: float) -> None:
        if progress is not None:
            progress(done)

    data, is_cut = read_json_bytes(path, lambda done: report(done * _READ))
    # Millions of new objects and no cycles: collecting garbage meanwhile only takes time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        document = parse_document(data, path, is_cut)
        del data
        report(_PARSED)
        label = host if host is not None else host_of(path)
        if is_tf_export(document):
            trace = tf_trace(document, path, label)
        elif _is_kineto(document):
            trace = kineto_trace(document, path, label)
        else:
            raise ProfileError("not_trace_json", path)
    finally:
        if collecting:
            gc.enable()
    report(1.0)
    return trace


def _is_kineto(document: Document) -> bool:
    """Whether PyTorch wrote it: its version of the format is there, or events of its categories."""
    if document.has_schema or document.device_properties is not None or document.distributed is not None:
        return True
    known = DEVICE_CATEGORIES.keys() | HOST_CATEGORIES.keys()
    return any((event.cat or "").lower() in known for event in document.complete)
