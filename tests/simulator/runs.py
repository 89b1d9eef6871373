"""The simulated runs, made once for all tests."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from simulator.scenarios import SCENARIOS, SimulatedRun

NAMES = tuple(SCENARIOS)


@cache
def simulated(name: str) -> SimulatedRun:
    """A run and its truth."""
    return SCENARIOS[name]()


@cache
def encoded(name: str) -> bytes:
    """The file of a run."""
    return simulated(name).space.encode()


@cache
def parsed(name: str) -> Any:
    """The file of a run, as TensorFlow's parser reads it."""
    schema = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2", reason="tensorflow is not installed")
    space = schema.XSpace()
    space.ParseFromString(encoded(name))
    return space
