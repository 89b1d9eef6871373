"""Numbers that decide whether something is reported, and how loudly: those that several rules share.

What a single rule has to itself stands in the rule's file; `Thresholds.of` collects them. Shares are fractions. Where
a value comes from the field it says so; the others were tuned so that a healthy run stays clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.diagnosis.rule import rule_of


@dataclass(frozen=True)
class Thresholds:
    """The thresholds in force; pass others to the engine to be stricter or laxer.

    Attributes:
        changed: by kind, what is to hold in place of a rule's own thresholds:
            ``Thresholds({"input_bound": input_bound.Limits(warning=0.1)})``.
    """

    changed: Mapping[str, object] = field(default_factory=dict)

    # How many places a finding points at.
    max_evidence: int = 12

    # A kernel counts from this share of its GPU's kernel time on.
    kernel_min_share: float = 0.01
    # A step counts as one that was stopped (by saving, by compiling) from this part of its length on.
    stopped_step: float = 0.01
    # Complete steps, marked or inferred, below which a profile is too short to judge by.
    min_complete_steps: int = 3

    # What part of the GPUs' time may be neither computing nor told by a finding that asks for a change: above it
    # nobody can say that the run is well.
    untold: float = 0.10

    # Launching too slowly beside a cause that empties the queue: up to this part of that cause's loss,
    # and with this part of it in the same steps, it is that cause's consequence.
    follows_loss: float = 1 / 3
    follows_steps: float = 0.80

    # Telemetry. A sample of NVML counts as busy from this utilization on, in percent; with fewer busy samples
    # than this nothing is said.
    telemetry_busy_percent: float = 10.0
    telemetry_min_samples: int = 20
    # Slowed down by heat, or by power, of the time in which the GPU worked.
    throttle_warning: float = 0.05
    throttle_critical: float = 0.20
    # A GPU is slower than its peers if its clock is below this part of theirs (boost clocks of equal GPUs differ by
    # one or two percent).
    unequal_clock: float = 0.95

    def of(self, kind: str) -> Any:
        """The thresholds that one rule has to itself: its ``Limits``."""
        return self.changed.get(kind, rule_of(kind).thresholds)
