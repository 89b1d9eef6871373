"""When ops on the CPU become a finding, and that no second finding counts their time."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tests.analysis.small_traces import US, Recorder
from tests.diagnosis.loops import host
from tests.hosts import AnalysedFile, diagnosed

T = Thresholds()
STEP, COPY = 1_000, 2


def loop(
    op_us: float, op: str | None = "lookup/Unique:Unique", steps: int = 8, wait: str | None = None
) -> AnalysedFile:
    """Steps of `STEP` with an op of ``op_us`` between two copies of `COPY`."""
    record = Recorder()
    for step in range(steps):
        now, first = STEP * step + 100.0, 10 * (step + 1)
        record.step("python", step + 3, now - 30, now + STEP - 40)
        record.launch("python", now - 20, now, now + 400, first)
        record.call("python", "cuMemcpyDtoHAsync_v2", now - 10, now - 9, first + 1)
        record.work(now + 400, now + 400 + COPY, first + 1, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
        begin = now + 400 + COPY + 4
        if wait is not None:
            record.call("python", wait, now - 5, begin)
        if op is not None:
            record.call("python", op, begin, begin + op_us)
        back = begin + op_us + 4
        record.call("python", "cuMemcpyHtoDAsync_v2", back - 3, back - 2, first + 2)
        record.work(back, back + COPY, first + 2, stream=2, klass=EventClass.COPY, copy_kind=CopyKind.H2D)
        record.launch("python", back - 1, back + COPY, now + STEP, first + 3)
    return host(record)


def found(profile: AnalysedFile) -> tuple[Finding | None, list[str]]:
    findings = diagnosed([profile]).findings
    matching = [finding for finding in findings if finding.kind == "op_placement"]
    return (matching[0] if matching else None), [f.kind for f in findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("share", "severity"),
    [(T.of("op_placement").warning - 0.004, None), (T.of("op_placement").warning + 0.001, "warning"),
     (T.of("op_placement").critical - 0.004, "warning"), (T.of("op_placement").critical + 0.002, "critical")],
)  # fmt: skip
def test_thresholds(share: float, severity: str | None) -> None:
    # 8 us around the op and 4 us of copies belong to it
    finding, _ = found(loop(share * STEP - 12))
    assert (finding.severity if finding else None) == severity
    if finding is not None:
        assert finding.share == pytest.approx(share, abs=0.002)
        assert finding.saving_ps_per_step == pytest.approx(share * STEP * US, rel=0.06)


@pytest.mark.parametrize("wait", [None, "cuStreamSynchronize"])
def test_its_time_is_nobody_elses(wait: str | None) -> None:
    finding, kinds = found(loop(300, wait=wait))
    assert finding is not None and finding.severity == "critical"
    assert kinds == ["op_placement"]


def test_without_a_named_op_it_is_a_synchronisation() -> None:
    finding, kinds = found(loop(300, "$train.py:7 think", wait="cuStreamSynchronize"))
    assert finding is None and kinds == ["sync_stall"]


@pytest.mark.parametrize("lang", ["en", "es"])
def test_it_names_the_op_and_says_how_to_see_placement(lang: str) -> None:
    finding, _ = found(loop(300))
    assert finding is not None
    said = " ".join(say(phrase, lang) for phrase in (finding.title, *finding.explanation, *finding.advice))
    assert "lookup/Unique:Unique" in said and ("8 of 8" in said or "8 de 8" in said)
    assert "set_log_device_placement(True)" in said and "set_soft_device_placement" in said
    assert "pure_callback" in said, "nothing in this profile tells the framework"
    first = finding.evidence[0]
    assert (first.what, first.thread, first.step is not None) == ("lookup/Unique:Unique", "python", True)
    assert first.end - first.start == (300 + 8 + 2 * COPY) * US


def test_several_ops_are_listed_longest_first() -> None:
    record = Recorder()
    names = [f"net/Op{i}:Unique" for i in range(6)]
    for step in range(5):
        now, number = 2_000 * step + 100.0, 100 * (step + 1)
        record.step("python", step, now - 50, now + 1_900)
        record.launch("python", now - 40, now, now + 100, number)
        at = now + 100
        for i, name in enumerate(names):
            length = 100 + 10 * i
            record.call("python", "cuMemcpyDtoHAsync_v2", at - 3, at - 2, number + 1)
            record.work(at, at + 2, number + 1, stream=1, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
            record.call("python", name, at + 5, at + 5 + length)
            record.call("python", "cuMemcpyHtoDAsync_v2", at + length + 6, at + length + 7, number + 2)
            record.work(at + length + 10, at + length + 12, number + 2, stream=2, klass=EventClass.COPY,
                        copy_kind=CopyKind.H2D)  # fmt: skip
            record.launch("python", at + length + 8, at + length + 12, at + length + 60, number + 3)
            at, number = at + length + 60, number + 3
    finding, _ = found(host(record))
    assert finding is not None
    assert finding.explanation[0].key.endswith("explanation_more")
    assert finding.explanation[0].params["ops"] == tuple(reversed(names))[:4]
    assert finding.explanation[0].params["more"] == 2
