"""A diagnosis that can be put into words, and its JSON: the structure of ``diagnosis.schema.json``, version 1.

Times become milliseconds here. Unknown values are None; a number that is not finite is unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tb_gpu_doctor import documents
from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.diagnosis.model import Diagnosis, Evidence, Finding, GpuNames, GpuRef, GpuReport, KernelReport
from tb_gpu_doctor.diagnosis.telemetry_report import GpuFigures, TelemetryReport
from tb_gpu_doctor.documents import milliseconds, plain
from tb_gpu_doctor.report import what_if_report
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.texts import pick_language
from tb_gpu_doctor.texts.numbers import clean, gpu_names

SCHEMA_VERSION = 1
SCHEMA_PATH = Path(__file__).with_name("diagnosis.schema.json")
# Template instances can have names of many kilobytes; nobody reads on from here.
MAX_NAME = 1_000


@dataclass(frozen=True)
class DiagnosisReport(Diagnosis):
    """A `Diagnosis` with its renderings; the diagnosis itself knows no language."""

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> DiagnosisReport:
        """The same diagnosis, able to speak."""
        return cls(**{spec.name: getattr(diagnosis, spec.name) for spec in fields(Diagnosis)})

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """Plain data that follows ``diagnosis.schema.json``, with texts in ``lang``."""
        return to_dict(self, lang)

    def to_json(self, lang: str = "en") -> str:
        """`to_dict` as JSON text in plain ASCII."""
        return to_json(self, lang)


def to_dict(diagnosis: Diagnosis, lang: str = "en") -> dict[str, Any]:
    """The diagnosis as JSON-ready data with texts in ``lang``."""
    lang = pick_language(lang)
    document = {
        "schema_version": SCHEMA_VERSION,
        "verdict": diagnosis.verdict,
        "language": lang,
        "profile": {
            "run": diagnosis.run,
            "session": diagnosis.session,
            "hosts": list(diagnosis.hosts),
            "format": diagnosis.format,
            "window_ms": milliseconds(diagnosis.window),
            "recorded_ms": milliseconds(diagnosis.recorded),
            "incomplete": None if diagnosis.incomplete is None else say(diagnosis.incomplete, lang),
            # What takes the certainty away comes first: the structure has no other place for it.
            "warnings": [say(phrase, lang) for phrase in (*diagnosis.reasons, *diagnosis.warnings)],
        },
        "devices": [_device(gpu, len(diagnosis.hosts) > 1, lang) for gpu in diagnosis.gpus],
        "steps": {
            "count": diagnosis.steps.count,
            "source": diagnosis.steps.source,
            "median_ms": milliseconds(diagnosis.steps.median),
            "samples": diagnosis.steps.samples,
            "samples_per_s": diagnosis.steps.samples_per_s,
        },
        "kernels": [_kernel(kernel) for kernel in diagnosis.kernels],
        "findings": [_finding(finding, lang) for finding in diagnosis.findings],
        "telemetry": None if diagnosis.telemetry is None else _telemetry(diagnosis.telemetry, lang),
        "whatif": None if diagnosis.what_if is None else what_if_report.as_dict(diagnosis.what_if, lang),
    }
    return plain(document)


def to_json(diagnosis: Diagnosis, lang: str = "en") -> str:
    """The same as text; plain ASCII, so that no terminal or locale can spoil it."""
    return documents.to_json(to_dict(diagnosis, lang))


def schema() -> dict[str, Any]:
    """The JSON Schema that `to_dict` follows."""
    content: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    return content


def _gpu(ref: GpuRef) -> dict[str, Any]:
    return {"host": ref.host, "id": ref.id}


def _device(gpu: GpuReport, show_host: bool, lang: str) -> dict[str, Any]:
    causes = gpu.idle_by_cause or (None,) * len(CAUSE_IDS)
    return {
        **_gpu(gpu.gpu),
        "rank": gpu.rank,
        "label": gpu_names(GpuNames((gpu.gpu,), 0, show_host), lang),
        "name": gpu.name,
        "wall_ms": milliseconds(gpu.wall),
        "compute_ms": milliseconds(gpu.compute),
        "communication_ms": milliseconds(gpu.communication),
        "communication_wait_ms": milliseconds(gpu.communication_wait),
        "transfer_ms": milliseconds(gpu.transfer),
        "idle_ms": milliseconds(gpu.idle),
        "idle_by_cause_ms": {cause: milliseconds(value) for cause, value in zip(CAUSE_IDS, causes, strict=True)},
        "occupancy": gpu.occupancy,
        "achieved_occupancy": gpu.achieved_occupancy,
        "sm_efficiency": gpu.sm_efficiency,
    }


def _kernel(kernel: KernelReport) -> dict[str, Any]:
    return {
        "name": _name(kernel.name),
        "calls": kernel.calls,
        "total_ms": milliseconds(kernel.total),
        "occupancy": kernel.occupancy,
        "limiter": kernel.limiter,
        "family": kernel.family,
        "tensor_cores": kernel.tensor_cores,
    }


def _finding(finding: Finding, lang: str) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "about": finding.rule.about,
        "cost": finding.rule.cost,
        "gpus": [_gpu(ref) for ref in finding.gpus],
        "victims": [_gpu(ref) for ref in finding.victims],
        "cause": finding.cause,
        "share": finding.share,
        "saving_ms_per_step": milliseconds(finding.saving_ps_per_step),
        "title": say(finding.title, lang),
        "explanation": "\n".join(say(phrase, lang) for phrase in finding.explanation),
        "advice": [say(phrase, lang) for phrase in finding.advice],
        "check": say(finding.check, lang),
        "docs": finding.docs,
        "evidence": [_evidence(item, lang) for item in finding.evidence],
    }


def _evidence(item: Evidence, lang: str) -> dict[str, Any]:
    return {
        "host": item.host,
        "gpu": item.gpu,
        "start_ms": milliseconds(item.start),
        "end_ms": milliseconds(item.end),
        "thread": None if item.thread is None else _name(item.thread),
        "step": item.step,
        "what": _name(item.what) if isinstance(item.what, str) else say(item.what, lang),
    }


def _name(value: str) -> str:
    return clean(value, MAX_NAME)


def _telemetry(report: TelemetryReport, lang: str) -> dict[str, Any]:
    """The part ``telemetry`` of ``diagnosis.schema.json``."""
    return {
        "gpus": [_recorded_gpu(figures) for figures in report.gpus],
        "recordings": list(report.recordings),
        "notes": [say(note, lang) for note in report.notes],
        "simulated": report.simulated,
    }


def _recorded_gpu(figures: GpuFigures) -> dict[str, Any]:
    return {
        "host": figures.gpu.host,
        "id": figures.gpu.id,
        "name": figures.name,
        "samples": figures.samples,
        "utilization": figures.utilization,
        "clock_mhz": figures.clock_mhz,
        "clock_max_mhz": figures.clock_max_mhz,
        "power_watts": figures.power_watts,
        "power_limit_watts": figures.power_limit_watts,
        "temperature_celsius": figures.temperature_celsius,
        "memory_peak_bytes": figures.memory_peak_bytes,
        "memory_capacity_bytes": figures.memory_capacity_bytes,
        "memory_source": figures.memory_source,
        "throttled": {kind: min(1.0, share) for kind, share in figures.throttled},
        "first_step": figures.first_step,
        "last_step": figures.last_step,
    }
