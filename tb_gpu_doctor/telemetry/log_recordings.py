"""Logs as recordings: placed in time and given to GPUs, alone or beside a profile.

A log knows neither its zone nor, mostly, its host, nor the framework's numbers of GPUs. What it lacks is concluded only
where one answer fits, and what was concluded is said; where several fit the log is not joined, with the reason.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.telemetry.joining import Joined, ProfileSpan, bare_host, join, same_uuid
from tb_gpu_doctor.telemetry.logs.lines import modified_ns
from tb_gpu_doctor.telemetry.logs.model import Log, LogGpu
from tb_gpu_doctor.telemetry.logs.read import read_log
from tb_gpu_doctor.telemetry.recordings import HomeTelemetry
from tb_gpu_doctor.telemetry.series import GpuSeries, Recording, StepTimes, Telemetry, ToldNote
from tb_gpu_doctor.texts import languages, text
from tb_gpu_doctor.traces.log_heads import LogFile

SECOND_NS = 1_000_000_000
_HOUR_S = 3600
# The offsets from UTC that any place on earth has.
_ZONES_S = sorted(
    [hour * _HOUR_S for hour in range(-12, 15)]
    + [round(hour * _HOUR_S) for hour in (-9.5, -3.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)]
)
# Between a tool's last row and the file's own time.
_WRITTEN_WITHIN_NS = 5 * SECOND_NS
# How files of ranks are called: none of them is a machine.
_RANK_NAME = re.compile(r"\D*(?:rank|worker|trace|profile|report|gpu|process)\D*\d*", re.IGNORECASE)
_NO_STEPS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class LogTelemetry:
    """What logs give.

    Attributes:
        recordings: one a log and host.
        said: about each, by its run.
        reasons: why logs were left out, by their run.
        problems: logs that were found and cannot be read.
    """

    recordings: tuple[Recording, ...] = ()
    said: Mapping[str, tuple[Phrase, ...]] = field(default_factory=dict)
    reasons: tuple[tuple[str, Phrase], ...] = ()
    problems: tuple[Phrase, ...] = ()

    def home(self) -> HomeTelemetry:
        """As of the recordings of monitors, with what is said in each language."""
        spoken = {
            lang: {run: tuple(_say(phrase, lang) for phrase in phrases) for run, phrases in self.said.items()}
            for lang in languages()
        }
        recordings = tuple(replace(one, notes=spoken["en"].get(one.run, ())) for one in self.recordings)
        problems = {lang: tuple(_say(phrase, lang) for phrase in self.problems) for lang in languages()}
        return HomeTelemetry(Telemetry(recordings, (), problems["en"]), spoken, problems)


def _say(phrase: Phrase, lang: str) -> str:
    return text(phrase.key, lang, **phrase.params)


def _name(file: LogFile) -> str:
    return f"{file.run}/{os.path.basename(file.path)}" if file.run else os.path.basename(file.path)


def logs_alone(files: Sequence[LogFile]) -> LogTelemetry:
    """The recordings of logs without a profile.

    Raises:
        ProfileError: one that the user named, or all, cannot be read.
    """
    recordings: list[Recording] = []
    said: dict[str, tuple[Phrase, ...]] = {}
    problems: list[Phrase] = []
    failures: list[ProfileError] = []
    for file in files:
        try:
            log = read_log(file.path)
        except ProfileError as error:
            if file.given:
                raise
            failures.append(error)
            problems.append(error.phrase)
            continue
        shift, note = _shift_alone(log, file)
        for host in dict.fromkeys(gpu.host for gpu in log.gpus):
            recording = _recording(log, file, host, shift, [gpu for gpu in log.gpus if gpu.host == host], {})
            recordings.append(recording)
            said[recording.run] = (*_notes(log), *([] if note is None else [note]))
    if failures and not recordings:
        raise failures[0]
    return LogTelemetry(tuple(recordings), said, (), tuple(problems))


def join_logs(files: Sequence[LogFile], profiles: Sequence[ProfileSpan]) -> tuple[HomeTelemetry, Joined]:
    """What of logs belongs to a profile.

    Raises:
        ProfileError: one that the user named cannot be read.
    """
    recordings: list[Recording] = []
    said: dict[str, tuple[Phrase, ...]] = {}
    reasons: list[tuple[str, Phrase]] = []
    problems: list[Phrase] = []
    for file in files:
        try:
            log = read_log(file.path)
        except ProfileError as error:
            if file.given:
                raise
            problems.append(error.phrase)
            continue
        placed = _shift_beside(log, file, profiles)
        if isinstance(placed, Phrase):
            reasons.append((_name(file), placed))
            continue
        shift, note = placed
        matched = _matched(log, file, profiles)
        if isinstance(matched, Phrase):
            reasons.append((_name(file), matched))
            continue
        by_index, numbers = matched
        for host, given in numbers.items():
            recording = _recording(log, file, host, shift, [log.gpus[place] for place in given], {
                id(log.gpus[place]): number for place, number in given.items()
            })  # fmt: skip
            recordings.append(recording)
            more = [*([] if note is None else [note]), *([Phrase("notes.log_by_index")] if by_index else [])]
            said[recording.run] = (*_notes(log), *more)
    found = LogTelemetry(tuple(recordings), said, tuple(reasons), tuple(problems))
    home = found.home()
    joined = join(home.telemetry, profiles)
    assumed = [phrase for recording in joined.recordings for phrase in said.get(recording.run, ())]
    return home, replace(
        joined,
        reasons=(*joined.reasons, *reasons),
        words=home.by_run(),
        without_gpus=(),
        assumed=tuple(phrase for index, phrase in enumerate(assumed) if phrase not in assumed[:index]),
    )


def together(one: tuple[HomeTelemetry | None, Joined], logs: tuple[HomeTelemetry, Joined]) -> tuple[
    HomeTelemetry, Joined
]:  # fmt: skip
    """Monitors' recordings and logs: of a GPU that has both the monitor's counts, which knows more."""
    home, joined = one
    log_home, log_joined = logs
    if home is None:
        return log_home, log_joined
    known = {(gpu.host, gpu.gpu) for gpu in joined.gpus}
    more = tuple(gpu for gpu in log_joined.gpus if (gpu.host, gpu.gpu) not in known)
    used = {id(gpu.recording) for gpu in more}
    languages_of = {*home.notes, *log_home.notes}
    merged = HomeTelemetry(
        replace(
            home.telemetry,
            recordings=(*home.telemetry.recordings, *log_home.telemetry.recordings),
            problems=(*home.telemetry.problems, *log_home.telemetry.problems),
        ),
        {lang: {**home.notes.get(lang, {}), **log_home.notes.get(lang, {})} for lang in languages_of},
        {lang: (*home.problems.get(lang, ()), *log_home.problems.get(lang, ())) for lang in languages_of},
    )
    return merged, replace(
        joined,
        gpus=(*joined.gpus, *more),
        recordings=(*joined.recordings, *(r for r in log_joined.recordings if id(r) in used)),
        reasons=(*joined.reasons, *log_joined.reasons),
        words={**joined.words, **log_joined.words},
        assumed=log_joined.assumed if more else (),
    )


def _notes(log: Log) -> list[Phrase]:
    return [Phrase(f"notes.{key}", dict(params)) for key, params in log.notes]


def _recording(
    log: Log, file: LogFile, host: str, shift_ns: int, gpus: Iterable[LogGpu], numbers: Mapping[int, int]
) -> Recording:
    run = _name(file) if len({gpu.host for gpu in log.gpus}) < 2 or not host else f"{_name(file)}/{host}"
    series = []
    hosts = set()
    for gpu in gpus:
        hosts.add(gpu.host)
        facts = replace(gpu.facts, framework_id=numbers.get(id(gpu)))
        mig = "" if facts.mig is None else f"_mig{facts.mig}"
        unknown = np.full(len(gpu.wall_ns), -1, np.int64)
        name = f"{run}/gpu{facts.nvml_index}{mig}"
        series.append(GpuSeries(name, facts, gpu.wall_ns + shift_ns, unknown, gpu.values))
    told: tuple[ToldNote, ...] = tuple(note for name in sorted(hosts) for note in log.told.get(name, ()))
    steps = StepTimes(_NO_STEPS, _NO_STEPS, _NO_STEPS, _NO_STEPS, np.zeros(0, np.bool_))
    return Recording(run, host, 0, tuple(series), (), steps, {}, (), told=told, ended="normal", is_log=True)


def _extent(log: Log) -> tuple[int, int]:
    return min(int(gpu.wall_ns[0]) for gpu in log.gpus), max(int(gpu.wall_ns[-1]) for gpu in log.gpus)


def _interval_ns(log: Log) -> float:
    apart = [float(np.median(np.diff(gpu.wall_ns))) for gpu in log.gpus if len(gpu.wall_ns) > 1]
    return max(apart, default=0.0)


def _zone(offset_s: int) -> str:
    sign, rest = ("-" if offset_s < 0 else "+"), abs(offset_s)
    return f"UTC{sign}{rest // 3600:02d}:{rest % 3600 // 60:02d}"


def _shift_alone(log: Log, file: LogFile) -> tuple[int, Phrase | None]:
    """What has to be added to a log's times, and what was assumed for it."""
    if log.clock == "unix":
        return 0, None
    last = _extent(log)[1]
    if log.clock == "order":
        several = _interval_ns(log) > 0
        return modified_ns(file.path) - last, Phrase("notes.log_no_times") if several else None
    known = _known_zone(log, file)
    if known is not None:
        return known
    here_s = time.localtime(last / SECOND_NS).tm_gmtoff
    return -here_s * SECOND_NS, Phrase("notes.log_zone_here", {"zone": _zone(here_s)})


