"""What is watched while the soak runs: the memory of each kind of process, and moments in which nothing ran."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# A thread that sleeps for 50 ms and comes back later than this did not get a core, or not its interpreter.
STILL_S = 0.3
_TICK_S = 0.05
_BEAT = f"""
import sys, time
last = time.monotonic()
while True:
    time.sleep({_TICK_S})
    now = time.monotonic()
    if now - last > {STILL_S}:
        print(now, now - last, flush=True)
    last = now
"""


@dataclass(frozen=True)
class Memory:
    """Resident memory without pages of files, in bytes, ``at_s`` seconds after the start."""

    at_s: float
    server: int
    workers: int
    data_server: int

    @property
    def total(self) -> int:
        """All processes."""
        return self.server + self.workers + self.data_server


def memory_of(pid: int, at_s: float) -> Memory:
    """The memory of a TensorBoard, of the processes that analyse for it, and of its own reader of event files."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    workers = data_server = 0
    below = {pid}
    while found := {child for child, parent in parents.items() if parent in below and child not in below}:
        below |= found
    for child in below - {pid}:
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"tensorboard_data_server" in command:
            data_server += _anonymous(child)
        else:
            workers += _anonymous(child)
    return Memory(at_s, _anonymous(pid), workers, data_server)


def _anonymous(pid: int) -> int:
    """What no file holds: the heap, and mappings without a file, which the system counts as shared (`cache.store`)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


@dataclass(frozen=True)
class Still:
    """From when to when (monotonic seconds) something that only sleeps did not come back."""

    who: str
    start: float
    end: float


class Heartbeats:
    """Tells whose time it was: a process that does nothing else, and a thread beside the browsers.

    Where both stand still, no core was free; where only the thread does, the browsers' own interpreter was busy, and
    what they measured then was not the server.
    """

    def __enter__(self) -> Heartbeats:
        self.still: list[Still] = []
        self._over = threading.Event()
        self._process = subprocess.Popen([sys.executable, "-I", "-c", _BEAT], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._process.kill()
        self._process.wait()

    def during(self, start: float, end: float) -> str:
        """Who stood still in a stretch of time, in words; empty for nobody."""
        found = [one for one in list(self.still) if one.start < end and one.end > start]
        return ", ".join(f"{one.who} stood still for {one.end - one.start:.2f} s" for one in found)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # CLOCK_MONOTONIC is the same in all processes
            now, gap = map(float, line.split())
            self.still.append(Still("an idle process", now - gap, now))

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._over.wait(_TICK_S):
            now = time.monotonic()
            if now - last > STILL_S:
                self.still.append(Still("the browsers' process", last, now))
            last = now
