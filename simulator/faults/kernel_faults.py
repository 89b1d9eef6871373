"""Faults of the arithmetic: products of matrices that leave the tensor cores unused."""

from __future__ import annotations

from dataclasses import replace

from simulator.device import Kernel
from simulator.faults.plant import Plant, extra_us
from simulator.faults.setup import Setup

_EACH_US = 420.0
# float32 without TF32; and 16 bits with sizes that are no multiples of 8.
_FLOAT32 = "ampere_sgemm_128x128_tn"
_ODD_SIZES = "ampere_fp16_sgemm_fp16_128x64_nn"


def float32(setup: Setup, share: float) -> Setup:
    """Layers that multiply in float32."""
    return _products(setup, share, _FLOAT32, "head")


def odd_sizes(setup: Setup, share: float) -> Setup:
    """Layers of 16 bits whose sizes no tensor-core kernel takes."""
    return _products(setup, share, _ODD_SIZES, "odd")


def _products(setup: Setup, share: float, name: str, scope: str) -> Setup:
    wanted = extra_us(setup, share)
    count = max(2, round(wanted / _EACH_US))
    for i in range(count):
        # 122 registers and 256 threads: 16 warps on each SM, usual for such kernels
        kernel = Kernel(name, wanted / count, (1_056, 1, 1), (256, 1, 1), 122, static_shared_bytes=16_384)
        op = f"{scope}/dense_{i}/MatMul"
        setup = setup.with_items(replace(kernel, op=f"{op}:MatMul", hlo_op=f"custom-call.{i}"), at=i / count)
    return setup


KERNEL_FAULTS = (
    Plant("tensor_cores_unused", "float32", float32, cause="precision", culprit="sgemm", timed=False),
    Plant("tensor_cores_unused", "odd_sizes", odd_sizes, cause="shape", culprit="fp16_sgemm", timed=False),
)
