"""The rules, one file each. A rule looks at a `Context` and returns the findings it can prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rules.checkpoint_stall import check as check_checkpoint_stall
from tb_gpu_doctor.diagnosis.rules.clock_skew import check as check_clock_skew
from tb_gpu_doctor.diagnosis.rules.communication_bound import check as check_communication_bound
from tb_gpu_doctor.diagnosis.rules.compile_stall import check as check_compile_stall
from tb_gpu_doctor.diagnosis.rules.cpu_contention import check as check_cpu_contention
from tb_gpu_doctor.diagnosis.rules.dropped_events import check as check_dropped_events
from tb_gpu_doctor.diagnosis.rules.empty_gpu_plane import check as check_empty_gpu_plane
from tb_gpu_doctor.diagnosis.rules.gpu_shared import check as check_gpu_shared
from tb_gpu_doctor.diagnosis.rules.idle_gpus import check as check_idle_gpus
from tb_gpu_doctor.diagnosis.rules.imbalance import check as check_imbalance
from tb_gpu_doctor.diagnosis.rules.input_bound import check as check_input_bound
from tb_gpu_doctor.diagnosis.rules.launch_bound import check as check_launch_bound
from tb_gpu_doctor.diagnosis.rules.low_occupancy import check as check_low_occupancy
from tb_gpu_doctor.diagnosis.rules.memory_headroom import check as check_memory_headroom
from tb_gpu_doctor.diagnosis.rules.memory_pressure import check as check_memory_pressure
from tb_gpu_doctor.diagnosis.rules.no_gpu_plane import check as check_no_gpu_plane
from tb_gpu_doctor.diagnosis.rules.no_steps import check as check_no_steps
from tb_gpu_doctor.diagnosis.rules.op_placement import check as check_op_placement
from tb_gpu_doctor.diagnosis.rules.pcie_degraded import check as check_pcie_degraded
from tb_gpu_doctor.diagnosis.rules.power_throttle import check as check_power_throttle
from tb_gpu_doctor.diagnosis.rules.profiler_overhead import check as check_profiler_overhead
from tb_gpu_doctor.diagnosis.rules.serialized_kernels import check as check_serialized_kernels
from tb_gpu_doctor.diagnosis.rules.short_profile import check as check_short_profile
from tb_gpu_doctor.diagnosis.rules.step_outliers import check as check_step_outliers
from tb_gpu_doctor.diagnosis.rules.sync_stall import check as check_sync_stall
from tb_gpu_doctor.diagnosis.rules.tensor_cores_unused import check as check_tensor_cores_unused
from tb_gpu_doctor.diagnosis.rules.thermal_throttle import check as check_thermal_throttle
from tb_gpu_doctor.diagnosis.rules.transfer_bound import check as check_transfer_bound
from tb_gpu_doctor.diagnosis.rules.underfilled_gpu import check as check_underfilled_gpu

Rule = Callable[[Context], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    check_input_bound,
    check_launch_bound,
    check_sync_stall,
    check_transfer_bound,
    check_op_placement,
    check_cpu_contention,
    check_compile_stall,
    check_checkpoint_stall,
    check_step_outliers,
    check_imbalance,
    check_communication_bound,
    check_idle_gpus,
    check_low_occupancy,
    check_underfilled_gpu,
    check_tensor_cores_unused,
    check_thermal_throttle,
    check_power_throttle,
    check_gpu_shared,
    check_pcie_degraded,
    check_memory_pressure,
    check_memory_headroom,
    check_no_gpu_plane,
    check_empty_gpu_plane,
    check_dropped_events,
    check_no_steps,
    check_short_profile,
    check_serialized_kernels,
    check_clock_skew,
    check_profiler_overhead,
)
# Every kind of finding: each rule finds the kind that its file is named after.
KINDS = frozenset(rule.__module__.rpartition(".")[2] for rule in RULES)
