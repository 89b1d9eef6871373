"""Filling per GPU and step against sums over the events, and PyTorch's own estimate on recorded files."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.filling import sm_efficiency, step_use
from tb_gpu_doctor.analysis.kernel_families import FAMILIES
from tb_gpu_doctor.analysis.kernels import kernel_table
from tb_gpu_doctor.analysis.occupancy import filled_slots, tail
from tb_gpu_doctor.analysis.results import Steps
from tb_gpu_doctor.analysis.tensor_cores import PRODUCTS, TENSOR_CLASSES
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.analysis.test_kernels import DEVICES, STRINGS, make_trace


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
