"""A name for what a session holds at present: it changes when any of its files does."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from tb_gpu_doctor.files.addresses import is_remote
from tb_gpu_doctor.files.system import files_at

if TYPE_CHECKING:
    from tb_gpu_doctor.traces.sessions import Session

# Files that changed this recently may be in the middle of being written.
_SETTLED_S = 2.0


def state_of(session: Session) -> str | None:
    """The state of a session's files and of the telemetry beside it.

    None while any of them may still be written, and where a remote store tells neither times nor tags. Remote
    folders are listed anew.
    """
    from tb_gpu_doctor.traces.telemetry_homes import part_files, recording_files

    paths = [file.path for file in session.files]
    for folder in {os.path.dirname(path) for path in paths}:
        files_at(folder).refresh(folder, deep=False)
    for home in session.homes:
        files_at(home.folder).refresh(home.folder)
    for home in session.homes:
        recordings = [path for path, _ in recording_files(home.folder)]
        paths += [*recordings, *(part for path in recordings for part in part_files(path))]
    paths += [log.path for log in session.logs]
    digest = hashlib.sha256(f"{session.run}\0{session.session}\0{session.path}".encode("utf-8", "surrogateescape"))
    if session.logs:
        # A clock without zone is taken for this machine's where nothing else tells.
        told = sorted((log.path, log.given, log.zone_s) for log in session.logs)
        digest.update(f"\0{told}\0{time.timezone}".encode("utf-8", "surrogateescape"))
    now = time.time()
    for path in paths:
        files = files_at(path)
        try:
            stat = files.stat(path)
        except OSError:
            return None
        version = files.version(stat)
        if abs(now - stat.st_mtime) < _SETTLED_S or not version:
            return None
        # Rights are no content, but what could not be opened is read once it can be.
        rights = "" if is_remote(path) or os.access(path, os.R_OK) else "\0closed"
        digest.update(f"\0{files.abspath(path)}\0{version}{rights}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
