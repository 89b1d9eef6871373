"""The callback in a real Lightning on the CPU; not installed for the suite, since PyTorch alone has gigabytes.

By hand, in an environment outside the repository, where PyTorch's wheel runs on the CPU without its GPU libraries:

    python -m venv /tmp/lightning && /tmp/lightning/bin/pip install torch lightning pytest -e .
    /tmp/lightning/bin/python -m pytest tests/monitor/test_lightning.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.telemetry.series import Recording
from tb_gpu_doctor.traces.sessions import find_sessions

WHY = "needs PyTorch and Lightning, which the suite does not install; the module says how to run it by hand"
lightning = pytest.importorskip("lightning.pytorch", reason=WHY)
torch = pytest.importorskip("torch", reason=WHY)

from tb_gpu_doctor.lightning import GpuDoctorCallback  # noqa: E402


class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """One layer; raises at a step where that is wanted."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.layer, self.fails_at = torch.nn.Linear(4, 1), fails_at

    def training_step(self, batch: Any, index: int) -> Any:
        if index == self.fails_at:
            raise RuntimeError("planted")
        return self.layer(batch[0]).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.layer(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def loader(batches: int = 8) -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16 * batches, 4)), batch_size=16)


def fit(folder: Path, callback: Any, model: Any = None, **options: Any) -> Any:
    trainer = lightning.Trainer(
        default_root_dir=str(folder), accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[callback], **{"max_epochs": 3, **options},
    )  # fmt: skip
    trainer.fit(model or Model(), loader(), loader(2))
    return trainer


def recorded(folder: Path) -> Recording:
    (found,) = read_telemetry(folder / "logs").recordings
    return found


def test_steps_validation_and_saving(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs"))
    found = recorded(tmp_path)
    assert found.steps.number.tolist() == list(range(24)) and set(found.steps.samples.tolist()) == {16}
    kinds = [span.kind for span in found.spans]
    assert kinds.count("validation") == 3 and kinds.count("checkpoint") >= 3 and found.ended == "normal"


def test_a_profile_of_given_steps(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs", profile_steps="10,12"))
    found = recorded(tmp_path)
    assert found.steps.number[found.steps.profiled].tolist() == [10, 11, 12]
    assert any(not session.is_telemetry for session in find_sessions(str(tmp_path / "logs")).sessions)


def test_gradients_that_are_added_up_and_a_training_that_goes_on(tmp_path: Path) -> None:
    trainer = fit(tmp_path, GpuDoctorCallback(tmp_path / "first"), accumulate_grad_batches=4, max_epochs=1)
    path = tmp_path / "last.ckpt"
    trainer.save_checkpoint(path)
    again = lightning.Trainer(
        default_root_dir=str(tmp_path), accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[GpuDoctorCallback(tmp_path / "logs")], max_epochs=2,
    )  # fmt: skip
    again.fit(Model(), loader(), ckpt_path=path, weights_only=False)
    assert recorded(tmp_path).steps.number.tolist() == list(range(8, 16))


def test_an_exception_ends_the_recording_and_reaches_the_caller(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="planted"):
        fit(tmp_path, GpuDoctorCallback(tmp_path / "logs"), Model(fails_at=5))
    found = recorded(tmp_path)
    assert found.steps.number.tolist() == list(range(5)) and found.ended == "error"


def test_a_profile_that_never_came_is_said(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs", profile_steps=(100, 110)))
    assert any("there is no such profile" in note for note in recorded(tmp_path).notes)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="a logdir or a monitor"):
        GpuDoctorCallback()
    with pytest.raises(TypeError):
        GpuDoctorCallback("logs", no_such_option=1)
