"""What the rules read: the traces with their analyses, thresholds, and small questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from tb_gpu_doctor.analysis.filling import GridScaling
from tb_gpu_doctor.analysis.job import Encounters, Exposed, Job, Meetings, analyse_job, exposed_of_gpu
from tb_gpu_doctor.analysis.results import DeviceAccounting
from tb_gpu_doctor.analysis.trace_analysis import Mark, Outline, TraceAnalysis, outline_of
from tb_gpu_doctor.diagnosis.asking import ask
from tb_gpu_doctor.diagnosis.host_calls import HostCalls
from tb_gpu_doctor.diagnosis.model import GpuNames, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.thresholds import Thresholds
from tb_gpu_doctor.telemetry.joining import Joined
from tb_gpu_doctor.texts import has_text
from tb_gpu_doctor.traces.columns import Device, Trace

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.claims import Claim
    from tb_gpu_doctor.diagnosis.copy_loss import CopyLoss

Framework = Literal["tensorflow", "jax", "pytorch"]


@dataclass(frozen=True)
class HostProfile:
    """One file of the session, hence one clock, and what was computed from it.

    ``label`` names the host uniquely within the session. The columns of ``trace`` and ``analysis`` may be
    elsewhere: what reads them is a question (`diagnosis.asking`). ``claim`` says which idle time findings with better
    evidence have taken from ``analysis``.
    """

    label: str
    trace: Trace
    analysis: TraceAnalysis
    claim: Claim | None = None

    @cached_property
    def outline(self) -> Outline:
        """What the file holds."""
        return outline_of(self.trace, self.analysis)

    @cached_property
    def active_devices(self) -> tuple[Device, ...]:
        """The GPUs that did something."""
        rows = self.trace.device_events.rows_of_devices()
        return tuple(device for device in self.trace.devices if device.index in rows)

    @cached_property
    def _kernel_ids(self) -> dict[int, dict[str, list[int]]]:
        return {}

    def kernel_ids(self, device: int) -> dict[str, list[int]]:
        """String ids of the events of one GPU by their name."""
        if device not in self._kernel_ids:
            names = self.trace.device_events.name[self.trace.device_events.of_device(device)]
            found: dict[str, list[int]] = {}
            for ident in np.flatnonzero(np.bincount(names[names >= 0])).tolist():
                found.setdefault(self.trace.strings[ident], []).append(ident)
            self._kernel_ids[device] = found
        return self._kernel_ids[device]

    @cached_property
    def calls(self) -> HostCalls:
        """The host's events with their meaning and enclosers."""
        return HostCalls(self.trace)

    @property
    def has_gpu_work(self) -> bool:
        """Whether any GPU did anything."""
        return len(self.trace.device_events) > 0

    @cached_property
    def per_step(self) -> float | None:
        """Factor from a total over the window to the mean per step; None without complete steps."""
        steps, window = self.analysis.steps, self.analysis.window
        if not steps.count or window is None or window.length <= 0:
            return None
        if steps.source == "marked":
            return 1 / steps.count  # the window is the union of the marked complete steps
        return float(np.mean(steps.durations())) / window.length

    def ref(self, device: int) -> GpuRef:
        """The GPU at a device index."""
        return GpuRef(self.label, self.trace.devices[device].id)

    def step_number(self, device_event: int) -> int | None:
        """The recorded number of the step that a device event belongs to."""
        steps = self.analysis.steps
        if device_event < 0 or not len(steps.event_step):
            return None
        index = int(steps.event_step[device_event])
        return int(steps.number[index]) if index >= 0 else None


@dataclass(frozen=True)
class GpuAccount:
    """One active GPU's accounting together with where it comes from."""

    profile: HostProfile
    accounting: DeviceAccounting

    @property
    def ref(self) -> GpuRef:
        """The GPU."""
        return self.profile.ref(self.accounting.device)


