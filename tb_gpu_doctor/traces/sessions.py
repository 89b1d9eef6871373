"""Find the profile sessions of a logdir.

A session is a folder ``<run>/plugins/profile/<session>/`` at any depth, holding one
file a host; or, of PyTorch, one recording among the ``*.pt.trace.json[.gz]`` of any folder, one file
a process. Callers may also name the run, the ``profile`` folder, the session folder or one file:
whatever they have at hand works, on this machine or behind an address such as ``gs://...``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files.names import local_path, shown
from tb_gpu_doctor.files.system import LOCAL, Entry, Files, files_at
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.recording_format import FILE_SUFFIX as RECORDING_SUFFIX
from tb_gpu_doctor.recording_format import FOLDER as TELEMETRY_FOLDER
from tb_gpu_doctor.traces.telemetry_homes import Home, home_beside, nearest_homes, recording_files
from tb_gpu_doctor.traces.torch_names import TORCH_SUFFIXES, captures, natural_key, torch_stem, worker_of

PROFILE_FOLDER = ("plugins", "profile")
XPLANE_SUFFIX = ".xplane.pb"
# In this order: of a host that has several formats the first one is read.
_READABLE_SUFFIXES = (
    (XPLANE_SUFFIX, "xplane"),
    *((suffix, "kineto") for suffix in TORCH_SUFFIXES),
    (".trace.json.gz", "trace_json"),
    (".trace.json", "trace_json"),
)
# Formats that people have and that cannot be read: named instead of passed over in silence.
UNREADABLE_SUFFIXES = ((".xplane.riegeli", "riegeli"),)
# What one file may be called if a person names it.
_JSON_SUFFIXES = (".json.gz", ".json")
_SESSION_TIME = re.compile(r"^(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
# Deeper trees than this are not logdirs; the bound also ends symlink mazes.
MAX_DEPTH = 32
# What a monitor recorded is listed beside the profiles, one entry a run, under this name and format.
TELEMETRY = "telemetry"


@dataclass(frozen=True)
class ProfileFile:
    """One host's file in a session.

    Attributes:
        path: as it may be shown.
        problem: why it cannot be read, if so.
        address: of a remote file whose address holds credentials: to open it, never to show it; else "".
        version: of a remote file, names its present content; "" where the store does not tell.
    """

    path: str
    host: str
    format: str
    size_bytes: int
    modified_unix_s: float
    problem: Phrase | None = None
    address: str = field(default="", repr=False)
    version: str = ""


@dataclass(frozen=True)
class Session:
    """One recording: the files of its hosts.

    Attributes:
        run: TensorBoard run, the path below the logdir with ``/``, "" for the logdir itself.
        session: folder name; of PyTorch's, the time of the recording where the files' names tell it.
        path: the folder.
        files: sorted by host.
        problem: set when no file of the session can be read.
        homes: the nearest runs with telemetry.
    """

    run: str
    session: str
    path: str
    files: tuple[ProfileFile, ...]
    problem: Phrase | None
    modified_unix_s: float
    size_bytes: int
    homes: tuple[Home, ...] = ()

    @property
    def is_telemetry(self) -> bool:
        """Whether it is no profile but what a monitor recorded."""
        return bool(self.files) and self.files[0].format == TELEMETRY

    @property
    def named_unix_s(self) -> float | None:
        """When it was recorded, by the folder's name (local time); None where the name does not tell."""
        match = _SESSION_TIME.match(self.session)
        if match is None:
            return None
        year, month, day, hour, minute, second = map(int, match.groups())
        try:
            return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
        except (ValueError, OverflowError):
            return None

    @property
    def recorded_unix_s(self) -> float:
        """When it was recorded: from the folder's name, else the newest file.

        File times lie after a copy or a clone, the profiler's folder names do not.
        """
        named = self.named_unix_s
        if named is not None:
            return named
        return self.modified_unix_s


@dataclass(frozen=True)
class SessionScan:
    """What a scan found.

    Attributes:
        root: the path that was asked for.
        sessions: newest first.
        searched: the patterns tried, relative to ``root``.
        problems: folders that could not be read.
    """

    root: str
    sessions: tuple[Session, ...]
    searched: tuple[str, ...]
    problems: tuple[ProfileError, ...]


