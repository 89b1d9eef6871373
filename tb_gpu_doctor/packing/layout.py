"""Where the files of sessions lie in a pack: as in a logdir, so that whoever unpacks one can open it at once."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.files.system import files_at
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.telemetry_rewrite import redacted_file_name, redacted_run
from tb_gpu_doctor.recording_format import FOLDER
from tb_gpu_doctor.traces.sessions import PROFILE_FOLDER, ProfileFile, Session
from tb_gpu_doctor.traces.telemetry_homes import Home, part_files, recording_files
from tb_gpu_doctor.traces.torch_names import natural_key, torch_stem, worker_of

_TIME = re.compile(r"^\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d(?:_\d+)?$")
_ODD = re.compile(r"[\x00-\x1f\x7f\\]|(?<=^[A-Za-z]):")
_XPLANE, _TELEMETRY = "xplane", "telemetry"
# Beside a recording lie the event files of its GPUs; more than this in a home are somebody else's.
_MAX_DEPTH = 4


@dataclass(frozen=True)
class PackedFile:
    """One file of a pack.

    Attributes:
        source: where it is; of a remote file to be shown only.
        target: its path in the pack.
        format: as sessions call it.
        size_bytes: as it is.
        address: opens it.
    """

    source: str
    target: str
    format: str
    size_bytes: int
    address: str


def packed_files(sessions: Sequence[Session], names: Names | None, slim: bool) -> list[PackedFile]:
    """The files of sessions and of the telemetry that belongs to them, by their path in the pack."""
    if names is not None:
        _learn(sessions, names)
    found: dict[str, PackedFile] = {}
    for session in sessions:
        if not session.is_telemetry:
            for file in session.files:
                if file.problem is None:
                    target = _free(_clean(_profile_path(session, file, names)), found)
                    packed = PackedFile(file.path, target, file.format, file.size_bytes, file.address or file.path)
                    found[packed.target] = packed
    for home in dict.fromkeys(home for session in sessions for home in session.homes):
        for path in _home_files(home, slim):
            target = _clean(_home_path(home, path, names))
            files = files_at(path)
            packed = PackedFile(path, target, _TELEMETRY, files.stat(path).st_size, files.address(path))
            found.setdefault(target, packed)
    return sorted(found.values(), key=lambda file: file.target)


def _clean(target: str) -> str:
    """A path that every system takes, whatever this one allowed in names of files."""
    return _ODD.sub("_", target.encode("utf-8", "replace").decode())


def _free(target: str, taken: dict[str, PackedFile]) -> str:
    """The path, or a similar one where two files would have the same."""
    if target not in taken:
        return target
    folder, name = os.path.split(target)
    stem, dot, suffix = name.partition(".")
    number = 2
    while (other := f"{folder}/{stem}_{number}{dot}{suffix}".lstrip("/")) in taken:
        number += 1
    return other


def _learn(sessions: Sequence[Session], names: Names) -> None:
    """Name hosts and processes in the order of their own names, which lists of them follow."""
    hosts = {file.host for session in sessions for file in session.files}
    for home in {home for session in sessions for home in session.homes}:
        hosts |= {host for _, host in recording_files(home.folder)}
    ordered = sorted(filter(None, hosts), key=natural_key)
    pids = {int(match[1]) for host in ordered if (match := re.search(r"_(\d{4,9})$", host))}
    names.learn_pids(sorted(pids))
    names.learn_hosts(ordered)


def _profile_path(session: Session, file: ProfileFile, names: Names | None) -> str:
    parent = os.path.dirname(os.path.abspath(file.path))
    in_profile = tuple(parent.split(os.sep)[-3:-1]) == PROFILE_FOLDER
    name = os.path.basename(file.path)
    run = _run(session.run, names)
    if file.format == "kineto" or (torch_stem(name) is not None and not in_profile):
        base = _torch_name(name, names)
        if in_profile:
            return "/".join((*run, *PROFILE_FOLDER, session_name(session.session, names), base))
        # A recording whose files do not tell its time is called after its folder.
        folder = [] if _TIME.match(session.session) or run else [session_name(session.session, names)]
        return "/".join((*run, *folder, base))
    if file.format == "nsys":
        folder = [] if _TIME.match(session.session) or run else [session_name(session.session, names)]
        return "/".join((*run, *folder, (file.host if names is None else names.host(file.host)) + ".sqlite"))
    suffix = name[len(file.host) :] if name.startswith(file.host) and name != file.host else ""
    if not suffix.endswith((".xplane.pb", ".trace.json", ".trace.json.gz")):
        suffix = ".xplane.pb" if file.format == _XPLANE else ".trace.json.gz" if name.endswith(".gz") else ".trace.json"
    host = file.host if names is None else names.host(file.host)
    return "/".join((*run, *PROFILE_FOLDER, session_name(session.session, names), host + suffix))


def session_name(session: str, names: Names | None) -> str:
    """A session's folder; times stay."""
    if names is None:
        return session or "session"
    return session if _TIME.match(session) else names.name(session) or "session"


def _run(run: str, names: Names | None) -> list[str]:
    parts = [part for part in run.split("/") if part not in ("", ".", "..")]
    return parts if names is None else [names.name(part) for part in parts]


def _torch_name(name: str, names: Names | None) -> str:
    stem = torch_stem(name)
    if stem is None:  # somebody's own name, which says no more than that it is JSON
        stem, suffix = name.removesuffix(".gz").removesuffix(".json"), ".json.gz" if name.endswith(".gz") else ".json"
        suffix = ".pt.trace" + suffix
    else:
        suffix = name[len(stem) :]
    if names is None:
        return stem + suffix
    worker = worker_of(stem + suffix)
    return f"{names.host(worker)}{stem[len(worker) :]}{suffix}"


def _home_files(home: Home, slim: bool) -> list[str]:
    """The recordings of a home, and beside them the GPUs' scalars unless they are to be left out."""
    recordings = [path for path, _ in recording_files(home.folder)]
    recordings += [part for path in recordings for part in part_files(path)]
    if slim or is_remote(home.folder):
        return recordings
    found = set(recordings)
    for recording in recordings:
        for folder, folders, files in os.walk(os.path.dirname(os.path.dirname(recording))):
            depth = os.path.relpath(folder, home.folder).count(os.sep)
            folders[:] = [] if depth >= _MAX_DEPTH else sorted(folders)
            paths = [os.path.join(folder, name) for name in files if "tfevents" in name]
            found |= {path for path in paths if os.path.isfile(path) and not os.path.islink(path)}
    return sorted(found)


def _home_path(home: Home, path: str, names: Names | None) -> str:
    inside = os.path.relpath(path, home.folder).replace(os.sep, "/")
    folder, _, name = inside.rpartition("/")
    run = _run(home.run, names)
    if names is None:
        return "/".join((*run, FOLDER, *folder.split("/") * bool(folder), name))
    new = redacted_run(f"{FOLDER}/{folder}" if folder else FOLDER, names)
    return "/".join((*run, new, redacted_file_name(name, names)))
