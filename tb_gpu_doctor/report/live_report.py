"""A running training for its readers: as a screen of the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tb_gpu_doctor.diagnosis.model import Diagnosis
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.telemetry.live import GpuNow, ProcessNow
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import duration, number, percent, size

SCHEMA_VERSION = 1
_PS_PER_S = 1e12
# Samples come once a second and are written every three: older ones are not of now.
STALE_S = 30.0
_STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
_MOST_FINDINGS = 6


@dataclass(frozen=True)
class LiveReport:
    """What is known now."""

    unix_ms: int
    gpus: tuple[GpuNow, ...]
    processes: tuple[ProcessNow, ...]
    diagnosis: Diagnosis
    problems: tuple[str, ...]

    def to_dict(self, lang: str) -> dict[str, Any]:
        """As ``gpu-doctor watch --json`` prints it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "unix_ms": self.unix_ms,
            "verdict": self.diagnosis.verdict,
            "findings": [
                {"kind": finding.kind, "severity": finding.severity, "title": say(finding.title, lang)}
                for finding in self.diagnosis.findings
            ],
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "processes": [asdict(process) for process in self.processes],
            "problems": list(self.problems),
        }

    def screen(self, lang: str) -> RenderableType:
        """As the terminal shows it."""
        parts: list[RenderableType] = [_gpu_table(self.gpus, lang)]
        if self.processes:
            parts.append(_process_table(self.processes, lang))
        for finding in self.diagnosis.findings[:_MOST_FINDINGS]:
            parts.append(Text(f"• {say(finding.title, lang)}", style=_STYLES.get(finding.severity, "")))
        if not self.diagnosis.findings:
            parts.append(Text(text("watch.nothing", lang), style="dim"))
        ages = [*(gpu.age_s for gpu in self.gpus), *(process.age_s for process in self.processes)]
        stale = min(ages, default=0.0)
        if stale > STALE_S:
            parts.append(Text(text("watch.stale", lang, age=stale * _PS_PER_S), style="yellow"))
        parts += [Text(problem, style="yellow") for problem in self.problems]
        return Group(*parts)


def _gpu_table(gpus: tuple[GpuNow, ...], lang: str) -> Table:
    several = len({gpu.host for gpu in gpus}) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("gpu", "busy", "memory", "power", "clock", "heat", "slowed"):
        table.add_column(text(f"watch.columns.{name}", lang), justify="left" if name in ("gpu", "slowed") else "right")
    for gpu in gpus:
        table.add_row(
            f"{gpu.host} · {gpu.gpu}" if several else str(gpu.gpu),
            "–" if gpu.utilization is None else percent(gpu.utilization, lang),
            _of(gpu.memory_used_bytes, gpu.memory_total_bytes, lambda value: size(value, lang)),
            _of(gpu.power_watts, gpu.power_limit_watts, lambda value: number(value, lang), " W"),
            "–" if gpu.clock_mhz is None else f"{number(gpu.clock_mhz, lang)} MHz",
            "–" if gpu.temperature_celsius is None else f"{number(gpu.temperature_celsius, lang)} °C",
            ", ".join(text(f"monitor.throttling.{reason}", lang) for reason in gpu.throttled),
        )
    return table


def _process_table(processes: tuple[ProcessNow, ...], lang: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("process", "step", "rate", "samples", "since"):
        table.add_column(text(f"watch.columns.{name}", lang), justify="left" if name == "process" else "right")
    for process in processes:
        table.add_row(
            f"{process.host} · {process.process_id}",
            "–" if process.step is None else number(process.step, lang),
            "–" if process.steps_per_s is None else number(process.steps_per_s, lang, 2),
            "–" if process.samples_per_s is None else number(process.samples_per_s, lang),
            "–" if process.step_age_s is None else duration(process.step_age_s * _PS_PER_S, lang),
        )
    return table


def _of(value: float | None, maximum: float | None, shown: Callable[[float], str], unit: str = "") -> str:
    if value is None:
        return "–"
    return f"{shown(value)}{unit}" if maximum is None else f"{shown(value)} / {shown(maximum)}{unit}"
