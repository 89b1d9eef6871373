"""Which recorded GPU is which GPU of a profile.

Telemetry is matched to a profile by the nearest common run folder, then by host, then by GPU through the mapping
that the monitor recorded, and only where the profile was taken while the monitor ran. What does not match is left
out and the reason is kept: two jobs on one host look alike in everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.telemetry.series import GpuFacts, GpuSeries, Recording, Telemetry

# As PyTorch names the files of a process.
_PROCESS = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)$")
# A monitor may begin after the profile it is to explain, or end before it, by this much.
_SLACK_NS = 2_000_000_000


@dataclass(frozen=True)
class ProfileSpan:
    """One file of a profile as far as joining goes.

    Attributes:
        label: the host as the diagnosis calls it.
        hosts: names that the file goes by; PyTorch's hold the process as well.
        gpus: numbers of its GPUs in order of the trace's devices.
        window_ns: when it was recorded, in Unix nanoseconds; None where the file does not say.
        clock_ns: Unix nanoseconds of its clock's zero.
        uuids: of the GPUs, None where the file does not say; empty where it says none.
    """

    label: str
    hosts: tuple[str, ...]
    gpus: tuple[int, ...]
    window_ns: tuple[int, int] | None
    clock_ns: int | None
    uuids: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class GpuTelemetry:
    """One GPU with what was recorded of it.

    Attributes:
        host, gpu: as the diagnosis names it.
        recording, series: where it was recorded.
        profile: index of the profile's file and of the GPU in it; None without a profile.
        window_ns: when that profile was taken.
    """

    host: str
    gpu: int
    recording: Recording
    series: GpuSeries
    profile: tuple[int, int] | None = None
    window_ns: tuple[int, int] | None = None


@dataclass(frozen=True)
class Joined:
    """What the rules may use.

    Attributes:
        gpus: by host and number.
        recordings: those that the GPUs come from.
        reasons: why others were left out: code and parameters, by the folder of the recording.
        words: the recordings' notes in each language, by folder, where they were read in several.
        without_gpus: recordings of the profile's hosts in which no GPU answered, with their reasons among the notes.
        assumed: what was taken for true of logs that tell too little, and what was left out of them.
    """

    gpus: tuple[GpuTelemetry, ...] = ()
    recordings: tuple[Recording, ...] = ()
    reasons: tuple[tuple[str, Phrase], ...] = ()
    words: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    without_gpus: tuple[Recording, ...] = ()
    assumed: tuple[Phrase, ...] = ()


def profile_span(
    label: str,
    hosts: Sequence[str],
    gpus: Sequence[int],
    clock_ns: int | None,
    bounds: tuple[int, int] | None,
    uuids: Sequence[str | None] = (),
) -> ProfileSpan:
    """What joining needs of one file of a profile.

    Args:
        label: the host as the diagnosis calls it.
        hosts: names that the file may go by, "" for none.
        gpus: numbers of its GPUs.
        clock_ns: Unix nanoseconds of its clock's zero.
        bounds: what was recorded, picoseconds on that clock.
        uuids: of the GPUs, where the file says any.
    """
    window = None
    if clock_ns is not None and bounds is not None:
        window = (clock_ns + bounds[0] // 1000, clock_ns + bounds[1] // 1000)
    named = tuple(dict.fromkeys(filter(None, (*hosts, label))))
    return ProfileSpan(label, named, tuple(gpus), window, clock_ns, tuple(uuids))


def join(telemetry: Telemetry, profiles: Sequence[ProfileSpan]) -> Joined:
    """The GPUs of a profile with their telemetry; ``telemetry`` is that of the nearest home."""
    gpus: list[GpuTelemetry] = []
    reasons: list[tuple[str, Phrase]] = []
    used: dict[int, Recording] = {}
    for recording in telemetry.recordings:
        reason = _reason_against(recording, profiles)
        if reason is not None:
            reasons.append((recording.run, reason))
    left_out = {run for run, _ in reasons}
    candidates = [recording for recording in telemetry.recordings if recording.run not in left_out]
    for index, profile in enumerate(profiles):
        if profile.window_ns is None:
            continue
        fitting = [r for r in candidates if _same_host(r, profile.hosts) and _overlaps(r, profile.window_ns)]
        own = [r for r in fitting if r.process_id in _processes(profile.hosts)]
        for device, number in enumerate(profile.gpus):
            uuid = profile.uuids[device] if profile.uuids else None
            found = _series_of(own or fitting, number, profile.window_ns, uuid)
            if found is None:
                continue
            if isinstance(found, Phrase):
                reasons.append((fitting[0].run, found))
                continue
            recording, series = found
            used[id(recording)] = recording
            gpus.append(GpuTelemetry(profile.label, number, recording, series, (index, device), profile.window_ns))
    for recording in candidates:
        if id(recording) not in used and not any(run == recording.run for run, _ in reasons):
            reasons.append((recording.run, Phrase("notes.telemetry_unknown_gpus")))
    without = tuple(
        recording
        for recording in telemetry.recordings
        if not any(len(series) for series in recording.gpus) and _beside(recording, profiles)
    )
    return Joined(tuple(gpus), tuple(used.values()), tuple(reasons), without_gpus=without)


def _beside(recording: Recording, profiles: Sequence[ProfileSpan]) -> bool:
    """Whether a recording may be of the run of the profile: the same host and, where it tells a time, the same time."""
    same = [profile for profile in profiles if _same_host(recording, profile.hosts)]
    if extent(recording) is None:
        return bool(same)
    return any(profile.window_ns is not None and _overlaps(recording, profile.window_ns) for profile in same)


def newest(telemetry: Telemetry) -> Joined:
    """All GPUs of the newest recordings: the last one to begin and those that ran beside it.

    Of a notebook that was restarted ten times only the last start is judged.
    """
    spans = [(recording, span) for recording in telemetry.recordings if (span := extent(recording)) is not None]
    if not spans:
        return Joined(recordings=telemetry.recordings)  # without samples and steps, but perhaps with the reason
    last = max(spans, key=lambda item: (item[1][0], item[1][1]))[1]
    chosen = [recording for recording, span in spans if span[1] >= last[0]]
    gpus: dict[tuple[str, str], GpuTelemetry] = {}
    for recording in chosen:
        for series in recording.gpus:
            facts = series.facts
            number = facts.framework_id if facts.framework_id is not None else facts.nvml_index
            key = (recording.host, facts.uuid or f"nvml {facts.nvml_index}")
            if key not in gpus or len(series) > len(gpus[key].series):
                gpus[key] = GpuTelemetry(recording.host, number, recording, series)
    by_driver = _clashing(gpus.values())
    found = [
        GpuTelemetry(gpu.host, gpu.series.facts.nvml_index, gpu.recording, gpu.series) if by_driver else gpu
        for gpu in gpus.values()
    ]
    older = [recording.run for recording in telemetry.recordings if not any(recording is r for r in chosen)]
    return Joined(
        tuple(sorted(found, key=lambda gpu: (gpu.host, gpu.gpu))),
        tuple(chosen),
        tuple((run, Phrase("notes.telemetry_older")) for run in older),
    )


def extent(recording: Recording) -> tuple[int, int] | None:
    """First and last time that a recording knows of, in Unix nanoseconds."""
    times = [int(t) for series in recording.gpus if len(series) for t in (series.wall_ns[0], series.wall_ns[-1])]
    steps = recording.steps
    if len(steps.end_ns):
        times += [int(steps.end_ns[0] - steps.duration_ns[0]), int(steps.end_ns[-1])]
    return (min(times), max(times)) if times else None


def _reason_against(recording: Recording, profiles: Sequence[ProfileSpan]) -> Phrase | None:
    """Why a recording as a whole meets none of the profile's files."""
    if extent(recording) is None:
        return Phrase("notes.telemetry_no_samples")
    hosts = sorted({host for profile in profiles for host in profile.hosts[:1]})
    same = [profile for profile in profiles if _same_host(recording, profile.hosts)]
    if not same:
        return Phrase("notes.telemetry_other_host", {"host": recording.host, "hosts": tuple(hosts)})
    timed = [profile.window_ns for profile in same if profile.window_ns is not None]
    if not timed:
        return Phrase("notes.telemetry_no_wall_clock")
    if not any(_overlaps(recording, window) for window in timed):
        return Phrase("notes.telemetry_other_time")
    return None


