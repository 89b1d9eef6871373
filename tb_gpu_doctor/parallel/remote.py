"""The work of one file on another machine of a cluster, which sees the same files by the same paths."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

from tb_gpu_doctor import __version__
from tb_gpu_doctor.analysis.results import TraceAnalysis
from tb_gpu_doctor.parallel.compact import pack, unpack
from tb_gpu_doctor.parallel.one_file import analyse_file
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.errors import TraceError
from tb_gpu_doctor.traces.sessions import ProfileFile


def work_on(file: ProfileFile, version: str) -> bytes:
    """Decode and analyse a file, in the worker: the packed outcome, a `TraceError` among them.

    Args:
        file: with a path that means the same everywhere.
        version: the doctor's that asks; another one could give other numbers.
    """
    here = socket.gethostname()
    if version != __version__:
        return pack(TraceError("cluster_other_version", file.path, worker=here, theirs=__version__, ours=version))
    try:
        if "://" not in file.path:
            os.stat(file.path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return pack(TraceError("file_not_on_worker", file.path, worker=here, reason=reason))
    try:
        return pack(analyse_file(file))
    except TraceError as error:
        return pack(error if error.path else error.with_path(file.path))
    except MemoryError:
        return pack(TraceError("file_out_of_memory", file.path))
    except Exception as error:
        return pack(TraceError("file_failed", file.path, reason=f"{type(error).__name__}: {error}"))


def everywhere(file: ProfileFile) -> ProfileFile:
    """The file by a path that does not depend on the current folder."""
    return file if "://" in file.path else replace(file, path=os.path.abspath(file.path))


def outcome_of(packed: bytes, file: ProfileFile) -> tuple[Trace, TraceAnalysis] | TraceError:
    """What `work_on` sent, under the path that the caller gave."""
    outcome: tuple[Trace, TraceAnalysis] | TraceError = unpack(packed)
    if isinstance(outcome, TraceError):
        return outcome.with_path(file.path)
    trace, analysis = outcome
    return replace(trace, path=file.path), analysis
