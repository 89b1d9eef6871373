"""Sessions that may be one job: each worker's profiler made a session folder of its own, seconds apart.

That is a guess from names, so it is offered and never done unasked. A session is named ``SESSION``, or
``RUN/SESSION`` where the run does not tell it; several are named by a list with commas.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.sessions import Session
from tb_gpu_doctor.traces.torch_names import natural_key

if TYPE_CHECKING:
    pass

# The workers of a job start profiling at the same step; their clocks and the making of folders differ.
MAX_APART_S = 15.0
SEPARATOR = ","
# Clocks of hosts that nobody keeps can be wrong by so much.
MAX_CLOCK_ERROR_S = 60.0
# Folders that processes of one node have for themselves.
_RANK_FOLDER = re.compile(
    r"(?:(?:local|global)[_-]?)?(?:rank|worker|proc(?:ess)?|gpu|trainer)[_-]?\d{1,6}", re.IGNORECASE
)
# More workers than this are not listed one by one.
MAX_MEMBERS = 1024


@dataclass(frozen=True)
class Offer:
    """Sessions that look like one job with a session.

    Attributes:
        members: all of them, the session itself included, by their hosts' names.
        names: by which they are asked for in the run of the session itself, in the same order.
        apart_s: from the first start to the last.
    """

    members: tuple[Session, ...]
    names: tuple[str, ...]
    apart_s: float

    @property
    def name(self) -> str:
        """What asks for all of them as one session."""
        return SEPARATOR.join(self.names)

    @property
    def others(self) -> int:
        """How many there are beside the session itself."""
        return len(self.members) - 1


def full_name(session: Session) -> str:
    """``RUN/SESSION``, or ``SESSION`` in the logdir itself."""
    return f"{session.run}/{session.session}" if session.run else session.session


class Offers:
    """Which of the sessions of a logdir may belong together.

    Candidates are of the same run, or of runs whose paths differ in one folder (``job/worker0``, ``job/worker1``);
    start within `MAX_APART_S` of each other, by their files or else by their names; and no host is in two of them: a
    second capture of a host is another recording. Where a host has several captures nearby, the one that is
    nearest counts, and only if it has no nearer one itself.
    """

    def __init__(self, sessions: Sequence[Session]) -> None:
        timed = [(_when(session), session) for session in sessions]
        usable = [(when, session) for when, session in timed if when is not None and _can_be_named(session)]
        usable.sort(key=lambda entry: entry[0])
        self._times = [when for when, _ in usable]
        self._sessions = [session for _, session in usable]

    def of(self, session: Session) -> Offer | None:
        """What the session may be one job with; None without any."""
        when = _when(session)
        if when is None or not _can_be_named(session):
            return None
        hosts = _hosts(session)
        found: list[tuple[tuple[int, float], Session]] = []
        for other in self._near(when):
            distance = _distance(session, other)
            if distance is not None and not hosts & _hosts(other) and self._is_nearest(session, other, distance):
                found.append((distance, other))
        members = _distinct([session, *_unrivalled(found)])
        if len(members) < 2 or len(members) > MAX_MEMBERS:
            return None
        members.sort(key=lambda member: sorted(natural_key(host) for host in _hosts(member)))
        times = [_when(member) or 0.0 for member in members]
        alike = [member.session for member in members if member.run == session.run]
        names = tuple(
            member.session if member.run == session.run and alike.count(member.session) == 1 else full_name(member)
            for member in members
        )
        return Offer(tuple(members), names, max(times) - min(times))

    def _near(self, when: float) -> list[Session]:
        low = bisect_left(self._times, when - MAX_APART_S)
        return self._sessions[low : bisect_right(self._times, when + MAX_APART_S)]

    def _is_nearest(self, session: Session, other: Session, distance: tuple[int, float]) -> bool:
        """Whether no other capture of the session's hosts is as near to ``other``."""
        hosts = _hosts(session)
        for rival in self._near(_when(other) or 0.0):
            if rival is session or rival == session or not hosts & _hosts(rival):
                continue
            rivals = _distance(rival, other)
            if rivals is not None and rivals <= distance:
                return False
        return True


def _can_be_named(session: Session) -> bool:
    return session.problem is None and SEPARATOR not in full_name(session)


def _when(session: Session) -> float | None:
    """When a session began: as its files say, else its folder's name; a file's age says nothing of that."""
    return session.named_unix_s if session.started_unix_s is None else session.started_unix_s


def _hosts(session: Session) -> set[str]:
    """The hosts of a session, with its rank where that has a folder of its own: two ranks of a node are two."""
    rank = _rank_folder(session)
    return {file.host if rank is None else f"{file.host} ({rank})" for file in session.files}


def _rank_folder(session: Session) -> str | None:
    return next((part for part in reversed(session.run.split("/")) if _RANK_FOLDER.fullmatch(part)), None)


