"""The callback in a real Trainer of Hugging Face on the CPU; not installed for the suite, as PyTorch has gigabytes.

By hand, in an environment outside the repository, where PyTorch's wheel runs on the CPU without its GPU libraries:

    python -m venv /tmp/trainer && /tmp/trainer/bin/pip install torch transformers accelerate pytest -e .
    /tmp/trainer/bin/python -m pytest tests/monitor/test_transformers.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.telemetry.series import Recording
from tb_gpu_doctor.traces.sessions import find_sessions

WHY = "needs PyTorch and transformers, which the suite does not install; the module says how to run it by hand"
torch = pytest.importorskip("torch", reason=WHY)
transformers = pytest.importorskip("transformers", reason=WHY)
pytest.importorskip("accelerate", reason=WHY)

from tb_gpu_doctor.transformers import GpuDoctorCallback  # noqa: E402


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
    """One layer; raises at a call where that is wanted."""

    def __init__(self, fails_at: int = -1) -> None:
        super().__init__()
        self.layer, self.calls, self.fails_at = torch.nn.Linear(4, 1), 0, fails_at

    def forward(self, x: Any, labels: Any = None) -> Any:
        self.calls += self.training
        if self.calls == self.fails_at:
            raise RuntimeError("planted")
        out = self.layer(x)
        return {"loss": ((out[:, 0] - labels) ** 2).mean(), "logits": out}


DATA = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(64)]


class Counting(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """How often the Trainer evaluated and saved."""

    evaluated = saved = 0

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.evaluated += 1

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self.saved += 1


def fit(folder: Path, callback: Any, model: Any = None, **options: Any) -> Counting:
    arguments = transformers.TrainingArguments(
        str(folder / "out"), use_cpu=True, report_to=[], disable_tqdm=True,
        **{"max_steps": 16, "per_device_train_batch_size": 8, "save_strategy": "no", **options},
    )  # fmt: skip
    trainer = transformers.Trainer(model or Model(), arguments, train_dataset=DATA, eval_dataset=DATA[:8])
    counting = Counting()
    trainer.add_callback(callback)
    trainer.add_callback(counting)
    trainer.train()
    return counting


def recorded(folder: Path) -> Recording:
    (found,) = read_telemetry(folder / "logs").recordings
    return found


def test_steps_evaluation_and_saving(tmp_path: Path) -> None:
    counted = fit(
        tmp_path, GpuDoctorCallback(tmp_path / "logs"),
        eval_strategy="steps", eval_steps=5, save_strategy="steps", save_steps=10,
    )  # fmt: skip
    found = recorded(tmp_path)
    assert found.steps.number.tolist() == list(range(16)) and set(found.steps.samples.tolist()) == {8}
    kinds = [span.kind for span in found.spans]
    assert (kinds.count("validation"), kinds.count("checkpoint")) == (counted.evaluated, counted.saved)
    assert counted.evaluated >= 3 and counted.saved >= 1 and found.ended == "normal"


def test_gradients_that_are_added_up_are_one_step(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs"), gradient_accumulation_steps=2, max_steps=6)
    found = recorded(tmp_path)
    assert found.steps.number.tolist() == list(range(6)) and set(found.steps.samples.tolist()) == {16}


def test_a_profile_of_given_steps(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs", profile_steps=(10, 12)))
    found = recorded(tmp_path)
    assert found.steps.number[found.steps.profiled].tolist() == [10, 11, 12]
    assert any(not session.is_telemetry for session in find_sessions(str(tmp_path / "logs")).sessions)


def test_an_exception_reaches_the_caller_and_the_next_training_is_recorded(tmp_path: Path) -> None:
    callback = GpuDoctorCallback(tmp_path / "logs")
    with pytest.raises(RuntimeError, match="planted"):
        fit(tmp_path, callback, Model(fails_at=5))
    fit(tmp_path, callback)
    counts = sorted(len(one.steps.number) for one in read_telemetry(tmp_path / "logs").recordings)
    assert counts == [4, 16]


def test_a_profile_that_was_cut_short_is_said(tmp_path: Path) -> None:
    fit(tmp_path, GpuDoctorCallback(tmp_path / "logs", profile_steps=(12, 40)))
    assert any("shorter than was asked for" in note for note in recorded(tmp_path).notes)
