"""The work of files on another machine of a cluster, which sees the same files by the same paths.

A worker keeps what it has decoded and analysed of a file, tells it in short, and answers questions about it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tb_gpu_doctor import __version__
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.parallel.compact import pack, unpack
from tb_gpu_doctor.parallel.one_file import analyse_file
from tb_gpu_doctor.parallel.sketch import Sketch, column_bytes, sketch
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.sessions import ProfileFile


@dataclass(frozen=True, eq=False)
class Held:
    """A file in the memory of a worker, which moves it to its disk or to another worker packed."""

    trace: Trace
    analysis: TraceAnalysis

    def __sizeof__(self) -> int:
        return column_bytes((self.trace, self.analysis))

    def __reduce__(self) -> tuple[Callable[[bytes], Held], tuple[bytes]]:
        return _unpacked, (pack((self.trace, self.analysis)),)


def _unpacked(packed: bytes) -> Held:
    return Held(*unpack(packed))


def hold(file: ProfileFile, version: str) -> Held | ProfileError:
    """Decode and analyse a file, in the worker.

    Args:
        file: with a path that means the same everywhere.
        version: the doctor's that asks; another one could give other numbers.
    """
    here = socket.gethostname()
    if version != __version__:
        return ProfileError("cluster_other_version", file.path, worker=here, theirs=__version__, ours=version)
    try:
        if "://" not in file.path:
            os.stat(file.path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return ProfileError("file_not_on_worker", file.path, worker=here, reason=reason)
    try:
        return Held(*analyse_file(file))
    except ProfileError as error:
        return error if error.path else error.with_path(file.path)
    except MemoryError:
        return ProfileError("file_out_of_memory", file.path)
    except Exception as error:
        return ProfileError("file_failed", file.path, reason=f"{type(error).__name__}: {error}")


def tell(held: Held | ProfileError) -> bytes:
    """What is held, in short and packed; the reason where there is nothing."""
    return pack(held if isinstance(held, ProfileError) else sketch(held.trace, held.analysis))


def answer(held: Sequence[Held | ProfileError], packed: bytes) -> bytes:
    """The packed results of a function, which was packed with its arguments for each of the files.

    Where a file was lost with its worker and this one cannot read it: the packed reason.
    """
    for file in held:
        if isinstance(file, ProfileError):
            return pack(file)
    function, arguments = unpack(packed)
    files = (file for file in held if isinstance(file, Held))
    return pack([function(file.trace, file.analysis, *own) for file, own in zip(files, arguments, strict=True)])


def question_of(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> bytes:
    """What `answer` takes."""
    return pack((function, list(arguments)))


def everywhere(file: ProfileFile) -> ProfileFile:
    """The file by a path that does not depend on the current folder."""
    return file if "://" in file.path else replace(file, path=os.path.abspath(file.path))


def told_of(packed: bytes, file: ProfileFile) -> Sketch | ProfileError:
    """What `tell` sent, under the path that the caller gave."""
    found: Sketch | ProfileError = unpack(packed)
    if isinstance(found, ProfileError):
        return found.with_path(file.path)
    trace, analysis = found
    return replace(trace, path=file.path), analysis