def find_sessions(path: str) -> SessionScan:
    """Find every session below (or at) ``path``.

    Raises:
        ProfileError: ``missing_path``, ``no_permission`` or ``io_error`` for ``path`` itself, and what begins with
            ``remote_`` for an address; problems below it are collected in the result.
    """
    path = local_path(os.fspath(path))
    files = files_at(path)
    path = shown(path)
    try:
        files.stat(path)
    except FileNotFoundError:
        raise ProfileError("missing_path", path) from None
    except (OSError, ValueError) as error:
        raise _folder_error(path, error) from None
    if files.isfile(path):
        beside = home_beside(path)
        if path.endswith(RECORDING_SUFFIX) and beside is not None:
            return SessionScan(path, tuple(_with_telemetry([], [beside])), (os.path.basename(path),), ())
        single = replace(_single_file(files, path), homes=(beside,) if beside else ())
        return SessionScan(path, (single,), (os.path.basename(path),), ())
    files.refresh(path)
    problems: list[ProfileError] = []
    sessions: list[Session] = []
    homes: list[Home] = []
    for run, folder, torch in _session_folders(files, path, problems, homes):
        if torch:
            sessions.extend(_torch_sessions(files, run, folder, torch))
        elif (session := _read_session(files, run, folder, problems)) is not None:
            sessions.append(session)
    sessions.sort(key=lambda s: (s.recorded_unix_s, s.session, s.run), reverse=True)
    sessions = _with_telemetry(sessions, homes or [home for home in (home_beside(path),) if home])
    pattern = "/".join((*PROFILE_FOLDER, "*", "*" + XPLANE_SUFFIX))
    searched = (pattern, "**/" + pattern, "*" + XPLANE_SUFFIX, "**/*.pt.trace.json[.gz]", "**/gpu_doctor/*/*")
    if not sessions and not files.readable(path):
        # Of an address the reason is known.
        raise next((error for error in problems if error.path == path), ProfileError("no_permission", path))
    if files.is_cut(path):
        problems.append(ProfileError("remote_cut", path))
    return SessionScan(path, tuple(sessions), searched, tuple(problems))


def _with_telemetry(sessions: list[Session], homes: list[Home]) -> list[Session]:
    """The profiles with their nearest homes, and behind them an entry for each home, newest first."""
    found = {home.run: (home, files) for home in homes if (files := recording_files(home.folder))}
    entries = []
    for home, files in found.values():
        listed = [_profile_file(files_at(path), path, host, TELEMETRY) for path, host in files]
        entries.append(replace(_session(home.run, TELEMETRY, home.folder, listed), homes=(home,)))
    entries.sort(key=lambda entry: (entry.modified_unix_s, entry.run), reverse=True)
    joined = [
        replace(session, homes=tuple(found[run][0] for run in nearest_homes(session.run, found)))
        for session in sessions
    ]
    return [*joined, *entries]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _folder_error(folder: str, error: OSError | ValueError) -> ProfileError:
    if isinstance(error, RemoteError):
        return ProfileError(error.code, folder, **error.params)
    if isinstance(error, PermissionError):
        return ProfileError("no_permission", folder)
    return ProfileError("io_error", folder, reason=_reason(error))


_Found = tuple[str, str, list[str]]


def _session_folders(files: Files, root: str, problems: list[ProfileError], homes: list[Home]) -> Iterator[_Found]:
    """(run, folder, PyTorch's files in it) at any depth of ``root``; without such files it is a session folder.

    ``root`` may lie inside ``plugins/profile``. ``homes`` takes the runs with telemetry.
    """
    parts = files.abspath(root).split(files.sep)
    if tuple(parts[-3:-1]) == PROFILE_FOLDER or _holds_profiles(files, root):
        yield "", root, []
    if tuple(parts[-2:]) == PROFILE_FOLDER:
        for name in _listed(files, root, problems)[0]:
            yield "", files.join(root, name), []
        return
    if parts[-1] == PROFILE_FOLDER[0]:
        profile = files.join(root, PROFILE_FOLDER[1])
        for name in _listed(files, profile, problems)[0]:
            yield "", files.join(profile, name), []
    seen: set[tuple[int, int]] = set()
    stack = [(root, "", 0)]
    links: list[tuple[str, str, int]] = []  # followed last, so that a run keeps its own name
    while stack or links:
        folder, run, depth = (stack or links).pop()
        try:
            stat = files.stat(folder)
        except OSError:
            continue
        if (stat.st_dev, stat.st_ino) in seen:
            continue
        seen.add((stat.st_dev, stat.st_ino))
        folders, torch = _listed(files, folder, problems)
        if torch and not (folder == root and tuple(parts[-3:-1]) == PROFILE_FOLDER):
            yield run, folder, torch
        for name in folders:
            child = files.join(folder, name)
            if name == PROFILE_FOLDER[0]:
                profile = files.join(child, PROFILE_FOLDER[1])
                if files.isdir(profile):
                    for session in _listed(files, profile, problems)[0]:
                        yield run, files.join(profile, session), []
            elif depth < MAX_DEPTH:
                if name == TELEMETRY_FOLDER:  # or a folder that is only called so: look into it all the same
                    homes.append(Home(run, child))
                later = links if files.islink(child) else stack
                later.append((child, f"{run}/{name}" if run else name, depth + 1))


