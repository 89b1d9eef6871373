"""The result for programs, version 1: the structure that docs/check.md describes."""

from __future__ import annotations

import json

from tb_gpu_doctor.comparison.check import EXIT_STATUS, CheckResult
from tb_gpu_doctor.report.check.words import headline
from tb_gpu_doctor.report.comparison_json import comparison_dict
from tb_gpu_doctor.report.words import say
from tb_gpu_doctor.texts.numbers import clean

SCHEMA_VERSION = 1


def as_json(result: CheckResult, lang: str) -> str:
    """The result, and the whole comparison where there is a baseline."""
    return (
        json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "status": result.status,
                "exit_status": EXIT_STATUS[result.status],
                "headline": headline(result, lang),
                "label": clean(result.run.label, 1_000),
                "checks": [
                    {"id": item.id, "status": item.status, "message": say(item.message, lang), "docs": item.docs}
                    for item in result.items
                ],
                "comparison": None if result.comparison is None else comparison_dict(result.comparison, lang),
            },
            indent=2,
            allow_nan=False,
        )
        + "\n"
    )
