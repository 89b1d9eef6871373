"""Puts the environment report into a recording, on a thread of its own: it reads many small files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_WAIT_S = 3.0


class EnvironmentFact:
    """Collects once.

    Args:
        write: takes ``environment`` and the report.
    """

    def __init__(self, write: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._write = write
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to collect; call it when training has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._collect, name="gpu-doctor-environment", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Collect where no step was ever seen, and wait a little for the report."""
        try:
            self.start()
            if self._thread is not None:
                self._thread.join(LONGEST_WAIT_S)
        except RuntimeError:  # no thread can be started while Python ends
            return

    def _collect(self) -> None:
        try:
            from tb_gpu_doctor.monitor.environment import collect

            self._write("environment", collect(in_process=True))
        except Exception:  # at exit much of Python may be gone
            logging.getLogger("tb_gpu_doctor").debug("no environment report", exc_info=True)
