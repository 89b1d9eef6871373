"""Who records: the machine, the process and its clock, as file names and the recording's head tell them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field


def host_name() -> str:
    """This machine's name as the profiler of TensorFlow and JAX names its files."""
    return socket.gethostname() or "localhost"


@dataclass(frozen=True)
class Origin:
    """By default this process; a simulation is another one at another time."""

    host: str = field(default_factory=host_name)
    process_id: int = field(default_factory=os.getpid)
    now_ns: Callable[[], int] = time.time_ns
