"""Small XPlane files for the command to read, written byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulator.xplane_writer import Space, Unsigned

US = 1_000_000
MS = 1_000_000_000


def session_file(logdir: Path, host: str = "worker0", run: str = "", session: str = "2026_01_01_00_00_00") -> Path:
    """Where the profiler would write the file of a host."""
    folder = logdir / run / "plugins" / "profile" / session
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{host}.xplane.pb"


def write(space: Space, path: Path) -> Path:
    path.write_bytes(b"".join(space.chunks()))
    return path


def training(
    gpus: int = 2,
    steps: int = 6,
    *,
    kernel: str = "my_kernel",
    host_event: str = "work",
    details: str = "regs:32 static_shared:0 dynamic_shared:0 grid:1000,1,1 block:256,1,1 occ_pct:100",
    stats: bool = True,
    marked: bool = True,
    warnings: Sequence[str] = (),
    durations: Sequence[int] | None = None,
) -> Space:
    """GPUs that compute throughout: ten kernels of a millisecond a step, launched well ahead."""
    space = Space(warnings=tuple(warnings))
    per_step, length = 10, MS
    for gpu in range(gpus):
        known = {"core_count": Unsigned(100), "compute_cap_major": Unsigned(8), "compute_cap_minor": Unsigned(0)}
        plane = space.plane(f"/device:GPU:{gpu}", gpu + 1, {**known, "device_vendor": "Nvidia"} if stats else {})
        line = plane.line(7, "Stream #7(Compute)")
        for index in range(steps * per_step):
            correlation = Unsigned(1 + index + gpu * 1_000_000)
            duration = durations[index % len(durations)] if durations else length
            values = {"correlation_id": correlation, "kernel_details": details} if stats else {}
            line.event(kernel, 2 * MS + index * length, duration, values)
    host = space.plane("/host:CPU")
    python = host.line(1, "python")
    for step in range(steps):
        start = MS + step * per_step * length
        if marked:
            python.event("train", start, 9 * MS, {"step_num": step, "_r": 1})
        for gpu in range(gpus):
            for index in range(per_step):
                correlation = Unsigned(1 + step * per_step + index + gpu * 1_000_000)
                offset = start + 100 * US + (gpu * per_step + index) * 2 * US
                python.event("cuLaunchKernel", offset, US, {"correlation_id": correlation})
    python.event(host_event, 0, MS // 2)
    return space
