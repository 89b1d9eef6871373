"""Filling per GPU and step against sums over the events, and PyTorch's own estimate on recorded files.

Grids at two batch sizes against grids that are made from a batch size.

Memory or arithmetic: said only where both are counted and a roof is near.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.filling import NEAR_THE_ROOF, bound_of, grid_scaling, sm_efficiency, step_use
from tb_gpu_doctor.analysis.kernel_families import FAMILIES, PRODUCTS, TENSOR_CLASSES
from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.occupancy import filled_slots, tail
from tb_gpu_doctor.analysis.results import Steps
from tb_gpu_doctor.traces.columns import Device, EventClass, Trace
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.analysis.test_kernels import DEVICES, STRINGS, make_trace
from tests.diagnosis.build import kernel


@given(st.integers(1, 5000), st.integers(1, 200), st.integers(1, 32))
def test_slots_wave_by_wave(blocks: int, sms: int, active: int) -> None:
    slots, left, waves = sms * active, blocks, 0
    while left > 0:
        left -= slots
        waves += 1
    assert filled_slots(blocks, sms, active) == blocks / (waves * slots)
    empty = tail(blocks, sms, active)
    if blocks < slots:
        assert empty is None
    else:
        assert empty == pytest.approx(-left / (waves * slots), abs=1e-12)


EVENT = st.fixed_dictionaries({
    "device": st.integers(0, 2),
    "start": st.integers(0, 1000),
    "duration": st.integers(0, 200),
    "name": st.sampled_from([0, 1, 2, 3]),
    "details": st.sampled_from([-1, 5, 6, 7]),
    "op": st.sampled_from([-1, 9, 10]),
    "klass": st.sampled_from([EventClass.COMPUTE, EventClass.COMPUTE, EventClass.COPY]),
})  # fmt: skip


def steps_of(trace: Trace, event_step: list[int], count: int) -> Steps:
    shape = (count, len(trace.devices))
    start = np.arange(count * shape[1], dtype=np.int64).reshape(shape) * 1000
    return Steps(
        source="marked",
        number=np.arange(7, 7 + count),
        marker_start=np.zeros(count, np.int64),
        marker_end=np.zeros(count, np.int64),
        complete=np.ones(count, np.bool_),
        start=start,
        end=start + 500,
        event_step=np.array(event_step, np.int32),
    )


@given(st.lists(st.tuples(EVENT, st.integers(-1, 2)), min_size=1, max_size=40))
def test_against_sums_over_the_events(given_rows: list[tuple[dict[str, int], int]]) -> None:
    trace = make_trace([row for row, _ in given_rows])
    events = trace.device_events
    # any step for any event: which belongs where is not the question here
    steps = [step for _, step in given_rows]
    table = kernel_table(trace, None, steps_of(trace, steps, 3))
    row_of = {(r.device, r.name, r.registers, r.grid): r for r in table.rows}
    of_device: dict[int, list[tuple[int, object]]] = defaultdict(list)
    of_step: dict[tuple[int, int], list[tuple[int, object]]] = defaultdict(list)
    by_op: dict[tuple[int, str, object, str], list[int]] = defaultdict(list)
    for index in range(len(events)):
        if events.klass[index] == EventClass.COPY:
            continue
        name, details = trace.strings[events.name[index]], trace.strings[events.details[index]]
        (row,) = [r for (d, n, *_), r in row_of.items() if d == events.device[index] and n == name and fits(r, details)]
        time = int(events.duration[index])
        of_device[row.device].append((time, row))
        of_step[steps[index], row.device].append((time, row))
        by_op[row.device, name, row.grid, trace.strings[events.op[index]]].append(time)
    for fill in table.fills:
        rows = of_device[fill.device]
        assert fill.kernel_ps == sum(time for time, _ in rows)
        assert dict(zip(FAMILIES, fill.family_ps, strict=True)) == {
            family: sum(time for time, row in rows if row.family == family) for family in FAMILIES
        }
        if DEVICES[fill.device].compute_capability == (8, 0):
            assert fill.tensor_ps == tuple(
                sum(time for time, row in rows if row.tensor_cores == state and row.family in PRODUCTS)
                for state in TENSOR_CLASSES
            )
        else:
            assert fill.tensor_ps is None
        for column in ("occupancy", "achieved_occupancy", "sm_share"):
            assert getattr(fill, column) == mean_of(rows, column)
    if not table.rows:
        assert table.steps is None and table.ops is None
        return
    assert table.steps is not None
    for step in range(3):
        for device in range(3):
            rows = of_step[step, device]
            assert table.steps.kernel_ps[step, device] == sum(t for t, r in rows if r.family != "communication")
            for column in ("occupancy", "achieved_occupancy", "sm_share"):
                value = getattr(table.steps, column)[step, device]
                assert (None if np.isnan(value) else value) == mean_of(rows, column)
    assert table.ops is not None
    found = {
        (table.rows[r].device, table.rows[r].name, table.rows[r].grid, trace.strings[int(op)]): (int(calls), int(total))
        for r, op, calls, total in zip(
            table.ops.row, table.ops.op, table.ops.calls, table.ops.total_ps, strict=True
        )
    } if table.rows else {}  # fmt: skip
    assert found == {key: (len(times), sum(times)) for key, times in by_op.items()}


def fits(row: object, details: str) -> bool:
    grid = {STRINGS[5]: (108, 1, 1), STRINGS[6]: (4, 2, 1), STRINGS[7]: (4, 1, 1), "": None}[details]
    return getattr(row, "grid") == grid  # noqa: B009


def mean_of(rows: list[tuple[int, object]], column: str) -> object:
    known = [
        (getattr(row, column), time)
        for time, row in rows
        if getattr(row, column) is not None and getattr(row, "family") != "communication"  # noqa: B009
    ]
    time = sum(weight for _, weight in known)
    return pytest.approx(sum(value * weight for value, weight in known) / time) if time else None


def kineto_files(folder: str, shared: Path) -> list[Trace]:
    (session,) = find_sessions(str(shared / folder)).sessions
    return [read_trace(file) for file in session.files[:2]]


@pytest.mark.parametrize(
    "folder",
    ["kineto_bert_small_h100", "kineto_diff_control_a100", "kineto_diff_test_v100", "kineto_dlrm_8xv100",
     "kineto_eager_b200", "kineto_megatron_tp8_a100"],
)  # fmt: skip
def test_pytorch_s_own_estimate_is_ours(folder: str, shared_traces: Path) -> None:
    """PyTorch estimates threads of resident blocks over what a multiprocessor holds, without the last wave."""
    if not (shared_traces / folder).is_dir():
        pytest.skip(f"recorded profile not present ({folder})")
    for trace in kineto_files(folder, shared_traces):
        rows = [row for row in kernel_table(trace, None).rows if row.recorded_achieved is not None]
        assert len(rows) > 5
        assert not [row for row in rows if row.occupancy_differs]
        for row in rows:
            assert row.achieved_occupancy is not None and row.occupancy is not None and row.waves is not None
            if row.waves <= 1 and row.block_threads is not None and row.block_threads % 32 == 0:
                assert row.achieved_occupancy * 100 == pytest.approx(row.recorded_achieved * 100, abs=0.51)  # type: ignore[operator]
            assert row.achieved_occupancy <= row.occupancy + 1e-12


def test_efficiency_counts_idle_time_as_empty(shared_traces: Path) -> None:
    if not (shared_traces / "kineto_diff_control_a100").is_dir():
        pytest.skip("recorded profile not present (kineto_diff_control_a100)")
    (trace,) = kineto_files("kineto_diff_control_a100", shared_traces)
    analysis = analyse(trace)
    (fill,), (account,) = analysis.kernels.fills, analysis.accounting
    value = sm_efficiency(fill, account)
    assert value is not None and fill.sm_share_in_window is not None
    assert value == pytest.approx(fill.sm_share_in_window * account.compute / account.wall)
    assert analysis.kernels.steps is not None
    use = step_use(analysis.steps, analysis.kernels.steps, analysis.summaries)
    assert use.wall_ps[analysis.steps.complete, 0].tolist() == analysis.steps.durations().tolist()
    per_step = np.nanmean(np.where(analysis.steps.complete[:, None], use.sm_efficiency, np.nan))
    assert per_step == pytest.approx(value, rel=0.05)
    assert sm_efficiency(fill, None) is None


SMS, WAVE = 132, 528


def row(name: str, blocks: int, **more: object) -> KernelRow:
    made = replace(kernel(name), grid=(blocks, 1, 1), wave_blocks=WAVE, op="op")
    return replace(made, **more)  # type: ignore[arg-type]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 40), st.integers(1, 9))
def test_the_batch_found_is_the_smallest_that_fills(batch: int, other: int, fixed: int, per_example: int) -> None:
    if batch == other or fixed > per_example * batch:
        return

    def blocks(of: int) -> int:
        return fixed + per_example * of

    (found,) = grid_scaling([row("k", blocks(batch))], [row("k", blocks(other))], batch, other, SMS)
    assert found.scales
    for wanted, answer in ((SMS, found.block_per_sm_batch), (WAVE, found.full_wave_batch)):
        assert answer is not None and answer >= 1
        assert blocks(answer) >= wanted and (answer == 1 or blocks(answer - 1) < wanted)


def test_a_fixed_grid_does_not_scale() -> None:
    (found,) = grid_scaling([row("k", 20)], [row("k", 20)], 8, 16, SMS)
    assert (found.scales, found.block_per_sm_batch, found.full_wave_batch) == (False, None, None)
    # nor does one that grows by a tenth when the batch doubles
    (found,) = grid_scaling([row("k", 20)], [row("k", 22)], 8, 16, SMS)
    assert not found.scales


def test_what_cannot_be_compared_is_left_out() -> None:
    ours = [
        row("one", 8), row("two", 8), row("two", 9), row("persistent", 8, persistent=True),
        row("nccl", 8, family="communication"), row("unknown", 8, grid=None), row("only ours", 8),
        row("other op", 8, op="a"), row("other block", 8, block=(64, 1, 1)),
    ]  # fmt: skip
    theirs = [
        row("one", 16), row("two", 16), row("two", 18), row("persistent", 16, persistent=True),
        row("nccl", 16, family="communication"), row("unknown", 16, grid=None), row("only theirs", 16),
        row("other op", 16, op="b"), row("other block", 16),
    ]  # fmt: skip
    assert [found.name for found in grid_scaling(ours, theirs, 1, 2, SMS)] == ["one"]
    (found,) = grid_scaling([row("one", 8, wave_blocks=None)], [row("one", 16)], 1, 2, None)
    assert (found.scales, found.block_per_sm_batch, found.full_wave_batch) == (True, None, None)


def test_the_gpus_of_a_profile_repeat_a_kernel() -> None:
    ours = [row("k", 8, device=0), row("k", 8, device=1, total_ps=5)]
    (found,) = grid_scaling(ours, [row("k", 16)], 1, 2, SMS)
    assert found.total_ps == max(entry.total_ps for entry in ours)


@pytest.mark.parametrize(("batch", "other"), [(0, 1), (1, 0), (-1, 2), (3, 3)])
def test_batch_sizes_that_tell_nothing(batch: int, other: int) -> None:
    with pytest.raises(ValueError, match="batch sizes"):
        grid_scaling([], [], batch, other, SMS)


GPU = Device(0, "h", 0, memory_bandwidth_bytes_per_s=1_000_000_000_000, peak_flops_per_s=100e12)
SECOND = 10**12


@pytest.mark.parametrize(
    ("flops", "accessed", "bound"),
    [
        (1_000, 600_000_000_000, "memory"),
        (1_000, 599_000_000_000, None),
        (60 * 10**12, 1_000, "compute"),
        (59 * 10**12, 1_000, None),
        (None, 600_000_000_000, None),
        (60 * 10**12, None, None),
        (0, 0, None),
    ],
)
def test_near_a_roof(flops: int | None, accessed: int | None, bound: str | None) -> None:
    assert NEAR_THE_ROOF == 0.6
    assert bound_of(GPU, SECOND, flops, accessed) == bound


def test_without_peaks_or_time_nothing_is_said() -> None:
    assert bound_of(Device(0, "h", 0), SECOND, 1, 10**12) is None
    assert bound_of(GPU, 0, 1, 10**12) is None
    no_peak = Device(0, "h", 0, memory_bandwidth_bytes_per_s=1_000_000_000_000)
    assert bound_of(no_peak, SECOND, 10**15, 1) is None
