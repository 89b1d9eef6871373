"""Holds one diagnosis of a simulated run against the simulator's truth."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.faults.cases import Case
from simulator.scenarios import SimulatedJob, SimulatedRun
from simulator.truth import IDLE_CAUSES, Truth
from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.device_clock import on_host_clock
from tb_gpu_doctor.analysis.facts import file_facts
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.diagnosis.engine import diagnose_files
from tb_gpu_doctor.diagnosis.model import Diagnosis, Evidence, Finding, GpuRef, Phrase
from tb_gpu_doctor.diagnosis.rule import kinds
from tb_gpu_doctor.traces.xplane import read_xplane

# A fault that costs less than this share of the run need not be found, nor be named first.
MIN_COST = 0.06
# An imbalance, and idle time of unknown cause, is reported from a tenth on; below, the doctor keeps quiet on purpose.
MIN_COST_OF = {"imbalance": 0.11, "unexplained_idle": 0.11}
# Faults whose costs are this close to the highest may stand first just as well.
NEARLY_AS_MUCH = 2 / 3
# The idle time that a fault shows as: beside another fault it may show less than it costs, or more.
_SHOWS_AS = {
    "input_bound": "input",
    "launch_bound": "launch",
    "sync_stall": "sync",
    "op_placement": "sync",
    "compile_stall": "compile",
    "checkpoint_stall": "checkpoint",
    "allocator_stall": "allocator",
    "host_bound": "host_other",
    "device_wait": "queued",
    "unexplained_idle": "no_evidence",
}
LOUD = ("warning", "critical")


@dataclass(frozen=True)
class FaultScore:
    """What became of one planted fault; None where it does not apply.

    Attributes:
        cost: share of the run's time that is gone without the fault; shown: of idle time of its kind.
        required: it cost and showed enough to be found, and a rule for it exists.
        found: a finding of the kind is there.
        gpus, cause, culprit: whether the finding names the right ones.
        saving: saving that the finding states over what the simulation without the fault saves.
    """

    kind: str
    plant: str
    cost: float
    shown: float
    required: bool
    found: bool
    gpus: bool | None = None
    cause: bool | None = None
    culprit: bool | None = None
    saving: float | None = None


@dataclass(frozen=True)
class Score:
    """One run.

    Attributes:
        top: whether the first finding is the costliest fault's; None where there is none to expect.
        alarms: kinds at warning or worse in a healthy run.
        said: kinds in the order of the diagnosis, with what it says of them.
        idle: largest difference over GPUs between found and true idle time per cause, over the window.
        idle_truth: the true shares of the causes, largest over the GPUs.
    """

    case: str
    seed: int
    verdict: str
    faults: tuple[FaultScore, ...]
    top: bool | None
    alarms: tuple[str, ...]
    said: tuple[str, ...]
    idle: Mapping[str, float] = field(default_factory=dict)
    idle_truth: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether nothing was planted."""
        return not self.faults

    @property
    def idle_error(self) -> float:
        """The worst cause's error."""
        return max(self.idle.values(), default=0.0)


def score(case: Case, seed: int) -> Score:
    """Simulates, diagnoses and compares one run."""
    started = time.perf_counter()
    run = case.run(seed)
    analyses, diagnosis = diagnosed(run)
    costs = case.costs(seed, run)
    faults = tuple(_fault(case, i, run, diagnosis, cost) for i, cost in enumerate(costs))
    found, truth = _idle(analyses, run)
    return Score(
        case.name,
        seed,
        diagnosis.verdict,
        faults,
        _top(case, faults, diagnosis),
        () if faults else tuple(finding.kind for finding in diagnosis.findings if finding.severity in LOUD),
        tuple(_summary(finding) for finding in diagnosis.findings),
        found,
        truth,
        time.perf_counter() - started,
    )


def diagnosed(run: SimulatedRun | SimulatedJob) -> tuple[list[TraceAnalysis], Diagnosis]:
    """What the doctor says of a run, by way of its files."""
    analyses, files = [], []
    with tempfile.TemporaryDirectory() as folder:
        for host in run.hosts:
            path = Path(folder) / f"{host.hostname}.xplane.pb"
            path.write_bytes(host.space.encode())
            trace = on_host_clock(read_xplane(str(path), host.hostname))
            analyses.append(analyse(trace))
            files.append(file_facts(trace, analyses[-1], host.hostname))
        return analyses, diagnose_files(files)


def _number(run: SimulatedRun | SimulatedJob, ref: GpuRef) -> int:
    """A GPU as the simulator counts them, over all hosts."""
    if not isinstance(run, SimulatedJob):
        return ref.id
    each = len(run.hosts[0].truth.gpus)
    return int(ref.host.rsplit("-", 1)[1]) * each + ref.id