def _distance(one: Session, other: Session) -> tuple[int, float] | None:
    """How far apart two sessions are: in runs, then in seconds; None for what is no candidate."""
    if one == other or one.files[0].format != other.files[0].format:
        return None
    times = (one.started_unix_s, other.started_unix_s)
    if None in times:  # a name is in the zone of whoever recorded, so like is compared with like
        times = (one.named_unix_s, other.named_unix_s)
    first_s, second_s = times
    if first_s is None or second_s is None:
        return None
    apart = abs(first_s - second_s)
    if apart > MAX_APART_S:
        return None
    if one.run == other.run:
        return (0, apart)
    first, second = one.run.split("/"), other.run.split("/")
    if (
        not one.run
        or not other.run
        or len(first) != len(second)
        or sum(a != b for a, b in zip(first, second, strict=True)) != 1
    ):
        return None
    return (1, apart)


def _unrivalled(found: list[tuple[tuple[int, float], Session]]) -> list[Session]:
    """Of candidates that share a host the nearest; none of them if they are equally near."""
    kept = []
    for distance, session in found:
        hosts = _hosts(session)
        rivals = [other for other, rival in found if rival is not session and hosts & _hosts(rival)]
        if all(distance < other for other in rivals):
            kept.append(session)
    return kept


def _distinct(sessions: Sequence[Session]) -> list[Session]:
    return list({(session.path, session.session): session for session in sessions}.values())


def named_sessions(wanted: str, find: Callable[[str], Session | None]) -> list[Session] | None:
    """The sessions that a name asks for; None where any of them is unknown.

    Args:
        wanted: a name, or several with commas between them.
        find: from one name to its session.
    """
    whole = find(wanted)
    if whole is not None:  # whatever its name looks like
        return [whole]
    names = [name for name in dict.fromkeys(wanted.split(SEPARATOR)) if name.strip()]
    if len(names) > MAX_MEMBERS:
        return None
    # As it stands, then without the blanks that people put behind a comma.
    found = [find(name) or find(name.strip()) for name in names]
    known = [session for session in found if session is not None]
    return known if known and len(known) == len(found) else None


def join_sessions(sessions: Sequence[Session], name: str) -> Session:
    """Several sessions read as one job.

    Args:
        sessions: at least one; the first lends its run and folder.
        name: of the whole.

    Raises:
        ProfileError: ``hosts_twice`` where a host is in two of them, ``mixed_formats`` where they cannot be one job.
    """
    sessions = _distinct(sessions)
    if len(sessions) == 1:
        return sessions[0]
    sessions = _told_apart(sessions)
    hosts: set[str] = set()
    twice: set[str] = set()
    for session in sessions:
        twice |= hosts & _hosts(session)
        hosts |= _hosts(session)
    first = sessions[0]
    if twice:
        raise ProfileError("hosts_twice", first.path, hosts=sorted(twice)[:10])
    if len({"kineto" if session.files[0].format == "kineto" else "xplane" for session in sessions}) > 1:
        raise ProfileError("mixed_formats", first.path)
    files = sorted((file for session in sessions for file in session.files), key=lambda file: natural_key(file.host))
    return replace(
        first,
        session=name,
        files=tuple(files),
        problem=None if any(file.problem is None for file in files) else first.problem,
        modified_unix_s=max(session.modified_unix_s for session in sessions),
        size_bytes=sum(session.size_bytes for session in sessions),
        homes=tuple(dict.fromkeys(home for session in sessions for home in session.homes)),
    )


def _told_apart(sessions: Sequence[Session]) -> list[Session]:
    """The sessions with hosts such as ``node-a (rank0)`` where ranks of one node have folders of their own."""
    counts = Counter(file.host for session in sessions for file in session.files)
    found = []
    for session in sessions:
        rank = _rank_folder(session)
        if rank is not None:
            files = tuple(
                replace(file, host=f"{file.host} ({rank})") if counts[file.host] > 1 else file for file in session.files
            )
            session = replace(session, files=files)
        found.append(session)
    return found


def recorded_apart(recordings: Sequence[tuple[int | None, tuple[int, int] | None]]) -> int | None:
    """How long nothing was recorded between the first file's end and the last one's start, in picoseconds.

    By the files' own words, which are better than those of folders; None where they say nothing, or no more than
    that they may well have been recorded at the same time.

    Args:
        recordings: of each file the epoch time of its clock's zero in nanoseconds, and start and end on that clock.
    """
    spans = [
        (zero_ns * 1000 + bounds[0], zero_ns * 1000 + bounds[1])
        for zero_ns, bounds in recordings
        if zero_ns is not None and bounds is not None
    ]
    if len(spans) < 2:
        return None
    apart = max(start for start, _ in spans) - min(end for _, end in spans)
    return apart if apart > MAX_CLOCK_ERROR_S * 1e12 else None
