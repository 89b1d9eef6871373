"""What an input pipeline's slowest stage says: which it is, how slow, and what to change about it."""

from __future__ import annotations

from collections.abc import Sequence

from tb_gpu_doctor.analysis.facts import PipelineFacts
from tb_gpu_doctor.analysis.input_stages import InputPipeline, InputStage
from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.diagnosis.context import WorkingGpu
from tb_gpu_doctor.diagnosis.model import Phrase

_STAGE = "findings.input_bound.stage"
_ADVICE = "findings.input_bound.advice"
# From this share of tf.data's cores on the host is full: more parallelism gives nothing.
FULL_HOST = 0.85
# A stage that works ahead in the background and less than this sets no pace: somebody else does.
LEAST_BUSY = 0.25
# A pipeline is to blame if GPUs waited for it during this part of their idle time by input.
LEAST_BLAME = 0.25


def blamed_pipeline(gpus: Sequence[WorkingGpu]) -> PipelineFacts | None:
    """The pipeline that the given GPUs waited for most; None when none explains enough.

    A pipeline runs on one host: it must explain a part of what that host's GPUs lost.
    """
    hosts: dict[int, list[WorkingGpu]] = {}
    for gpu in gpus:
        hosts.setdefault(gpu.which, []).append(gpu)
    best: PipelineFacts | None = None
    most = 0
    for mine in hosts.values():
        lost = sum(gpu.account.idle_of(Cause.INPUT) for gpu in mine)
        for known in mine[0].file.pipelines:
            waited = sum(known.pipeline.waited[gpu.index] for gpu in mine)
            if waited > most and waited >= LEAST_BLAME * lost:
                best, most = known, waited
    return best


def describe(known: PipelineFacts) -> tuple[Phrase, ...]:
    """The slowest stage in words; empty where nothing tells."""
    pipeline, stage = known.pipeline, known.pipeline.slowest
    if stage is None or not sets_pace(stage):
        return ()
    found = [Phrase(f"{_STAGE}.{_manner(pipeline, stage)}", _facts(known, stage))]
    if stage.calls_python and pipeline.source == "tf_data":
        found.append(Phrase(f"{_STAGE}.calls_python"))
    if pipeline.fetches and pipeline.source == "tf_data":
        fetch = {"fetch": pipeline.fetch_time / pipeline.fetches, "bytes": pipeline.element_bytes}
        found.append(Phrase(f"{_STAGE}.{'fetch' if pipeline.element_bytes is None else 'fetch_bytes'}", fetch))
    if not pipeline.prefetched:
        found.append(Phrase(f"{_STAGE}.no_prefetch"))
    elif (buffer := _buffer_before(pipeline, stage)) is not None:
        found.append(Phrase(f"{_STAGE}.buffer", {"buffer": buffer, "stage": stage.name}))
    if host_is_full(pipeline):
        found.append(Phrase(f"{_STAGE}.cpu_full", {"used": pipeline.cpu_share, "cores": pipeline.cpu_budget}))
    return tuple(found)


def advise(known: PipelineFacts) -> tuple[Phrase, ...]:
    """What to change about a tf.data pipeline, the most useful first; empty where nothing tells."""
    pipeline, stage = known.pipeline, known.pipeline.slowest
    if stage is None or pipeline.source != "tf_data" or not sets_pace(stage):
        return ()
    ids = []
    if not pipeline.prefetched:
        ids.append("prefetch_tf_data")
    ids.append(_remedy(pipeline, stage))
    if host_is_full(pipeline) and not stage.calls_python:
        ids.append("data_service")
    if stage.role in ("map", "read", "python"):
        ids.append("cache_tf_data")
    facts = _facts(known, stage)
    return tuple(Phrase(f"{_ADVICE}.{name}", facts) for name in (*ids, "measure_tf_data"))


def sets_pace(stage: InputStage) -> bool:
    """Whether a pipeline's slowest stage holds up anybody: one that works ahead and mostly rests does not."""
    return not stage.background or stage.utilization >= LEAST_BUSY


def host_is_full(pipeline: InputPipeline) -> bool:
    """Whether the cores that tf.data may use had hardly any time left."""
    return pipeline.cpu_share is not None and pipeline.cpu_share >= FULL_HOST


def _manner(pipeline: InputPipeline, stage: InputStage) -> str:
    if stage.per_element is None:
        return "unseen"
    if pipeline.source == "python":
        return "loader"
    if stage.autotuned:
        return "autotuned"
    if stage.parallelism is not None and stage.autotuned is False:
        return "fixed"
    return "seen" if stage.background else "serial"


def _remedy(pipeline: InputPipeline, stage: InputStage) -> str:
    """The advice for a kind of stage."""
    if stage.role == "python":
        return "generator"
    if stage.calls_python:
        return "python_map"
    if stage.role == "map":
        at_its_limit = stage.autotuned or host_is_full(pipeline) or stage.at_once >= (pipeline.cpu_budget or 1 << 30)
        return "cheaper_map" if at_its_limit else "stage_map"
    by_role = {"read": "stage_read", "batch": "stage_batch", "shuffle": "stage_shuffle", "remote": "remote_workers"}
    return by_role.get(stage.role, "parallel_map_tf_data")


def _buffer_before(pipeline: InputPipeline, stage: InputStage) -> int | None:
    """Elements that the nearest prefetch between a stage and its consumer keeps ready."""
    above = [s for s in pipeline.stages[: pipeline.stages.index(stage)] if s.role == "prefetch" and s.buffer]
    near = [s for s in above if stage.path.startswith(s.path + "::")] or above
    return near[-1].buffer if near else None


def _facts(known: PipelineFacts, stage: InputStage) -> dict[str, object]:
    return {
        "stage": stage.name,
        "per_element": stage.per_element,
        "at_once": stage.at_once,
        "used": stage.utilization,
        "thread": known.slowest_thread,
    }
