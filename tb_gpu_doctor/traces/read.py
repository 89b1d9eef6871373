"""Which reader reads which format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.files.fetching import local_copy
from tb_gpu_doctor.files.secrets import names_without_secrets, without_secrets
from tb_gpu_doctor.traces.columns import StringTable, Trace
from tb_gpu_doctor.traces.sessions import ProfileFile

Progress = Callable[[float], None]
# Share of the work on a remote file that is getting it.
FETCHING = 0.5


def read_trace(file: ProfileFile, progress: Progress | None = None) -> Trace:
    """Decode one file of a session; a remote one is copied to this machine while it is read.

    Args:
        file: as `sessions.find_sessions` lists it.
        progress: called with the share of the file that is decoded, 0..1.

    Raises:
        ProfileError: the file's ``problem``, or what its reader says; ``unsupported_format`` without a reader;
            what begins with ``remote_`` where a remote file cannot be fetched.
    """
    if file.problem is not None:
        raise ProfileError(file.problem.code, file.path, **file.problem.params)
    if is_remote(file.path):
        return _read_remote(file, progress or (lambda _share: None))
    return _without_secrets(_read_local(file, progress))


def _read_local(file: ProfileFile, progress: Progress | None) -> Trace:
    # Here, not above: a session needs the readers of its own format only.
    if file.format == "xplane":
        from tb_gpu_doctor.traces.xplane import read_xplane

        return read_xplane(file.path, file.host, progress)
    if file.format in ("trace_json", "kineto"):
        from tb_gpu_doctor.traces.trace_json import read_trace_json

        return read_trace_json(file.path, file.host, progress)
    if file.format == "nsys":
        from tb_gpu_doctor.traces.nsys import read_nsys

        return read_nsys(file.path, file.host, progress)
    raise ProfileError("unsupported_format", file.path)


def _read_remote(file: ProfileFile, progress: Progress) -> Trace:
    """The trace of a copy, under the file's own name."""
    try:
        with local_copy(file.address or file.path, lambda share: progress(share * FETCHING)) as path:
            here = replace(file, path=path, address="")
            trace = read_trace(here, lambda share: progress(FETCHING + share * (1 - FETCHING)))
            return replace(trace, path=file.path)
    except ProfileError as error:
        raise error.with_path(file.path) from None
    except RemoteError as error:
        raise ProfileError(error.code, file.path, **error.params) from None
    except FileNotFoundError:
        raise ProfileError("missing_path", file.path) from None
    except OSError as error:
        raise ProfileError("io_error", file.path, reason=error.strerror or str(error)) from None


def _without_secrets(trace: Trace) -> Trace:
    """The trace with names and messages as they may be shown: annotations and paths hold what people type."""
    names = trace.strings
    hidden = names_without_secrets(names.blob, names.offsets.tolist())
    if hidden:
        names = StringTable.of(hidden.get(i, names.raw(i)) for i in range(len(names)))
    warnings, errors = (tuple(map(without_secrets, messages)) for messages in (trace.warnings, trace.errors))
    if not hidden and (warnings, errors) == (trace.warnings, trace.errors):
        return trace
    return replace(trace, strings=names, warnings=warnings, errors=errors)
