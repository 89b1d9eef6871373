"""The rules, one file each. A rule looks at a `Context` and returns the findings it can prove."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tb_gpu_doctor.diagnosis.context import Context
from tb_gpu_doctor.diagnosis.model import Finding
from tb_gpu_doctor.diagnosis.rules.dropped_events import check as check_dropped_events
from tb_gpu_doctor.diagnosis.rules.empty_gpu_plane import check as check_empty_gpu_plane
from tb_gpu_doctor.diagnosis.rules.idle_gpus import check as check_idle_gpus
from tb_gpu_doctor.diagnosis.rules.imbalance import check as check_imbalance
from tb_gpu_doctor.diagnosis.rules.input_bound import check as check_input_bound
from tb_gpu_doctor.diagnosis.rules.launch_bound import check as check_launch_bound
from tb_gpu_doctor.diagnosis.rules.low_occupancy import check as check_low_occupancy
from tb_gpu_doctor.diagnosis.rules.no_gpu_plane import check as check_no_gpu_plane
from tb_gpu_doctor.diagnosis.rules.no_steps import check as check_no_steps
from tb_gpu_doctor.diagnosis.rules.short_profile import check as check_short_profile
from tb_gpu_doctor.diagnosis.rules.underfilled_gpu import check as check_underfilled_gpu

Rule = Callable[[Context], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    check_input_bound,
    check_launch_bound,
    check_imbalance,
    check_idle_gpus,
    check_low_occupancy,
    check_underfilled_gpu,
    check_no_gpu_plane,
    check_empty_gpu_plane,
    check_dropped_events,
    check_no_steps,
    check_short_profile,
)
