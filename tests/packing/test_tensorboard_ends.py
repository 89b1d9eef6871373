"""TensorBoard that does not start: the reason, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import PackError
from tb_gpu_doctor.packing import view


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("ModuleNotFoundError: No module named 'pkg_resources'", "tensorboard_needs_setuptools"),
        ("ValueError: something else", "tensorboard_ended"),
        ("", "tensorboard_ended"),
    ],
)
def test_what_it_said_last_is_the_reason(said: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "isolated", lambda module, arguments: [sys.executable, "-c", f"print({said!r})"])
    with pytest.raises(PackError) as caught:
        view.serve(str(tmp_path), "localhost", None, lambda address: None)
    assert caught.value.code == code and caught.value.params["reason"] == said
