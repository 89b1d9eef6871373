"""Keep track of the profiles of the logdir, in a background thread.

A logdir can be a slow network folder with 100,000 files. So requests never scan: they
read the last snapshot, ask for a fresh one, and wait at most as long as they say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.addresses import is_remote, local_path, shown
from tb_gpu_doctor.files.system import files_at
from tb_gpu_doctor.parallel.resources import return_free_memory
from tb_gpu_doctor.plugin.stalled_reads import within

if TYPE_CHECKING:
    from tb_gpu_doctor.traces.related import Offer
    from tb_gpu_doctor.traces.sessions import Session, SessionScan


_LOG = logging.getLogger("tensorboard")
# A path with a scheme; the same pattern as TensorBoard's, with the signs that a scheme may hold besides.
_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.+\-]*://.*")

MIN_INTERVAL_S = 2.0
# Each listing of a store costs money and time.
REMOTE_INTERVAL_S = 15.0
# A recording that has not grown for so long is taken to be complete.
TELEMETRY_REST_S = 60.0
# A scan that takes a minute may not run all the time.
IDLE_FACTOR = 5.0
# A network folder with very many files takes minutes; longer than this is one that does not answer.
DEADLINE_S = 300.0
# How often free memory goes back to the system, at most.
TIDY_EVERY_S = 10.0


@dataclass(frozen=True)
class Root:
    """One folder that TensorBoard shows: ``name`` is "" or the group name of ``--logdir_spec``.

    ``path`` may be an address, without the credentials that were in it.
    """

    name: str
    path: str


@dataclass(frozen=True)
class FoundSession:
    """A session as the tab names it.

    Attributes:
        run: the TensorBoard run, unique together with ``session.session``.
        session: the scan's entry.
        root: the folder that it was found under.
        key: changes when a file of the session is added, removed or rewritten.
        offer: the sessions that may be one job with it.
    """

    run: str
    session: Session
    root: Root
    key: str
    offer: Offer | None = None

    @property
    def owner(self) -> str:
        """Names its place, whatever lies there."""
        return f"{self.session.path}\0{self.session.session}"


@dataclass(frozen=True)
class Problem:
    """Something that the scan could not read; ``path`` is relative to the logdir."""

    path: str
    error: ProfileError


@dataclass(frozen=True)
class Snapshot:
    """What one scan of all roots found, newest session first."""

    sessions: tuple[FoundSession, ...] = ()
    searched: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    complete: bool = False
    _by_name: Mapping[tuple[str, str], FoundSession] = field(default_factory=dict)

    def find(self, run: str, session: str) -> FoundSession | None:
        """Return the session of exactly this name, or those of several names as one; None for what was not found.

        Args:
            run: of the session.
            session: its name; or several, with commas, each one's name in ``run``, or ``RUN/SESSION``.

        Raises:
            ProfileError: they cannot be one job.
        """
        found = self._by_name.get((run, session))
        return found if found is not None else self._joined(run, session)

    def _joined(self, run: str, names: str) -> FoundSession | None:
        from tb_gpu_doctor.traces.related import SEPARATOR, join_sessions, named_sessions

        if SEPARATOR not in names:
            return None
        members: list[FoundSession] = []

        def find(name: str) -> Session | None:
            place, _, last = name.rpartition("/")
            found = self._by_name.get((run, name)) or self._by_name.get((place, last))
            if found is None:
                return None
            members.append(found)
            return found.session

        sessions = named_sessions(names, find)
        if sessions is None or len({member.owner for member in members}) < 2:
            return None
        if len({member.root for member in members}) > 1:
            return None
        joined = dataclasses.replace(join_sessions(sessions, names), run=run)
        key = hashlib.sha256("\0".join(member.key for member in members).encode()).hexdigest()
        return FoundSession(run, joined, members[0].root, key)


def roots_of(context: Any) -> tuple[str, tuple[Root, ...]]:
    """Return the logdir as TensorBoard shows it, and the folders behind it.

    Any field of the context may be None, and ``logdir`` may be empty or hold the text of
    ``--logdir_spec``.
    """
    flags = getattr(context, "flags", None)
    logdir = str(getattr(flags, "logdir", "") or "")
    spec = str(getattr(flags, "logdir_spec", "") or "")
    if logdir or not spec:
        logdir = logdir or str(getattr(context, "logdir", "") or "")
        return shown(logdir), ((Root("", _expand(logdir)),) if logdir else ())
    return ",".join(map(_shown_part, spec.split(","))), parse_logdir_spec(spec)


def parse_logdir_spec(spec: str) -> tuple[Root, ...]:
    """Split ``name1:path1,path2`` by TensorBoard's rules: a path may hold colons once it starts with ``/``."""
    roots = []
    for part in spec.split(","):
        if not part:
            continue
        name, path = "", part
        if ":" in part and not part.startswith("/") and not _URI.match(part) and not os.path.splitdrive(part)[0]:
            name, _, path = part.partition(":")
        roots.append(Root(name, _expand(path)))
    return tuple(roots)


