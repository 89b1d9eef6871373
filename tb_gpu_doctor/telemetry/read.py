"""From a logdir to `Telemetry`: everything that monitors recorded below it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tb_gpu_doctor.files.fetching import local_copy
from tb_gpu_doctor.files.names import is_remote, local_path, shown
from tb_gpu_doctor.files.parallel_calls import in_parallel
from tb_gpu_doctor.telemetry.decode import RecordingState, Words, sweep_of
from tb_gpu_doctor.telemetry.find import MAX_RECORDINGS, RecordingFile, find_recordings, has_recording
from tb_gpu_doctor.telemetry.records import DamagedFile, read_records
from tb_gpu_doctor.telemetry.series import BatchSweep, Recording, Telemetry

__all__ = ["TelemetryReader", "has_recording", "read_telemetry"]

# Of all recordings together; a logdir with more is read from its newest ones on.
MAX_BYTES = 2 << 30
_NO_INODE = -1


def read_telemetry(logdir: str | os.PathLike[str], language: str = "en") -> Telemetry:
    """Everything that monitors recorded below (or at) a path.

    Args:
        logdir: a folder at any height above the recordings, or one recording's event file; or their address.
        language: of notes and problems.

    Nothing is raised for what lies below: what cannot be read is told in ``problems``.
    """
    return TelemetryReader().read(logdir, language)


@dataclass
class _Known:
    inode: int
    offset: int = 0
    state: RecordingState = field(default_factory=RecordingState)
    problem: str | None = None


class TelemetryReader:
    """Reads again and again what grows: each time only what has come since.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def read(self, logdir: str | os.PathLike[str], language: str = "en") -> Telemetry:
        """As `read_telemetry`."""
        given = local_path(os.fspath(logdir))
        root = shown(given)
        unreadable: list[tuple[str, str]] = []
        files = find_recordings(given, unreadable)
        problems = [_say("unreadable", language, _shown(path, root), reason) for path, reason in unreadable]
        chosen = _newest(files)
        if len(chosen) < len(files):
            problems.append(_say("too_many", language, root, count=len(files), read=len(chosen)))
        recordings: list[Recording] = []
        sweeps: list[BatchSweep] = []
        known: dict[str, _Known] = {}
        for file, entry in zip(chosen, self._read_files(chosen, is_remote(root)), strict=True):
            known[file.path] = entry
            name = _shown(file.path, root)
            if entry.problem is not None:
                problems.append(_say("damaged", language, name, entry.problem))
            if entry.state.damaged:
                problems.append(_say("records_lost", language, name, count=entry.state.damaged))
            if entry.state.ticks_a_sample > 1:
                problems.append(_say("folded", language, name, ticks=entry.state.ticks_a_sample))
            if entry.state.truncated:
                problems.append(_say("too_long", language, name))
            try:
                sweeps += [sweep_of(file.run, values) for values in entry.state.sweeps]
                if entry.state.header or not entry.state.sweeps:  # a sweep alone is no recording
                    recordings.append(entry.state.recording(file.run, Words(language)))
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
                if entry.offset and entry.problem is None and entry.state.header:
                    problems.append(_say("damaged", language, name, str(error)))
        self._known = known
        recordings.sort(key=lambda recording: recording.run)
        sweeps.sort(key=lambda sweep: (sweep.wall_ns, sweep.run))
        return Telemetry(tuple(recordings), tuple(sweeps), tuple(problems))

    def _read_files(self, files: list[RecordingFile], remote: bool) -> list[_Known]:
        """Each file; remote ones at the same time, since their server is waited for."""
        if not remote:
            return [self._read_file(file) for file in files]
        entries = []
        for outcome in in_parallel(self._read_file, files):
            if not isinstance(outcome, _Known):
                raise outcome or RuntimeError
            entries.append(outcome)
        return entries

    def _read_file(self, file: RecordingFile) -> _Known:
        entry = self._known.get(file.path)
        if entry is None or entry.inode != file.inode or file.size_bytes < entry.offset:
            entry = _Known(file.inode)
        if entry.problem is not None or entry.offset == file.size_bytes:
            return entry
        try:
            with local_copy(file.path) as path:
                entry.offset = read_records(path, entry.offset, entry.state.take)
        except DamagedFile as error:
            entry.problem = str(error)
        except OSError as error:
            # Under no file's number, so that the next time, when it may be readable, it is read from its beginning.
            return _Known(_NO_INODE, 0, entry.state, error.strerror or str(error))
        return entry


def _newest(files: list[RecordingFile]) -> list[RecordingFile]:
    """As many as may be read, the newest first chosen, in the order of their names."""
    chosen: list[RecordingFile] = []
    total = 0
    for file in sorted(files, key=lambda file: file.modified_ns, reverse=True)[:MAX_RECORDINGS]:
        total += file.size_bytes
        if total > MAX_BYTES and chosen:
            break
        chosen.append(file)
    return sorted(chosen, key=lambda file: file.run)


def _shown(path: str, root: str) -> str:
    if is_remote(root):
        top = root.rstrip("/") + "/"
        return path[len(top) :] if path.startswith(top) else path
    relative = os.path.relpath(path, root)
    return os.path.basename(path) if relative in (".", os.curdir) or relative.startswith("..") else relative


def _say(key: str, language: str, path: str, reason: str = "", **params: int) -> str:
    from tb_gpu_doctor import texts

    return texts.text(f"recordings.{key}", language, path=path, reason=reason, **params)
