"""Find the profile sessions of a logdir.

A session is a folder ``<run>/plugins/profile/<session>/`` at any depth, holding one
file a host; or, of PyTorch, one recording among the traces of any folder, one file a process, whatever they are
called: what lies elsewhere and may be a profile by its suffix is told by its content. Callers may also name the
run, the ``profile`` folder, the session folder or one file: whatever they have at hand works, on this machine or
behind an address such as ``gs://...``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files.addresses import local_path, shown
from tb_gpu_doctor.files.system import LOCAL, Entry, Files, files_at
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.recording_format import FILE_SUFFIX as RECORDING_SUFFIX
from tb_gpu_doctor.recording_format import FOLDER as TELEMETRY_FOLDER
from tb_gpu_doctor.traces.heads import CANDIDATE_SUFFIXES, Head, head_of, promises_a_trace, start_of_xspace
from tb_gpu_doctor.traces.log_heads import LOG_SUFFIXES, MOST_LOGS, LogFile, is_log_name, log_kind
from tb_gpu_doctor.traces.telemetry_homes import Home, home_beside, nearest_homes, recording_files
from tb_gpu_doctor.traces.torch_names import TORCH_SUFFIXES, natural_key, torch_stem, worker_of
from tb_gpu_doctor.traces.torch_recordings import recordings

PROFILE_FOLDER = ("plugins", "profile")
XPLANE_SUFFIX = ".xplane.pb"
# In this order: of a host that has several formats the first one is read.
_READABLE_SUFFIXES = (
    (XPLANE_SUFFIX, "xplane"),
    *((suffix, "kineto") for suffix in TORCH_SUFFIXES),
    (".trace.json.gz", "trace_json"),
    (".trace.json", "trace_json"),
    (".sqlite", "nsys"),
)
# Formats that people have and that cannot be read: named instead of passed over in silence.
UNREADABLE_SUFFIXES = ((".xplane.riegeli", "riegeli"), (".nsys-rep", "nsys_report"), (".qdrep", "nsys_report"))
_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_UNREADABLE = frozenset(form for _, form in UNREADABLE_SUFFIXES)
_FORMATS = tuple(dict.fromkeys(form for _, form in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES)))
# What one file may be called if a person names it.
_JSON_SUFFIXES = (".json.gz", ".json")
_SESSION_TIME = re.compile(r"^(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)")
# How launchers and people call traces: behind an address, where each look would be a question, names must do.
_REMOTE_TRACE = re.compile(
    r"(?:^|[^a-z])(?:rank|trace|profile|worker|libkineto_activities)[._-]?\d*[^/]*\.json(?:\.gz)?$", re.IGNORECASE
)
_REMOTE_EXPORT = re.compile(r"(?:report|nsys|rank|trace|profile|worker)[^/]*\.sqlite$", re.IGNORECASE)
# So many files without the name of a trace are opened in vain, in one folder and in all.
_VAIN_IN_FOLDER, _VAIN_IN_ALL = 4, 500
# Recordings of more processes than this are told apart by their names.
_MOST_LOOKED_AT = 4096
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
        started_unix_s: when it was recorded, where a file says.
        logs: of nvidia-smi or DCGM, in the nearest folder that has any.
    """

    run: str
    session: str
    path: str
    files: tuple[ProfileFile, ...]
    problem: Phrase | None
    modified_unix_s: float
    size_bytes: int
    homes: tuple[Home, ...] = ()
    started_unix_s: float | None = None
    logs: tuple[LogFile, ...] = ()

    @property
    def is_telemetry(self) -> bool:
        """Whether it is no profile but what a monitor recorded, or a log of nvidia-smi or DCGM."""
        return bool(self.files) and self.files[0].format == TELEMETRY

    @property
    def misplaced(self) -> str | None:
        """The path of an XPlane file of the session that TensorBoard's own Profiler does not find where it lies."""
        parts = re.split(r"[\\/]", self.path.rstrip("/\\"))
        if tuple(parts[-3:-1]) == PROFILE_FOLDER:
            return None
        return next((file.path for file in self.files if file.format == "xplane" and file.problem is None), None)

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
        """When it was recorded: as a file says, else by the folder's name, else the newest file's time.

        Names are in the zone of whoever recorded, and file times lie after a copy or a clone.
        """
        if self.started_unix_s is not None:
            return self.started_unix_s
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
    if files is LOCAL and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ProfileError("not_a_file", path)
    if files.isfile(path):
        beside = home_beside(path)
        if path.endswith(RECORDING_SUFFIX) and beside is not None:
            return SessionScan(path, tuple(_with_telemetry([], [beside])), (os.path.basename(path),), ())
        kind = log_kind(path) if files is LOCAL and head_of(path) is None else None
        if kind is not None:
            if kind.error is not None:
                raise kind.error.with_path(path)
            alone = _log_session("", (LogFile(path, given=True),))
            return SessionScan(path, (alone,), (os.path.basename(path),), ())
        single = replace(_single_file(files, path), homes=(beside,) if beside else ())
        return SessionScan(path, (single,), (os.path.basename(path),), ())
    files.refresh(path)
    problems: list[ProfileError] = []
    sessions: list[Session] = []
    homes: list[Home] = []
    logs: list[LogFile] = []
    refused: list[ProfileError] = []
    for found in _session_folders(files, path, problems, homes, logs, refused):
        if found.torch:
            sessions.extend(_recorded_sessions(files, found, found.torch, "kineto"))
        elif found.nsys:
            sessions.extend(_recorded_sessions(files, found, found.nsys, "nsys"))
        elif found.reports:
            sessions.extend(_reports(files, found))
        elif (session := _read_session(files, found, problems)) is not None:
            sessions.append(session)
    sessions.sort(key=lambda s: (s.recorded_unix_s, s.session, s.run), reverse=True)
    sessions = _with_telemetry(sessions, homes or [home for home in (home_beside(path),) if home])
    sessions = _with_logs(sessions, logs)
    pattern = "/".join((*PROFILE_FOLDER, "*", "*" + XPLANE_SUFFIX))
    searched = (
        pattern, "**/" + pattern, "**/*" + XPLANE_SUFFIX, "**/*.pt.trace.json[.gz]", "**/*.json[.gz]",
        "**/*.sqlite",         "**/gpu_doctor/*/*",
    )  # fmt: skip
    if not sessions:
        problems += refused  # beside profiles a table that is none of ours is nobody's trouble
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
        found_files = (_profile_file(files_at(path), path, host, TELEMETRY) for path, host in files)
        listed = [file for file in found_files if file is not None]
        if listed:
            entries.append(replace(_session(home.run, TELEMETRY, home.folder, listed), homes=(home,)))
    entries.sort(key=lambda entry: (entry.modified_unix_s, entry.run), reverse=True)
    joined = [
        replace(session, homes=tuple(found[run][0] for run in nearest_homes(session.run, found)))
        for session in sessions
    ]
    return [*joined, *entries]


