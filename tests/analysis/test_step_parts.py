"""The parts of each step against a count of every single picosecond."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.results import Gaps
from tb_gpu_doctor.analysis.step_parts import PART_IDS, communication_layers, step_parts
from tb_gpu_doctor.analysis.vocabulary import CAUSE_IDS
from tb_gpu_doctor.traces.columns import DeviceEvents, EventClass
from tests.plugin.examples import analysis_of, gpu_pictures, trace_of

LENGTH = 80
Picture = tuple[DeviceEvents, Gaps, list[list[int]]]


def state_at(events: DeviceEvents, rows: slice, wait: np.ndarray, time: int) -> str | None:
    """What a GPU does at an instant, None for idle; by looking at every event."""
    found = set()
    for index, row in enumerate(range(rows.start, rows.stop)):
        start, end = int(events.start[row]), int(events.end[row])
        if not start <= time < end:
            continue
        klass = events.klass[row]
        if klass == EventClass.COMPUTE:
            found.add("compute")
        elif klass == EventClass.COMMUNICATION:
            if wait[index] < 0:
                found.add("communication_unsplit")
            else:
                found.add("communication_moving" if time >= start + wait[index] else "communication_wait")
        else:
            found.add("transfer")
    order = ("compute", "communication_moving", "communication_unsplit", "communication_wait", "transfer")
    return next((name for name in order if name in found), None)


@settings(max_examples=60, deadline=None)
@given(gpu_pictures(length=LENGTH), st.lists(st.integers(0, LENGTH), min_size=2, max_size=5), st.data())
def test_parts_are_what_a_count_finds(drawn: Picture, borders: list[int], data: st.DataObject) -> None:
    events, gaps, pictures = drawn
    borders = sorted(set(borders))
    trace, analysis = trace_of(events, 2), analysis_of(events, gaps, 2, borders)
    for device in range(2):
        rows = events.of_device(device)
        count = rows.stop - rows.start
        wait = np.array(data.draw(st.lists(st.integers(-5, 30), min_size=count, max_size=count)), np.int64)
        wait = np.minimum(np.maximum(wait, -1), events.duration[rows])
        wall, parts = step_parts(trace, analysis, device, wait)
        assert wall.tolist() == np.diff(borders).tolist() and (parts.sum(axis=1) == wall).all()
        for step, (low, high) in enumerate(itertools.pairwise(borders)):
            expected = dict.fromkeys(PART_IDS, 0)
            for time in range(low, high):
                state = state_at(events, rows, wait, time)
                if state is None:
                    shown = pictures[device][time] if time < LENGTH else -1
                    state = CAUSE_IDS[shown - 3] if shown >= 3 else "no_evidence"
                expected[state] += 1
            assert dict(zip(PART_IDS, parts[step].tolist(), strict=True)) == expected


@given(gpu_pictures(length=LENGTH))
def test_layers_hold_each_other(drawn: Picture) -> None:
    events, _, _ = drawn
    rows = events.of_device(0)
    layers = communication_layers(trace_of(events, 2), 0, np.full(rows.stop - rows.start, -1, np.int64))
    sizes = [int((end - start).sum()) for start, end in layers]
    assert sizes == sorted(sizes) and sizes[2] == sizes[3], "without a known wait nothing is waiting"
