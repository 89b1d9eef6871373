"""From a logdir to `Telemetry`: finds the recordings below it, reads them, and reads on as they grow.

Finding opens no file. Reading starts at the byte where the last read ended, so that following a running
training costs only what is new. `read_homes` does the same for the folders that belong to a profile, and
names the runs as the whole logdir does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tb_gpu_doctor.files.addresses import is_remote, local_path, shown
from tb_gpu_doctor.files.fetching import local_copy
from tb_gpu_doctor.files.parallel_calls import in_parallel
from tb_gpu_doctor.files.system import Entry, Files, files_at
from tb_gpu_doctor.recording_format import FILE_SUFFIX, PART_SUFFIX, STACKS_FILE
from tb_gpu_doctor.telemetry.decode import DamagedFile, LockStacks, RecordingState, Words, read_records, sweep_of
from tb_gpu_doctor.telemetry.series import BatchSweep, Recording, Telemetry
from tb_gpu_doctor.texts import DEFAULT_LANGUAGE, languages
from tb_gpu_doctor.traces.telemetry_homes import Home

# As deep as profiles are looked for; the bound also ends symlink mazes.
MAX_DEPTH = 32
# A logdir with more is taken for the newest ones.
MAX_RECORDINGS = 2_000
# A remote folder that was listed within this time is not listed again.
LISTING_AGE_S = 20.0


@dataclass(frozen=True)
class RecordingFile:
    """One process's recording.

    Attributes:
        path: of the event file.
        run: its folder below the logdir, with ``/``; "" where the logdir itself is that folder.
        parts: of a long recording, in their order.
    """

    path: str
    run: str
    size_bytes: int
    modified_ns: int
    inode: int
    parts: tuple[RecordingFile, ...] = ()

    @property
    def all_bytes(self) -> int:
        """Of the recording with its parts."""
        return self.size_bytes + sum(part.size_bytes for part in self.parts)


def find_recordings(
    logdir: str | os.PathLike[str], problems: list[tuple[str, str]] | None = None
) -> list[RecordingFile]:
    """Every recording below (or at) a path, in order of its name; a file's own path gives that one.

    Args:
        logdir: a folder or a recording's event file, on this machine or behind ``scheme://``.
        problems: takes ``(path, reason)`` of folders that cannot be read.
    """
    return list(_walk(os.fspath(logdir), [] if problems is None else problems))


def _walk(root: str, problems: list[tuple[str, str]]) -> Iterator[RecordingFile]:
    root = local_path(root)
    files = files_at(root)
    root = shown(root)
    if files.isfile(root):
        found = _file(files, root, "")
        if found is not None:
            yield replace(found, parts=_parts_beside(files, root))
        return
    files.refresh(root, LISTING_AGE_S)
    seen: set[tuple[int, int]] = set()
    stack = [(root, "", 0)]
    links: list[tuple[str, str, int]] = []  # followed last, so that a run keeps its own name
    while stack or links:
        folder, run, depth = (stack or links).pop()
        try:
            stat = files.stat(folder)
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            with files.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name, reverse=True)
        except FileNotFoundError:
            continue  # removed while we walked, or a link into nothing
        except (OSError, ValueError) as error:
            problems.append((folder, getattr(error, "strerror", None) or str(error)))
            continue
        parts = [part for entry in reversed(entries) if (part := _part(files, entry)) is not None]
        for entry in entries:
            if entry.name.endswith(FILE_SUFFIX) and "tfevents" in entry.name:
                found = _file(files, entry.path, run)
                if found is not None:
                    # One process writes into a folder: should there be two recordings, the first one has the parts.
                    yield replace(found, parts=tuple(parts))
                    parts = []
            elif depth < MAX_DEPTH and _is_folder(entry):
                (links if entry.is_symlink() else stack).append(
                    (entry.path, f"{run}/{entry.name}" if run else entry.name, depth + 1)
                )


def _part(files: Files, entry: Entry) -> RecordingFile | None:
    return _file(files, entry.path, "") if entry.name.endswith(PART_SUFFIX) else None


def _parts_beside(files: Files, path: str) -> tuple[RecordingFile, ...]:
    """The parts of a recording that was named by its own path."""
    try:
        with files.scandir(os.path.dirname(path) or ".") as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except (OSError, ValueError):
        return ()
    return tuple(part for entry in entries if (part := _part(files, entry)) is not None)


def _file(files: Files, path: str, run: str) -> RecordingFile | None:
    try:
        stat = files.stat(path)
    except OSError:
        return None
    # A pipe or a device of this name would hold the reader up for ever.
    if not files.isfile(path):
        return None
    return RecordingFile(path, run, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


# Of all recordings together; a logdir with more is read from its newest ones on.
MAX_BYTES = 2 << 30
_NO_INODE = -1
_MOST_STACK_BYTES = 1 << 20


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
    parts: dict[str, _Known] = field(default_factory=dict)


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
            reasons = (one.problem for one in (entry, *entry.parts.values()) if one.inode != _NO_INODE or one is entry)
            problem = next((reason for reason in reasons if reason is not None), None)
            if problem is not None:
                problems.append(_say("damaged", language, name, problem))
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
        """A recording with its parts; of those that were deleted nothing is kept, since the history tells of them."""
        entry = self._read_one(file, self._known.get(file.path))
        known = entry.parts
        entry.parts = {part.path: self._read_one(part, known.get(part.path)) for part in file.parts}
        read = [part for part in entry.parts.values() if part.inode != _NO_INODE]
        entry.state.parts = [part.state for part in read]
        entry.state.lock_stacks = None if is_remote(file.path) else lock_stacks(file.path)
        return entry

    def _read_one(self, file: RecordingFile, entry: _Known | None) -> _Known:
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


def lock_stacks(path: str) -> LockStacks | None:
    """What was written beside a recording when its process stood still with Python's lock held; None without that."""
    path = os.path.join(os.path.dirname(path), STACKS_FILE)
    try:
        stat = os.stat(path)
        if not stat.st_size or not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return LockStacks(file.read(_MOST_STACK_BYTES).decode("utf-8", "replace"), stat.st_mtime_ns)
    except OSError:
        return None