def _with_logs(sessions: list[Session], logs: list[LogFile]) -> list[Session]:
    """The profiles with the logs of the nearest folder; without any profile or recording, the logs of each run."""
    if not logs:
        return sessions
    by_run: dict[str, list[LogFile]] = {}
    for log in logs:
        by_run.setdefault(log.run, []).append(log)
    if not sessions:
        alone = [_log_session(log.run, (log,)) for log in logs]
        return sorted(alone, key=lambda session: (session.modified_unix_s, session.run), reverse=True)
    return [
        session
        if session.is_telemetry
        else replace(session, logs=tuple(log for run in nearest_homes(session.run, by_run) for log in by_run[run]))
        for session in sessions
    ]


def _log_session(run: str, logs: tuple[LogFile, ...]) -> Session:
    """Logs without a profile."""
    found = (_profile_file(LOCAL, log.path, "", TELEMETRY) for log in logs)
    listed = [file for file in found if file is not None]
    name = os.path.basename(logs[0].path)
    return replace(_session(run, name, os.path.dirname(os.path.abspath(logs[0].path)), listed), logs=logs)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _folder_error(folder: str, error: OSError | ValueError) -> ProfileError:
    if isinstance(error, RemoteError):
        return ProfileError(error.code, folder, **error.params)
    if isinstance(error, PermissionError):
        return ProfileError("no_permission", folder)
    return ProfileError("io_error", folder, reason=_reason(error))


