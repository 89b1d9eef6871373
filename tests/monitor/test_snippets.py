"""The lines that the README and the pages tell people to paste: run where their framework is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tb_gpu_doctor.telemetry.recordings import read_telemetry
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.monitor.test_capture import marked_steps

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/monitor.md", "docs/es/monitor.md", "docs/batch_size.md", "docs/es/batch_size.md")


def section(page: str, heading: str) -> list[str]:
    """Python code below a heading."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)


README = section("README.md", "Record telemetry")
KERAS, LOOP, JAX, TORCH = README
OWN_LOOP = section("docs/monitor.md", "Own loops, JAX, PyTorch")[0]

TENSORFLOW_SETTING = """
import tensorflow as tf, keras
dataset = tf.data.Dataset.from_tensor_slices((tf.ones((160, 4)), tf.ones((160, 1)))).batch(8, drop_remainder=True)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
iterator = batches = iter(dataset.repeat())
@tf.function
def train_step(batch):
    return tf.reduce_mean(batch[0])
evaluate, save = lambda: None, lambda step: None
"""
JAX_SETTING = """
import itertools, jax, jax.numpy as jnp
batches = itertools.repeat(jnp.ones((8, 4)))
train_step = jax.jit(lambda state, batch: state + batch.mean())
state = jnp.zeros(())
"""
TORCH_SETTING = """
import torch
loader = [torch.ones(8, 4)] * 200
train_step = lambda batch: batch.sum().item()
"""


def run(code: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def check(logs: Path, steps: list[int]) -> None:
    """One recording for each loop, each with its steps, and a profile of steps 50 to 60 for each."""
    recordings = read_telemetry(logs).recordings
    assert sorted(len(recording.steps.number) for recording in recordings) == steps
    for recording in recordings:
        profiled = recording.steps.number[recording.steps.profiled].tolist()
        assert profiled == list(range(50, min(61, len(recording.steps.number))))
    profiles = [session for session in find_sessions(str(logs)).sessions if session.files[0].format == "xplane"]
    assert sorted(len(marked_steps(profile.files[0])) for profile in profiles) == [min(n - 50, 11) for n in steps]


@needs("tensorflow")
def test_keras_and_tensorflow(tmp_path: Path) -> None:
    run(TENSORFLOW_SETTING + KERAS + LOOP + OWN_LOOP, tmp_path)
    check(tmp_path / "logs", [60, 200, 200])


@needs("jax")
def test_jax(tmp_path: Path) -> None:
    run(JAX_SETTING + JAX, tmp_path)
    check(tmp_path / "logs", [200])


@needs("torch")
def test_pytorch(tmp_path: Path) -> None:
    run(TORCH_SETTING + TORCH, tmp_path)
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    assert len(recording.steps.number) == 200 and int(recording.steps.profiled.sum()) == 11
    assert list((tmp_path / "logs").glob("*.pt.trace.json.gz"))


@needs("tensorflow")
def test_the_batch_size_example(tmp_path: Path) -> None:
    (example,) = [
        block
        for block in re.findall(
            r"^```python\n(.*?)^```", (REPOSITORY / "docs/batch_size.md").read_text(), re.DOTALL | re.MULTILINE
        )
        if "def make_step" in block
    ]
    (tmp_path / "train_steps.py").write_text(example)
    run(
        "import sys; from tb_gpu_doctor.cli.main import main\n"
        "sys.exit(main(['batch', 'train_steps:make_step', '--logdir', 'logs', '--max', '8', '--repeats', '1']))",
        tmp_path,
    )
    (sweep,) = read_telemetry(tmp_path / "logs").sweeps
    assert sweep.recommended == 8
    assert sweep.points[0].samples_per_s and sweep.points[0].peak_bytes and sweep.points[0].problem is None


@pytest.mark.parametrize("page", PAGES)
def test_all_examples_are_python(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / page).read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert blocks
    for block in blocks:
        compile(block, page, "exec")


@pytest.mark.parametrize("name", ["monitor", "batch_size", "environment"])
def test_both_languages_have_the_same_shape_and_code(name: str) -> None:
    english, spanish = ((REPOSITORY / f"docs/{folder}{name}.md").read_text(encoding="utf-8") for folder in ("", "es/"))
    for sign in ("\n## ", "\n| ", "\n- "):
        assert english.count(sign) == spanish.count(sign), sign
    code = [
        [re.sub(r" *#.*", "", block) for block in re.findall(r"^```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]
        for text in (english, spanish)
    ]
    assert code[0] == code[1]