@dataclass(frozen=True)
class Context:
    """Everything a rule may look at.

    ``telemetry`` is what a monitor recorded of the profile's GPUs; without profiles, of all GPUs. ``scaling`` says how
    grids grow with the batch, where a second profile at another batch size is at hand.
    """

    profiles: tuple[HostProfile, ...]
    thresholds: Thresholds = field(default_factory=Thresholds)
    telemetry: Joined = field(default_factory=Joined)
    known_job: Job | None = None
    scaling: tuple[GridScaling, ...] = ()

    def accounts(self) -> Iterator[GpuAccount]:
        """The accounting of every active GPU with a window."""
        for profile in self.profiles:
            active = {device.index for device in profile.active_devices}
            for accounting in profile.analysis.accounting:
                if accounting.wall > 0 and accounting.device in active:
                    yield GpuAccount(profile, accounting)

    @cached_property
    def gpu_count(self) -> int:
        """How many GPUs the profile lists."""
        return sum(len(profile.trace.devices) for profile in self.profiles)

    @cached_property
    def has_gpu_work(self) -> bool:
        """Whether any GPU did anything."""
        return any(profile.has_gpu_work for profile in self.profiles)

    @cached_property
    def job(self) -> Job:
        """All GPUs of all files together."""
        if self.known_job is not None:
            return self.known_job

        def split(found: Sequence[Encounters]) -> list[Exposed]:
            return ask(_exposed, [(self.profiles[e.which], e.device, e.meetings) for e in found])

        return analyse_job([p.trace for p in self.profiles], [p.analysis for p in self.profiles], split)

    @cached_property
    def placed(self) -> CopyLoss | None:
        """What ops on the CPU between GPU ops cost (`diagnosis.copy_loss`)."""
        from tb_gpu_doctor.diagnosis.copy_loss import placement_loss

        return placement_loss(self)

    @cached_property
    def copied(self) -> CopyLoss | None:
        """What all other copies cost."""
        from tb_gpu_doctor.diagnosis.copy_loss import transfer_loss

        return transfer_loss(self, self.placed)

    @cached_property
    def unclaimed(self) -> Context:
        """The same without idle time that findings with better evidence count (`diagnosis.claims`)."""
        from tb_gpu_doctor.diagnosis.claims import unclaimed

        return unclaimed(self)

    def names(self, gpus: Iterable[GpuRef], others: bool = False) -> GpuNames:
        """GPUs as a parameter of a phrase; ``others``: all but those that the phrase names as well."""
        return GpuNames(tuple(sorted(gpus)), self.gpu_count, len(self.profiles) > 1, others)

    def step_durations(self) -> np.ndarray:
        """Wall times of all complete steps of all hosts."""
        # Steps that only the host marked have no time on a GPU.
        parts = [profile.analysis.steps.durations() for profile in self.profiles if profile.has_gpu_work]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    @cached_property
    def median_step(self) -> float | None:
        """Median wall time of the complete steps; None without any."""
        durations = self.step_durations()
        return float(np.median(durations)) if len(durations) else None

    @cached_property
    def steps_are_inferred(self) -> bool:
        """Whether what is said per step rests on inferred steps."""
        sources = {profile.analysis.steps.source for profile in self.profiles if profile.has_gpu_work}
        return "inferred" in sources and "marked" not in sources

    def _mentions(self, mark: Mark) -> bool:
        return any(mark in profile.outline.marks for profile in self.profiles)

    @cached_property
    def framework(self) -> Framework | None:
        """What wrote the training code, as far as the profile's format and its names tell."""
        if any(profile.trace.format == "kineto" for profile in self.profiles):
            return "pytorch"
        if self._mentions("jax"):
            return "jax"
        return "tensorflow" if self._mentions("tensorflow") else None

    @cached_property
    def uses_tf_data(self) -> bool:
        """Whether the input comes from tf.data."""
        return self._mentions("tf_data")

    @cached_property
    def uses_keras(self) -> bool:
        """Whether Keras runs the training loop."""
        return self.framework == "tensorflow" and self._mentions("keras")

    def advice(self, kind: str, *ids: str) -> tuple[Phrase, ...]:
        """The advice texts of a kind, those that fit the framework.

        ``graphs@`` is ``graphs_jax`` in a JAX profile and ``graphs_tensorflow`` in a
        TensorFlow one; ``scan@jax`` is ``scan_jax``, left out of a TensorFlow profile.
        Where the profile does not tell the framework, both are given. PyTorch is always told by
        the format; ``layouts``, the same for the others, is there ``layouts_pytorch`` if that exists.
        """
        found = []
        for name in ids:
            base, mark, only = name.partition("@")
            if not mark:
                torch = self.framework == "pytorch" and has_text(f"findings.{kind}.advice.{base}_pytorch")
                found.append(f"{base}_pytorch" if torch else base)
            elif self.framework is None:
                found += [f"{base}_{framework}" for framework in ((only,) if only else ("tensorflow", "jax"))]
            elif only in ("", self.framework):
                found.append(f"{base}_{self.framework}")
        return tuple(Phrase(f"findings.{kind}.advice.{name}") for name in found)


def _exposed(profile: HostProfile, device: int, met: Meetings) -> Exposed:
    return exposed_of_gpu(profile.trace, profile.analysis, device, met)
