"""Claims a folder of its own for each run: two monitors on one logdir never write into the same one.

TensorBoard drops points whose step does not grow within a run, so a restarted training may not go on in the
folder of the one before.
"""

from __future__ import annotations

import os
import re
import time

from tb_gpu_doctor.monitor.event_file import file_layer, is_remote
from tb_gpu_doctor.monitor.origin import Origin
from tb_gpu_doctor.recording_format import FOLDER

MOST_RUNS = 100_000


def safe_name(name: str) -> str:
    """``name`` as one part of a path."""
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "_"


class RunFolders:
    """The folders of one monitor below ``<logdir>/gpu_doctor/<host>``."""

    def __init__(self, logdir: str, origin: Origin) -> None:
        self._host = safe_name(origin.host)
        self._remote = is_remote(logdir)
        self._separator = "/" if self._remote else os.sep
        self._base = self._join((logdir or ".").rstrip(self._separator), FOLDER, self._host)
        # Object stores make no folder atomically: there the name itself is unique.
        began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(origin.now_ns() / 1e9))
        self._unique = f"{began}-{origin.process_id}-{os.urandom(2).hex()}"

    def claim(self, name: str) -> tuple[str, str]:
        """Create and return a folder that nobody else has: (its path, its run below the logdir).

        ``name`` if it is free, else ``name_2``, ``name_3``, ...

        Raises:
            OSError: it cannot be created; of remote stores also their own exceptions.
        """
        if self._remote:
            return self._claim_remote(name)
        os.makedirs(self._base, exist_ok=True)
        number = self._likely_number(name)
        while number < MOST_RUNS:
            chosen = name if number == 1 else f"{name}_{number}"
            try:
                os.mkdir(self._join(self._base, chosen))
            except FileExistsError:
                number += 1
                continue
            return self._join(self._base, chosen), self._run(chosen)
        raise FileExistsError(f"{MOST_RUNS} runs called {name} in {self._base}")

    def _likely_number(self, name: str) -> int:
        """A free number, unless another process takes it: so a thousand restarts cost one look, not a thousand."""
        pattern = re.compile(re.escape(name) + r"(?:_(\d{1,6}))?")
        taken = [int(match[1] or 1) for entry in os.listdir(self._base) if (match := pattern.fullmatch(entry))]
        return max(taken, default=0) + 1

    def _claim_remote(self, name: str) -> tuple[str, str]:
        chosen = f"{name}_{self._unique}"
        path = self._join(self._base, chosen)
        file_layer(path).makedirs(path)
        return path, self._run(chosen)

    def _join(self, *parts: str) -> str:
        return self._separator.join(parts)

    def _run(self, chosen: str) -> str:
        return f"{FOLDER}/{self._host}/{chosen}"
