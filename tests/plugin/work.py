"""What `test_worker_process` lets other processes do; they import it by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tb_gpu_doctor.errors import ProfileError

Report = Callable[[str, float], None]


def whereabouts(report: Report) -> tuple[int, int, str]:
    """Process, priority, and a variable of the user's."""
    report("decoding", 0.5)
    return os.getpid(), os.getpriority(os.PRIO_PROCESS, 0), os.environ.get("GPU_DOCTOR_TEST", "")


def fail(report: Report) -> None:
    raise ProfileError("truncated", "/logs/a", offset=3)


def die(marks: str, times: int, tests: int, report: Report) -> int:
    """End from outside, as often as that; then the number of this try. ``tests`` is not to be ended."""
    assert os.getpid() != tests
    tries = len(os.listdir(marks))
    (Path(marks) / str(tries)).touch()
    if tries < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def sleep(mark: str, tests: int, report: Report) -> None:
    """Work for ever, not in ``tests``; ``mark`` is to hold the process."""
    assert os.getpid() != tests
    Path(mark).write_text(str(os.getpid()))
    report("decoding", 0.1)
    while True:
        time.sleep(0.05)


def read(path: str, tests: int, report: Report) -> bytes:
    """Read a file to its end, not in ``tests``."""
    assert os.getpid() != tests
    report("reading", 0.1)
    return Path(path).read_bytes()
