"""The answers about telemetry: recordings with their throttling, spans and steps; what joins them to the timeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.plugin.telemetry_curves import curves, level_columns, level_of, step_curve, unix_ms, widened
from tb_gpu_doctor.telemetry.joining import Joined, extent
from tb_gpu_doctor.telemetry.recordings import HomeTelemetry
from tb_gpu_doctor.telemetry.series import BatchSweep, GpuSeries, Span
from tb_gpu_doctor.telemetry.throttling import bands

if TYPE_CHECKING:
    from tb_gpu_doctor.plugin.timeline import Timeline
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport

MAX_BANDS = 200
MAX_SPANS = 2_000
MAX_SWEEPS = 100
_UNITS = ("bytes_per_s", "percent", "bytes", "watts", "celsius", "mhz", "bits", "joules", "seconds", "lanes")


class TelemetryView:
    """Telemetry of one session.

    Args:
        telemetry: of the session's homes, None without any.
        joined: what of it belongs to the session's GPUs.
        diagnosis: of the session; says what was not joined.
        timeline: of the session; its lanes are those of the joined GPUs.
        clocks: per file of the session the Unix nanoseconds of its clock's zero, where it says.
        window_ns: when the session's profile was taken.
    """

    def __init__(
        self,
        telemetry: HomeTelemetry | None,
        joined: Joined | None,
        diagnosis: DiagnosisReport,
        timeline: Timeline,
        clocks: Sequence[int | None] = (),
        window_ns: tuple[int, int] | None = None,
    ) -> None:
        self._home = telemetry or HomeTelemetry()
        self._recordings = self._home.telemetry.recordings
        self._joined = joined or Joined()
        self._notes = () if diagnosis.telemetry is None else diagnosis.telemetry.notes
        self._is_profile = diagnosis.format != "telemetry"
        self._clocks, self._window_ns = tuple(clocks), window_ns
        lane_of = {(source.trace, source.device.index): lane for lane, source in enumerate(timeline.sources)}
        self._shifts = [source.shift.offset for source in timeline.sources]
        self._files = [source.trace for source in timeline.sources]
        self._lanes = {
            _name(gpu.series): lane_of[gpu.profile]
            for gpu in self._joined.gpus
            if gpu.profile is not None and gpu.profile in lane_of
        }

    @property
    def size_bytes(self) -> int:
        """Approximate memory held."""
        total = 0
        for recording in self._recordings:
            steps = recording.steps
            total += steps.number.nbytes * 4 + 200 * len(recording.spans)
            for series in recording.gpus:
                total += 16 * len(series) + sum(column.nbytes for column in series.values.values())
        return total

    def answer(self, lang: str) -> dict[str, Any]:
        """The answer of ``telemetry``."""
        from tb_gpu_doctor.report.sentences import say

        return {
            "recordings": [self._recording(index, lang) for index in range(len(self._recordings))],
            "metrics": self._metrics(),
            "profile": None
            if self._window_ns is None
            else {"start_unix_ms": unix_ms(self._window_ns[0]), "end_unix_ms": unix_ms(self._window_ns[1])},
            "steps_known": any(
                bool((series.step >= 0).any()) for recording in self._recordings for series in recording.gpus
            ),
            "notes": [say(note, lang) for note in self._notes],
            "problems": list(self._home.problems.get(lang, self._home.telemetry.problems)),
        }

    @property
    def runs(self) -> tuple[str, ...]:
        """Folders of the recordings, in the order of their numbers."""
        return tuple(recording.run for recording in self._recordings)

    def series(self, metrics: Sequence[str], window_ns: tuple[int, int] | None, points: int) -> dict[str, Any]:
        """The answer of ``telemetry/series``."""
        return curves(self._recordings, metrics, window_ns, points)

    def lanes(self, metrics: Sequence[str], start_ps: int, end_ps: int, points: int, lang: str) -> dict[str, Any]:
        """The answer of ``timeline/telemetry``: the joined GPUs on the timeline's clock."""
        lanes: list[dict[str, Any]] = []
        stretches: list[dict[str, Any]] = []
        for gpu in self._joined.gpus:
            lane = self._lanes.get(_name(gpu.series))
            zero = None if lane is None else self._zero(lane)
            if lane is None or zero is None:
                continue
            window = (zero + start_ps // 1000, zero + end_ps // 1000)
            for metric in metrics:
                drawn = level_of(gpu.series, metric, points, widened(gpu.series, metric, window))
                if drawn is not None:
                    times = ((drawn.wall_ns - zero) * 1000).tolist()
                    found = {"lane": lane, "metric": metric, "time_ps": times, "folded": drawn.folded}
                    lanes.append(found | level_columns(drawn))
            for band in bands(gpu.series, MAX_BANDS):
                if band.end_ns >= window[0] and band.start_ns <= window[1]:
                    stretches.append(
                        {
                            "lane": lane,
                            "kind": band.kind,
                            "reasons": list(band.reasons),
                            "start_ps": (band.start_ns - zero) * 1000,
                            "end_ps": (band.end_ns - zero) * 1000,
                        }
                    )
        reasons = [] if lanes or not self._is_profile else self._reasons(lang)
        return {"metrics": list(metrics), "not_joined": reasons, "lanes": lanes, "bands": stretches}

    def sweeps(self) -> dict[str, Any]:
        """The answer of ``batch_sweeps``, newest first."""
        newest = sorted(self._home.telemetry.sweeps, key=lambda sweep: -sweep.wall_ns)
        return {"sweeps": [_sweep(sweep) for sweep in newest[:MAX_SWEEPS]]}

    def _zero(self, lane: int) -> int | None:
        """Unix nanoseconds of zero on the lane's clock."""
        clock = self._clocks[self._files[lane]] if self._files[lane] < len(self._clocks) else None
        return None if clock is None else clock - self._shifts[lane] // 1000

    def _reasons(self, lang: str) -> list[str]:
        from tb_gpu_doctor.report.sentences import say

        return [say(note, lang) for note in self._notes if not note.is_recorded]

    def _recording(self, index: int, lang: str) -> dict[str, Any]:
        from tb_gpu_doctor.report.sentences import say

        recording = self._recordings[index]
        joined = any(recording is other for other in self._joined.recordings)
        reason = next((note for run, note in self._joined.reasons if run == recording.run), None)
        because = None
        # Where no GPU was recorded there is nothing to join.
        joinable = self._is_profile and bool(recording.gpus)
        if joinable and not joined and reason is not None:
            params = {**reason.params, "runs": (recording.run,), "recordings": 1}
            because = say(dataclasses.replace(reason, params=params), lang)
        span = extent(recording)
        steps = [int(step) for series in recording.gpus for step in (series.step.max(initial=-1),) if step >= 0]
        firsts = [int(series.step[series.step >= 0].min()) for series in recording.gpus if (series.step >= 0).any()]
        longest = sorted(recording.spans, key=lambda s: s.start_ns - s.end_ns)[:MAX_SPANS]
        return {
            "id": index,
            "run": recording.run,
            "host": recording.host,
            "process_id": recording.process_id,
            "simulated": recording.simulated,
            "memory_growth": recording.memory_growth,
            "judged": joined,
            "joined": joined if joinable else None,
            "not_joined_because": because,
            "start_unix_ms": None if span is None else unix_ms(span[0]),
            "end_unix_ms": None if span is None else unix_ms(span[1]),
            "first_step": min(firsts, default=None),
            "last_step": max(steps, default=None),
            "gpus": [self._gpu(number, series) for number, series in enumerate(recording.gpus)],
            "spans": [_span(span, lang) for span in sorted(longest, key=lambda s: s.start_ns)],
            "spans_truncated": len(recording.spans) > MAX_SPANS,
            "steps": step_curve(recording.steps),
            "environment": _environment(recording.environment, lang),
            "notes": list(self._home.notes.get(lang, {}).get(recording.run, recording.notes)),
        }

    def _gpu(self, number: int, series: GpuSeries) -> dict[str, Any]:
        facts = series.facts
        shown = facts.framework_id if facts.framework_id is not None else facts.nvml_index
        return {
            "id": number,
            "label": f"GPU {shown}",
            "framework_id": facts.framework_id,
            "nvml_index": facts.nvml_index,
            "uuid": facts.uuid,
            "pci_bus_id": facts.pci_bus_id,
            "name": facts.name,
            "limits": dict(facts.limits),
            "samples": len(series),
            "lane": self._lanes.get(_name(series)),
            "metrics": [metric.id for metric in METRICS if metric.id in series.values],
            "throttled": [
                {
                    "kind": band.kind,
                    "reasons": list(band.reasons),
                    "start_unix_ms": unix_ms(band.start_ns),
                    "end_unix_ms": unix_ms(band.end_ns),
                    "start_step": band.start_step,
                    "end_step": band.end_step,
                }
                for band in bands(series, MAX_BANDS)
            ],
        }

    def _metrics(self) -> list[dict[str, Any]]:
        count: dict[str, int] = {}
        for recording in self._recordings:
            for series in recording.gpus:
                for metric in series.values:
                    count[metric] = count.get(metric, 0) + 1
        return [
            {
                "id": metric.id,
                "tag": metric.tag,
                "unit": unit_of(metric.id),
                "counter": metric.counter,
                "series": count[metric.id],
            }
            for metric in METRICS
            if metric.id in count
        ]


def unit_of(metric: str) -> str:
    """The unit that a metric's id ends in; what has none is a count."""
    if metric == "clock_event_reasons":
        return "bits"
    if metric == "pcie_width":
        return "lanes"
    return next((unit for unit in _UNITS if metric.endswith("_" + unit)), "count")


def window_of(windows: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """From the first start to the last end of those that are known."""
    known = [window for window in windows if window is not None]
    return (min(w[0] for w in known), max(w[1] for w in known)) if known else None


def _name(series: GpuSeries) -> tuple[str, int]:
    """What tells a GPU's series from all others, also after the view was kept and opened again."""
    return series.run, series.facts.nvml_index


def _span(span: Span, lang: str) -> dict[str, Any]:
    from tb_gpu_doctor.report.sentences import capture_words

    return {
        "kind": span.kind,
        "start_unix_ms": unix_ms(span.start_ns),
        "end_unix_ms": unix_ms(span.end_ns),
        "step": span.step if span.step >= 0 else None,
        "note": capture_words(span.note, lang) if span.kind == "profile" else span.note,
    }


def _environment(report: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """The environment report, its problems in words; one that cannot be worded keeps its code."""
    from tb_gpu_doctor.report.sentences import problem_words

    problems = []
    for problem in report.get("problems", ()) if isinstance(report.get("problems"), list) else ():
        try:
            sentence, fix = problem_words(problem, lang)
        except (KeyError, TypeError, ValueError, AttributeError):  # of another version, or not ours
            sentence, fix = "", []
        problems.append({**problem, "text": sentence, "fix": fix} if isinstance(problem, dict) else problem)
    return {**report, "problems": problems} if report else {}


def _sweep(sweep: BatchSweep) -> dict[str, Any]:
    def milliseconds(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e3

    return {
        "run": sweep.run,
        "unix_ms": unix_ms(sweep.wall_ns),
        "fixed_ms": milliseconds(sweep.fixed_seconds),
        "per_sample_ms": milliseconds(sweep.per_sample_seconds),
        "recommended": sweep.recommended,
        "points": [
            {
                "batch_size": point.batch_size,
                "samples_per_s": point.samples_per_s,
                "step_ms": milliseconds(point.step_seconds),
                "peak_bytes": point.peak_bytes,
                "problem": point.problem,
            }
            for point in sweep.points
        ],
    }
