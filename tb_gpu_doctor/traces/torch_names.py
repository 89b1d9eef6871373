"""What the names of PyTorch's trace files say: process, rank, recording and time.

``tensorboard_trace_handler`` writes ``<worker>.<time>.pt.trace.json[.gz]``, one file a process and
recording, all into one folder; the worker is ``<host>_<pid>`` unless the user names it. Launchers and people's
own handlers number the ranks, and the steps at which they recorded, in all sorts of ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

TORCH_SUFFIXES = (".pt.trace.json.gz", ".pt.trace.json")
_SUFFIXES = (*TORCH_SUFFIXES, ".trace.json.gz", ".trace.json", ".json.gz", ".json", ".trace.gz", ".trace", ".sqlite")
# Milliseconds since 1970 before PyTorch 2.1, nanoseconds since.
_TIMED = re.compile(r"^(?P<worker>.+)\.(?P<time>\d{13}|\d{16}|\d{19})$")
# `worker0_step_12`, `step12-rank0`: another recording of worker0, by the handlers that people write; and the phases
# that inference servers record apart.
_CAPTURE = re.compile(
    r"(?:(?<=[._-])|^)(?P<capture>(?:global_?step|step|iter(?:ation)?|epoch|batch|cycle|capture)s?[_-]?\d+"
    r"|EXTEND|DECODE|PREFILL)(?=$|[._-])"
)
_HOST_PID = re.compile(r"^(?P<host>.+)_(?P<pid>\d{1,10})$")
_PROCESS = re.compile(r"(?:activities|pid)[_-](?P<pid>\d{1,10})$")
_RANK = re.compile(r"(?<![a-z])(?:global_?)?rank[_-]?(?P<rank>\d{1,6})(?!\d)", re.IGNORECASE)
# What numbers processes where no rank is named; a local rank numbers them on each machine only.
_NUMBER = re.compile(
    r"(?:^|[^a-z])(?:worker|trace|profile|proc|gpu|device|tp|dp|pp|ep)[_-]?\d{1,6}(?!\d)", re.IGNORECASE
)
# In front of a number that is no process'.
_COUNTED = re.compile(r"(?:rank|worker|trace|profile|proc|gpu|device|tp|dp|pp|ep|node|step)$", re.IGNORECASE)
_DIGITS = re.compile(r"(\d+)")
_EDGES = " ._-"


@dataclass(frozen=True)
class Named:
    """What a name says; None for what it does not.

    Attributes:
        stem: the name without its suffix.
        worker: the process: what is left without time and recording.
        capture: what the name calls the recording.
        time_unix_s: when the file was written.
        rank: of the job.
        host, pid: machine and process.
    """

    stem: str
    worker: str
    capture: str | None
    time_unix_s: float | None
    rank: int | None
    host: str | None
    pid: int | None

    def is_numbered_like(self, other: Named) -> bool:
        """Whether two names differ in the numbers of processes, and in nothing else."""
        if not _NUMBER.search(self.worker) or self.worker == other.worker:
            return False
        return _DIGITS.sub("#", self.worker) == _DIGITS.sub("#", other.worker)


def torch_stem(name: str) -> str | None:
    """A trace file's name without its suffix; None for a file that is not called as PyTorch's are."""
    return next((name[: -len(suffix)] for suffix in TORCH_SUFFIXES if name.endswith(suffix)), None)


def worker_of(name: str) -> str:
    """The process that wrote a file."""
    return read_name(name).worker


@lru_cache(maxsize=1 << 14)
def read_name(name: str) -> Named:
    """What a file's name says."""
    stem = next((name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix) and name != suffix), name)
    worker, when = stem, None
    if timed := _TIMED.match(stem):
        worker, digits = timed["worker"], timed["time"]
        when = int(digits) / 10 ** (len(digits) - 10)
    capture = None
    if (found := _CAPTURE.search(worker)) is not None:
        before, behind = worker[: found.start()].rstrip(_EDGES), worker[found.end() :].lstrip(_EDGES)
        if before or behind:
            capture, worker = found["capture"], "_".join(filter(None, (before, behind)))
    rank = _RANK.search(worker)
    is_local = rank is not None and worker[: rank.start()].lower().rstrip(_EDGES).endswith("local")
    process = _PROCESS.search(worker)
    host = _HOST_PID.match(worker) if process is None else None
    if host is not None and _COUNTED.search(host["host"]):
        host = None
    pid = process or host
    return Named(
        stem, worker, capture, when, int(rank["rank"]) if rank and not is_local else None,
        host["host"] if host else None, int(pid["pid"]) if pid else None,
    )  # fmt: skip


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts numbers inside names by their value."""
    parts = _DIGITS.split(text)
    return [(1, int(part), "") if i % 2 and len(part) < 30 else (0, 0, part) for i, part in enumerate(parts)]


# `socket.gethostname()_os.getpid()`, as PyTorch names a worker; lower numbers count hosts.
_WORKER = re.compile(r"_\d{3,10}$")


def machine_of(host: str) -> str:
    """The machine in a host's name, without the process that profilers write behind it."""
    return _WORKER.sub("", host)
