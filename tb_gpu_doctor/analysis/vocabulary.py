"""The stable names of what GPU time is spent on and of why a GPU waits."""

from __future__ import annotations

from enum import IntEnum


class Category(IntEnum):
    """What a GPU does at one instant; where several overlap, the smaller value wins.

    So COMMUNICATION and TRANSFER are exposed times: not hidden behind compute.
    """

    COMPUTE = 0
    COMMUNICATION = 1
    TRANSFER = 2
    IDLE = 3


class Cause(IntEnum):
    """Why a GPU was idle. The first six: the host was late; the others: the device's side."""

    INPUT = 0
    LAUNCH = 1
    SYNC = 2
    COMPILE = 3
    CHECKPOINT = 4
    HOST_OTHER = 5
    DEPENDENCY = 6
    PEER = 7
    KERNEL_GAP = 8
    NO_EVIDENCE = 9

    @property
    def id(self) -> str:
        """The name used in JSON, texts and the tab."""
        return self.name.lower()


CAUSE_IDS: tuple[str, ...] = tuple(cause.id for cause in Cause)
CATEGORY_IDS: tuple[str, ...] = tuple(category.name.lower() for category in Category)
