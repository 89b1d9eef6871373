"""Steps for batch-size sweeps: slow, wrong, too large, deadly. Run in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

# A model of a GPU that is full from this batch on.
FIXED_S, PER_SAMPLE_S = 0.02, 0.0001


def linear(batch_size: int) -> Callable[[], Any]:
    """Takes fixed + per sample, whatever else the machine does."""
    return lambda: time.sleep(FIXED_S + PER_SAMPLE_S * batch_size)


def fails_above_32(batch_size: int) -> Callable[[], Any]:
    """Runs out of memory the way frameworks say so."""
    if batch_size > 32:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes.")
    return linear(batch_size)


def fills_memory(batch_size: int) -> Callable[[], Any]:
    """Really runs out of it: the process may have 2 GiB of addresses, and a large batch wants more."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    import numpy as np

    held: list[Any] = []

    def step() -> None:
        held.append(np.empty((batch_size, 32 << 20), np.uint8))  # addresses count, also those never written to

    return step


def is_killed_above_16(batch_size: int) -> Callable[[], Any]:
    """Ends as the kernel ends what takes too much."""
    if batch_size > 16:
        os.kill(os.getpid(), signal.SIGKILL)
    return linear(batch_size)


def crashes_above_16(batch_size: int) -> Callable[[], Any]:
    if batch_size > 16:
        os.abort()
    return linear(batch_size)


def hangs(batch_size: int) -> Callable[[], Any]:
    time.sleep(60)
    return linear(batch_size)


def has_a_bug(batch_size: int) -> Callable[[], Any]:
    raise KeyError("no such layer")


def prints(batch_size: int) -> Callable[[], Any]:
    print("a lot of talk")
    return linear(batch_size)


class Holder:
    @staticmethod
    def make(batch_size: int) -> Callable[[], Any]:
        return linear(batch_size)
