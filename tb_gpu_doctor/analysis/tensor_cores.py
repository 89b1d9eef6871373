"""Whether a kernel runs on tensor cores, told from its name, and whether it could.

A name may say that a kernel uses them (instructions, shapes, libraries), or that it multiplies by the ordinary
units; a name that says neither is `UNKNOWN`, never a guess. The tables are in `kernel_patterns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tb_gpu_doctor.analysis import kernel_patterns as table
from tb_gpu_doctor.analysis.kernel_families import NAME_LIMIT, any_of
from tb_gpu_doctor.traces.columns import Device

USED, UNUSED, NOT_ELIGIBLE, UNKNOWN = "used", "unused", "not_eligible", "unknown"
TENSOR_CLASSES = (USED, UNUSED, NOT_ELIGIBLE, UNKNOWN)
# Families whose work is products of matrices.
PRODUCTS = frozenset({table.MATMUL, table.CONVOLUTION, table.ATTENTION})

# Turing was built with tensor cores (TU102, TU104, TU106: 30 multiprocessors or more) and without (TU116, TU117: 24
# at most).
_TURING_SMS = 30

_NO_PRODUCT = any_of(table.NO_PRODUCT_NAMES)
_USED = any_of(table.TENSOR_CORE_NAMES)
_PLAIN = any_of(table.PLAIN_NAMES)
_TYPES = tuple((name, any_of(patterns)) for name, patterns in table.DATA_TYPE_NAMES)


@dataclass(frozen=True)
class TensorUse:
    """What a name tells.

    Attributes:
        state: one of `TENSOR_CLASSES`.
        data_type: of the factors: ``float32``, ``tf32``, ``float16``, ``bfloat16``, ``float8``, ``int8``, ``float64``,
            ``complex64``; None where the name does not say.
    """

    state: str
    data_type: str | None


_NOT_A_PRODUCT = TensorUse(NOT_ELIGIBLE, None)


@lru_cache(maxsize=8192)
def tensor_use(name: str, family: str) -> TensorUse:
    """Class of a kernel on a GPU that has tensor cores.

    ``UNUSED`` means that it multiplies matrices on the ordinary units, and that they are of a type that tensor
    cores take or that mixed precision turns into one. Products in double or complex numbers are ``NOT_ELIGIBLE``:
    whoever needs them has no other.
    """
    if family not in PRODUCTS:
        return _NOT_A_PRODUCT
    name = name[:NAME_LIMIT].lower()
    data_type = next((kind for kind, pattern in _TYPES if pattern.search(name)), None)
    if _NO_PRODUCT.search(name):
        return TensorUse(NOT_ELIGIBLE, data_type)
    if _USED.search(name):
        # a half type in 32 bit is what tf32 is; "s1688" alone says so as well
        return TensorUse(USED, "tf32" if data_type == "float32" else data_type)
    if not _PLAIN.search(name):
        return TensorUse(UNKNOWN, data_type)
    if data_type is None:
        return TensorUse(UNKNOWN, None)
    return TensorUse(UNUSED if data_type in table.MIXED_PRECISION_TYPES else NOT_ELIGIBLE, data_type)


def has_tensor_cores(device: Device) -> bool | None:
    """Whether the GPU has tensor cores; None for other vendors' and where the profile does not tell."""
    capability = device.compute_capability
    if not device.is_nvidia or capability is None:
        return None
    if capability != (7, 5):
        return capability >= (7, 0)
    return None if not device.sm_count else device.sm_count >= _TURING_SMS


def takes_tf32(device: Device) -> bool:
    """Whether its tensor cores take float32 as it is, rounded to TF32 (Ampere and later)."""
    return has_tensor_cores(device) is True and (device.compute_capability or (0, 0)) >= (8, 0)