def _known_zone(log: Log, file: LogFile) -> tuple[int, Phrase | None] | None:
    """The shift by what the user said, or by the time at which the file was written last."""
    if file.zone_s is not None:
        return -file.zone_s * SECOND_NS, None
    last, written = _extent(log)[1], modified_ns(file.path)
    slack = int(max(_WRITTEN_WITHIN_NS, 2 * _interval_ns(log)))
    fitting = [zone for zone in _ZONES_S if -SECOND_NS <= written - (last - zone * SECOND_NS) <= slack]
    if len(fitting) != 1:
        return None
    return -fitting[0] * SECOND_NS, Phrase("notes.log_zone_by_file", {"zone": _zone(fitting[0])})


def _shift_beside(log: Log, file: LogFile, profiles: Sequence[ProfileSpan]) -> tuple[int, Phrase | None] | Phrase:
    """The same beside a profile; the reason where the times cannot be compared."""
    if log.clock == "unix":
        return 0, None
    if log.clock == "order":
        return Phrase("notes.telemetry_log_no_times")
    known = _known_zone(log, file)
    if known is not None:
        return known
    windows = [profile.window_ns for profile in profiles if profile.window_ns is not None]
    if not windows:
        return Phrase("notes.telemetry_no_wall_clock")
    first, last = _extent(log)
    fitting = [
        zone
        for zone in _ZONES_S
        if any(first <= end + zone * SECOND_NS and start + zone * SECOND_NS <= last for start, end in windows)
    ]
    if not fitting:
        return Phrase("notes.telemetry_other_time")
    if len(fitting) > 1:
        return Phrase("notes.telemetry_log_zone")
    return -fitting[0] * SECOND_NS, Phrase("notes.log_zone_by_profile", {"zone": _zone(fitting[0])})


