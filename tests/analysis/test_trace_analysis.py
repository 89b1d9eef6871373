"""The need of each GPU's memory, from the allocator's own events.

The outline of a file against sums and searches over its events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from tb_gpu_doctor.analysis.accounting import all_busy_sets
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.trace_analysis import AllocatorUse, allocator_use, outline, outline_of
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.traces.columns import CopyKind, EventClass, SparseStat, StringTable, Trace
from tests.analysis.small_traces import traces as small_traces
from tests.diagnosis.build import profile, trace
from tests.hosts import diagnosed
from tests.real_traces import real_trace

GIB = 1 << 30


def with_events(made: Trace, events: Sequence[tuple[str, int, int, int]]) -> Trace:
    """(allocator, in use, left, peak) of each allocation."""
    known = list(made.strings)
    names = list(dict.fromkeys(event[0] for event in events))
    rows = np.arange(len(events), dtype=np.int64)

    def stat(values: Sequence[int]) -> SparseStat:
        return SparseStat(rows, np.array(values, np.int64))

    return dataclasses.replace(
        made,
        strings=StringTable.of([*known, *names]),
        host_stats={
            "allocator_name": stat([len(known) + names.index(event[0]) for event in events]),
            "bytes_allocated": stat([event[1] for event in events]),
            "bytes_available": stat([event[2] for event in events]),
            "peak_bytes_in_use": stat([event[3] for event in events]),
        },
    )


def test_the_last_peak_and_the_limit_of_each_gpu() -> None:
    events = [
        ("GPU_1_bfc", 3, 97, 3), ("GPU_0_bfc", 10, 190, 20), ("GPU_1_bfc", 5, 95, 30), ("gpu_host_bfc", 9, 1, 10),
        ("cpu_pool", 9, 1, 10), ("GPU_7_bfc", 9, 1, 10),
    ]  # fmt: skip
    assert allocator_use(with_events(trace(2), events)) == (AllocatorUse(0, 20, 200), AllocatorUse(1, 30, 100))


def test_the_allocator_of_cuda() -> None:
    assert allocator_use(with_events(trace(1), [("gpu_async_0", 1, 9, 5)])) == (AllocatorUse(0, 5, 10),)


@pytest.mark.parametrize("event", [("GPU_0_bfc", 1, 0, 5), ("GPU_0_bfc", 0, 0, 0), ("GPU_0_bfc", 1, 1 << 60, 5)])
def test_figures_that_cannot_be_are_left_out(event: tuple[str, int, int, int]) -> None:
    assert allocator_use(with_events(trace(1), [event])) == ()


def test_without_such_events_nothing_is_known() -> None:
    assert allocator_use(trace(2)) == ()


@pytest.mark.parametrize(("peak", "kinds"), [(30, {"memory_headroom"}), (60, set()), (78, {"memory_pressure"})])
def test_a_profile_alone_tells_headroom_and_fullness(peak: int, kinds: set[str]) -> None:
    made = profile(2)
    events = [(f"GPU_{gpu}_bfc", GIB, 79 * GIB, (peak - gpu) * GIB) for gpu in range(2)]
    made = dataclasses.replace(made, trace=with_events(made.trace, events))
    found = diagnosed([made])
    assert {f.kind for f in found.findings if f.kind.startswith("memory_")} == kinds
    assert found.verdict == "ok"
    if peak == 30:
        (finding,) = [f for f in found.findings if f.kind == "memory_headroom"]
        assert "2.4 times" in say(finding.explanation[1], "en")


def test_headroom_needs_every_gpu() -> None:
    made = profile(2)
    made = dataclasses.replace(made, trace=with_events(made.trace, [("GPU_0_bfc", GIB, 79 * GIB, 8 * GIB)]))
    assert not [f for f in diagnosed([made]).findings if f.kind == "memory_headroom"]


# By a protobuf parser, apart from this package: the highest peak of each allocator.
@pytest.mark.parametrize(
    ("name", "peaks"),
    [
        ("tf_bert_8gpu", {4: 6208853760, 6: 6210111488, 1: 4013344768}),
        ("jax_te_attention", {0: 663228416}),
        ("jax_conv_8xmi300x", {0: 1730171904, **dict.fromkeys(range(1, 8), 1732169984)}),
    ],
)
def test_recorded_profiles(name: str, peaks: dict[int, int]) -> None:
    made = real_trace(name)
    found = {made.devices[use.device].id: use.peak_bytes for use in allocator_use(made)}
    assert found == peaks


def covered(trace: Trace, device: int) -> int:
    """Picoseconds with work, by sweeping over starts and ends."""
    events = trace.device_events
    edges = []
    for row in range(len(events)):
        if events.device[row] == device:
            edges += [(int(events.start[row]), 1), (int(events.end[row]), -1)]
    total = depth = last = 0
    for at, change in sorted(edges):
        total += at - last if depth else 0
        depth, last = depth + change, at
    return total


@given(small_traces())
def test_any_trace(trace: Trace) -> None:
    found = outline(trace)
    assert found == outline(trace, all_busy_sets(trace)) == outline_of(trace, analyse(trace))
    assert list(found.busy) == [covered(trace, device.index) for device in trace.devices]
    events = trace.device_events
    kernels = zip(events.klass.tolist(), events.copy_kind.tolist(), strict=True)
    assert found.communicates == any(pair == (EventClass.COMMUNICATION, CopyKind.NONE) for pair in kernels)


def test_frameworks_of_real_profiles() -> None:
    assert outline(real_trace("jax_te_attention")).marks >= {"jax"}
    found = outline(real_trace("tf_bert_8gpu"))
    assert "tensorflow" in found.marks and "jax" not in found.marks
    assert found.allocators == allocator_use(real_trace("tf_bert_8gpu"))