def _listed(files: Files, folder: str, problems: list[ProfileError]) -> tuple[list[str], list[str]]:
    """(folders, PyTorch's trace files) in a folder."""
    folders, torch = [], []
    try:
        with files.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(TORCH_SUFFIXES):
                    torch.append(entry.name)
                elif _is_folder(entry):
                    folders.append(entry.name)
    except FileNotFoundError:
        return [], []  # removed while we walked
    except OSError as error:
        problems.append(_folder_error(folder, error))
        return [], []
    return sorted(folders), torch


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _holds_profiles(files: Files, folder: str) -> bool:
    suffixes = tuple(suffix for suffix, form in _READABLE_SUFFIXES if form != "kineto")
    try:
        return any(name.endswith(suffixes) and torch_stem(name) is None for name in files.listdir(folder))
    except OSError:
        return False


def _torch_sessions(files: Files, run: str, folder: str, names: list[str]) -> Iterator[Session]:
    """The recordings in a folder of PyTorch's traces."""
    base = os.path.basename(files.abspath(folder))
    for capture in captures(names):
        listed = [
            _profile_file(files, files.join(folder, name), host, "kineto")
            for host, name in capture.files
            if not files.isdir(files.join(folder, name))
        ]
        if listed:
            yield _session(run, capture.name or base, folder, listed)


def _read_session(files: Files, run: str, folder: str, problems: list[ProfileError]) -> Session | None:
    try:
        names = sorted(files.listdir(folder))
    except FileNotFoundError:
        return None
    except OSError as error:
        problems.append(_folder_error(folder, error))
        return None
    # The first format that a host has is read; one with formats we cannot read is listed with the reason.
    listed: dict[str, ProfileFile] = {}
    for suffix, form in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES):
        for name in names:
            if name.endswith(suffix) and (form == "kineto" or torch_stem(name) is None):
                host = name[: -len(suffix)]
                problem = Phrase(f"notes.{form}", {"file": name}) if (suffix, form) in UNREADABLE_SUFFIXES else None
                if host not in listed:
                    listed[host] = _profile_file(files, files.join(folder, name), host, form, problem)
    if not listed:
        return None
    ordered = sorted(listed.values(), key=lambda file: natural_key(file.host))
    return _session(run, os.path.basename(files.abspath(folder)), folder, ordered)


def _session(run: str, name: str, folder: str, files: list[ProfileFile]) -> Session:
    unreadable = all(file.problem is not None for file in files)
    return Session(
        run=run,
        session=name,
        path=folder,
        files=tuple(files),
        problem=files[0].problem if unreadable else None,
        modified_unix_s=max(file.modified_unix_s for file in files),
        size_bytes=sum(file.size_bytes for file in files),
    )


def _profile_file(files: Files, path: str, host: str, form: str, problem: Phrase | None = None) -> ProfileFile:
    size, modified = 0, 0.0
    address = version = ""
    try:
        stat = files.stat(path)
        size, modified = stat.st_size, stat.st_mtime
        if files is not LOCAL:
            size, version = max(0, size), files.version(stat)
            address = files.address(path) if files.address(path) != path else ""
    except OSError as error:
        reason = _reason(error)
        problem = problem or Phrase("notes.unreadable_file", {"file": os.path.basename(path), "reason": reason})
    return ProfileFile(path, host, form, size, modified, problem, address, version)


def host_of(path: str) -> str:
    """The host or process that a file's name names."""
    name = os.path.basename(path)
    if torch_stem(name) is not None:
        return worker_of(name)
    for suffix in (*(s for s, _ in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES)), *_JSON_SUFFIXES):
        if name.endswith(suffix) and name != suffix:
            return name[: -len(suffix)]
    return name


def _single_file(files: Files, path: str) -> Session:
    """A session of one file; what is not called after another format is taken for an XPlane."""
    name = os.path.basename(path)
    form, problem = "xplane", None
    for suffix, other in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES, *((s, "trace_json") for s in _JSON_SUFFIXES)):
        if name.endswith(suffix):
            form = other
            problem = Phrase(f"notes.{form}", {"file": name}) if (suffix, form) in UNREADABLE_SUFFIXES else None
            break
    else:
        if name.endswith((".gz", ".zip", ".zst")):
            problem = Phrase("notes.unsupported_format", {"file": name})
    folder = os.path.dirname(files.abspath(path))
    listed = [_profile_file(files, path, host_of(path), form, problem)]
    return _session("", os.path.basename(folder), folder, listed)
