"""What the parts of the monitor write to: one interface, so that callback, capture and sampler stay apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Recorder(Protocol):
    """Where a process's recording goes. No method raises, none waits for a disk."""

    def step(
        self, number: int, end_ns: int, duration_ns: int, samples: int | None = None, profiled: bool = False
    ) -> None:
        """A training step ended; times are Unix nanoseconds."""

    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str = "") -> None:
        """Training did something beside stepping (`telemetry.series.Span`)."""

    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        """The framework's own memory figures of one of its GPUs."""

    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        """Something that is written once, such as ``environment``."""

    def note(self, sentence: str) -> None:
        """A sentence about what could not be recorded; each is kept and shown once."""