def _newest(files: list[RecordingFile]) -> list[RecordingFile]:
    """As many as may be read, the newest first chosen, in the order of their names."""
    chosen: list[RecordingFile] = []
    total = 0
    for file in sorted(files, key=lambda file: file.modified_ns, reverse=True)[:MAX_RECORDINGS]:
        total += file.all_bytes
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


@dataclass(frozen=True)
class HomeTelemetry:
    """Telemetry of one or more homes.

    Attributes:
        telemetry: its sentences are in the default language.
        notes: what the monitors noted, by language and run of the recording.
        problems: what could not be read, by language.
    """

    telemetry: Telemetry = field(default_factory=Telemetry)
    notes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def by_run(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The notes by run, then by language."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for lang, notes in self.notes.items():
            for run, sentences in notes.items():
                found.setdefault(run, {})[lang] = sentences
        return found

    def spoken_problems(self) -> list[dict[str, str]]:
        """Each problem by language."""
        return [
            {lang: sentences[index] for lang, sentences in self.problems.items() if index < len(sentences)}
            for index in range(max(map(len, self.problems.values()), default=0))
        ]


def read_homes(homes: Sequence[Home]) -> HomeTelemetry:
    """Everything recorded for the given runs; what cannot be read is told in ``problems``."""
    found: list[Telemetry] = []
    notes: dict[str, dict[str, tuple[str, ...]]] = {lang: {} for lang in languages()}
    problems: dict[str, list[str]] = {lang: [] for lang in languages()}
    for home in homes:
        base = f"{home.run}/{os.path.basename(home.folder)}" if home.run else os.path.basename(home.folder)
        reader = TelemetryReader()
        for lang in (*(lang for lang in languages() if lang != DEFAULT_LANGUAGE), DEFAULT_LANGUAGE):
            read = reader.read(home.folder, lang)
            problems[lang] += read.problems
            notes[lang] |= {_below(base, recording.run): recording.notes for recording in read.recordings}
        found.append(
            Telemetry(
                tuple(_named(recording, base) for recording in read.recordings),
                tuple(replace(sweep, run=_below(base, sweep.run)) for sweep in read.sweeps),
                read.problems,
            )
        )
    return HomeTelemetry(
        Telemetry(
            tuple(recording for one in found for recording in one.recordings),
            tuple(sweep for one in found for sweep in one.sweeps),
            tuple(problem for one in found for problem in one.problems),
        ),
        notes,
        {lang: tuple(sentences) for lang, sentences in problems.items()},
    )


def below_home(home: Home, recording: Recording) -> Recording:
    """A recording of a home, named as in the whole logdir."""
    base = f"{home.run}/{os.path.basename(home.folder)}" if home.run else os.path.basename(home.folder)
    return _named(recording, base)


def _below(base: str, run: str) -> str:
    return f"{base}/{run}" if run else base


def _named(recording: Recording, base: str) -> Recording:
    gpus = tuple(replace(series, run=_below(base, series.run)) for series in recording.gpus)
    return replace(recording, run=_below(base, recording.run), gpus=gpus)
