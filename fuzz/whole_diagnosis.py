"""What must hold of any trace that a reader lets through: a diagnosis with sound numbers, and words for it."""

from __future__ import annotations

import io
import json
import math
from typing import Any

from rich.console import Console

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.device_clock import on_host_clock
from tb_gpu_doctor.analysis.facts import FileFacts, file_facts
from tb_gpu_doctor.diagnosis.engine import diagnose_files
from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
from tb_gpu_doctor.report.diagnosis_text import print_report
from tb_gpu_doctor.report.markdown import diagnosis_markdown
from tb_gpu_doctor.traces.columns import Trace

# What may remain without computing and without a finding where all is well.
_UNTOLD = 0.10
# Shares and sums are rounded; nothing else may exceed its bound.
_ROUNDED = 1.0001


class Failure(Exception):
    """An input broke a promise."""


def expect(holds: bool, promise: str) -> None:
    """Insist on a promise.

    Raises:
        Failure: it does not hold.
    """
    if not holds:
        raise Failure(f"broken promise: {promise}")


def facts_of(trace: Trace) -> FileFacts:
    """The facts of a trace, as a command would gather them."""
    trace = on_host_clock(trace)
    return file_facts(trace, analyse(trace))


def check_diagnosis(*files: FileFacts) -> DiagnosisReport:
    """The diagnosis of files of one session, told in every form and language.

    Raises:
        Failure: a number is out of its bounds, or a sentence has a hole.
    """
    report = DiagnosisReport.of(diagnose_files(files))
    for lang in ("en", "es"):
        document = json.loads(report.to_json(lang), parse_constant=_no_number)
        _check_numbers(document)
        for brief in (False, True):
            out = io.StringIO()
            print_report(report, Console(file=out, width=100), lang, brief=brief)
            expect(bool(out.getvalue().strip()), "a report says something")
        expect(bool(diagnosis_markdown(report, lang)), "a report says something")
    return report


def _no_number(name: str) -> None:
    raise Failure(f"broken promise: JSON holds {name}")


def _check_numbers(document: dict[str, Any]) -> None:
    step = document["steps"]["median_ms"]
    for finding in document["findings"]:
        share, saving = finding["share"], finding["saving_ms_per_step"]
        expect(share is None or 0 <= share <= _ROUNDED, "shares lie between 0 and 1")
        expect(saving is None or (math.isfinite(saving) and saving >= 0), "savings are not negative")
        expect(saving is None or step is None or saving <= step * _ROUNDED, "no saving exceeds the step")
        for place in finding["evidence"]:
            expect(place["end_ms"] >= place["start_ms"], "evidence ends after it starts")
    for gpu in document["devices"]:
        parts = [gpu[f"{part}_ms"] for part in ("compute", "communication", "transfer", "idle")]
        if gpu["wall_ms"] is not None:
            expect(abs(sum(parts) - gpu["wall_ms"]) <= 1e-3 * len(parts), "the parts of a window sum to it")
    if document["verdict"] == "ok":
        idle = [1 - gpu["compute_ms"] / gpu["wall_ms"] for gpu in document["devices"] if gpu["wall_ms"]]
        expect(sum(idle) <= (_UNTOLD + 1e-6) * len(idle), "what is well computes nine tenths of the time")
        expect(not document.get("reasons"), "what is well is not in doubt")
