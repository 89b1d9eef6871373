"""The end of recordings that still grow, for a tab that follows a training: each look reads only what is new."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.plugin.stalled_reads import within
from tb_gpu_doctor.plugin.telemetry_curves import curves, unix_ms
from tb_gpu_doctor.telemetry.joining import extent
from tb_gpu_doctor.telemetry.recordings import TelemetryReader, below_home
from tb_gpu_doctor.telemetry.series import Recording
from tb_gpu_doctor.traces.telemetry_homes import Home

# Homes that are followed at the same time; each keeps its samples in memory.
_MOST_HOMES = 4
# Several tabs that follow one training share a look.
_SHARED_S = 1.0
# A look that takes longer is given up, and the next one begun so much later: a stale mount.
_STALL_S, _AGAIN_S = 5.0, 60.0
# What was written to within this time still runs.
RUNNING_S = 60.0


class LiveTelemetry:
    """Follows the homes that requests name; for several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    def answer(
        self, homes: Sequence[Home], runs: Sequence[str], metrics: Sequence[str], seconds: int, points: int
    ) -> dict[str, Any]:
        """The answer of ``telemetry/live``.

        Args:
            homes: of the session.
            runs: folders of the session's recordings, by whose places the answer's series name theirs.
            metrics: ids.
            seconds: how much of the end is wanted; 0 for all.
            points: as for ``telemetry/series``.
        """
        found: dict[str, Recording] = {}
        for home in homes:
            found |= self._of(home)
        known = [found[run] for run in runs if run in found]
        ends = [span[1] for recording in known if (span := extent(recording)) is not None]
        now_ns, end = time.time_ns(), max(ends, default=None)
        window = None if end is None or not seconds else (end - seconds * 10**9, end)
        drawn = curves(known, metrics, window, points)
        places = [runs.index(recording.run) for recording in known]
        series = [{**one, "recording": places[one["recording"]]} for one in drawn["series"]]
        return {
            **drawn,
            "series": series,
            "now_unix_ms": unix_ms(now_ns),
            "running": any(
                recording.ended is None and now_ns - span[1] < RUNNING_S * 1e9
                for recording in known
                if (span := extent(recording)) is not None
            ),
            "last_steps": [
                {"recording": place, "step": int(recording.steps.number[-1]) if len(recording.steps.number) else None}
                for place, recording in zip(places, known, strict=True)
            ],
        }

    def _of(self, home: Home) -> Mapping[str, Recording]:
        with self._lock:
            followed = self._followed.pop(home.folder, None) or _Followed(home)
            self._followed[home.folder] = followed
            while len(self._followed) > _MOST_HOMES:
                self._followed.popitem(last=False)
        return followed.read()


class _Followed:
    """One home with its reader."""

    def __init__(self, home: Home) -> None:
        self._home, self._reader = home, TelemetryReader()
        self._lock = threading.Lock()
        self._next_at = float("-inf")
        self._recordings: Mapping[str, Recording] = {}

    def read(self) -> Mapping[str, Recording]:
        """The recordings by run, as `recordings.read_homes` names them; what was read last where the files stall."""
        if not self._lock.acquire(timeout=_STALL_S):
            return self._recordings
        try:
            if time.monotonic() >= self._next_at:
                self._read_on()
            return self._recordings
        finally:
            self._lock.release()

    def _read_on(self) -> None:
        reader = self._reader
        try:
            read = within(_STALL_S, self._home.folder, lambda: reader.read(self._home.folder))
        except ProfileError:
            self._reader = TelemetryReader()  # the other one may still be at it
            self._next_at = time.monotonic() + _AGAIN_S
            return
        self._recordings = {named.run: named for named in (below_home(self._home, r) for r in read.recordings)}
        self._next_at = time.monotonic() + _SHARED_S