@dataclass(frozen=True)
class _Found:
    """A folder with profiles.

    Attributes:
        torch: PyTorch's files in it.
        bare: other profiles that lie in no folder of their own.
        nsys: exports of Nsight Systems.
        reports: its reports without an export beside them. Without any of all it is a session's folder.
    """

    run: str
    folder: str
    torch: tuple[str, ...] = ()
    bare: tuple[tuple[str, str], ...] = ()  # name, format
    nsys: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()


def _session_folders(
    files: Files,
    root: str,
    problems: list[ProfileError],
    homes: list[Home],
    logs: list[LogFile],
    refused: list[ProfileError],
) -> Iterator[_Found]:
    """The folders with profiles at any depth of ``root``, which may lie inside ``plugins/profile``.

    ``homes`` takes the runs with telemetry, ``logs`` those of nvidia-smi and DCGM, ``refused`` why others are not read.
    """
    parts = files.abspath(root).split(files.sep)
    root_is_session = tuple(parts[-3:-1]) == PROFILE_FOLDER
    if root_is_session:
        yield _Found("", root)
    if tuple(parts[-2:]) == PROFILE_FOLDER:
        for name in _listed(files, root, problems).folders:
            yield _Found("", files.join(root, name))
        return
    if parts[-1] == PROFILE_FOLDER[0]:
        profile = files.join(root, PROFILE_FOLDER[1])
        for name in _listed(files, profile, problems).folders:
            yield _Found("", files.join(profile, name))
    seen: set[tuple[int, int]] = set()
    stack = [(root, "", 0)]
    links: list[tuple[str, str, int]] = []  # followed last, so that a run keeps its own name
    sieve = _Sieve(files, refused)
    while stack or links:
        folder, run, depth = (stack or links).pop()
        try:
            stat = files.stat(folder)
        except OSError:
            continue
        if (stat.st_dev, stat.st_ino) in seen:
            continue
        seen.add((stat.st_dev, stat.st_ino))
        listed = _listed(files, folder, problems)
        if listed.logs:
            logs += sieve.logs(folder, run, listed.logs)
        if not (folder == root and root_is_session):
            reports = [name for name in listed.others if name.endswith(_REPORT_SUFFIXES)]
            torch, bare = sieve.sift(folder, [name for name in listed.others if not name.endswith(_REPORT_SUFFIXES)])
            nsys = tuple(name for name, form in bare if form == "nsys")
            bare = [(name, form) for name, form in bare if form != "nsys"]
            exported = {os.path.splitext(name)[0] for name in nsys}
            reports = [name for name in reports if os.path.splitext(name)[0] not in exported]
            if nsys:
                yield _Found(run, folder, nsys=nsys)
            if reports:
                yield _Found(run, folder, reports=tuple(reports))
            if torch := [*listed.torch, *torch]:
                yield _Found(run, folder, torch=tuple(torch))
            if bare:
                yield _Found(run, folder, bare=tuple(bare))
        for name in listed.folders:
            child = files.join(folder, name)
            if folder == root and (parts[-1], name) == PROFILE_FOLDER:
                continue  # above
            if name == PROFILE_FOLDER[0]:
                profile = files.join(child, PROFILE_FOLDER[1])
                if files.isdir(profile):
                    for session in _listed(files, profile, problems).folders:
                        yield _Found(run, files.join(profile, session))
            elif depth < MAX_DEPTH:
                if name == TELEMETRY_FOLDER:  # or a folder that is only called so: look into it all the same
                    homes.append(Home(run, child))
                later = links if files.islink(child) else stack
                later.append((child, f"{run}/{name}" if run else name, depth + 1))


@dataclass(frozen=True)
class _Listed:
    """What lies in a folder: folders, files called as PyTorch's are, others that may be profiles, and perhaps logs."""

    folders: list[str] = field(default_factory=list)
    torch: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)


