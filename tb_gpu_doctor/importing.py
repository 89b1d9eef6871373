"""Writes a log of nvidia-smi or DCGM into a logdir as a recording, so that TensorBoard shows its curves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tb_gpu_doctor.telemetry.series import GpuSeries, Recording

# Taken by the writer at once.
_TICKS_AT_ONCE = 10_000
# The folder of logs that do not name their machine.
UNKNOWN_HOST = "imported"


@dataclass(frozen=True)
class Imported:
    """What was written.

    Attributes:
        rows: samples of all GPUs together.
        gpus: how many.
        folders: of the recordings, one a host.
        said: keys and parameters of what was assumed or left out.
    """

    rows: int
    gpus: int
    folders: tuple[str, ...]
    said: tuple[tuple[str, dict[str, Any]], ...]


def import_log(path: str, logdir: str, zone_s: int | None = None, host: str | None = None) -> Imported:
    """Write a log into a logdir.

    Args:
        path: of the log.
        logdir: where to write; made if it is not there.
        zone_s: how far the log's clock is ahead of UTC, where that is known.
        host: the machine, where the log does not name it.

    Raises:
        ProfileError: the log cannot be read.
        OSError: the logdir cannot be written.
    """
    from tb_gpu_doctor.telemetry.log_recordings import logs_alone
    from tb_gpu_doctor.traces.log_heads import LogFile

    read = logs_alone([LogFile(path, given=True, zone_s=zone_s)])
    folders = []
    for recording in read.recordings:
        said = [(phrase.key, dict(phrase.params)) for phrase in read.said.get(recording.run, ())]
        folders.append(_write(recording, os.fspath(logdir), recording.host or host or UNKNOWN_HOST, said))
    series = [one for recording in read.recordings for one in recording.gpus]
    told = {phrase.key: (phrase.key, dict(phrase.params)) for phrases in read.said.values() for phrase in phrases}
    return Imported(sum(map(len, series)), len(series), tuple(folders), tuple(told.values()))


def _write(recording: Recording, logdir: str, host: str, said: list[tuple[str, dict[str, Any]]]) -> str:
    import numpy as np

    from tb_gpu_doctor.metrics import METRICS
    from tb_gpu_doctor.monitor.event_file import Origin
    from tb_gpu_doctor.monitor.notes import Notes
    from tb_gpu_doctor.monitor.writer import RecordingWriter
    from tb_gpu_doctor.recording_format import FORMAT_VERSION
    from tb_gpu_doctor.texts import text

    wall_ns, tick_of = ticks([series.wall_ns for series in recording.gpus])
    start_ns = int(wall_ns[0])
    interval_s = float(np.median(np.diff(wall_ns))) / 1e9 if len(wall_ns) > 1 else 1.0
    header = {
        "version": FORMAT_VERSION,
        "host": host,
        "process_id": 0,
        "start_ns": start_ns,
        "interval_s": interval_s,
        "metrics": [metric.id for metric in METRICS],
        "is_log": True,
        "ended": "normal",
    }
    writer = RecordingWriter(logdir, header, Notes(lambda _note: None), False, origin=Origin(host, 0, lambda: start_ns))
    writer.set_gpus([_gpu(series) for series in recording.gpus])
    notes = [*said, *((note.key, dict(note.params)) for note in recording.told)]
    writer.notes.extend({"key": k, "params": p, "sentence": text(k, "en", **p)} for k, p in notes)
    for first in range(0, len(wall_ns), _TICKS_AT_ONCE):
        last = min(first + _TICKS_AT_ONCE, len(wall_ns))
        block = np.full((last - first, len(recording.gpus), len(METRICS)), np.nan)
        for place, (series, tick) in enumerate(zip(recording.gpus, tick_of, strict=True)):
            rows = slice(*np.searchsorted(tick, [first, last]).tolist())
            for column, metric in enumerate(METRICS):
                if metric.id in series.values:
                    block[tick[rows] - first, place, column] = series.values[metric.id][rows]
        writer.samples.extend(zip(wall_ns[first:last].tolist(), [-1] * (last - first), block, strict=True))
        writer.write_now()
    writer.write_now(last=True)
    return writer.folder or logdir


def ticks(times: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """One row of times for several GPUs: when each tick was, int64[m], and of each GPU the ticks of its samples.

    A tool asks one GPU after the other: samples belong together that are nearer than half of the usual interval, and
    no tick has two of one GPU.
    """
    import numpy as np

    apart = [float(np.median(np.diff(when))) for when in times if len(when) > 1]
    near = min(apart, default=0.0) / 2
    joined = np.concatenate(times)
    gpu = np.repeat(np.arange(len(times)), [len(when) for when in times])
    order = np.lexsort((gpu, joined))
    found, tick = np.empty(len(order), np.int64), -1
    begin, seen = 0, set[int]()
    starts: list[int] = []
    sorted_times, sorted_gpus = joined[order].tolist(), gpu[order].tolist()
    for row, (when, number) in enumerate(zip(sorted_times, sorted_gpus, strict=True)):
        if number in seen or not seen or when - begin > near:
            tick, begin, seen = tick + 1, when, set()
            starts.append(when)
        seen.add(number)
        found[row] = tick
    placed = np.empty(len(order), np.int64)
    placed[order] = found
    bounds = np.cumsum([len(when) for when in times])[:-1]
    return np.array(starts, np.int64), np.split(placed, bounds)


def _gpu(series: GpuSeries) -> dict[str, Any]:
    facts = series.facts
    return {
        "label": f"gpu{facts.nvml_index}" + ("" if facts.mig is None else f"_mig{facts.mig}"),
        "framework_id": facts.framework_id,
        "nvml_index": facts.nvml_index,
        "mig": facts.mig,
        "uuid": facts.uuid,
        "pci_bus_id": facts.pci_bus_id,
        "name": facts.name,
        "limits": dict(facts.limits),
    }
