"""What a rule declares of itself: everything that the rest of the program has to know of its kind of finding.

Each file of `diagnosis.rules` holds one `RULE`. Lists of kinds are never written down elsewhere: the order of the
findings, what a finding costs in words, what a profile could not show and which findings make two runs incomparable
all follow from these declarations. `rules` finds them: a file dropped into the package is a rule, a file taken away
is none.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tb_gpu_doctor.analysis.results import Cause

if TYPE_CHECKING:
    from tb_gpu_doctor.diagnosis.context import Context
    from tb_gpu_doctor.diagnosis.model import Finding


PACKAGE = "tb_gpu_doctor.diagnosis.rules"
# What a finding is about: the training run, the profile that shows it, or the GPUs as telemetry saw them.
About = Literal["run", "profile", "telemetry"]
# What its share of the window is: time lost to it, time spent in it, or nothing that it costs.
Cost = Literal["lost", "spent", "none"]
# What the times of a profile with it are, compared with those of a run that nobody profiled.
Distortion = Literal["nothing", "times", "longer"]
Fact = Literal[
    "gpus",  # which GPUs there are, and how long each was busy
    "recording",  # what the file says of itself: its length, its warnings, what it lost
    "steps",  # borders of the steps, and what each cost
    "many_steps",  # so many complete steps that one of them can stand out
    "idle_causes",  # idle time by cause
    "host_events",  # what the host's threads did
    "input_pipelines",  # stages and workers of the input
    "launches",  # launch calls, and how far ahead of the GPU they were
    "copies",  # copies and memsets with their bytes
    "collectives",  # who entered a collective when, over all files
    "clocks",  # how far the files' clocks are apart
    "streams",  # which kernels of several streams overlapped
    "kernels",  # the table of kernels
    "occupancy",  # warps per multiprocessor of each kernel
    "multiprocessors",  # how many multiprocessors the GPU has, so how many a grid fills
    "tensor_cores",  # which kernels work on tensor cores
    "allocators",  # what the framework's allocators needed
    "telemetry",  # what a monitor recorded beside training
]


@dataclass(frozen=True)
class Rule:
    """One kind of finding.

    Attributes:
        kind: stable id; also the name of its file, its texts and its page.
        order: where it stands among the rules; findings that cost the same stand in this order.
        about: what its findings are about.
        cost: what the share of its findings is.
        reads: the facts that it looks at.
        check: from a context to the findings that it proves.
        needs: those of ``reads`` without one of which a profile cannot show the finding, however the run went.
        thresholds: a frozen dataclass of what it has to itself; None where it has none. `Thresholds.of` gives the one
            in force.
        idle_cause: the cause whose idle time its findings count.
        tells: the parts of a GPU's window (`communication`, `transfer`, causes of idle time) that its findings account
            for, where they are more than that cause.
        of_kernels: it judges kernels that run, and not time in which none does: its share is one of kernel time, and
            it stands behind what makes a step longer.
        remarks_last: its mere remarks tell of what is slow by design, and stand behind those that ask for a change.
        inflated_by_profiler: it counts time of the host, which a profiler makes longer.
        beside_profile: whether it also speaks where there is a profile, which may know better.
        proves_no_health: a profile with such a finding is no proof that nothing is wrong.
        distorts: what such a finding says of the times in the profile.
        metrics: ids of `tb_gpu_doctor.metrics` that a GPU's telemetry must hold for the rule to judge it; ``steps`` are
            the process's training steps, ``ranks`` those of several processes, ``memory`` a need that somebody
            counted, ``work`` enough busy samples.
    """

    kind: str
    order: int
    about: About
    cost: Cost
    reads: tuple[Fact, ...]
    check: Callable[[Context], Iterable[Finding]]
    needs: tuple[Fact, ...] = ()
    thresholds: object = None
    idle_cause: Cause | None = None
    tells: tuple[str, ...] = ()
    of_kernels: bool = False
    remarks_last: bool = False
    inflated_by_profiler: bool = False
    beside_profile: bool = True
    proves_no_health: bool = False
    distorts: Distortion = "nothing"
    metrics: tuple[str, ...] = ()

    @property
    def told_parts(self) -> tuple[str, ...]:
        """The parts of a GPU's window that its findings account for."""
        return self.tells or (() if self.idle_cause is None else (self.idle_cause.id,))

    @property
    def lengthens_steps(self) -> bool:
        """Whether mending it makes steps shorter; such findings come first, by what that saves."""
        return self.about == "run" and not self.of_kernels


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """The rules in their declared order, that of their names where two declare the same place."""
    package = import_module(PACKAGE)
    modules = [import_module(f"{PACKAGE}.{entry.name}") for entry in pkgutil.iter_modules(package.__path__)]
    found: list[Rule] = [module.RULE for module in modules]
    return tuple(sorted(found, key=lambda rule: (rule.order, rule.kind)))


@lru_cache(maxsize=1)
def _by_kind() -> dict[str, Rule]:
    return {rule.kind: rule for rule in rules()}


def rule_of(kind: str) -> Rule:
    """The rule that finds a kind; KeyError where there is none."""
    return _by_kind()[kind]


@lru_cache
def kinds(about: About | None = None) -> frozenset[str]:
    """Every kind of finding, or those about the run, the profile or the telemetry alone."""
    return frozenset(rule.kind for rule in rules() if about in (None, rule.about))
