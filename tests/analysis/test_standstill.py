"""A process that stood still is told from one that waits, or whose host is slow."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.results import Cause
from tests.analysis.small_traces import US, Recorder

PAUSE = 20_000.0


def steps(pauses: dict[str, str], stopped: bool = True, usual: float = 10.0, until: int = 8) -> Recorder:
    """Eight steps of two threads; in the third and the sixth their events last through a pause of 20 ms."""
    record, at = Recorder(), 0.0
    for step in range(until):
        pause = PAUSE if step in (3, 6) else 0.0
        for k in range(4):
            length = pause if k == 3 else 0.0
            record.call("main", pauses["main"], at + 20, at + 20 + usual + length)
            record.call("other", pauses["other"], at + 15, at + 15 + usual + length)
            if not stopped and length:
                record.call("third", "aten::relu", at + length / 2, at + length / 2 + 10)
            at += length
            record.launch("main", at + 60, at + 70, at + 170, 1 + 4 * step + k)
            at += 200
    return record


def host_other(record: Recorder) -> int:
    return int(analyse(record.trace()).accounting[0].idle_by_cause[Cause.HOST_OTHER])


def test_it_is_found_and_charged_to_nobody_else() -> None:
    result = analyse(steps({"main": "aten::add", "other": "aten::copy_"}).trace())
    found = result.standstills
    assert found is not None
    assert (found.count, found.threads, found.usual) == (2, 2, 10 * US)
    assert PAUSE * US <= found.typical <= found.longest <= (PAUSE + 20) * US
    assert found.name in ("aten::add", "aten::copy_")
    idle = result.accounting[0].idle_by_cause[Cause.HOST_OTHER]
    assert idle >= 2 * PAUSE * US and abs(int(idle) - found.idle[0]) <= 100 * US
    assert result.gaps.by_cause.sum() == (result.gaps.end - result.gaps.start).sum()


@pytest.mark.parametrize(
    "names",
    [
        {"main": "aten::add", "other": "queue.get"},  # one of two waits: the first may just be slow
        {"main": "cudaLaunchKernel", "other": "cudaMemcpyAsync"},  # the driver's calls wait for each other
        {"main": "aten::add", "other": "cudaStreamSynchronize"},
        {"main": "$threading.py:327 wait", "other": "$queue.py:171 get"},
    ],
)
def test_who_waits_does_not_stand_still(names: dict[str, str]) -> None:
    assert analyse(steps(names).trace()).standstills is None


def test_a_thread_that_moves_on_is_proof_of_the_contrary() -> None:
    record = steps({"main": "aten::add", "other": "aten::copy_"}, stopped=False)
    assert analyse(record.trace()).standstills is None


def test_work_that_takes_long_anyway_proves_nothing() -> None:
    record = steps({"main": "aten::add", "other": "aten::copy_"}, usual=500.0)
    assert analyse(record.trace()).standstills is None


def test_a_name_seen_too_rarely_proves_nothing() -> None:
    record = steps({"main": "aten::add", "other": "aten::copy_"}, until=0)
    for at in (0.0, 30_000.0):
        record.launch("main", at, at + 10, at + 100, 1 + int(at))
    record.call("main", "aten::add", 200, 29_000)
    record.call("other", "aten::copy_", 200, 29_000)
    assert analyse(record.trace()).standstills is None
