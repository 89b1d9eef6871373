"""The other processes of the job, as far as the logdir shows them: tells, while training runs, who is slower.

Each process puts a small file beside the recordings, ``<logdir>/gpu_doctor/pace/<host>-<process>.json``: its latest
steps in blocks, and how its GPU is. One process of the job, rank 0 where ranks are known, reads the others' and says
who is slow. There is no other communication: a logdir that is not shared shows nobody, and nobody is waited for. All of
it happens in a thread of its own, and a store that does not answer holds up nothing but that.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from tb_gpu_doctor.monitor.event_file import file_layer, is_remote, safe_name
from tb_gpu_doctor.monitor.notes import LOG, Notes, never_raises
from tb_gpu_doctor.monitor.rank import rank_of_process
from tb_gpu_doctor.pace import BLOCK_STEPS, SLOW_BLOCKS, Condition, reason_of, slower
from tb_gpu_doctor.recording_format import FOLDER

PACE_FOLDER = "pace"
PERIOD_S = 15.0
# Each look at an object store is a listing and a request a process.
REMOTE_PERIOD_S = 60.0
# Who has not written for so long has ended, or been killed.
SILENT_S = 600.0
# Processes of one job begin together; those of a job before it are not meant.
_TOGETHER_S = 300.0
_LAST_LOOK_S = 1.0
# Blocks that a file tells of: processes that look at different times still have the latest hundred steps in common.
_BLOCKS = 4 * SLOW_BLOCKS
_MOST_BYTES = 65_536
# What is told of a slow rank, by the reason that `pace` finds.
_SENTENCES = {
    "heat": "slow_rank_heat",
    "power": "slow_rank_power",
    "clock": "slow_rank_clock",
    "model": "slow_rank_model",
    "shared": "slow_rank_shared",
    "idle": "slow_rank_idle",
    "work": "slow_rank_work",
    "unknown": "slow_rank_unknown",
}
_MOST_PEERS = 4_096


# So many samples tell how a GPU is now: about the time of some hundred steps.
_SAMPLES = 60
_COUNTERS = {"heat": ("hardware_thermal", "software_thermal"), "power": ("power_brake", "software_power")}
# As in `telemetry.throttling`: a large GPU under full load nearly always says that its power is capped.
_CAPPED_BELOW = 0.90


class OwnGpu:
    """Keeps the latest samples of the GPUs, and tells how the one is that this process trains on."""

    def __init__(self) -> None:
        self._samples: deque[tuple[Sequence[Mapping[str, Any]], list[dict[str, float]]]] = deque(maxlen=_SAMPLES)

    def take(self, facts: Sequence[Mapping[str, Any]], rows: list[dict[str, float]]) -> None:
        """Take a sample of all GPUs: facts and values by metric of each, in the same order."""
        now = time.monotonic()
        self._samples.append((facts, [{**row, "seconds": now} for row in rows]))

    def condition(self, rank: Mapping[str, int] | None) -> tuple[str, Condition]:
        """The driver's number of the GPU, or "" where it cannot be told, and how it is."""
        samples = [sample for sample in list(self._samples) if sample[1]]
        if not samples:
            return "", Condition()
        facts, last = samples[-1]
        place = _own_place(facts, last, rank)
        if place is None:
            return "", Condition()
        rows = [row[place] for _, row in samples if len(row) == len(last)]
        clock, top = _mean(rows, "sm_clock_mhz"), facts[place].get("limits", {}).get("sm_clock_max_mhz")
        capped = clock is not None and top and clock < _CAPPED_BELOW * top
        return str(facts[place].get("nvml_index", "")), Condition(
            facts[place].get("name") or None,
            clock,
            _mean(rows, "utilization_percent"),
            _mean(rows, "temperature_celsius"),
            _throttled(rows, "heat"),
            _throttled(rows, "power") if capped else 0.0 if clock is not None else None,
            max(
                (row["other_processes"] for row in rows if row["other_processes"] == row["other_processes"]),
                default=None,
            ),
        )


def _own_place(
    facts: Sequence[Mapping[str, Any]], row: list[dict[str, float]], rank: Mapping[str, int] | None
) -> int | None:
    if len(row) == 1:
        return 0
    known = ("allocator_used_bytes", "memory_process_bytes")
    used = [place for place, values in enumerate(row) if any(values[name] == values[name] for name in known)]
    if len(used) == 1:
        return used[0]
    local = None if rank is None else rank.get("local")
    same = [place for place, gpu in enumerate(facts) if local is not None and gpu.get("framework_id") == local]
    return same[0] if len(same) == 1 else None