def _fault(case: Case, index: int, run: SimulatedRun | SimulatedJob, diagnosis: Diagnosis, cost: float) -> FaultScore:
    fault, plant = run.truth.faults[index], case.planted[index].plant
    shown = _shown(fault.kind, cost, run, alone=len(case.planted) == 1)
    required = min(cost, shown) >= MIN_COST_OF.get(fault.kind, MIN_COST) and fault.kind in kinds()
    same = [finding for finding in diagnosis.findings if fault.kind in _told(finding)]
    # several findings of a kind differ by cause
    same.sort(key=lambda finding: fault.cause is not None and finding.cause != fault.cause)
    if not same:
        return FaultScore(fault.kind, plant.id, cost, shown, required, False)
    finding = same[0]
    steps = max(1, run.truth.steps)
    low, high = run.truth.window
    saved = cost * (high - low) / steps
    return FaultScore(
        fault.kind,
        plant.id,
        cost,
        shown,
        required,
        True,
        tuple(sorted(_number(run, ref) for ref in finding.gpus)) == fault.gpus if plant.scope != "none" else None,
        finding.cause == fault.cause if fault.cause is not None else None,
        _names(finding, fault.culprit) if fault.culprit else None,
        finding.saving_ps_per_step / saved
        if plant.timed and finding.saving_ps_per_step is not None and cost >= MIN_COST
        else None,
    )


def _shown(kind: str, cost: float, run: SimulatedRun | SimulatedJob, alone: bool) -> float:
    accounts = [host.truth.accounting(gpu.gpu) for host in run.hosts for gpu in host.truth.gpus if gpu.events]
    if kind == "transfer_bound" and not alone:
        return max(account.transfer / (account.end - account.start) for account in accounts)
    if kind not in _SHOWS_AS:
        return cost
    return max(account.idle_by_cause[_SHOWS_AS[kind]] / (account.end - account.start) for account in accounts)


def _top(case: Case, faults: tuple[FaultScore, ...], diagnosis: Diagnosis) -> bool | None:
    """Whether what costs most is named first, among the findings about the run."""
    about_run = [
        (fault, planted.plant)
        for fault, planted in zip(faults, case.planted, strict=True)
        if planted.plant.scope != "none"
    ]
    if not any(fault.required for fault, _ in about_run):
        return None
    if any(fault.kind not in kinds() for fault in faults):
        return None  # the other fault has no rule yet: nobody knows what it should push down
    timed = [fault for fault, plant in about_run if plant.timed]
    highest_cost = max((fault.cost for fault in timed), default=0.0)
    highest_shown = max((fault.shown for fault in timed), default=0.0)
    good: set[str] = set()
    for fault, plant in about_run:
        much = fault.cost >= NEARLY_AS_MUCH * highest_cost or fault.shown >= NEARLY_AS_MUCH * highest_shown
        if much or not plant.timed:
            good |= {fault.kind, *plant.also}
    first = next((finding for finding in diagnosis.findings if not finding.is_about_profile), None)
    return first is not None and not good.isdisjoint(_told(first))


def _told(finding: Finding) -> set[str]:
    """The kinds that a finding tells of: its own, and those of the findings that it took in as one story."""
    return {finding.kind, *(part.kind for part in finding.absorbed)}


def _idle(
    analyses: Sequence[TraceAnalysis], run: SimulatedRun | SimulatedJob
) -> tuple[dict[str, float], dict[str, float]]:
    errors, shares = dict.fromkeys(IDLE_CAUSES, 0.0), dict.fromkeys(IDLE_CAUSES, 0.0)
    for analysis, host in zip(analyses, run.hosts, strict=True):
        _idle_of_host(analysis, host.truth, errors, shares)
    return errors, shares


def _idle_of_host(analysis: TraceAnalysis, truth: Truth, errors: dict[str, float], shares: dict[str, float]) -> None:
    """Raises the errors and the shares to those of one host's GPUs."""
    if analysis.window is None or not truth.whole:
        return
    window = (analysis.window.start + truth.zero, analysis.window.end + truth.zero)
    for account in analysis.accounting:
        if not truth.gpus[account.device].events:
            continue
        true = truth.accounting(account.device, window).idle_by_cause
        for cause, found in zip(IDLE_CAUSES, account.idle_by_cause, strict=True):
            errors[cause] = max(errors[cause], abs(found - true[cause]) / account.wall)
            shares[cause] = max(shares[cause], true[cause] / account.wall)


def _summary(finding: Finding) -> str:
    share = "" if finding.share is None else f" {finding.share:.0%}"
    cause = "" if finding.cause is None else f" ({finding.cause})"
    return f"{finding.kind}{cause}{share} on {','.join(map(_short, finding.gpus)) or '-'} [{finding.severity}]"


def _short(ref: GpuRef) -> str:
    host = ref.host.rsplit("-", 1)[-1]
    return f"{host}:{ref.id}" if host != "0" else str(ref.id)


def _names(finding: Finding, culprit: str) -> bool:
    return any(part in text for text in _texts(finding) for part in culprit.split("|"))


def _texts(finding: Finding) -> Iterator[str]:
    for phrase in (finding.title, *finding.explanation, *finding.advice):
        yield from _params(phrase)
    for evidence in finding.evidence:
        yield from _evidence(evidence)


def _evidence(evidence: Evidence) -> Iterator[str]:
    yield evidence.thread or ""
    if isinstance(evidence.what, Phrase):
        yield from _params(evidence.what)
    else:
        yield evidence.what


def _params(phrase: Phrase) -> Iterator[str]:
    for value in phrase.params.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (str(item) for item in value)
        elif isinstance(value, Phrase):
            yield value.key
            yield from _params(value)
