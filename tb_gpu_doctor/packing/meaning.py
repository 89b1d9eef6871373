"""What the analyses read in a name: two names that answer all their questions alike lead to the same diagnosis.

The questions are the regular expressions of `tb_gpu_doctor.analysis` and `tb_gpu_doctor.diagnosis`, and what their
functions say of a name. They are collected from the modules, so a rule that is added asks here as well.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import tb_gpu_doctor.analysis
import tb_gpu_doctor.diagnosis
import tb_gpu_doctor.diagnosis.rules
from tb_gpu_doctor.analysis import collectives, input_stages
from tb_gpu_doctor.analysis.host_names import is_blocking_input, kind_of
from tb_gpu_doctor.analysis.kernel_families import is_fusible, is_persistent, kernel_family, tensor_use
from tb_gpu_doctor.traces import classify, kineto_events

# These are asked through their functions, which also know the order and the part of a name that counts.
_BY_FUNCTION = (
    "kernel_patterns", "kernel_families", "host_names", "torch_host_names", "collectives", "input_stages",
    "lost_events", "pipelines",
)  # fmt: skip
# Words that are asked for by `startswith` and `in`.
_PREFIXES = (
    "Iterator::", "InstantiatedCapturedFunction::", "InstantiatedCapturedFunction::RunAsync", "tf_data",
    "tf_data_iterator_get_next", "Host Threads/", "$", "$iterator_ops.py:", "$dataset_ops.py:", "$dataset_adapter",
    "$data_adapter", "triton_", "XlaModule:", "<UNKNOWN>", "ThreadpoolListener", "ThreadPool::", "StartRegion",
    "StopRegion", "Iterator", "Executor", "MultiDeviceIterator", *kineto_events.NO_OPERATOR,
)  # fmt: skip
_INSIDE = ("DataLoader", "_MultiProcessingDataLoaderIter", "emcpy", "Async")
_LITERAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
# Written with optional signs in the tables.
_JOINED = (
    "allreduce", "all_reduce", "allgather", "all_gather", "reducescatter", "reduce_scatter", "alltoall", "all_to_all",
    "sendrecv", "send_recv",
)  # fmt: skip
# What is no literal in the text of an expression: escapes, classes of characters, flags.
_SYNTAX = re.compile(r"\\[AbBdDsSwWZnt]|\[[^\]]*\]|\(\?[a-zA-Z<]*[:=!>)]?")


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Every expression over text that the analyses and rules hold, once."""
    found: dict[tuple[str, int], re.Pattern[str]] = {}
    for module in _modules():
        for value in vars(module).values():
            for pattern in _inside(value, 4):
                if isinstance(pattern.pattern, str):
                    found.setdefault((pattern.pattern, pattern.flags), pattern)
    return tuple(found.values())


def _modules() -> Iterator[ModuleType]:
    for package in (tb_gpu_doctor.analysis, tb_gpu_doctor.diagnosis, tb_gpu_doctor.diagnosis.rules):
        for entry in pkgutil.iter_modules(package.__path__):
            if not entry.ispkg and entry.name not in _BY_FUNCTION:
                yield import_module(f"{package.__name__}.{entry.name}")
    yield classify
    yield kineto_events


def _inside(value: Any, depth: int) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list):
        for part in value:
            yield from _inside(part, depth - 1)
    elif depth and isinstance(value, dict):
        for part in value.values():
            yield from _inside(part, depth - 1)


@lru_cache(maxsize=1 << 16)
def meaning(name: str, kernel: bool = False) -> tuple[object, ...]:
    """Answers to all questions about a name of a host event, an op or a message; of a ``kernel``, to its own too."""
    short = name[:4096]
    kind = short.rpartition(":")[2].strip()
    return (
        kind_of(name),
        is_blocking_input(name),
        kernel_family("", name),
        _of_kernel(name) if kernel else (),
        # kernels and HLO ops are asked; neither begins like TensorFlow's own nodes (`_send_Equal`)
        collectives.kind_of(name) if kernel or not name.startswith("_") else None,
        [input_stages.PRODUCE.match(short), input_stages.GET_NEXT.match(short)].count(None),
        input_stages.PYTHON_FUNCTION.search(short) is not None,
        short.startswith(_PREFIXES) and tuple(short.startswith(prefix) for prefix in _PREFIXES),
        tuple(word in short for word in _INSIDE),
        _matching(short),
        # some ask the type behind an op's name alone
        _matching(kind) if kind != short else (),
    )


@lru_cache(maxsize=1 << 16)
def _matching(text: str) -> tuple[int, ...]:
    """Which of the expressions find something, by their number."""
    return tuple(number for number, pattern in enumerate(_patterns()) if pattern.search(text))


def _of_kernel(name: str) -> tuple[object, ...]:
    family = kernel_family(name)
    return family, is_persistent(name), is_fusible(name, "", family), tensor_use(name, family)


@lru_cache(maxsize=1)
def telling_words() -> re.Pattern[str]:
    """Finds the pieces of a word that the analyses' own tables name, the longest first."""
    from tb_gpu_doctor.analysis import host_names, kernel_patterns, torch_host_names

    sources = [pattern.pattern for pattern in _patterns()]
    sources += list(_texts([value for name, value in vars(kernel_patterns).items() if name.isupper()], 4))
    sources += list(_texts((torch_host_names.FRAMES, torch_host_names.NAMES), 4))
    sources += [pattern.pattern for pattern in _inside(tuple(vars(host_names).values()), 4)]
    sources += [*_PREFIXES, *_INSIDE, *_JOINED]
    literals = {word.strip("_").lower() for text in sources for word in _LITERAL.findall(_SYNTAX.sub(" ", text))}
    ordered = sorted((word for word in literals if len(word) >= 3), key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, ordered)), re.IGNORECASE)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, tuple | list | dict | set | frozenset):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part, depth - 1)
