"""Recordings for tests, written by the monitor's own writer without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor.event_file import Origin
from tb_gpu_doctor.monitor.notes import Notes
from tb_gpu_doctor.monitor.sampler import COLUMN
from tb_gpu_doctor.monitor.writer import RecordingWriter
from tb_gpu_doctor.recording_format import FORMAT_VERSION

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND


def gpu_facts(index: int) -> dict[str, Any]:
    return {
        "label": f"gpu{index}",
        "framework_id": index,
        "nvml_index": index,
        "mig": None,
        "uuid": f"GPU-{index}",
        "pci_bus_id": f"00000000:0{index}:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "limits": {"sm_clock_max_mhz": 1980.0},
    }


class Recorded:
    """One process's recording."""

    def __init__(self, logdir: Path, gpus: int = 2, host: str = "node1", process_id: int = 42) -> None:
        self.now_ns = START_NS
        header = {
            "version": FORMAT_VERSION,
            "host": host,
            "process_id": process_id,
            "start_ns": START_NS,
            "interval_s": 1.0,
            "metrics": [metric.id for metric in METRICS],
        }
        origin = Origin(host, process_id, lambda: self.now_ns)
        self.writer = RecordingWriter(str(logdir), header, Notes(lambda note: None), origin=origin)
        self.gpus = gpus
        self.writer.set_gpus([gpu_facts(index) for index in range(gpus)])

    def sample(self, step: int = -1, **values: Sequence[float]) -> None:
        """One tick, a second after the last: values by metric, one a GPU."""
        row = np.full((self.gpus, len(METRICS)), np.nan)
        for metric, column in values.items():
            row[:, COLUMN[metric]] = column
        self.writer.samples.append((self.now_ns, step, row))
        self.now_ns += SECOND

    def write(self, last: bool = False) -> Path:
        """Write, and return the recording's own file."""
        self.writer.write_now(last)
        assert self.writer._process is not None
        return Path(self.writer._process.path)