def _shown_part(part: str) -> str:
    """One part of a ``--logdir_spec``, without credentials."""
    name, colon, path = part.partition(":")
    if is_remote(part) or not is_remote(path):
        return shown(part)
    return name + colon + shown(path)


def _expand(path: str) -> str:
    if is_remote(path):
        files_at(path)  # takes the credentials, where there are some
        return shown(path)
    return os.path.realpath(os.path.expanduser(local_path(path)))


def shown_path(path: str, root: Root) -> str:
    """``path`` as the tab may show it: below the root, never the server's own folders."""
    if is_remote(path):
        path, top = shown(path).rstrip("/"), shown(root.path).rstrip("/")
        relative = path[len(top) + 1 :] if path.startswith(top + "/") else os.path.basename(path)
        return "/".join(part for part in (root.name, relative) if part)
    relative = os.path.relpath(path, root.path)
    if relative == "." or relative.startswith(".."):
        relative = os.path.basename(path)
    return f"{root.name}/{relative}" if root.name else relative


def session_key(session: Session, states: dict[str, str] | None = None) -> str:
    """A name for the session's present content: its files with their sizes and times, and the telemetry beside it.

    Args:
        session: what to name.
        states: what is known of folders with telemetry already, filled on the way; a scan has one for all sessions.
    """
    known = {} if states is None else states
    digest = hashlib.sha256(session.path.encode("utf-8", "surrogateescape"))
    for file in session.files:
        if is_remote(file.path):
            digest.update(f"\0{file.path}\0{file.size_bytes} {file.version}".encode("utf-8", "surrogateescape"))
            continue
        try:
            stat = os.stat(file.path)
            state = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        except OSError:
            state = "unreadable"
        digest.update(f"\0{file.path}\0{state}".encode("utf-8", "surrogateescape"))
    for home in () if session.is_telemetry else session.homes:
        if home.folder not in known:
            known[home.folder] = telemetry_state(home.folder, time.time())
        digest.update(f"\0{home.folder}\0{known[home.folder]}".encode("utf-8", "surrogateescape"))
    for log in () if session.is_telemetry else session.logs:
        state = _log_state(log.path, time.time())
        digest.update(f"\0{log.path}\0{state}".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _log_state(path: str, now_unix_s: float) -> str:
    """A name for what a log holds, coarse while it grows."""
    try:
        stat = os.stat(path)
    except OSError:
        return "unreadable"
    at_rest = abs(now_unix_s - stat.st_mtime) > TELEMETRY_REST_S
    return f"{stat.st_size} {stat.st_mtime_ns}" if at_rest else f"about 2**{stat.st_size.bit_length()}"


def telemetry_state(folder: str, now_unix_s: float) -> str:
    """A name for what a folder's recordings hold, coarse while they grow.

    Telemetry of a training that still runs grows all the time, and a profile must not be analysed anew for each sample:
    a growing recording changes its name each time it has doubled, and once more when it is at rest.
    """
    from tb_gpu_doctor.traces.telemetry_homes import part_files, recording_files

    if is_remote(folder):  # asking a store for it at each scan would cost too much
        return ""
    parts = []
    for path, _ in recording_files(folder):
        try:
            stats = [os.stat(path), *map(os.stat, part_files(path))]
        except OSError:
            continue
        newest, size_bytes = max(stat.st_mtime_ns for stat in stats), sum(stat.st_size for stat in stats)
        at_rest = abs(now_unix_s - newest / 1e9) > TELEMETRY_REST_S
        size = f"{size_bytes} {newest}" if at_rest else f"about 2**{size_bytes.bit_length()}"
        parts.append(f"{path}\0{size}")
    return "\0".join(parts)


class Scanner:
    """Scans roots on demand, one scan at a time, and serves the last result.

    Args:
        roots: what to scan.
        find: `tb_gpu_doctor.traces.sessions.find_sessions`, or its like.
        min_interval_s: rest between two scans.
        deadline_s: how long a scan of one local root may take.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        find: Callable[[str], SessionScan] | None = None,
        min_interval_s: float = MIN_INTERVAL_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._roots = tuple(roots)
        self._find = find
        remote = any(is_remote(root.path) for root in self._roots)
        self._min_interval_s = max(min_interval_s, REMOTE_INTERVAL_S) if remote else min_interval_s
        self._deadline_s = deadline_s
        # By root, whether its last scan has ended.
        self._overdue: dict[Root, threading.Event] = {}
        self._changed = threading.Condition()
        self._running = False
        self._not_before = 0.0
        self._tidied = time.monotonic()
        self._snapshot = Snapshot(complete=not self._roots)

    @property
    def scanning(self) -> bool:
        """Whether a scan runs now."""
        return self._running

    def start(self) -> None:
        """Start a scan unless one runs or has just run."""
        with self._changed:
            if self._running or not self._roots or time.monotonic() < self._not_before:
                return
            self._running = True
        try:
            threading.Thread(target=self._scan, name="gpu-doctor-scan", daemon=True).start()
        except RuntimeError:  # the system lets us have no more threads now; the next request tries again
            _LOG.warning("GPU Doctor: the logdir cannot be scanned now: no thread can be started")
            with self._changed:
                self._running = False
                self._not_before = time.monotonic() + self._min_interval_s
                self._changed.notify_all()

    def snapshot(self, wait_s: float = 0.0, refresh: bool = True) -> Snapshot:
        """Return what is known; with ``refresh`` ask for a new scan, and wait for a running one at most ``wait_s``."""
        if refresh:
            self.start()
        with self._changed:
            if wait_s > 0:
                self._changed.wait_for(lambda: not self._running, timeout=wait_s)
            return self._snapshot

    def _scan(self) -> None:
        began = time.monotonic()
        try:
            snapshot = self._collect()
        except Exception:  # the thread may not die with _running set
            _LOG.exception("GPU Doctor: the scan of the logdir failed")
            snapshot = Snapshot(complete=True)
        ended = time.monotonic()
        with self._changed:
            self._snapshot = snapshot
            self._running = False
            self._not_before = ended + max(self._min_interval_s, IDLE_FACTOR * (ended - began))
            self._changed.notify_all()
        if ended > self._tidied + TIDY_EVERY_S:  # in this thread, which runs as long as anybody asks for anything
            self._tidied = ended
            return_free_memory()

    def _look(self, root: Root, look: Callable[[str], tuple[SessionScan, list[str]]]) -> tuple[SessionScan, list[str]]:
        """What a root holds; a local one that does not answer is waited for once, and asked anew when it has.

        Raises:
            ProfileError: ``read_stalled``, and whatever ``look`` raises.
        """
        if is_remote(root.path):  # these have deadlines of their own
            return look(root.path)
        overdue = self._overdue.get(root)
        if overdue is not None and not overdue.is_set():
            raise ProfileError("read_stalled", root.path, seconds=self._deadline_s)
        answered = threading.Event()

        def run() -> tuple[SessionScan, list[str]]:
            try:
                return look(root.path)
            finally:
                answered.set()

        self._overdue[root] = answered
        return within(self._deadline_s, root.path, run)

    def _collect(self) -> Snapshot:
        from tb_gpu_doctor.traces.sessions import find_sessions

        find = self._find or find_sessions
        found: dict[tuple[str, str], FoundSession] = {}
        searched: list[str] = []
        problems: list[Problem] = []
        states: dict[str, str] = {}
        for root in self._roots:
            try:
                scan, keys = self._look(root, lambda path: _scan_with_keys(find, path, states))
            except ProfileError as error:
                problems.append(Problem(root.name or os.path.basename(root.path), error))
                if error.code == "read_stalled" or (is_remote(root.path) and error.code != "missing_path"):
                    before = self._snapshot._by_name.items()
                    found |= {name: entry for name, entry in before if entry.root == root and name not in found}
                continue
            prefix = f"{root.name}/" if root.name else ""
            searched += [prefix + pattern for pattern in scan.searched if prefix + pattern not in searched]
            problems += [Problem(shown_path(error.path, root), error) for error in scan.problems]
            for session, key in zip(scan.sessions, keys, strict=True):
                run = "/".join(part for part in (root.name, session.run) if part)
                run = _unused(run, session.session, found)
                found[run, session.session] = FoundSession(run, session, root, key)
        found = _with_offers(found)
        # What monitors recorded comes behind all profiles, which the tab opens first.
        newest_first = sorted(
            found.values(),
            key=lambda entry: (not entry.session.is_telemetry, entry.session.recorded_unix_s),
            reverse=True,
        )
        return Snapshot(tuple(newest_first), tuple(searched), tuple(problems), True, found)


def _scan_with_keys(
    find: Callable[[str], SessionScan], path: str, states: dict[str, str]
) -> tuple[SessionScan, list[str]]:
    scan = find(path)
    return scan, [session_key(session, states) for session in scan.sessions]


def _with_offers(found: dict[tuple[str, str], FoundSession]) -> dict[tuple[str, str], FoundSession]:
    """The sessions, each with those that may belong to it; only within one folder of TensorBoard's."""
    from tb_gpu_doctor.traces.related import Offers

    offers: dict[tuple[str, str], Offer | None] = {}
    for root in {entry.root for entry in found.values()}:
        # By the names that the tab knows.
        named = {
            name: dataclasses.replace(entry.session, run=entry.run)
            for name, entry in found.items()
            if entry.root == root
        }
        known = Offers(list(named.values()))
        offers |= {name: known.of(session) for name, session in named.items()}
    return {name: dataclasses.replace(entry, offer=offers[name]) for name, entry in found.items()}


def _unused(run: str, session: str, found: Mapping[tuple[str, str], FoundSession]) -> str:
    """``run``, told apart from an equal one of another root: two folders may hold the same names."""
    name, number = run, 2
    while (name, session) in found:
        name, number = f"{run} ({number})".strip(), number + 1
    return name


def describe(found: FoundSession, lang: str, verdict: str | None = None) -> dict[str, Any]:
    """One entry of ``sessions``; ``verdict`` of its diagnosis where that is known."""
    from tb_gpu_doctor.report.sentences import say

    session = found.session
    return {
        "run": found.run,
        "session": session.session,
        "label": f"{found.run} · {session.session}" if found.run else session.session,
        "hosts": list(dict.fromkeys(file.host for file in session.files)),
        "format": session.files[0].format if session.files else "",
        "size_bytes": session.size_bytes,
        "modified_unix_s": session.modified_unix_s,
        "recorded_unix_s": session.recorded_unix_s,
        "verdict": verdict,
        "problem": None if session.problem is None else say(session.problem, lang),
        "related": None if found.offer is None else _describe_offer(found.offer),
    }


def _describe_offer(offer: Offer) -> dict[str, Any]:
    return {
        "session": offer.name,
        "sessions": [{"run": member.run, "session": member.session} for member in offer.members],
        "hosts": [file.host for member in offer.members for file in member.files],
        "apart_s": offer.apart_s,
    }
