"""Which files of PyTorch in one folder are one recording: told by what they hold, then by their names and times.

A recording has one file a process. Ranks of a job are one recording however they are called. Not one recording are
two runs of a script, seconds apart; two captures of one process, training and validation for instance; and two jobs
that wrote into one folder. The evidence, in this order: rank and size of the job, the process (machine and number),
what was recorded when, numbers in the names, and when the files were written.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tb_gpu_doctor.traces.heads import Head
from tb_gpu_doctor.traces.torch_names import Named, natural_key, read_name

# Processes end one recording within seconds of each other; a later one is another recording. Ranks that know of each
# other may have clocks that nobody keeps.
SAME_RECORDING_S = 60.0
SAME_JOB_S = 3600.0
# Two files that say the same rank are one job with wrong ranks only if they were written at the same time.
SAME_RANK_S = 5.0


@dataclass(frozen=True)
class Recording:
    """One recording.

    Attributes:
        name: its time as TensorFlow names sessions, or what the names call it; None when nothing tells
            it from the others of the folder.
        files: (label, file name), sorted by label, rank 10 behind rank 2; labels differ.
        start_unix_s: when it was recorded, where the files say.
    """

    name: str | None
    files: tuple[tuple[str, str], ...]
    start_unix_s: float | None = None


@dataclass(frozen=True)
class _File:
    """What is known of one file."""

    name: str
    named: Named
    head: Head

    @property
    def rank(self) -> int | None:
        """Of the job, as the file says, else as its name does."""
        return self.head.rank if self.head.rank is not None else self.named.rank

    @property
    def host(self) -> str | None:
        """The machine."""
        return self.head.host or self.named.host

    @property
    def pid(self) -> int | None:
        """The process; a name that tells it is right where containers all have the same."""
        return self.named.pid if self.named.pid is not None else self.head.pid

    @property
    def when(self) -> float | None:
        """When it was written, or recorded, in Unix seconds."""
        return self.named.time_unix_s if self.named.time_unix_s is not None else self.head.start_unix_s

    @property
    def span(self) -> tuple[float, float] | None:
        """What it recorded; the end may be that of writing."""
        start, end = self.head.start_unix_s, self.head.end_unix_s or self.named.time_unix_s
        return (start, end) if start is not None and end is not None and end >= start else None


@dataclass
class _Group:
    """A recording while it is put together, with what is asked of its members."""

    files: list[_File] = field(default_factory=list)
    world: int | None = None
    ranks: Counter[int] = field(default_factory=Counter)
    rank_times: dict[int, float] = field(default_factory=dict)
    workers: dict[str, list[_File]] = field(default_factory=lambda: defaultdict(list))
    processes: dict[int, list[_File]] = field(default_factory=lambda: defaultdict(list))
    hosts: Counter[str] = field(default_factory=Counter)
    # of files that say no rank, by machine: the latest start and the earliest end
    unranked: dict[str | None, tuple[float, float]] = field(default_factory=dict)
    last: float | None = None

    def add(self, file: _File) -> None:
        self.files.append(file)
        self.world = self.world or file.head.world_size
        if file.rank is not None:
            self.ranks[file.rank] += 1
            self.rank_times.setdefault(file.rank, file.when or 0.0)
        self.workers[file.named.worker].append(file)
        if file.pid is not None:
            self.processes[file.pid].append(file)
        if file.host is not None:
            self.hosts[file.host] += 1
        if file.rank is None and file.span is not None:
            start, end = self.unranked.get(file.host, file.span)
            self.unranked[file.host] = max(start, file.span[0]), min(end, file.span[1])
        if file.when is not None:
            self.last = max(self.last or 0.0, file.when)

    def takes(self, file: _File, sizes: Counter[int | None]) -> bool:
        """Whether nothing says that a file is of another recording.

        Args:
            file: not earlier than those that are there.
            sizes: how many files there are of each size of job.
        """
        world = file.head.world_size
        if self.world is not None and world is not None and self.world != world:
            return False
        if self.last is not None and file.when is not None:
            knows_others = file.rank is not None and world is not None and self.world == world
            unnamed = knows_others and file.named.time_unix_s is None and file.rank not in self.ranks
            if file.when - self.last > (SAME_JOB_S if unnamed else SAME_RECORDING_S):
                return False
        if file.rank is not None and file.rank in self.ranks:
            if world is None or sizes[world] > world:
                return False
            if abs((file.when or 0.0) - self.rank_times[file.rank]) > SAME_RANK_S:
                return False
        if any(_is_same_process(file, other) for other in self.workers.get(file.named.worker, ())):
            return False
        if file.pid is not None and any(_is_same_process(file, other) for other in self.processes.get(file.pid, ())):
            return False
        known = self.unranked.get(file.host) if file.rank is None and file.span is not None else None
        if known is not None and file.span is not None:
            return file.span[0] <= known[1] and file.span[1] >= known[0]
        return True

    def fit(self, file: _File) -> tuple[bool, bool]:
        """How much speaks for it; of equal ones the first is taken."""
        first = self.files[0].span
        together = first is not None and file.span is not None and _overlap(first, file.span)
        return not together, not (file.host is not None and self.hosts[file.host] > 0)


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _is_same_process(one: _File, other: _File) -> bool:
    """Whether two files are two recordings of one process."""
    if one.rank is not None and other.rank is not None and one.rank != other.rank:
        return False  # containers: one name of a host and one number of a process for all
    if one.host is not None and other.host is not None and one.host != other.host:
        return False
    if one.head.pid is not None and other.head.pid is not None and one.named.worker == other.named.worker:
        if one.span is not None and other.span is not None:
            return not _overlap(one.span, other.span)  # no process records twice at a time
        return True
    if one.named.worker == other.named.worker:
        return True
    if one.pid is None or one.pid != other.pid or one.named.is_numbered_like(other.named):
        return False
    if one.span is not None and other.span is not None:
        return not _overlap(one.span, other.span)
    return one.head.start_unix_s is not None and one.head.start_unix_s != other.head.start_unix_s


def recordings(names: Iterable[str], head_of: Callable[[str], Head | None]) -> list[Recording]:
    """The recordings among the files of one folder.

    Args:
        names: of PyTorch's files.
        head_of: what a file's beginning tells, None for nothing.
    """
    files: dict[str | None, list[_File]] = defaultdict(list)
    seen: set[str] = set()
    for name in sorted(names, reverse=True):  # of a file and its packed copy, the packed one
        named = read_name(name)
        if named.stem not in seen:
            seen.add(named.stem)
            files[named.capture].append(_File(name, named, head_of(name) or Head("kineto")))
    groups = [(capture, group) for capture, some in files.items() for group in _grouped(some)]
    used: set[str] = set()
    return [_finished(capture, group, len(groups) > 1, used) for capture, group in groups]


def _grouped(files: list[_File]) -> list[_Group]:
    """One group a recording, in the order of time; those without any time in the order of their names."""
    found: list[_Group] = []
    for is_timed in (True, False):
        some = [file for file in files if (file.when is not None) == is_timed]
        some.sort(key=lambda file: (file.when or 0.0, natural_key(file.named.worker)))
        sizes: list[Counter[int | None]] = []
        part: list[list[_File]] = []
        for file in some:
            if not part or (is_timed and (file.when or 0.0) - (part[-1][-1].when or 0.0) > SAME_JOB_S):
                part.append([])
                sizes.append(Counter())
            part[-1].append(file)
            sizes[-1][file.head.world_size] += 1
        for members, counts in zip(part, sizes, strict=True):
            found += _first_that_fits(members, counts)
    return found


def _first_that_fits(files: list[_File], sizes: Counter[int | None]) -> list[_Group]:
    groups: list[_Group] = []
    open_groups: list[_Group] = []
    for file in files:
        when = file.when
        if when is not None:
            open_groups = [g for g in open_groups if g.last is None or when - g.last <= SAME_JOB_S]
        fitting = [group for group in open_groups if group.takes(file, sizes)]
        group = min(fitting, key=lambda candidate: candidate.fit(file), default=None)
        if group is None:
            group = _Group()
            groups.append(group)
            open_groups.append(group)
        group.add(file)
    return groups


def _finished(capture: str | None, group: _Group, is_one_of_many: bool, used: set[str]) -> Recording:
    starts = [file.head.start_unix_s for file in group.files if file.head.start_unix_s is not None]
    stamps = [file.named.time_unix_s for file in group.files if file.named.time_unix_s is not None]
    start = min(stamps or starts, default=None)
    when = min(stamps, default=start if is_one_of_many else None)
    name = capture
    if capture is None and when is not None:
        name = base = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(when))
        number = 1
        while name in used:  # two within a second
            number += 1
            name = f"{base}_{number}"
    elif is_one_of_many:
        base = name = capture or "recording"
        number = 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        name = None if name == "recording" else name
    if name is not None:
        used.add(name)
    labelled = zip(_labels(group.files), (file.name for file in group.files), strict=True)
    return Recording(name, tuple(sorted(labelled, key=lambda item: natural_key(item[0]))), start)


def _labels(files: list[_File]) -> list[str]:
    """The processes' names, with their ranks or numbers where several have one name."""
    counts = Counter(file.named.worker for file in files)
    labels: list[str] = []
    taken: set[str] = set()
    for file in files:
        label = file.named.worker
        if counts[label] > 1 and file.rank is not None:
            label = f"{label} (rank{file.rank})"
        base, number = label, 1
        while label in taken:
            number += 1
            label = f"{base} ({number})"
        taken.add(label)
        labels.append(label)
    return labels