def _listed(files: Files, folder: str, problems: list[ProfileError]) -> _Listed:
    found = _Listed()
    try:
        with files.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(LOG_SUFFIXES) and is_log_name(name) and not _is_folder(entry):
                    found.logs.append(name)
                if name.endswith(CANDIDATE_SUFFIXES) and not _is_folder(entry):
                    (found.torch if name.endswith(TORCH_SUFFIXES) else found.others).append(name)
                elif _is_folder(entry):
                    found.folders.append(name)
    except FileNotFoundError:
        return _Listed()  # removed while we walked
    except OSError as error:
        problems.append(_folder_error(folder, error))
        return _Listed()
    found.folders.sort()
    return found


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


class _Sieve:
    """Tells profiles among files with names of all kinds, and opens few that are none."""

    def __init__(self, files: Files, refused: list[ProfileError] | None = None) -> None:
        self._files = files
        self._vain = self._vain_logs = self._logs = 0
        self.refused = [] if refused is None else refused

    def sift(self, folder: str, names: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """(PyTorch's traces, others with their formats), in the order of their names."""
        torch: list[str] = []
        bare: list[tuple[str, str]] = []
        if not names:
            return torch, bare
        if self._files is not LOCAL:  # each look would be a question to the server
            bare = [(name, "xplane") for name in sorted(names) if name.endswith(XPLANE_SUFFIX)]
            bare += [(name, "nsys") for name in sorted(names) if _REMOTE_EXPORT.search(name)]
            return [name for name in sorted(names) if _REMOTE_TRACE.search(name)], bare
        plain: list[str] = []
        vain_here = 0
        if not promises_a_trace("\n".join(names)):
            if self._vain >= _VAIN_IN_ALL:
                return torch, bare
            plain, names = sorted(names), []
        for name in sorted(names):
            if name.endswith(XPLANE_SUFFIX):
                bare.append((name, "xplane"))
            elif not promises_a_trace(name):
                plain.append(name)
            else:
                self._look(folder, name, torch, bare)
        for name in plain:
            if vain_here >= _VAIN_IN_FOLDER or self._vain >= _VAIN_IN_ALL:
                break
            if not self._look(folder, name, torch, bare):
                vain_here += 1
                self._vain += 1
        return torch, bare

    def logs(self, folder: str, run: str, names: list[str]) -> list[LogFile]:
        """The logs of nvidia-smi and DCGM among files that are called like one."""
        found: list[LogFile] = []
        for name in sorted(names) if self._files is LOCAL else ():
            if self._vain_logs >= _VAIN_IN_ALL or self._logs >= MOST_LOGS:
                break
            path = self._files.join(folder, name)
            kind = log_kind(path)
            if kind is not None and kind.error is None:
                found.append(LogFile(path, run))
                self._logs += 1
                continue
            self._vain_logs += 1
            if kind is not None and kind.error is not None:
                self.refused.append(kind.error)
        return found

    def _look(self, folder: str, name: str, torch: list[str], bare: list[tuple[str, str]]) -> bool:
        """Put a file where it belongs; whether it is a profile."""
        head = head_of(self._files.join(folder, name))
        if head is None:
            return False
        if head.format == "kineto":
            torch.append(name)
        else:
            bare.append((name, head.format))
        return True


def _reports(files: Files, found: _Found) -> Iterator[Session]:
    """Reports of Nsight Systems that were not exported: listed with the reason why they cannot be read."""
    listed = []
    for name in sorted(found.reports):
        problem = Phrase("notes.nsys_report", {"file": files.join(found.folder, name)})
        file = _profile_file(files, files.join(found.folder, name), host_of(name), "nsys_report", problem)
        if file is not None:
            listed.append(file)
    if listed:
        yield _session(found.run, os.path.basename(files.abspath(found.folder)), found.folder, listed)


def _recorded_sessions(files: Files, found: _Found, names: tuple[str, ...], form: str) -> Iterator[Session]:
    """The recordings in a folder of PyTorch's traces, or of Nsight Systems' exports."""
    base = os.path.basename(files.abspath(found.folder))
    # What one file is alone, or one of very many, its name tells.
    is_looked_at = files is LOCAL and len(names) <= _MOST_LOOKED_AT

    def head(name: str) -> Head | None:
        return head_of(files.join(found.folder, name)) if is_looked_at else None

    for recording in recordings(names, head):
        listed = [
            file
            for host, name in recording.files
            if (file := _profile_file(files, files.join(found.folder, name), host, form)) is not None
        ]
        if listed:
            session = _session(found.run, recording.name or base, found.folder, listed)
            yield replace(session, started_unix_s=recording.start_unix_s)


def _read_session(files: Files, found: _Found, problems: list[ProfileError]) -> Session | None:
    folder = found.folder
    if found.bare:
        formats = dict(found.bare)
    else:
        try:
            formats = _formats(files, folder, sorted(files.listdir(folder)))
        except FileNotFoundError:
            return None
        except OSError as error:
            problems.append(_folder_error(folder, error))
            return None
    # The first format that a host has is read; one with formats we cannot read is listed with the reason.
    listed: dict[str, ProfileFile] = {}
    for wanted in _FORMATS:
        for name, form in formats.items():
            host = host_of(name)
            if form == wanted and host not in listed:
                problem = Phrase(f"notes.{form}", {"file": name}) if form in _UNREADABLE else None
                file = _profile_file(files, files.join(folder, name), host, form, problem)
                if file is not None:
                    listed[host] = file
    if not listed:
        return None
    ordered = sorted(listed.values(), key=lambda file: natural_key(file.host))
    session = _session(found.run, os.path.basename(files.abspath(folder)), folder, ordered)
    first = next((file.path for file in ordered if file.format == "xplane"), None)
    started = start_of_xspace(first) if first is not None and files is LOCAL else None
    return replace(session, started_unix_s=started)


def _formats(files: Files, folder: str, names: list[str]) -> dict[str, str]:
    """The profiles in a session's folder with their formats, those first that are read rather."""
    found: dict[str, str] = {}
    for suffix, form in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES):
        for name in names:
            if name.endswith(suffix) and (form == "kineto" or torch_stem(name) is None):
                found.setdefault(name, form)
    if not found and files is LOCAL:  # nothing that the profilers write there: what somebody has put there
        for name in names:
            if name.endswith(CANDIDATE_SUFFIXES) and promises_a_trace(name):
                head = head_of(files.join(folder, name))
                if head is not None:
                    found[name] = head.format
    return found


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


