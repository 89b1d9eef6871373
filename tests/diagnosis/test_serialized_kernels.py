"""When streams that take turns become a finding about the profile."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.report.sentences import say
from tests.analysis.small_traces import US, Recorder
from tests.diagnosis.loops import host
from tests.hosts import AnalysedFile, diagnosed

T = Thresholds()


def turns(kernels: int, streams: int, reverse: int = 0, overlapped: bool = False) -> AnalysedFile:
    """Kernels of 40 us on streams in turn, all launched long before; ``reverse`` pairs overtake each other."""
    record = Recorder()
    for i in range(kernels):
        begin = 1_000 + 41 * i
        call = 10 * i + (15 if i < 2 * reverse and i % 2 == 0 else 0)
        record.launch("python", call, begin, begin + (45 if overlapped else 40), i + 1, stream=i % streams)
    return host(record)


def kinds(profile: AnalysedFile) -> list[str]:
    return [finding.kind for finding in diagnosed([profile]).findings]


@pytest.mark.parametrize(
    ("kernels", "streams", "reverse", "said"),
    [
        (T.of("serialized_kernels").handovers + 1, T.of("serialized_kernels").streams, 0, True),
        (T.of("serialized_kernels").handovers, T.of("serialized_kernels").streams, 0, False),
        (60, T.of("serialized_kernels").streams - 1, 0, False),  # two streams in turn may depend on each other
        (60, 2, T.of("serialized_kernels").reversed, True),
        (60, 2, T.of("serialized_kernels").reversed - 1, False),
    ],
)
def test_what_proves_it(kernels: int, streams: int, reverse: int, said: bool) -> None:
    assert ("serialized_kernels" in kinds(turns(kernels, streams, reverse))) == said


def test_streams_that_overlap_are_well() -> None:
    assert "serialized_kernels" not in kinds(turns(60, 4, overlapped=True))


def test_it_is_about_the_profile() -> None:
    diagnosis = diagnosed([turns(60, 4)])
    finding = next(f for f in diagnosis.findings if f.kind == "serialized_kernels")
    assert finding.is_about_profile and finding.share is None and finding.saving_ps_per_step is None
    assert diagnosis.findings[-1].is_about_profile
    assert [gpu.id for gpu in finding.gpus] == [0]
    (where,) = finding.evidence
    assert where.end - where.start == 81 * US
    for lang in ("en", "es"):
        said = " ".join(say(phrase, lang) for phrase in (finding.title, *finding.explanation, *finding.advice))
        assert "CUPTI" in said and "CUDA_LAUNCH_BLOCKING" in said
        assert "Stream #" in say(where.what, lang)


def test_with_it_a_profile_is_no_proof_of_health() -> None:
    diagnosis = diagnosed([turns(60, 4)])
    assert diagnosis.verdict != "ok"
