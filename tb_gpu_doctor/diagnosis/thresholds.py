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

    # Idle because the host waited for the GPU and then had to start anew, of a GPU's window.
    sync_warning: float = 0.05
    sync_critical: float = 0.15
    # One value read at the end is no habit; and this part of the loss must follow a recorded wait.
    sync_min_gaps: int = 3
    sync_min_located: float = 0.50

    # Copies that nothing hides, and idle time during blocking copy calls, of a GPU's window (xprof: output 5 / 20 %).
    transfer_warning: float = 0.05
    transfer_critical: float = 0.15
    # Without the step that loses most, the others must still lose this part of the first of these.
    transfer_recurs: float = 0.50

    # Idle for ops on the CPU between GPU ops, their copies included, of a GPU's window.
    placement_warning: float = 0.03
    placement_critical: float = 0.15

    # Idle because launching slows down while input workers run, of a GPU's window.
    contention_warning: float = 0.05
    contention_critical: float = 0.15
    # By how much the same calls must take longer beside many workers than beside few.
    contention_slowdown: float = 2.0

    # Idle while something is compiled or traced, of a GPU's window: in steady state there is none.
    compile_warning: float = 0.02
    compile_critical: float = 0.10

    # Idle while weights or summaries are saved, of a GPU's window: now and then that must be.
    checkpoint_warning: float = 0.03
    checkpoint_critical: float = 0.15
    # A step counts as one that was stopped (by saving, by compiling) from this part of its length on.
    stopped_step: float = 0.01

    # A step stands out from this many scaled median deviations above the median on (1.4826 makes the
    # deviation that of a normal distribution), if it also is this much longer than the median.
    outlier_deviations: float = 3.5
    outlier_ratio: float = 1.25
    # Fewer steps have no scatter to stand out of; inferred ones must nearly all look alike.
    outlier_min_steps: int = 8
    outlier_min_confidence: float = 0.90
    # What they take longer than the median step, of all steps' time.
    outliers_warning: float = 0.03
    outliers_critical: float = 0.15

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
    # Or, of at least so many steps or collectives, in how many of them when they take turns.
    imbalance_often: float = 0.20
    imbalance_often_units: int = 20
    # What part of the lateness a cause must explain to be named.
    imbalance_explained: float = 0.80
    # How likely noise alone may show as much lateness; above it nothing is said.
    imbalance_max_chance: float = 0.01

    # Moving data between GPUs while nothing is computed, waiting for late ones not counted, of a GPU's window.
    communication_warning: float = 0.10
    communication_critical: float = 0.30

    # GPUs without any work, of the profile's GPUs: a warning from one on.
    idle_gpus_critical: float = 0.40
    # Busy for less than this part of what a GPU of the job usually is, one did next to nothing.
    idle_gpus_nearly: float = 0.02

    # A kernel counts from this share of its GPU's kernel time on.
    kernel_min_share: float = 0.01
    # Theoretical occupancy below which a kernel is named.
    occupancy_low: float = 0.25
    # Time in such kernels, of the window: below it a remark, from it on a warning.
    occupancy_warning: float = 0.05
    # Time lost in kernels with fewer blocks than SMs (time x empty share of the chip), of the window.
    underfilled_info: float = 0.02
    underfilled_warning: float = 0.10

    # Products of matrices and convolutions on a GPU with tensor cores that do not use them, of the window.
    tensor_cores_info: float = 0.05
    tensor_cores_warning: float = 0.20
    # Products whose names do not tell are mentioned from this part of the products' time on.
    tensor_cores_unknown: float = 0.20

    # Inferred steps of which fewer look alike are to be taken with care.
    inferred_sure: float = 0.90

    # Complete steps, marked or inferred, below which a profile is too short to judge by.
    min_complete_steps: int = 3
    # Streams whose kernels never overlap: how many kernels must have waited for another stream's, on how
    # many streams at least; or how many of those that waited must have been launched before it.
    serialized_handovers: int = 20
    serialized_streams: int = 3
    serialized_reversed: int = 5

    # What part of the recording the window must cover.
    min_window_coverage: float = 0.50

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
    # Need of memory, of what there is: up to the first the batch could grow, from the second on an allocation
    # may fail. A grown batch must leave this part of the memory free for fragments and libraries.
    memory_low: float = 0.60
    memory_high: float = 0.95
    memory_spare: float = 0.10
    # Memory that grows is a leak worth a warning if this part of the memory has gone since warm-up, or if it will
    # all be gone within this many times the time already recorded.
    leak_grown: float = 0.05
    leak_soon: float = 10.0
    # Mean utilization, without a profile: from so much idle time on it pays to look for the reason.
    utilization_warning: float = 0.60
    utilization_critical: float = 0.20
    # From this utilization on it is said what it does not mean.
    utilization_full: float = 0.95
    # Other processes on the GPU, of the recorded time; and of its memory, below which they only are mentioned.
    shared_time: float = 0.10
    shared_memory: float = 0.05
    # A degraded link that carries less than this part of its rate costs nothing.
    link_traffic: float = 0.10
    # Profiled against unprofiled steps, and how many there must be of each.
    overhead_ratio: float = 1.10
    overhead_min_profiled: int = 3
    overhead_min_unprofiled: int = 10

    # How many places a finding points at.
    max_evidence: int = 12