def _matched(
    log: Log, file: LogFile, profiles: Sequence[ProfileSpan]
) -> tuple[bool, dict[str, dict[int, int]]] | Phrase:
    """Whether numbers had to do, and by host which of the log's GPUs has which number there; or why none has.

    UUIDs prove it. Numbers do where the log and the profile are of one machine, and no two files of it count anew.
    """
    found: dict[str, dict[int, int]] = {}
    for profile in profiles:
        uuids = profile.uuids or (None,) * len(profile.gpus)
        for number, uuid in zip(profile.gpus, uuids, strict=True):
            for place, gpu in enumerate(log.gpus):
                if same_uuid(gpu.facts, uuid):
                    found.setdefault(bare_host(profile), {})[place] = number
    if found:
        return False, found
    know_uuids = all(gpu.facts.uuid for gpu in log.gpus)
    if know_uuids and all(profile.uuids and all(profile.uuids) for profile in profiles):
        return Phrase("notes.telemetry_log_other_gpus")
    log_hosts = {gpu.host for gpu in log.gpus}
    hosts = {bare_host(profile) for profile in profiles}
    if len(hosts) > 1 and all(_RANK_NAME.fullmatch(host) for host in hosts):
        hosts = {""}
    numbers = [number for profile in profiles for number in profile.gpus]
    for host in log_hosts:
        fitting = [p for p in profiles if _one_machine(host, p, log_hosts, hosts, file.given)]
        own = [number for profile in fitting for number in profile.gpus]
        if len(set(own)) < len(own):
            return Phrase("notes.telemetry_unknown_gpus")
        for profile in fitting:
            for place, gpu in enumerate(log.gpus):
                if gpu.host == host and gpu.facts.nvml_index in profile.gpus and gpu.facts.mig is None:
                    found.setdefault(bare_host(profile), {})[place] = gpu.facts.nvml_index
    if found:
        return True, found
    if not numbers:
        return Phrase("notes.telemetry_unknown_gpus")
    return Phrase("notes.telemetry_log_host" if len(hosts) > 1 else "notes.telemetry_unknown_gpus")


def _one_machine(log_host: str, profile: ProfileSpan, log_hosts: set[str], hosts: set[str], given: bool) -> bool:
    """Whether a log's host is a profile's: by name; or both are of one machine, and the log does not name another."""
    if log_host and log_host.lower().split(".")[0] == bare_host(profile).lower().split(".")[0]:
        return True
    return len(hosts) == 1 and len(log_hosts) == 1 and (not log_host or given)
