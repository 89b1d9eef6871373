"""What the rules read: the facts of all files, what the job adds, thresholds, and small questions about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median
from typing import Any, Literal, TypeVar

from tb_gpu_doctor.analysis.facts import FileFacts, GpuFacts
from tb_gpu_doctor.analysis.file_columns import Place
from tb_gpu_doctor.analysis.filling import GridScaling
from tb_gpu_doctor.analysis.job import Job, SharedNumber, analyse_job, perhaps_one_gpu
from tb_gpu_doctor.analysis.pipelines import Pipeline, find_pipelines
from tb_gpu_doctor.analysis.replay.what_if import WhatIf, what_if
from tb_gpu_doctor.analysis.results import DeviceAccounting
from tb_gpu_doctor.analysis.trace_analysis import Mark
from tb_gpu_doctor.diagnosis.model import Evidence, GpuNames, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.telemetry.progress import global_batch
from tb_gpu_doctor.texts import has_text

# ``cuda``: a program that shows none of the frameworks, in a recording that would.
Framework = Literal["tensorflow", "jax", "pytorch", "cuda"]
T = TypeVar("T")


def ref(file: FileFacts, device: int) -> GpuRef:
    """The GPU at a device index of a file."""
    rank = file.rank if len(file.gpus) == 1 else None
    return GpuRef(file.label, file.gpus[device].device.id, rank, file.machine if rank is not None else "")


def evidence_at(file: FileFacts, device: int | None, place: Place, what: str | Phrase | None = None) -> Evidence:
    """A place in a file as evidence.

    Args:
        file: where it is.
        device: index of the GPU, None when it is about the host.
        place: in the recording.
        what: by default the recorded name.
    """
    gpu = None if device is None else file.gpus[device].device.id
    words = place.what if what is None else what
    return Evidence(file.label, gpu, place.start, place.end, place.thread, place.step, words)


@dataclass(frozen=True, eq=False)
class Gpu:
    """One GPU of the session: its file, the file's place in the session, and the GPU's in the file."""

    file: FileFacts
    which: int
    index: int

    @property
    def facts(self) -> GpuFacts:
        """What is known of it."""
        return self.file.gpus[self.index]

    @property
    def ref(self) -> GpuRef:
        """The GPU by name."""
        return ref(self.file, self.index)


@dataclass(frozen=True, eq=False)
class WorkingGpu(Gpu):
    """A GPU that worked in its window."""

    account: DeviceAccounting


@dataclass(frozen=True, eq=False)
class Context:
    """Everything a rule may look at.

    ``telemetry`` is what a monitor recorded of the profile's GPUs; without files, of all GPUs. ``scaling`` says how
    grids grow with the batch, where a second profile at another batch size is at hand.
    """

    files: tuple[FileFacts, ...]
    thresholds: Thresholds = field(default_factory=Thresholds)
    telemetry: Joined = field(default_factory=Joined)
    scaling: tuple[GridScaling, ...] = ()
    _answers: dict[Callable[[Context], Any], Any] = field(default_factory=dict, repr=False)

    def once(self, question: Callable[[Context], T]) -> T:
        """What ``question(context)`` gives, worked out the first time that it is asked."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: T = self._answers[question]
        return answer

    @cached_property
    def what_if(self) -> WhatIf:
        """Replays of its steps."""
        return what_if(self.files, self.job)

    @cached_property
    def job(self) -> Job:
        """All GPUs of all files together."""
        return analyse_job(self.files)

    @cached_property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """Those of the job whose stages are all here."""
        return find_pipelines(self.files)

    @cached_property
    def working_gpus(self) -> tuple[WorkingGpu, ...]:
        """Every GPU that did something and has a window."""
        return tuple(
            WorkingGpu(file, which, index, gpu.account)
            for which, file in enumerate(self.files)
            for index, gpu in enumerate(file.gpus)
            if gpu.worked and gpu.account is not None and gpu.account.wall > 0
        )

    @cached_property
    def gpu_count(self) -> int:
        """How many GPUs the profile lists."""
        return sum(len(file.gpus) for file in self.files)

    @cached_property
    def has_gpu_work(self) -> bool:
        """Whether any GPU did anything."""
        return any(file.has_gpu_work for file in self.files)

    @cached_property
    def perhaps_one_gpu(self) -> tuple[SharedNumber, ...]:
        """GPUs of several processes that may be one and the same."""
        return perhaps_one_gpu(self.files)

    def names(self, gpus: Iterable[GpuRef], others: bool = False) -> GpuNames:
        """GPUs as a parameter of a phrase; ``others``: all but those that the phrase names as well."""
        # How many GPUs there are is not known where two of them may be one.
        total = 0 if self.perhaps_one_gpu else self.gpu_count
        return GpuNames(tuple(sorted(gpus)), total, len(self.files) > 1, others)

    @cached_property
    def median_step(self) -> float | None:
        """Median wall time of the complete steps of all files, picoseconds; None without any."""
        # Steps that only the host marked have no time on a GPU.
        durations = [time for file in self.files if file.has_gpu_work for time in file.steps.durations]
        return float(median(durations)) if durations else None

    @cached_property
    def batch(self) -> int | None:
        """Samples of a step over all GPUs: every process records the global batch; None where they differ."""
        found = (global_batch(recording.steps) for recording in self.telemetry.recordings)
        known = {batch for batch in found if batch is not None}
        return known.pop() if len(known) == 1 else None

    @cached_property
    def host_step(self) -> float | None:
        """Median time between the host's markers of steps, the slowest host's; the step of who sees no GPU at work."""
        return max((file.steps.pace for file in self.files if file.steps.pace is not None), default=None)

    @cached_property
    def mean_step(self) -> float | None:
        """Mean wall time of the complete steps of all files, picoseconds; None without any."""
        durations = [time for file in self.files if file.has_gpu_work for time in file.steps.durations]
        return fmean(durations) if durations else None

    def of_typical_step(self, mean_ps: float) -> float:
        """What a mean time per step is of the median step, which all times per step are shown beside.

        The two kinds of step agree where steps are alike. Where a few long ones carry most of a loss, its mean exceeds
        the whole of a typical step: then its share of the mean step is applied to the median one.
        """
        typical, mean = self.median_step, self.mean_step
        if not typical or not mean or mean_ps <= typical:
            return mean_ps
        return mean_ps * typical / mean

    @cached_property
    def steps_are_inferred(self) -> bool:
        """Whether what is said per step rests on inferred steps."""
        sources = {file.steps.source for file in self.files if file.has_gpu_work}
        return "inferred" in sources and "marked" not in sources

    def _mentions(self, mark: Mark) -> bool:
        return any(mark in file.marks for file in self.files)

    @cached_property
    def framework(self) -> Framework | None:
        """What wrote the training code, as far as the profile's format and its names tell."""
        if any(file.format == "kineto" for file in self.files):
            return "pytorch"
        if self._is_nsys:
            for mark in ("pytorch", "jax", "tensorflow"):
                if self._mentions(mark):
                    return mark
            return "cuda"
        if self._mentions("jax"):
            return "jax"
        return "tensorflow" if self._mentions("tensorflow") else None

    @cached_property
    def _is_nsys(self) -> bool:
        """Whether Nsight Systems recorded, which is told how in its own words."""
        return bool(self.files) and all(file.format == "nsys" for file in self.files)

    @cached_property
    def only_predicts(self) -> bool:
        """Whether the steps are forward passes, and nothing in the profile learns."""
        cuts = {file.steps.cut_at or "" for file in self.files if file.has_gpu_work}
        passes = all(cut.startswith("nn.Module: ") or cut in ("predict_function", "test_function") for cut in cuts)
        return bool(cuts) and (passes or self._mentions("inference")) and not self._mentions("training")

    @cached_property
    def window(self) -> int | None:
        """The longest analysed stretch of a file, picoseconds; None without any."""
        return max((file.window.length for file in self.files if file.window is not None), default=None)

    @cached_property
    def uses_tf_data(self) -> bool:
        """Whether the input comes from tf.data."""
        return self._mentions("tf_data")

    @cached_property
    def uses_keras(self) -> bool:
        """Whether Keras runs the training loop."""
        return self.framework == "tensorflow" and self._mentions("keras")

    def advice(self, kind: str, *ids: str, params: Mapping[str, Any] | None = None) -> tuple[Phrase, ...]:
        """The advice texts of a kind, those that fit the framework.

        ``graphs@`` is ``graphs_jax`` in a JAX profile and ``graphs_tensorflow`` in a
        TensorFlow one; ``scan@jax`` is ``scan_jax``, left out of a TensorFlow profile.
        Where the profile does not tell the framework, both are given. PyTorch is always told by
        the format; ``layouts``, the same for the others, is there ``layouts_pytorch`` if that exists, and
        ``layouts_cuda`` for a program without a framework. What is about recording is ``..._nsys`` for Nsight Systems.
        ``params`` fill the placeholders of all of them, such as the driver's number of a GPU in a command.
        """
        found = []
        for name in ids:
            base, mark, only = name.partition("@")
            own = self._own_words(kind, base)
            if own is not None and only in ("", self.framework):
                found.append(own)
            elif not mark:
                found.append(base)
            elif self.framework == "cuda":
                continue
            elif self.framework is None:
                found += [f"{base}_{framework}" for framework in ((only,) if only else ("tensorflow", "jax"))]
            elif only in ("", self.framework):
                found.append(f"{base}_{self.framework}")
        return tuple(Phrase(f"findings.{kind}.advice.{name}", params or {}) for name in found)

    def _own_words(self, kind: str, base: str) -> str | None:
        """The advice in the words of the recorder, else of PyTorch or of CUDA, where there is such a text."""
        own: tuple[str, ...] = ("nsys",) if self._is_nsys else ()
        own += (self.framework,) if self.framework in ("pytorch", "cuda") else ()
        return next((f"{base}_{word}" for word in own if has_text(f"findings.{kind}.advice.{base}_{word}")), None)
