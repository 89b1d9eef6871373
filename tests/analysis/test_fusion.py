"""Runs of short kernels against a walk over the events of each stream."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.fusion import (
    LONGEST_PAUSE_PS,
    MAX_NAMED,
    SHORT_KERNEL_PS,
    SHORTEST_RUN,
    KernelEvents,
    find_fusion,
)
from tb_gpu_doctor.analysis.kernel_families import is_fusible, kernel_family

US = 1_000_000
FUSIBLE = np.array([True, True, False, True])


def events_of(rows: list[tuple[int, int, int, int, int, int]], complete: list[bool]) -> KernelEvents:
    """Rows of (device, stream, start, duration, step, code), in any order."""
    rows = sorted(rows, key=lambda row: (row[0], row[2], -row[3]))
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 6
    device, stream, start, duration, step, code = columns
    return KernelEvents(
        device.astype(np.int32), (stream + 2 * device).astype(np.int32), start, duration, step.astype(np.int32),
        np.array(complete, np.bool_), code, code + 100,
    )  # fmt: skip


def brute_force(events: KernelEvents) -> dict[tuple[int, tuple[int, ...]], list[tuple[int, int, bool]]]:
    """(device, kernels in order) to (span, saving, in a complete step) of each run."""
    streams = defaultdict(list)
    for row in range(len(events.code)):
        streams[int(events.stream[row])].append(row)
    found = defaultdict(list)
    for rows in streams.values():
        run: list[int] = []
        for row in [*rows, None]:
            if row is not None:
                short = FUSIBLE[events.code[row]] and events.duration[row] < SHORT_KERNEL_PS
                if run and short:
                    before = run[-1]
                    pause = events.start[row] - events.start[before] - events.duration[before]
                    if pause <= LONGEST_PAUSE_PS and events.step[row] == events.step[before]:
                        run.append(row)
                        continue
            if len(run) >= SHORTEST_RUN:
                ends = [int(events.start[r] + events.duration[r]) for r in run]
                span = max(ends) - int(events.start[run[0]])
                saving = span - min(int(events.duration[r]) for r in run)
                step = int(events.step[run[0]])
                key = int(events.device[run[0]]), tuple(int(events.code[r]) for r in run)
                found[key].append((span, saving, step >= 0 and bool(events.complete[step])))
            run = [row] if row is not None and short else []
    return found


ROWS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 1), st.integers(0, 80).map(lambda n: n * 3 * US),
        st.sampled_from([US, 2 * US, 9 * US, SHORT_KERNEL_PS]), st.integers(-1, 1), st.integers(0, 3),
    ),
    max_size=60,
)  # fmt: skip


@given(ROWS)
def test_against_a_walk_over_the_streams(rows: list[tuple[int, int, int, int, int, int]]) -> None:
    # Groups are per device, so the same number on another device is another kernel.
    events = events_of([(d, s, at, length, step, code) for d, s, at, length, step, code in rows], [True, False])
    code = events.code + 4 * events.device
    events = KernelEvents(**{**events.__dict__, "code": code})
    expected = {
        (device, tuple(c + 4 * device for c in codes)): runs
        for (device, codes), runs in brute_force(KernelEvents(**{**events.__dict__, "code": code % 4})).items()
    }
    place = np.arange(8) * 10
    found, per_device = find_fusion(events, np.tile(FUSIBLE, 2), 2, place)
    assert {(c.device, tuple(r // 10 for r in c.rows)) for c in found} == set(expected)
    for candidate in found:
        runs = expected[candidate.device, tuple(row // 10 for row in candidate.rows)]
        assert candidate.runs == len(runs)
        assert candidate.kernels == len(candidate.rows) == len(candidate.ops)
        assert candidate.total_ps == sum(span for span, _, _ in runs)
        assert candidate.saving_ps == sum(saving for _, saving, _ in runs)
        assert candidate.saving_in_steps_ps == sum(saving for _, saving, complete in runs if complete)
        assert candidate.end - candidate.start <= max(span for span, _, _ in runs)
        assert 0 <= candidate.saving_ps < candidate.total_ps
    assert [c.saving_ps for c in found] == sorted((c.saving_ps for c in found), reverse=True)
    for device in range(2):
        assert per_device[device] == sum(s for (d, _), runs in expected.items() if d == device for _, s, _ in runs)


def test_a_long_run_names_its_first_kernels() -> None:
    events = events_of([(0, 0, n * 2 * US, US, 0, n % 2) for n in range(100)], [True])
    (candidate,), saving = find_fusion(events, FUSIBLE, 1, np.arange(4))
    assert (candidate.kernels, candidate.runs, len(candidate.rows)) == (100, 1, MAX_NAMED)
    assert candidate.total_ps == 199 * US and saving == (198 * US,)


def test_what_ends_a_run() -> None:
    def runs(*rows: tuple[int, int, int, int, int, int]) -> list[int]:
        return [c.kernels for c in find_fusion(events_of(list(rows), [True, True]), FUSIBLE, 1, np.arange(4))[0]]

    first = [(0, 0, 0, US, 0, 0), (0, 0, 2 * US, US, 0, 1)]
    assert runs(*first) == []
    assert runs(*first, (0, 0, 4 * US, US, 0, 0)) == [3]
    assert runs(*first, (0, 0, 4 * US, US, 1, 0)) == []  # the next step
    assert runs(*first, (0, 1, 4 * US, US, 0, 0)) == []  # another stream
    assert runs(*first, (0, 0, 4 * US, US, 0, 2)) == []  # another kind of kernel
    assert runs(*first, (0, 0, 4 * US, SHORT_KERNEL_PS, 0, 0)) == []  # no short one
    assert runs(*first, (0, 0, 3 * US + LONGEST_PAUSE_PS, US, 0, 0)) == [3]
    assert runs(*first, (0, 0, 3 * US + LONGEST_PAUSE_PS + 1, US, 0, 0)) == []


def test_nothing_without_kernels_or_elementwise_ones() -> None:
    assert find_fusion(events_of([], []), FUSIBLE, 2, np.arange(4)) == ((), (0, 0))
    events = events_of([(0, 0, n * 2 * US, US, 0, 2) for n in range(9)], [True])
    assert find_fusion(events, FUSIBLE, 1, np.arange(4)) == ((), (0,))


def fusible(name: str, op: str = "") -> bool:
    return is_fusible(name, op, kernel_family(name, op))


def test_what_a_compiler_wrote_is_no_candidate() -> None:
    assert fusible("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>")
    assert fusible("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>")
    assert fusible("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorConversionOp<float>>>")
    for name in ("loop_add_multiply_fusion_3", "wrapped_convert.kd", "triton_poi_fused_add_0", "input_add_fusion"):
        assert not fusible(name)
    assert not fusible("triton__0d1d2d3de", "triton_poi_fused_add_mul_tanh_0")
    assert not fusible("volta_sgemm_128x64_nn") and not fusible("void reduce_kernel<128>")
