"""Packs sessions with their telemetry and diagnosis into one file, for somebody who has no access to the machine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tb_gpu_doctor import __version__
from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.errors import PackError, ProfileError, RemoteError
from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.files.fetching import local_copy
from tb_gpu_doctor.packing.archive import write_archive
from tb_gpu_doctor.packing.json_rewrite import rewrite_json
from tb_gpu_doctor.packing.layout import PackedFile, packed_files
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.nsys_rewrite import rewrite_nsys
from tb_gpu_doctor.packing.telemetry_rewrite import append_stacks, rewrite_events
from tb_gpu_doctor.packing.verification import same_findings, told_names
from tb_gpu_doctor.packing.xplane_rewrite import rewrite_xplane
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
from tb_gpu_doctor.texts import languages
from tb_gpu_doctor.traces.sessions import Session, find_sessions

Progress = Callable[[str, float], None]

FORMAT = 1
MANIFEST = "gpu_doctor_pack.json"
DIAGNOSES = "diagnosis"
# Shares of the work.
_WRITTEN, _DIAGNOSED, _COMPARED = 0.3, 0.6, 0.9


@dataclass(frozen=True)
class Packed:
    """What was packed.

    Attributes:
        path: of the pack.
        files, sessions: how many.
        before_bytes: of the files that the pack is made of, as they lie in the logdir.
        unpacked_bytes: of what the pack unpacks to.
        pack_bytes: of the pack.
        replaced: how many different names were replaced.
        unsure: how many names may mean something else to an analysis now.
        differences: where the diagnosis differs from the one of the originals.
        left_out: files that could not be read.
    """

    path: str
    files: int
    sessions: int
    before_bytes: int
    unpacked_bytes: int
    pack_bytes: int
    replaced: int
    unsure: int
    differences: tuple[str, ...]
    left_out: tuple[ProfileError, ...]


def pack_sessions(
    sessions: Sequence[Session],
    path: str,
    redact: bool = False,
    slim: bool = False,
    progress: Progress | None = None,
) -> Packed:
    """Write a pack of some sessions of one logdir.

    Args:
        sessions: at least one that can be read.
        path: of the pack.
        redact: replace names of hosts, users, paths, ops and layers.
        slim: leave out what the tab does not read.
        progress: called with a stage and the share of the work that is done.

    Raises:
        PackError: it cannot be written, or one is a ``log``, or ``told``: a host's name is in what should be without.
        ProfileError: nothing could be read.
    """
    report = progress or (lambda _stage, _done: None)
    names = Names() if redact else None
    alone = next((log.path for session in sessions if session.is_telemetry for log in session.logs), None)
    if alone is not None:
        raise PackError("log", alone)
    # Logs are left out: what they say is full of names, and as recordings they are packed.
    sessions = [replace(session, logs=()) for session in sessions]
    with tempfile.TemporaryDirectory(prefix="gpu-doctor-pack-") as folder:
        files = packed_files(sessions, names, slim)
        left_out: list[ProfileError] = []
        written: list[PackedFile] = []
        for index, file in enumerate(files):
            report("packing", _WRITTEN * index / max(len(files), 1))
            try:
                _write(file, folder, names, slim)
                written.append(file)
            except ProfileError as error:
                left_out.append(error)
        if not written:
            raise left_out[0] if left_out else ProfileError("nothing_found", sessions[0].path, searched=[])
        after = _diagnose(folder, lambda done: report("diagnosing", _WRITTEN + (_DIAGNOSED - _WRITTEN) * done))
        if not after:
            diagnose_session(sessions[0])  # says why nobody can read it
            raise ProfileError("nothing_found", sessions[0].path, searched=[])
        differences = []
        if redact or slim:
            share = _COMPARED - _DIAGNOSED
            before = _originals(sessions, lambda done: report("comparing", _DIAGNOSED + share * done))
            differences = _differences(before, [diagnosis for _, diagnosis in after])
        targets = [file.target for file in written]
        targets += _write_diagnoses(folder, after)
        manifest = {
            "format": FORMAT,
            "version": __version__,
            "redacted": redact,
            "slim": slim,
            "sessions": [{"run": session.run, "session": session.session} for session, _ in after],
        }
        _write_json(folder, MANIFEST, manifest)
        targets.append(MANIFEST)
        if names is not None and (told := told_names(folder, targets, names.host_names())):
            raise PackError("told", path, file=told[0][0], count=len(told))
        report("writing", _COMPARED)
        unpacked = sum(os.path.getsize(os.path.join(folder, *target.split("/"))) for target in targets)
        size = write_archive(path, folder, targets)
    report("writing", 1.0)
    return Packed(
        path=path,
        files=len(written),
        sessions=len(after),
        before_bytes=sum(file.size_bytes for file in written),
        unpacked_bytes=unpacked,
        pack_bytes=size,
        replaced=names.replaced if names is not None else 0,
        unsure=len(names.unsure) if names is not None else 0,
        differences=tuple(differences),
        left_out=tuple(left_out),
    )


def _write(file: PackedFile, folder: str, names: Names | None, slim: bool) -> None:
    """Write one file as the pack is to hold it.

    Raises:
        ProfileError: it cannot be read.
    """
    target = os.path.join(folder, *file.target.split("/"))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        with local_copy(file.address) as source, open(target, "xb") as out:
            if file.format == "xplane" and (names is not None or slim):
                rewrite_xplane(source, out, names, slim)
            elif file.format in ("kineto", "trace_json") and (names is not None or slim):
                rewrite_json(source, out, names, slim, packed=target.endswith(".gz"))
            elif file.format == "nsys":
                rewrite_nsys(source, out, names)
            elif names is not None:
                rewrite_events(source, out, names)
            else:
                with open(source, "rb") as content:
                    shutil.copyfileobj(content, out)
            if file.format not in ("xplane", "kineto", "trace_json", "nsys") and not is_remote(file.address):
                append_stacks(source, out, names)
    except (ProfileError, OSError) as error:
        if os.path.exists(target):
            os.unlink(target)
        if isinstance(error, ProfileError):
            raise error.with_path(file.source) from None
        if isinstance(error, RemoteError):
            raise ProfileError(error.code, file.source, **error.params) from None
        raise ProfileError("io_error", file.source, reason=error.strerror or str(error)) from None


def _diagnose(folder: str, report: Callable[[float], None]) -> list[tuple[Session, DiagnosisReport]]:
    """The diagnosis of everything that was written, from what was written."""
    found = []
    sessions = [session for session in find_sessions(folder).sessions if session.problem is None]
    shown = [session for session in sessions if not session.is_telemetry] or sessions
    for index, session in enumerate(shown):
        try:
            found.append((session, diagnose_session(session).diagnosis))
        except ProfileError:
            continue  # its files are packed all the same: whoever opens the pack sees the reason
        report((index + 1) / len(shown))
    return found


def _originals(sessions: Sequence[Session], report: Callable[[float], None]) -> list[DiagnosisReport]:
    found = []
    shown = [session for session in sessions if not session.is_telemetry] or list(sessions)
    for index, session in enumerate(shown):
        try:
            found.append(diagnose_session(session).diagnosis)
        except ProfileError:
            continue
        report((index + 1) / len(shown))
    return found


def _differences(before: Sequence[DiagnosisReport], after: Sequence[DiagnosisReport]) -> list[str]:
    """Where the diagnoses differ at least; they are matched by what they say, since runs have other names."""
    if len(before) != len(after):
        return ["sessions"]
    left = list(after)
    found: list[str] = []
    for one in before:
        results = [same_findings(one, other) for other in left]
        best = min(range(len(results)), key=lambda index: len(results[index]))
        found += results[best]
        del left[best]
    return found


def _write_diagnoses(folder: str, diagnoses: Sequence[tuple[Session, DiagnosisReport]]) -> list[str]:
    """The diagnoses as JSON, one a session and language."""
    written = []
    for session, diagnosis in diagnoses:
        label = "/".join(part for part in (session.run, session.session) if part)
        for lang in languages():
            name = f"{DIAGNOSES}/{label}/{lang}.json"
            target = os.path.join(folder, *name.split("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as file:
                file.write(diagnosis.to_json(lang) + "\n")
            written.append(name)
    return written


def _write_json(folder: str, name: str, content: object) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2, sort_keys=True)
        file.write("\n")
