"""When copies become a finding, what it says of them, and which time is theirs."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.diagnosis.losses import unclaimed_idle
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tests.analysis.small_traces import US, Recorder
from tests.diagnosis.loops import host
from tests.hosts import AnalysedFile, context_of, diagnosed

T = Thresholds()
STEP = 1_000


def loop(
    copy_us: float,
    *,
    gpus: int = 1,
    steps: int = 10,
    kind: CopyKind = CopyKind.H2D,
    hidden: bool = False,
    first_only: bool = False,
    blocking: bool = False,
    marked: bool = True,
    size: int = 8_000_000,
    memory: int = 1,
) -> AnalysedFile:
    """Steps of `STEP` that begin with a copy, the kernels launched ahead; ``hidden`` copies run beside kernels."""
    record = Recorder(gpus=gpus)
    now, correlation = 100.0, 1
    for gpu in range(gpus):
        record.work(0, now, gpu=gpu)  # what came before, so that the first step is like the others
    for step in range(steps):
        length = copy_us if not first_only or step == 0 else 0.0
        if marked:
            record.step("python", step + 7, now - 90, now + 5)
        for gpu in range(gpus):
            called = now - 80 if not blocking else now - 2
            if length:
                record.call(
                    "python", "cuMemcpyHtoD_v2", called, now + length + 1 if blocking else called + 2, correlation
                )
                record.work(
                    now, now + length, correlation, gpu=gpu, stream=1, klass=EventClass.COPY, copy_kind=kind,
                    name="MemcpyD2H" if kind == CopyKind.D2H else "MemcpyH2D",
                )  # fmt: skip
                record.device_rows[-1] |= {
                    "copy_bytes": size,
                    "copy_memory": memory,
                    "copy_async": int(not blocking),
                    "op": record.string("input/_3:_HostSend"),
                }
            begin = now if hidden else now + length
            launched = now + length + 1 if blocking else now - 70
            record.launch("python", launched, begin + 3 * blocking, now + STEP, correlation + 1, gpu=gpu)
            correlation += 2
        now += STEP
    return host(record)


def found(*profiles: AnalysedFile) -> Finding | None:
    matching = [finding for finding in diagnosed(profiles).findings if finding.kind == "transfer_bound"]
    assert len(matching) <= 1
    return matching[0] if matching else None


def text(finding: Finding, lang: str = "en") -> str:
    words = " ".join(say(phrase, lang) for phrase in (finding.title, *finding.explanation, *finding.advice))
    return words.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("share", "severity"),
    [(T.of("transfer_bound").warning - 0.005, None), (T.of("transfer_bound").warning + 0.001, "warning"),
     (T.of("transfer_bound").critical - 0.005, "warning"), (T.of("transfer_bound").critical + 0.001, "critical")],
)  # fmt: skip
def test_thresholds(share: float, severity: str | None) -> None:
    finding = found(loop(share * STEP))
    assert (finding.severity if finding else None) == severity
    if finding is not None:
        assert finding.share == pytest.approx(share, rel=0.02)
        assert finding.saving_ps_per_step == pytest.approx(share * STEP * US, rel=0.02)
        assert [gpu.id for gpu in finding.gpus] == [0]


def test_hidden_copies_cost_nothing() -> None:
    assert found(loop(400, hidden=True)) is None


def test_the_first_copy_of_a_run_is_no_habit() -> None:
    assert found(loop(900, first_only=True)) is None


def test_it_names_direction_op_size_and_speed() -> None:
    finding = found(loop(200))
    assert finding is not None
    said = text(finding)
    assert "10 copies from the host to the GPU (MemcpyH2D) for input:_HostSend, 7.6 MiB each, at 40.0 GB/s" in said
    assert "pageable" in said and "100%" in said
    first = finding.evidence[0]
    assert (first.gpu, first.thread, first.step) == (0, "python", 7)
    assert first.end - first.start == 200 * US
    assert "input:_HostSend" in say(first.what, "en")
    assert "del host a la GPU" in text(finding, "es")


def test_pinned_memory_is_not_blamed() -> None:
    finding = found(loop(200, memory=0))
    assert finding is not None and "pageable" not in " ".join(say(p, "en") for p in finding.explanation)


def test_advice_goes_by_direction_and_size() -> None:
    up, down, small = found(loop(200)), found(loop(200, kind=CopyKind.D2H)), found(loop(200, size=4_000))
    assert up is not None and down is not None and small is not None
    keys = [[phrase.key.rsplit(".", 1)[-1] for phrase in finding.advice] for finding in (up, down, small)]
    assert keys[0][0].startswith("prefetch_device") and not any("fetch_less" in key for key in keys[0])
    assert keys[1][0].startswith("fetch_less") and not any("prefetch_device" in key for key in keys[1])
    assert any(key.startswith("fewer_copies") for key in keys[2])
    assert not any(key.startswith("fewer_copies") for key in keys[0])


def test_the_host_in_a_blocking_copy_counts_for_every_gpu_of_its_thread() -> None:
    record = Recorder(gpus=2)
    for step in range(10):
        now, first = 1_000 * step, 10 * (step + 1)
        record.step("python", step, now, now + 990)
        for gpu in (0, 1):
            record.launch("python", now + 5 + gpu, now + 10, now + 600, first + gpu, gpu=gpu)
        for gpu in (0, 1):  # one after the other, 180 each
            begin = now + 600 + 190 * gpu
            record.call("python", "cuMemcpyDtoH_v2", begin, begin + 190, first + 5 + gpu)
            record.work(begin + 5, begin + 185, first + 5 + gpu, gpu=gpu, klass=EventClass.COPY, copy_kind=CopyKind.D2H)
            record.device_rows[-1] |= {"copy_bytes": 4_000_000, "copy_memory": 1, "copy_async": 0}
    profile = host(record)
    findings = diagnosed([profile]).findings
    finding = next(f for f in findings if f.kind == "transfer_bound")
    assert [gpu.id for gpu in finding.gpus] == [0, 1]
    # a copy of 180, and the other GPU's call of 190 and the 10 around the own one
    assert finding.share == pytest.approx(9 * 380 / 9_590, abs=0.002)
    assert finding.explanation[0].key.endswith("explanation_waits")
    assert not any(f.kind == "sync_stall" for f in findings), "the same time is not a synchronisation's too"


def test_taken_time_leaves_the_accounting_as_it_is() -> None:
    profile = loop(200, blocking=True)
    context = context_of(profile)
    before = [gpu.account for gpu in context.working_gpus]
    idle = [unclaimed_idle(context, gpu) for gpu in context.working_gpus]
    left = [facts.account for facts in idle if facts is not None]
    assert [a.idle_by_cause for a in before] == [a.idle_by_cause for a in (profile.analysis.accounting)]
    for whole, rest in zip(before, left, strict=True):
        assert all(0 <= r <= w for w, r in zip(whole.idle_by_cause, rest.idle_by_cause, strict=True))
        assert rest.idle == sum(rest.idle_by_cause)
    assert any(rest.idle < whole.idle for whole, rest in zip(before, left, strict=True))
    assert all(gap.charge >= 0 for facts in idle if facts is not None for of in facts.by_cause for gap in of.worst)


def test_a_profile_without_copies_has_nothing_to_say() -> None:
    assert found(loop(0)) is None
    context = context_of(loop(0))
    for gpu in context.working_gpus:
        assert gpu.facts.idle is not None and unclaimed_idle(context, gpu) is gpu.facts.idle.whole
