"""What kind of work a kernel does, and whether on tensor cores, told from its name by the tables of `kernel_patterns`.

A name may say that a kernel uses tensor cores (instructions, shapes, libraries), or that it multiplies by the ordinary
units; a name that says neither is `UNKNOWN`, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from tb_gpu_doctor.analysis import kernel_patterns as table
from tb_gpu_doctor.analysis.kernel_patterns import (
    ATTENTION,
    COMMUNICATION,
    CONVOLUTION,
    COPY,
    ELEMENTWISE,
    FAMILIES,
    MATMUL,
    OTHER,
)
from tb_gpu_doctor.traces.columns import Device

__all__ = ["COMMUNICATION", "FAMILIES", "OTHER", "any_of", "is_fusible", "is_persistent", "kernel_family"]

# The marks stand near the front of a name; template arguments may go on for kilobytes.
NAME_LIMIT = 4096


def any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression that finds what any of the patterns finds."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


_COMMUNICATION = any_of(table.COMMUNICATION_NAMES)
_GENERATED = any_of(table.GENERATED_NAMES)
_PRODUCTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (ATTENTION, any_of(table.ATTENTION_NAMES)),
    (CONVOLUTION, any_of(table.CONVOLUTION_NAMES)),
    (MATMUL, any_of(table.MATMUL_NAMES)),
)
_SIMPLE = tuple((family, any_of(patterns)) for family, patterns in table.SIMPLE_NAMES)
_HELPER = any_of(table.HELPER_NAMES)
_PERSISTENT = any_of(table.PERSISTENT_NAMES)
_COMPILED = any_of(table.COMPILED_NAMES)
_POINTWISE = any_of(table.POINTWISE_NAMES)
_MAYBE_POINTWISE = frozenset({ELEMENTWISE, COPY, table.NORMALIZATION, table.REDUCTION, OTHER})


@lru_cache(maxsize=8192)
def kernel_family(name: str, op: str = "") -> str:
    """One of `FAMILIES`.

    Args:
        name: of the kernel, mangled or not.
        op: framework op that launched it; asked only when the name says nothing.
    """
    family, may_ask = _family_of_name(name)
    if family is not None:
        return family
    if op and may_ask:
        # "scope/MatMul:MatMul" carries the type after the last single colon; "aten::mm" has none.
        kind = op[-256:].lower()
        if kind.startswith("triton_"):  # old PyTorch names the kernel triton__0d1d2de, and the operator tells
            return _family_of_name(op)[0] or OTHER
        if not kind.startswith("aten::"):
            kind = kind.rsplit(":", 1)[-1]
        return table.OP_TYPES.get(kind, OTHER)
    return OTHER


@lru_cache(maxsize=8192)
def _family_of_name(name: str) -> tuple[str | None, bool]:
    """What the name says (a name may come with a million ops), and whether its op may say more."""
    name = name[:NAME_LIMIT].lower()
    if _COMMUNICATION.search(name):
        return COMMUNICATION, False
    if not _GENERATED.search(name):
        for family, pattern in _PRODUCTS:
            if pattern.search(name):
                return family, False
    for family, pattern in _SIMPLE:
        if pattern.search(name):
            return family, False
    return None, _HELPER.search(name) is None


@lru_cache(maxsize=8192)
def is_persistent(name: str) -> bool:
    """Whether the kernel's grid is sized to the chip by design, so that it cannot be "too small"."""
    return _PERSISTENT.search(name[:NAME_LIMIT].lower()) is not None


@lru_cache(maxsize=8192)
def is_fusible(name: str, op: str, family: str) -> bool:
    """Whether it is elementwise work that no compiler has written: one could join it with its neighbours."""
    if family not in _MAYBE_POINTWISE or op.startswith("triton_"):
        return False
    small = name[:NAME_LIMIT].lower()
    if _COMPILED.search(small):
        return False
    return family == ELEMENTWISE or _POINTWISE.search(small) is not None


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