def _mean(rows: list[dict[str, float]], metric: str) -> float | None:
    values = [row[metric] for row in rows if row[metric] == row[metric]]
    return sum(values) / len(values) if values else None


def _throttled(rows: list[dict[str, float]], kind: str) -> float | None:
    """The part of the time, by the counters of `sampler`, that count seconds since the monitor began."""
    grown = []
    for name in _COUNTERS[kind]:
        values = [row[f"throttled_{name}_seconds"] for row in rows]
        known = [value for value in values if value == value]
        busy = [row["seconds"] for row in rows]
        if len(known) >= 2 and busy[-1] > busy[0]:
            grown.append(min(1.0, (known[-1] - known[0]) / (busy[-1] - busy[0])))
    return max(grown, default=None)


class Peers:
    """Is told of steps and samples; writes this process's pace, and compares it with the others'.

    Args:
        logdir: as for the monitor.
        host: this machine's name.
        notes: takes the line.
    """

    def __init__(self, logdir: str, host: str, notes: Notes) -> None:
        self._remote = is_remote(logdir)
        separator = "/" if self._remote else os.sep
        self._folder = separator.join((logdir.rstrip(separator) or ".", FOLDER, PACE_FOLDER))
        self._name = f"{safe_name(host)}-{os.getpid()}.json"
        self._path = separator.join((self._folder, self._name))
        self._separator = separator
        self._host, self._notes = host, notes
        self.gpu = OwnGpu()
        # Told once the job's launcher, or JAX, says which process this is.
        self.on_rank: Callable[[dict[str, int]], None] = lambda rank: None
        self._steps: deque[tuple[int, int, int]] = deque(maxlen=(_BLOCKS + 1) * BLOCK_STEPS)
        self._rank: dict[str, int] | None = None
        self._written = -1
        self._told: dict[str, int] = {}
        self._began, self._began_unix_s = False, time.time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-doctor-peers", daemon=True)

    def start_when_due(self) -> None:
        """Start the thread, once there are steps enough to compare; may be called again and again."""
        if not self._began and len(self._steps) > BLOCK_STEPS and not self._stop.is_set():
            self._began = True
            self._thread.start()

    def stop(self) -> None:
        """End the thread, which looks a last time where that is quick; waits for it no longer than a second."""
        with contextlib.suppress(RuntimeError):  # no thread can be started while Python ends
            self.start_when_due()
        self._stop.set()
        if self._began and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LAST_LOOK_S)

    def step(self, number: int, duration_ns: int, samples: int) -> None:
        """A step ended; called by training, so it only puts that down."""
        self._steps.append((number, duration_ns, samples))

    def failed(self, part: str, error: Exception) -> None:
        """Only of use to whoever looks for it: nobody is told of a comparison that cannot be made."""
        LOG.debug("%s failed", part, exc_info=error)

    def _run(self) -> None:
        while not self._stop.wait(REMOTE_PERIOD_S if self._remote else PERIOD_S):
            self.look()
        if not self._remote:
            self.look(last=True)

    @never_raises("comparing ranks")
    def look(self, last: bool = False) -> None:
        """Look once; the ``last`` time the block that was growing counts as well."""
        if self._rank is None:
            self._rank = rank_of_process()
            if self._rank is not None:
                self.on_rank(self._rank)
        own = self._own(last)
        if own is None:
            return
        if own["blocks"] and own["blocks"][-1][0] != self._written:
            self._write(json.dumps(own, separators=(",", ":")).encode())
            self._written = own["blocks"][-1][0]
        if self._rank is None or self._rank["number"] == 0:
            self._compare(own)

    def _own(self, last: bool = False) -> dict[str, Any] | None:
        """What this process tells; None before the first whole block."""
        found: dict[int, list[int]] = {}
        steps = list(self._steps)
        for number, duration, _ in steps:
            found.setdefault(number // BLOCK_STEPS, []).append(duration)
        blocks = [(block, median(lengths)) for block, lengths in found.items() if len(lengths) >= BLOCK_STEPS // 2]
        # The last one still grows.
        blocks = sorted(blocks)[: None if last else -1][-_BLOCKS:]
        if not blocks:
            return None
        gpu, condition = self.gpu.condition(self._rank)
        return {
            "version": 1,
            "host": self._host,
            "process_id": os.getpid(),
            "rank": self._rank,
            "began_unix_s": self._began_unix_s,
            "written_unix_s": time.time(),
            "samples": steps[-1][2],
            "blocks": blocks,
            "gpu": gpu,
            "condition": asdict(condition),
        }

    def _compare(self, own: dict[str, Any]) -> None:
        others = self._others(own)
        if not others:
            return
        if self._rank is None and min([self._name, *others]) != self._name:
            return  # without ranks, the first by name compares for all
        job = {self._name: own, **others}
        for slow in slower({name: {int(b): float(t) for b, t in told["blocks"]} for name, told in job.items()}):
            if slow.last_step - self._told.get(slow.rank, -(1 << 62)) < 10 * BLOCK_STEPS * SLOW_BLOCKS:
                self._told[slow.rank] = slow.last_step
                continue  # told already, and it has not ended
            self._told[slow.rank] = slow.last_step
            told = job[slow.rank]
            conditions = [_condition(other) for name, other in job.items() if name != slow.rank]
            self._notes.tell(
                _SENTENCES[reason_of(_condition(told), conditions)],
                rank=_called(told),
                gpu=str(told.get("gpu") or "?"),
                percent=round(100 * (slow.ratio - 1)),
                first=slow.first_step,
                last=slow.last_step,
                own=f"{slow.own_ns / 1e6:.3g}",
                others=f"{slow.others_ns / 1e6:.3g}",
            )

    def _others(self, own: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the other processes of this job told lately, by the names of their files."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._listed()[:_MOST_PEERS]:
            if name == self._name or not name.endswith(".json"):
                continue
            with contextlib.suppress(Exception):  # being written, or of somebody else
                told = json.loads(self._read(name))
                age_s = own["written_unix_s"] - float(told["written_unix_s"])
                if age_s > SILENT_S:
                    self._remove(name)  # its process has ended, or was killed
                if abs(age_s) <= SILENT_S and _same_job(own, told) and all(len(block) == 2 for block in told["blocks"]):
                    found[name] = told
        # A rank that was started again has two files: the newer one is it.
        newest: dict[Any, str] = {}
        for name, told in found.items():
            key = name if told["rank"] is None else told["rank"]["number"]
            if key not in newest or told["began_unix_s"] > found[newest[key]]["began_unix_s"]:
                newest[key] = name
        return {name: found[name] for name in newest.values()}

    def _listed(self) -> list[str]:
        if self._remote:
            return sorted(str(name) for name in file_layer(self._folder).listdir(self._folder))
        return sorted(os.listdir(self._folder))

    def _read(self, name: str) -> bytes:
        path = self._separator.join((self._folder, name))
        if self._remote:
            with file_layer(path).GFile(path, "rb") as file:
                return bytes(file.read(_MOST_BYTES))
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)

    def _write(self, content: bytes) -> None:
        if self._remote:
            gfile = file_layer(self._path)
            gfile.makedirs(self._folder)
            with gfile.GFile(self._path, "wb") as file:
                file.write(content)
            return
        os.makedirs(self._folder, exist_ok=True)
        part = f"{self._path}.part"
        with open(part, "wb") as file:
            file.write(content)
        os.replace(part, self._path)

    def _remove(self, name: str) -> None:
        path = self._separator.join((self._folder, name))
        if self._remote:
            file_layer(path).remove(path)
        else:
            os.unlink(path)


def _same_job(own: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Whether another process may be of this job: begun with it, and by ranks, else by the batch."""
    if abs(float(told["began_unix_s"]) - own["began_unix_s"]) > _TOGETHER_S:
        return False
    mine, theirs = own["rank"], told["rank"]
    if mine is None or theirs is None:
        return mine is None and theirs is None and told["samples"] == own["samples"]
    return bool(theirs["of"] == mine["of"] and theirs["number"] != mine["number"])


def _condition(told: Mapping[str, Any]) -> Condition:
    values = told.get("condition")
    known = Condition.__dataclass_fields__
    return Condition(**{k: v for k, v in values.items() if k in known}) if isinstance(values, dict) else Condition()


def _called(told: Mapping[str, Any]) -> str:
    """``rank 3 (node7 · 4711)``; without a rank the host and the process."""
    process = f"{told.get('host')} · {told.get('process_id')}"
    rank = told.get("rank")
    return f"rank {rank['number']} ({process})" if isinstance(rank, dict) else process
