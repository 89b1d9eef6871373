"""A diagnosis that can also be put into words."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tb_gpu_doctor.diagnosis.model import Diagnosis
from tb_gpu_doctor.report import json_report


@dataclass(frozen=True)
class DiagnosisReport(Diagnosis):
    """A `Diagnosis` with its renderings; the diagnosis itself knows no language."""

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> DiagnosisReport:
        """The same diagnosis, able to speak."""
        return cls(**{spec.name: getattr(diagnosis, spec.name) for spec in fields(Diagnosis)})

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """Plain data that follows ``diagnosis.schema.json``, with texts in ``lang``."""
        return json_report.to_dict(self, lang)

    def to_json(self, lang: str = "en") -> str:
        """`to_dict` as JSON text in plain ASCII."""
        return json_report.to_json(self, lang)
