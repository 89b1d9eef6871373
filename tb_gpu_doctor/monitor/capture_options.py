"""When to take profiles, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tb_gpu_doctor.metrics import THROTTLE_BITS

# A GPU under full load is often at its power limit, and syncing boost clocks is a setting: neither is news.
_NEWS = ("hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")


@dataclass(frozen=True)
class CaptureOptions:
    """When to take a profile, and how much at most.

    Attributes:
        profile_steps: first and last step of a profile, or several such pairs. Taken even during the warm-up.
        profile_every: take one whenever this many steps have passed.
        profile_slower: take one when the median step time has risen by this share (0.3: by 30 %).
        profile_below: take one when a GPU's utilization was below ``(percent, samples)`` that many samples in a row.
        profile_throttling: take one when a GPU begins to throttle for heat or a hardware limit; or names of
            `metrics.THROTTLE_BITS` to look for.
        length: steps of each profile that has no given last step.
        warmup: steps of this process, compilation among them, before which neither ``profile_every`` nor a
            trigger acts.
        max_profiles: as many at most; 0 for none.
        max_seconds: a profile is ended at the first step border after this time.
        max_bytes: no profile is begun when those before it take this much together.
        min_free_bytes: nor when the disk has less left.
        min_distance: steps between the end of one profile and the next that a trigger asks for.
    """

    profile_steps: tuple[int, int] | Sequence[tuple[int, int]] | None = None
    profile_every: int | None = None
    profile_slower: float | None = None
    profile_below: tuple[float, int] | None = None
    profile_throttling: bool | Sequence[str] = False
    length: int = 10
    warmup: int = 20
    max_profiles: int = 10
    max_seconds: float = 60.0
    max_bytes: int = 2 << 30
    min_free_bytes: int = 1 << 30
    min_distance: int = 200

    def __post_init__(self) -> None:
        """Refuse what makes no sense where it is written, not a thousand steps later."""
        for first, last in self.ranges():
            if first < 0 or last < first:
                raise ValueError(f"profile_steps: ({first}, {last}) is no range of steps (first, last)")
        if self.profile_every is not None and self.profile_every < max(self.length, 1):
            raise ValueError(f"profile_every must be at least length ({self.length}), not {self.profile_every}")
        if self.profile_slower is not None and not self.profile_slower > 0:
            raise ValueError(f"profile_slower must be above 0, such as 0.3 for 30 %, not {self.profile_slower}")
        if self.profile_below is not None:
            percent, samples = self.profile_below
            if not 0 < percent <= 100 or samples < 1:
                raise ValueError(f"profile_below must be (percent, samples), not {self.profile_below}")
        unknown = set(self.reasons()) - set(THROTTLE_BITS)
        if unknown:
            raise ValueError(f"profile_throttling: {', '.join(sorted(unknown))} unknown; of {', '.join(THROTTLE_BITS)}")
        if self.length < 1:
            raise ValueError(f"length must be at least 1, not {self.length}")

    def ranges(self) -> list[tuple[int, int]]:
        """The scheduled profiles as pairs, in order."""
        given = self.profile_steps
        if not given:
            return []
        if len(given) == 2 and all(isinstance(step, int) for step in given):
            given = [given]  # type: ignore[list-item]
        return sorted((int(first), int(last)) for first, last in given)  # type: ignore[misc]

    def reasons(self) -> tuple[str, ...]:
        """Names of the throttle reasons to look for."""
        if isinstance(self.profile_throttling, str):
            return (self.profile_throttling,)
        if isinstance(self.profile_throttling, Sequence):
            return tuple(self.profile_throttling)
        return _NEWS if self.profile_throttling else ()

    @property
    def idle(self) -> bool:
        """Whether no profile will ever be taken."""
        asked = (self.profile_steps, self.profile_every, self.profile_slower, self.profile_below, self.reasons())
        return self.max_profiles <= 0 or not any(asked)
