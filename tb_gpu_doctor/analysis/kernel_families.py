"""What kind of work a kernel does, told from its name by the tables of `kernel_patterns`."""

from __future__ import annotations

import re
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
