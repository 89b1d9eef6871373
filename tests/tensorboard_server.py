"""Runs a real TensorBoard, with every plugin that is installed, for as long as a test needs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The stock Profiler takes seconds to load, on a busy machine many.
START_TIMEOUT_S = 120.0
_ADDRESS = re.compile(r"TensorBoard \S+ at (http://\S+)")


@dataclass(frozen=True)
class TensorBoard:
    """A running TensorBoard; ``url`` ends with a slash and holds the path prefix."""

    url: str
    log: Path
    pid: int = 0

    @property
    def plugin_url(self) -> str:
        """The address below which the routes of the tab lie."""
        return f"{self.url}data/plugin/gpu_doctor/"


@contextmanager
def tensorboard(*arguments: str) -> Iterator[TensorBoard]:
    """Start TensorBoard on a free port of this machine; ends it on exit.

    Args:
        arguments: as on the command line, for example ``--logdir=demo_logs``.
    """
    command = [sys.executable, "-m", "tensorboard.main", "--host=127.0.0.1", "--port=0", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tensorboard.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield TensorBoard(_address(process, log), log, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        found = _ADDRESS.search(log.read_text(errors="replace"))
        if found:
            return found.group(1).rstrip("/") + "/"
        time.sleep(0.05)
    raise AssertionError(f"TensorBoard did not start:\n{log.read_text(errors='replace')}")
