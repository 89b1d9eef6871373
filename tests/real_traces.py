"""The real XPlane files that others recorded, where they are at hand (`tests.conftest.SHARED_TRACES`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.xplane import read_xplane
from tests.conftest import SHARED_TRACES

XPLANE_FOLDERS = (
    "jax_conv_8xmi300x",
    "jax_conv_8xmi300x_older",
    "jax_gemm_1of8_mi300x",
    "jax_te_attention",
    "tf_bert_8gpu",
    "xla_2xgtx1080ti",
)


def xplane_path(folder: str) -> Path:
    """The one XPlane file of a folder; skips the test, saying why, where it is not there."""
    found = sorted((SHARED_TRACES / folder).glob("plugins/profile/*/*.xplane.pb"))
    if not found:
        pytest.skip(f"real profile not present ({SHARED_TRACES / folder})")
    return found[0]


def real_trace(folder: str) -> Trace:
    """The file of a folder, decoded once for all tests."""
    return _decoded(xplane_path(folder))


@cache
def _decoded(path: Path) -> Trace:
    return read_xplane(str(path))
