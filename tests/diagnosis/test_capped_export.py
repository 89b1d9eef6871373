"""An export that its writer cut off counts as dropped events."""

from __future__ import annotations

from dataclasses import replace

from tb_gpu_doctor.diagnosis.rules import dropped_events
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.report.sentences import say
from tests.diagnosis.build import profile
from tests.hosts import context_of


def test_a_capped_export_is_said_to_be_one() -> None:
    whole, capped = profile(1, label="whole"), profile(1, label="capped")
    note = Phrase("notes.capped_export", {"count": 1_000_000})
    capped = replace(capped, trace=replace(capped.trace, format="trace_json", notes=(note,)))
    assert list(dropped_events.check(context_of(whole))) == []
    (finding,) = dropped_events.check(context_of(whole, capped))
    assert "capped" in say(finding.title, "en") and "whole" not in say(finding.title, "en")
    assert "1,000,000 events" in say(finding.explanation[1], "en")
    assert "1.000.000" in say(finding.explanation[1], "es") or "1 000 000" in say(finding.explanation[1], "es")
