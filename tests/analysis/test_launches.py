"""The join of device events and launch calls, against trying all pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from tb_gpu_doctor.analysis.launches import MAX_SKEW, launch_of, launch_stats
from tb_gpu_doctor.analysis.results import Window
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tests.analysis import brute_force
from tests.analysis.small_traces import US, Recorder, traces
from tests.real_traces import real_trace


@given(traces())
def test_the_join(trace: Trace) -> None:
    uses = Counter(trace.host_events.correlation.tolist())
    found = launch_of(trace).tolist()
    for i, possible in enumerate(brute_force.launches_of(trace, MAX_SKEW)):
        if uses[int(trace.device_events.correlation[i])] < 2:
            assert found[i] == max(possible, default=-1)
        else:  # of several calls with one id the join takes one, or none; it never invents one
            assert found[i] in possible | {-1}


def test_one_launch_of_a_graph_has_many_kernels() -> None:
    record = Recorder()
    record.call("main", "cuGraphLaunch", 0, 5, 9)
    for i in range(4):
        record.work(10 + i, 10.5 + i, 9, graph=3)
    assert launch_of(record.trace()).tolist() == [0, 0, 0, 0]


def test_a_launch_may_seem_to_start_a_little_after_its_kernel() -> None:
    record = Recorder()
    record.work(10, 12, 1)
    record.call("main", "cuLaunchKernel", 11, 13, 1)
    assert launch_of(record.trace()).tolist() == [0]


def test_a_call_long_after_a_kernel_did_not_launch_it() -> None:
    record = Recorder()
    record.work(10, 12, 1)
    record.call("main", "cuLaunchKernel", 12 + MAX_SKEW / US + 1, 12 + MAX_SKEW / US + 2, 1)
    assert launch_of(record.trace()).tolist() == [-1]


@pytest.mark.parametrize("correlation", [-1, 0])
def test_no_correlation_joins_nothing(correlation: int) -> None:
    record = Recorder()
    record.work(10, 12, correlation)
    record.call("main", "cuLaunchKernel", 0, 1, correlation)
    assert launch_of(record.trace()).tolist() == [-1]


# Device events, and how many of them have their launch call in the file, counted by a protobuf parser.
REAL = {
    "jax_conv_8xmi300x": (235, 235),
    "jax_conv_8xmi300x_older": (78, 78),
    "jax_gemm_1of8_mi300x": (54, 54),
    "jax_te_attention": (150, 150),
    "tf_bert_8gpu": (1556, 1556),
    "xla_2xgtx1080ti": (2, 2),
}


@pytest.mark.parametrize("folder", REAL)
def test_every_device_event_of_the_real_files_has_its_launch(folder: str) -> None:
    trace = real_trace(folder)
    launch = launch_of(trace)
    assert (len(launch), int(np.count_nonzero(launch >= 0))) == REAL[folder]
    known = launch >= 0
    same = trace.host_events.correlation[launch[known]] == trace.device_events.correlation[known]
    assert same.all()


def test_launch_stats() -> None:
    record = Recorder(gpus=3)
    record.launch("main", 0, 5, 9, 1)  # 4 us
    record.launch("main", 2, 9, 29, 2)  # 20 us
    record.call("main", "cuGraphLaunch", 4, 10, 3)
    record.work(30, 31, 3)
    record.work(32, 33, 3)
    record.launch("main", 12, 34, 36, 4, klass=EventClass.COPY)
    record.launch("other", 40, 100, 101, 5, gpu=1)  # outside the window
    trace = record.trace()
    (stats,) = launch_stats(trace, launch_of(trace), Window(0, 50 * US))
    assert stats.device == 0
    assert stats.launches == 4
    assert stats.host_time == (1 + 1 + 6 + 1) * US
    assert stats.short_kernels == 3
    assert stats.median_kernel == 2_500_000


def test_calls_inside_calls_take_their_time_once() -> None:
    record = Recorder()
    record.call("main", "cudaLaunchKernel", 0, 10, 1)
    record.call("main", "cuLaunchKernel", 2, 8, 2)
    record.call("other", "cuLaunchKernel", 2, 8, 3)
    for i in (1, 2, 3):
        record.work(20 + i, 21 + i, i)
    trace = record.trace()
    (stats,) = launch_stats(trace, launch_of(trace), Window(0, 50 * US))
    assert stats.host_time == 16 * US
