"""The input pipelines of a trace: tf.data's stages, Python loaders, and whether the GPUs waited for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_gpu_doctor.analysis import intervals
from tb_gpu_doctor.analysis.callers import Causality, nearest_with
from tb_gpu_doctor.analysis.host_names import Kind, kind_of
from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage
from tb_gpu_doctor.analysis.results import Cause, Gaps
from tb_gpu_doctor.analysis.tf_data import Found, read_tf_data, tf_data_pipelines
from tb_gpu_doctor.analysis.torch_host_names import FRAME
from tb_gpu_doctor.traces.columns import Int64, Trace
from tb_gpu_doctor.traces.grouping import distinct, group, rows_by

# Python loaders below this share of the stretch are not worth a word, and no more than these are told.
_PYTHON_MIN_SHARE = 0.001
_PYTHON_MOST = 4
# PyTorch's loader with worker processes, which make batches ahead; without them it is another class.
_WORKERS = "_MultiProcessingDataLoaderIter"
# Frames of tf.data's own Python side, which its iterators' events tell better.
_TF_DATA_FRAMES = ("$iterator_ops.py:", "$dataset_ops.py:", "$dataset_adapter", "$data_adapter")


def find_pipelines(
    trace: Trace, span: tuple[int, int] | None, causes: Causality, gaps: Gaps | None = None
) -> tuple[InputPipeline, ...]:
    """The input pipelines over a stretch, those that GPUs waited for first, then the busiest.

    Args:
        trace: the decoded file.
        span: the analysed window, or the recorded time where there is none; None finds nothing.
        causes: the causal links of the host events.
        gaps: the idle gaps inside the window; without them no GPU waited.
    """
    if span is None or span[1] <= span[0] or not len(trace.host_events):
        return ()
    low, high = span
    events = read_tf_data(trace, causes.parent)
    found = [] if events is None else tf_data_pipelines(trace, events, low, high)
    iterators = np.zeros(0, np.int64) if events is None else events.rows
    found += _python_loaders(trace, causes.parent, iterators, low, high)
    if gaps is not None and len(gaps):
        found = _with_waits(trace, found, gaps)
    pipelines = [f.pipeline for f in found]
    pipelines.sort(key=lambda p: (-sum(p.waited), -p.fetch_time, -sum(s.busy for s in p.stages)))
    return tuple(pipelines)


def _with_waits(trace: Trace, found: list[Found], gaps: Gaps) -> list[Found]:
    """Charge idle time by input to the pipelines that were being asked in the gap, in proportion."""
    charged = gaps.by_cause[:, Cause.INPUT]
    rows = np.flatnonzero(charged > 0)
    if not len(rows) or not found:
        return found
    overlap = np.zeros((len(found), len(rows)), np.int64)
    for index, item in enumerate(found):
        asked = _busy_set(trace, item.fetches)
        overlap[index] = intervals.covered_before(asked, gaps.end[rows]) - intervals.covered_before(
            asked, gaps.start[rows]
        )
    total = overlap.sum(axis=0, dtype=np.float64)  # of many pipelines it may not fit in 64 bits
    part = np.minimum(overlap, overlap * (charged[rows] / np.maximum(total, 1)))
    part = np.where(total > charged[rows], part, overlap).astype(np.int64)
    result = []
    for item, mine in zip(found, part, strict=True):
        waited = np.zeros(len(trace.devices), np.int64)
        np.add.at(waited, gaps.device[rows], mine)
        result.append(Found(replace(item.pipeline, waited=tuple(waited.tolist())), item.fetches))
    return result


def _busy_set(trace: Trace, rows: Int64) -> intervals.IntervalSet:
    host = trace.host_events
    by_start = rows[np.argsort(host.start[rows], kind="stable")]
    return intervals.union(host.start[by_start], host.end[by_start])


def _python_loaders(trace: Trace, parent: Int64, iterators: Int64, low: int, high: int) -> list[Found]:
    """Loaders that only the Python tracer shows: one stage each, by the outermost frame's name."""
    host = trace.host_events
    used, inverse = group(host.name)
    texts = [trace.strings[i] for i in used.tolist()]
    loading = np.array([_is_loader(t, bool(len(iterators))) for t in texts], np.bool_)[inverse]
    rows = np.flatnonzero(loading)
    if not len(rows):
        return []
    around = nearest_with(loading, parent)
    rows = rows[(parent[rows] < 0) | (around[np.maximum(parent[rows], 0)] < 0)]
    rows = rows[~_encloses(trace, rows, iterators)]
    found = []
    for name, index in rows_by(host.name[rows]):
        mine = rows[index]
        item = _python_loader(trace, trace.strings[name], mine, low, high)
        if item.pipeline.fetch_time >= _PYTHON_MIN_SHARE * (high - low):
            found.append(item)
    found.sort(key=lambda item: -item.pipeline.fetch_time)
    return found[:_PYTHON_MOST]


def _is_loader(text: str, has_tf_data: bool) -> bool:
    if not (text.startswith("$") or "DataLoader" in text or FRAME.match(text)):
        return False
    if has_tf_data and text.startswith(_TF_DATA_FRAMES):
        return False
    return kind_of(text) == Kind.INPUT


def _encloses(trace: Trace, rows: Int64, others: Int64) -> np.ndarray:
    """Which rows have one of the ``others`` inside them (rows are sorted by thread and start)."""
    host = trace.host_events
    last = np.empty(len(rows), np.int64)
    for thread, mine in rows_by(host.thread[rows]):
        all_rows = host.of_thread(thread)
        last[mine] = all_rows.start + np.searchsorted(host.start[all_rows], host.end[rows[mine]], side="left")
    return np.searchsorted(others, last, side="left") > np.searchsorted(others, rows, side="right")


def _python_loader(trace: Trace, name: str, rows: Int64, low: int, high: int) -> Found:
    host = trace.host_events
    start, end = np.maximum(host.start[rows], low), np.minimum(host.end[rows], high)
    busy = intervals.exact_sum(np.maximum(end - start, 0))
    begun = (host.start[rows] >= low) & (host.start[rows] < high)
    wall = intervals.measure(intervals.clip(_busy_set(trace, rows), low, high))
    threads = tuple(distinct(host.thread[rows].astype(np.int64)).tolist())
    stage = InputStage(
        name=name,
        path=name,
        role="python",
        calls=int(np.count_nonzero(begun)),
        busy=busy,
        wall=wall,
        per_element=float(np.mean(host.duration[rows[begun]])) if begun.any() else None,
        parallelism=None,
        concurrency=len(threads),
        autotuned=None,
        buffer=None,
        background=not any(_drives(trace, thread) for thread in threads),
        threads=threads,
        waited=0,
        utilization=min(busy / max(len(threads), 1) / (high - low), 1.0),
        calls_python=True,
    )
    pipeline = InputPipeline(
        source="python",
        start=low,
        end=high,
        stages=(stage,),
        limiting=0 if busy else None,
        fetches=stage.calls,
        fetch_time=busy,
        consumers=threads,
        element_bytes=None,
        prefetched=stage.background or _WORKERS in name,
        cpu_budget=None,
        cpu_share=None,
        waited=(0,) * len(trace.devices),
    )
    return Found(pipeline, rows)


def _drives(trace: Trace, thread: int) -> bool:
    """Whether a thread drives the training: it marks steps or calls the device."""
    host = trace.host_events
    rows = host.of_thread(thread)
    return bool((host.step_num[rows] >= 0).any() or (host.correlation[rows] > 0).any())
