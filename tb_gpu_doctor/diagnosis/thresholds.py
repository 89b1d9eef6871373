"""Every number that decides whether something is reported, and how loudly.

Shares are fractions. Where a value comes from the field it says so; the others were
tuned so that a healthy run stays clean.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """The table of thresholds; pass another one to the engine to be stricter or laxer."""

    # Waiting for input, of a GPU's window (xprof: 5 / 20 % of the step).
    input_warning: float = 0.05
    input_critical: float = 0.20

    # Waiting for the host to launch, of a GPU's window (xprof: 3 / 15 % of the step).
    launch_warning: float = 0.03
    launch_critical: float = 0.15
    # A launch-bound GPU waits again and again; a few pauses are another illness.
    launch_min_gaps: int = 8
    # With half of the loss in fewer pauses than this, single calls are to blame, not a habit.
    launch_spread_gaps: int = 5

    # Idle for whatever reason, of a GPU's window. No finding by itself: from here on, with most of
    # it unexplained or with no finding that covers it, nobody can say that the run is well.
    idle_critical: float = 0.40
    # What part of the idle time must be without evidence to say so.
    idle_unexplained: float = 0.50

    # Waiting for GPUs that come late, of the step.
    imbalance_warning: float = 0.10
    imbalance_critical: float = 0.20
    # In how many of the steps the same GPUs must be late, and how many there must be.
    imbalance_persistence: float = 2 / 3
    imbalance_min_units: int = 3
    # How likely noise alone may show as much lateness; above it nothing is said.
    imbalance_max_chance: float = 0.01

    # GPUs without any work, of the profile's GPUs: a warning from one on.
    idle_gpus_critical: float = 0.40

    # A kernel counts from this share of its GPU's kernel time on.
    kernel_min_share: float = 0.01
    # Theoretical occupancy below which a kernel is named.
    occupancy_low: float = 0.25
    # Time in such kernels, of the window: below it a remark, from it on a warning.
    occupancy_warning: float = 0.05
    # Time lost in kernels with fewer blocks than SMs (time x empty share of the chip), of the window.
    underfilled_info: float = 0.02
    underfilled_warning: float = 0.10

    # Complete marked steps below which a profile is too short to judge by.
    min_complete_steps: int = 3
    # What part of the recording the window must cover.
    min_window_coverage: float = 0.50

    # How many places a finding points at.
    max_evidence: int = 12
