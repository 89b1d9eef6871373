"""Stated savings against the simulator, which runs again without the fault; and a real pair, before and after."""

from __future__ import annotations

import pytest

from simulator.faults.cases import all_cases
from simulator.scoring import score
from tb_gpu_doctor.analysis.replay.what_if import what_if
from tb_gpu_doctor.api import choose_session, diagnose_session
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import SHARED_TRACES

# One way to plant each, of those whose idle time alone shows too little, and of the others.
CASES = (
    "input_bound.loader.medium/jax/8", "input_bound.map.medium/keras/4", "sync_stall.numpy.medium/keras/8",
    "launch_bound.slow.medium/keras/8", "compile_stall.xla.medium/jax/2", "checkpoint_stall.ops.medium/keras/1",
    "host_bound.own_code.medium/keras/2", "host_bound.garbage.medium/keras/4", "imbalance.slow_gpu.medium/keras/4",
    "imbalance.uneven_work.medium/keras/4", "imbalance.uneven_work.medium/jax/2",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_saving_is_what_the_run_without_the_fault_saves(name: str) -> None:
    (fault,) = score(all_cases()[name], 0).faults
    assert fault.saving is not None and 0.9 <= fault.saving <= 1.2


def test_what_is_predicted_without_input_waiting_is_what_more_loaders_brought() -> None:
    folders = [SHARED_TRACES / f"kineto_resnet50_loader{count}_v100" for count in (0, 4)]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"real profiles not present ({folders[0]})")
    before, after = (diagnose_session(choose_session(find_sessions(str(folder)))) for folder in folders)
    predicted, measured = what_if(before.files, before.job, [["no_input"]]), what_if(after.files, after.job)
    assert predicted.recorded is not None and measured.recorded is not None
    # loading beside the GPU in place of before it: a fourth less, predicted from the first run alone
    assert measured.recorded < 0.8 * predicted.recorded
    assert predicted.scenarios[0].step == pytest.approx(measured.recorded, rel=0.03)
