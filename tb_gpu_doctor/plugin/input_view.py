"""The answer of ``input``: the pipelines that make the training's batches, stage by stage, and who waited for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage, parent_path
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.diagnosis.input_advice import host_is_full, sets_pace
from tb_gpu_doctor.plugin.timeline import MAX_NAME_CHARS, Timeline, shorten
from tb_gpu_doctor.traces.columns import PS_PER_MS, Trace

# More than this nobody looks at, and answers stay bounded whatever a file holds.
MAX_PIPELINES = 32
MAX_STAGES = 2_000
MAX_THREADS = 8


def input_answer(
    traces: Sequence[Trace], analyses: Sequence[TraceAnalysis], hosts: Sequence[str], timeline: Timeline
) -> dict[str, Any]:
    """The answer of ``input``.

    Args:
        traces: of the session.
        analyses: of the same traces.
        hosts: label of each.
        timeline: whose lanes and clocks the answer refers to.
    """
    found = [(file, pipeline) for file, analysis in enumerate(analyses) for pipeline in analysis.pipelines]
    found.sort(key=lambda item: (-sum(item[1].waited), -item[1].fetch_time))  # stable: then the busiest, as analysed
    shown: list[dict[str, Any]] = []
    stages = 0
    for file, pipeline in found[:MAX_PIPELINES]:
        stages += len(pipeline.stages)
        if shown and stages > MAX_STAGES:
            break
        shown.append(_pipeline(traces[file], file, pipeline, hosts[file], timeline))
    return {"gpus": _gpus(analyses, timeline), "pipelines": shown, "truncated": len(shown) < len(found)}


def _gpus(analyses: Sequence[TraceAnalysis], timeline: Timeline) -> list[dict[str, Any]]:
    """How long each GPU had nothing to do because no batch was ready."""
    gpus = []
    for lane, source in enumerate(timeline.sources):
        accounts = {account.device: account for account in analyses[source.trace].accounting}
        account = accounts.get(source.device.index)
        gpus.append(
            {
                "lane": lane,
                "host": source.host,
                "gpu": source.device.id,
                "wall_ms": None if account is None else account.wall / PS_PER_MS,
                "input_ms": None if account is None else account.idle_of(Cause.INPUT) / PS_PER_MS,
            }
        )
    return gpus


def _pipeline(trace: Trace, file: int, pipeline: InputPipeline, host: str, timeline: Timeline) -> dict[str, Any]:
    lanes = {source.device.index: lane for lane, source in enumerate(timeline.sources) if source.trace == file}
    shift = timeline.shifts[file].offset
    slowest = pipeline.slowest
    takers = takers_of(pipeline.stages)
    return {
        "host": host,
        "source": pipeline.source,
        "start_ps": pipeline.start + shift,
        "end_ps": pipeline.end + shift,
        "limiting": pipeline.limiting,
        "sets_pace": None if slowest is None else sets_pace(slowest),
        "fetches": pipeline.fetches,
        "fetch_ms": pipeline.fetch_time / PS_PER_MS,
        "consumers": _threads(trace, pipeline.consumers),
        "element_bytes": pipeline.element_bytes,
        "prefetched": pipeline.prefetched,
        "cpu_budget": pipeline.cpu_budget,
        "cpu_share": pipeline.cpu_share,
        "cpu_full": host_is_full(pipeline),
        "waited": [
            {"lane": lanes[device], "ms": time / PS_PER_MS}
            for device, time in enumerate(pipeline.waited)
            if device in lanes
        ],
        "stages": [_stage(trace, stage, takers[index]) for index, stage in enumerate(pipeline.stages)],
    }


def _stage(trace: Trace, stage: InputStage, taken_by: list[int]) -> dict[str, Any]:
    return {
        "name": shorten(stage.name, MAX_NAME_CHARS),
        "taken_by": taken_by,
        "role": stage.role,
        "calls": stage.calls,
        "busy_ms": stage.busy / PS_PER_MS,
        "wall_ms": stage.wall / PS_PER_MS,
        "per_element_ms": None if stage.per_element is None else stage.per_element / PS_PER_MS,
        "parallelism": stage.parallelism,
        "concurrency": stage.concurrency,
        "autotuned": stage.autotuned,
        "buffer": stage.buffer,
        "background": stage.background,
        "threads": _threads(trace, stage.threads),
        "thread_count": len(stage.threads),
        "waited_ms": stage.waited / PS_PER_MS,
        "utilization": stage.utilization,
        "calls_python": stage.calls_python,
    }


def takers_of(stages: Sequence[InputStage]) -> list[list[int]]:
    """For each stage the indices of those that take its elements; none: the training takes them.

    The stages that feed single GPUs come first, and take from the first stage of the pipeline behind them.
    """
    latest: dict[tuple[str, ...], int] = {}
    feeds: list[int] = []
    takers: list[list[int]] = []
    for index, stage in enumerate(stages):
        path = tuple(stage.path.split("::"))
        over = parent_path(path)
        if over:
            # Stages of one path can repeat, each followed by its own: the latest one is meant.
            takers.append([latest[over]] if over in latest else [])
        else:
            takers.append(list(feeds) if stage.role != "feed" and _after_feeds(stages, index, feeds) else [])
        latest[path] = index
        if stage.role == "feed":
            feeds.append(index)
    return takers


def _after_feeds(stages: Sequence[InputStage], index: int, feeds: Sequence[int]) -> bool:
    """Whether all stages that feed a GPU stand in front of this one, which begins a path of its own."""
    return bool(feeds) and not any(stage.role == "feed" for stage in stages[index:])


def _threads(trace: Trace, threads: Sequence[int]) -> list[str]:
    return [shorten(trace.threads[thread].name, MAX_NAME_CHARS) for thread in threads[:MAX_THREADS]]