def _profile_file(files: Files, path: str, host: str, form: str, problem: Phrase | None = None) -> ProfileFile | None:
    """A file of a session; None for folders, pipes and devices."""
    size, modified = 0, 0.0
    address = version = ""
    try:
        stat = files.stat(path)
        size, modified = stat.st_size, stat.st_mtime
        if not files.isfile(path):
            return None
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
    """A session of one file; what neither content nor name tell is taken for an XPlane."""
    name = os.path.basename(path)
    head = head_of(path) if files is LOCAL else None
    form, problem = "xplane", None
    for suffix, other in (*_READABLE_SUFFIXES, *UNREADABLE_SUFFIXES, *((s, "trace_json") for s in _JSON_SUFFIXES)):
        if name.endswith(suffix):
            form = other
            problem = Phrase(f"notes.{form}", {"file": name}) if (suffix, form) in UNREADABLE_SUFFIXES else None
            break
    else:
        if name.endswith((".gz", ".zip", ".zst")):
            problem = Phrase("notes.unsupported_format", {"file": name})
    if head is not None and form not in _UNREADABLE:
        form, problem = head.format, None
    folder = os.path.dirname(files.abspath(path))
    file = _profile_file(files, path, host_of(path), form, problem)
    if file is None:
        raise ProfileError("not_a_file", path)
    started = head.start_unix_s if head is not None else None
    if head is not None and head.format == "xplane":
        started = start_of_xspace(path)
    return replace(_session("", os.path.basename(folder), folder, [file]), started_unix_s=started)