def _overlaps(recording: Recording, window: tuple[int, int]) -> bool:
    span = extent(recording)
    return span is not None and span[0] - _SLACK_NS <= window[1] and window[0] <= span[1] + _SLACK_NS


def bare_host(profile: ProfileSpan) -> str:
    """The host of a file without the process that PyTorch writes behind it."""
    name = profile.hosts[0] if profile.hosts else ""
    match = _PROCESS.match(name)
    return match.group("host") if match else name


def _same_host(recording: Recording, hosts: Sequence[str]) -> bool:
    """Whether a file's names fit: the same name, one with its domain and one without, or with a process behind it."""
    wanted = recording.host.lower()
    for host in hosts:
        name = host.lower()
        bare = _PROCESS.match(name)
        for candidate in (name, bare.group("host") if bare else name):
            if candidate == wanted or candidate.split(".")[0] == wanted.split(".")[0]:
                return True
    return False


def _processes(hosts: Sequence[str]) -> set[int]:
    """Process numbers that PyTorch's file names hold."""
    return {int(match.group("pid")) for host in hosts if (match := _PROCESS.match(host)) and len(match["pid"]) < 10}


def _series_of(
    recordings: Sequence[Recording], number: int, window: tuple[int, int], uuid: str | None
) -> tuple[Recording, GpuSeries] | Phrase | None:
    """The samples of the GPU that the framework numbers so; a note where two different GPUs claim it.

    Where the recording does not know the framework's numbers, UUIDs tell.
    """
    found = [
        (recording, series)
        for recording in recordings
        for series in recording.gpus
        if (series.facts.framework_id == number or (series.facts.framework_id is None and same_uuid(series, uuid)))
        and len(series)
        and _inside(series, window)
    ]
    if not found:
        return None
    named = {series.facts.uuid or series.facts.pci_bus_id or str(series.facts.nvml_index) for _, series in found}
    if len(named) > 1:
        return Phrase("notes.telemetry_two_gpus", {"number": str(number), "count": len(named)})
    return max(found, key=lambda item: len(item[1]))


def same_uuid(series: GpuSeries | GpuFacts, uuid: str | None) -> bool:
    """Whether a UUID is that of a GPU, with ``GPU-`` in front or without; one that was blotted out is of none."""
    facts = series.facts if isinstance(series, GpuSeries) else series
    bare = [(name or "").lower().removeprefix("gpu-") for name in (facts.uuid, uuid)]
    return bare[0] == bare[1] and not set(bare[0]) <= set("0-")


def _inside(series: GpuSeries, window: tuple[int, int]) -> bool:
    return int(series.wall_ns[0]) - _SLACK_NS <= window[1] and window[0] <= int(series.wall_ns[-1]) + _SLACK_NS


def _clashing(gpus: Iterable[GpuTelemetry]) -> bool:
    """Whether two GPUs of a host have one number: each process counts its own from zero."""
    seen: set[tuple[str, int]] = set()
    for gpu in gpus:
        if (gpu.host, gpu.gpu) in seen:
            return True
        seen.add((gpu.host, gpu.gpu))
    return False
