"""What planting a fault means: a change of the setup, and what a diagnosis should then say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from simulator.faults.setup import Setup, Style
from simulator.truth import Fault

Shape = Literal["large", "tiny", "forked"]
# What a fault adds to the step, as a share of the step that it makes.
STRENGTHS = {"mild": 0.13, "medium": 0.27, "strong": 0.5}


@dataclass(frozen=True)
class Plant:
    """A way in which a fault comes about.

    Attributes:
        kind: of the finding; ``name`` tells the ways apart.
        apply: (setup, share of the step that it costs) to the setup with the fault.
        styles: where it occurs.
        cause, culprit: as in `simulator.truth.Fault`.
        shape: the model that it needs.
        scope: whether the finding names all GPUs, one (the setup's target), those of its host, those with
            even numbers, those unused, nobody in particular, or none, as it is about the profile.
        also: kinds that are just as true of it.
        timed: whether its cost shows as a longer step; otherwise it is the share that was asked for.
    """

    kind: str
    name: str
    apply: Callable[[Setup, float], Setup]
    styles: tuple[Style, ...] = ("keras", "jax")
    cause: str | None = None
    culprit: str = ""
    shape: Shape = "large"
    scope: Literal["all", "target", "host", "even", "unused", "nobody", "none"] = "all"
    timed: bool = True
    min_gpus: int = 1
    max_gpus: int = 8
    steps: int = 6
    also: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """``kind.name``."""
        return f"{self.kind}.{self.name}"

    def fault(self, setup: Setup) -> Fault:
        """The truth about it."""
        gpus = {
            "all": setup.all_gpus,
            "target": (setup.target,),
            "host": setup.on_host(setup.target // setup.gpus_of_host),
            "even": tuple(range(0, setup.gpus, 2)),
            "unused": tuple(range(setup.gpus, setup.gpus + setup.unused)),
            "nobody": (),
            "none": (),
        }[self.scope]
        return Fault(self.kind, gpus, self.cause, self.culprit)


def extra_us(setup: Setup, share: float) -> float:
    """Microseconds that make ``share`` of a step when they are added to it."""
    return setup.step_us * share / (1 - share)


def longer_us(setup: Setup, share: float) -> float:
    """A period beside which the step's compute leaves ``share`` of the time."""
    return setup.step_us / (1 - share)


def backlog_us(setup: Setup) -> float:
    """How much work the GPU typically has left when Python turns to something else."""
    return setup.step_us * {"keras": 1.3, "jax": 1.8}.get(setup.style, 2.2)


def slowed(setup: Setup, factor: float) -> Setup:
    """The target GPU made slower."""
    return replace(setup, slow={**setup.slow, setup.target: factor})
