"""The rules, one file each. A rule looks at a `Context` and returns the findings it can prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rules import (
    dropped_events,
    empty_gpu_plane,
    idle_gpus,
    imbalance,
    input_bound,
    launch_bound,
    low_occupancy,
    no_gpu_plane,
    no_steps,
    short_profile,
    underfilled_gpu,
)

Rule = Callable[[Context], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    input_bound.check,
    launch_bound.check,
    imbalance.check,
    idle_gpus.check,
    low_occupancy.check,
    underfilled_gpu.check,
    no_gpu_plane.check,
    empty_gpu_plane.check,
    dropped_events.check,
    no_steps.check,
    short_profile.check,
)
