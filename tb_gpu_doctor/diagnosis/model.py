"""What a diagnosis is made of: frozen, typed and free of any language.

Times are picoseconds on the clock of the host they belong to. Sentences are `Phrase`
objects, that is catalogue keys with parameters; the report turns them into words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tb_gpu_doctor.analysis.replay.what_if import WhatIf
from tb_gpu_doctor.diagnosis.rule import rule_of
from tb_gpu_doctor.phrase import Phrase as Phrase

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.results import StepSource
    from tb_gpu_doctor.diagnosis.rule import Rule
    from tb_gpu_doctor.diagnosis.telemetry_report import TelemetryReport

Severity = Literal["critical", "warning", "info"]
Verdict = Literal["critical", "warning", "ok", "cannot_tell"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")


@dataclass(frozen=True, order=True)
class GpuRef:
    """One GPU of the profile: host label and the device's number on that host.

    Attributes:
        host: label of the file that it is recorded in.
        id: its number there.
        rank: what people call it by, where its process has one and this GPU alone; it tells no two apart.
        machine: the host that the process ran on, beside its rank.
    """

    host: str
    id: int
    rank: int | None = field(default=None, compare=False)
    machine: str = field(default="", compare=False)


@dataclass(frozen=True)
class GpuNames:
    """GPUs as a parameter of a `Phrase` (placeholder kind ``gpus``).

    Attributes:
        refs: the GPUs meant.
        total: how many the profile has, so that all of them can be called so.
        show_host: whether the host must be named to tell them apart.
        others: whether they are all GPUs but those named beside them, so that many can be called so.
    """

    refs: tuple[GpuRef, ...]
    total: int
    show_host: bool
    others: bool = False

    def __len__(self) -> int:
        return len(self.refs)


@dataclass(frozen=True)
class Evidence:
    """One place in the recording where a finding can be seen.

    Attributes:
        host: host label.
        gpu: device number, None when it is about the host.
        start, end: picoseconds on the host's clock.
        thread: host thread to look at.
        step: step number as recorded.
        what: a recorded name as it is, or a phrase.
    """

    host: str
    gpu: int | None
    start: int
    end: int
    thread: str | None
    step: int | None
    what: str | Phrase


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: stable id (``input_bound``, ...).
        gpus: the culprits, never the victims.
        victims: GPUs that lose time although nothing is wrong with them.
        cause: the imbalance's cause, what grew in the outlying steps, the occupancy limiter, why GPU data is
            missing; None when unknown.
        share: time lost to it over the window, mean over ``gpus``; None for kinds without a time.
        saving_ps_per_step: what a step would gain at most; None when it cannot be told.
        explanation: sentences in order.
        advice: what to do, the most useful first.
        absorbed: findings that are told as a part of this one and not by themselves.
    """

    kind: str
    severity: Severity
    title: Phrase
    explanation: tuple[Phrase, ...]
    advice: tuple[Phrase, ...]
    gpus: tuple[GpuRef, ...] = ()
    victims: tuple[GpuRef, ...] = ()
    cause: str | None = None
    share: float | None = None
    saving_ps_per_step: float | None = None
    evidence: tuple[Evidence, ...] = ()
    absorbed: tuple[Finding, ...] = ()

    @property
    def docs(self) -> str:
        """Name of the documentation page."""
        return f"findings/{self.kind}"

    @property
    def rule(self) -> Rule:
        """What the rule that found it declares of its kind."""
        return rule_of(self.kind)

    @property
    def check(self) -> Phrase:
        """How to see whether the advice helped."""
        return Phrase(f"findings.{self.kind}.check")

    @property
    def is_about_profile(self) -> bool:
        """Whether it says what the profile lacks rather than what is wrong with the run."""
        return self.rule.about == "profile"


@dataclass(frozen=True)
class GpuReport:
    """Where one GPU's window went; None where it cannot be told. The four parts sum to ``wall``."""

    gpu: GpuRef
    name: str | None
    wall: int | None
    compute: int | None
    communication: int | None
    communication_wait: int | None
    transfer: int | None
    idle: int | None
    idle_by_cause: tuple[int, ...] | None
    occupancy: float | None
    rank: int | None = None
    achieved_occupancy: float | None = None
    sm_efficiency: float | None = None


@dataclass(frozen=True)
class KernelReport:
    """One kernel over all GPUs; ``occupancy`` (0..1) is weighted by time where it is known.

    ``family`` and ``tensor_cores`` are those of `analysis.kernel_results.KernelRow`.
    """

    name: str
    calls: int
    total: int
    occupancy: float | None
    limiter: str | None
    family: str | None = None
    tensor_cores: str | None = None


@dataclass(frozen=True)
class StepsReport:
    """The steps of the profile.

    Attributes:
        count: complete ones; marked ones where no GPU worked.
        source: see `Steps`.
        median: picoseconds, None without complete steps.
        samples: of one step over all GPUs, None where no monitor recorded it.
    """

    count: int
    source: StepSource
    median: float | None
    samples: int | None = None

    @property
    def samples_per_s(self) -> float | None:
        """How many samples the median step makes a second."""
        return None if self.samples is None or not self.median else self.samples * 1e12 / self.median


@dataclass(frozen=True)
class Diagnosis:
    """The result of the whole pipeline for one session.

    Attributes:
        verdict: the worst severity found, ``ok``, or ``cannot_tell``.
        reasons: why the verdict is ``cannot_tell``, otherwise empty.
        run, session: which profile, as TensorBoard names it.
        hosts: labels of the hosts that could be read.
        window: longest analysed window over the hosts, None without GPU data.
        recorded: longest recording over the hosts, None when the files do not say.
        warnings: a recorded sentence as it is, or a phrase.
        kernels: longest total first.
        findings: most expensive first.
        telemetry: what was recorded beside it, None where nothing was.
        incomplete: which files of the session could not be read, None where all could; also one of the
            reasons.
        what_if: replays of its steps; None of telemetry alone.
    """

    verdict: Verdict
    reasons: tuple[Phrase, ...]
    run: str
    session: str
    format: str
    hosts: tuple[str, ...]
    window: int | None
    recorded: int | None
    warnings: tuple[str | Phrase, ...]
    gpus: tuple[GpuReport, ...]
    steps: StepsReport
    kernels: tuple[KernelReport, ...]
    findings: tuple[Finding, ...]
    telemetry: TelemetryReport | None = None
    incomplete: Phrase | None = None
    what_if: WhatIf | None = None
