"""Which of PyTorch's trace files belong to one recording, by their names alone.

``tensorboard_trace_handler`` writes ``<worker>.<time>.pt.trace.json[.gz]``, one file a process and
recording, all into one folder; the worker is ``<host>_<pid>`` unless the user names it. People's
own handlers leave out the time and number the ranks.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

TORCH_SUFFIXES = (".pt.trace.json.gz", ".pt.trace.json")
# Milliseconds since 1970 before PyTorch 2.1, nanoseconds since.
_TIMED = re.compile(r"^(?P<worker>.+)\.(?P<time>\d{13}|\d{16}|\d{19})$")
# `worker0_step_12`: another recording of worker0, by the handlers that people write.
_NUMBERED = re.compile(r"^(?P<worker>.+?)[._-](?P<capture>(?:step|iter(?:ation)?|epoch)[_-]?\d+)$")
_DIGITS = re.compile(r"(\d+)")
# Processes end one recording within seconds of each other; a later one is another recording.
SAME_RECORDING_S = 60.0


@dataclass(frozen=True)
class Capture:
    """One recording.

    Attributes:
        name: its time as TensorFlow names sessions, or what the names call it; None when nothing tells
            it from the others of the folder.
        files: (worker, file name), sorted by worker, rank 10 behind rank 2.
    """

    name: str | None
    files: tuple[tuple[str, str], ...]


def torch_stem(name: str) -> str | None:
    """A trace file's name without its suffix; None for another file."""
    return next((name[: -len(suffix)] for suffix in TORCH_SUFFIXES if name.endswith(suffix)), None)


def worker_of(name: str) -> str:
    """The process that wrote a file."""
    stem = torch_stem(name) or name
    timed = _TIMED.match(stem)
    stem = timed.group("worker") if timed else stem
    numbered = _NUMBERED.match(stem)
    return numbered.group("worker") if numbered else stem


def captures(names: Iterable[str]) -> list[Capture]:
    """The recordings among the files of one folder."""
    timed: list[tuple[float, str, str]] = []
    named: dict[str | None, dict[str, str]] = defaultdict(dict)
    seen: set[str] = set()
    for name in sorted(names, reverse=True):  # of a file and its packed copy, the packed one
        stem = torch_stem(name)
        if stem is None or stem in seen:
            continue
        seen.add(stem)
        match = _TIMED.match(stem)
        if match:
            digits = match.group("time")
            timed.append((int(digits) / 10 ** (len(digits) - 10), worker_of(name), name))
        else:
            numbered = _NUMBERED.match(stem)
            named[numbered.group("capture") if numbered else None][worker_of(name)] = name
    return [*_by_time(timed), *(_capture(label, files) for label, files in named.items())]


def _by_time(timed: list[tuple[float, str, str]]) -> list[Capture]:
    """Files close in time are one recording, the second file of a worker there begins the next one."""
    found = []
    timed.sort()
    used: set[str] = set()
    begin = 0
    for end in range(1, len(timed) + 1):
        if end < len(timed) and timed[end][0] - timed[end - 1][0] <= SAME_RECORDING_S:
            continue
        rounds: list[tuple[float, dict[str, str]]] = []
        count: dict[str, int] = defaultdict(int)
        for when, worker, name in timed[begin:end]:
            if count[worker] == len(rounds):
                rounds.append((when, {}))
            rounds[count[worker]][1][worker] = name
            count[worker] += 1
        for when, files in rounds:
            label = base = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(when))
            number = 1
            while label in used:  # two within a second
                number += 1
                label = f"{base}_{number}"
            used.add(label)
            found.append(_capture(label, files))
        begin = end
    return found


def _capture(name: str | None, files: dict[str, str]) -> Capture:
    return Capture(name, tuple(sorted(files.items(), key=lambda item: natural_key(item[0]))))


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Sorts numbers inside names by their value."""
    parts = _DIGITS.split(text)
    return [(1, int(part), "") if i % 2 and len(part) < 30 else (0, 0, part) for i, part in enumerate(parts)]
