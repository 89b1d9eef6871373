"""GPU Doctor: what is wrong with a GPU training run, what it costs, what to change.

    import tb_gpu_doctor

    diagnosis = tb_gpu_doctor.diagnose("logs")
    print(diagnosis)                        # as the terminal shows it; in a notebook, `diagnosis` alone
    diagnosis.findings[0].title             # plain strings
    diagnosis.gaps.to_pandas()              # tables: gpus, steps, gaps, kernels, collectives

    tb_gpu_doctor.compare("before", "after")
    tb_gpu_doctor.check("logs", baseline="baseline.json").passed
    tb_gpu_doctor.history("logs")

    with tb_gpu_doctor.GpuMonitor("logs"):
        train()

Importing this package imports nothing else: the loader of the TensorBoard plugin
lives below it and must not slow TensorBoard's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.check import Limits
    from tb_gpu_doctor.diagnosis.model import GpuRef
    from tb_gpu_doctor.errors import (
        ClusterError,
        DoctorError,
        DocumentError,
        MissingLibraryError,
        PackError,
        ProfileError,
        RemoteError,
    )
    from tb_gpu_doctor.monitor.batch_size import find_batch_size
    from tb_gpu_doctor.monitor.capture import CaptureOptions
    from tb_gpu_doctor.monitor.keras_callback import GpuDoctorCallback
    from tb_gpu_doctor.monitor.monitor import GpuMonitor
    from tb_gpu_doctor.public import check, compare, diagnose, find_sessions, history
    from tb_gpu_doctor.public_results import (
        Change,
        CheckResult,
        Comparison,
        Diagnosis,
        Evidence,
        Finding,
        History,
    )
    from tb_gpu_doctor.tables import Table
    from tb_gpu_doctor.traces.sessions import ProfileFile, Session, SessionScan

__version__ = "0.1.0"
__all__ = [
    "CaptureOptions",
    "Change",
    "CheckResult",
    "ClusterError",
    "Comparison",
    "Diagnosis",
    "DoctorError",
    "DocumentError",
    "Evidence",
    "Finding",
    "GpuDoctorCallback",
    "GpuMonitor",
    "GpuRef",
    "History",
    "Limits",
    "MissingLibraryError",
    "PackError",
    "ProfileError",
    "ProfileFile",
    "RemoteError",
    "Session",
    "SessionScan",
    "Table",
    "__version__",
    "check",
    "compare",
    "diagnose",
    "find_batch_size",
    "find_sessions",
    "history",
]

# Where each name lives; it is imported when it is first asked for.
_HOMES = {
    "comparison.check": ("Limits",),
    "diagnosis.model": ("GpuRef",),
    "errors": (
        "ClusterError", "DoctorError", "DocumentError", "MissingLibraryError", "PackError", "ProfileError",
        "RemoteError",
    ),
    "monitor.batch_size": ("find_batch_size",),
    "monitor.capture": ("CaptureOptions",),
    "monitor.keras_callback": ("GpuDoctorCallback",),  # imports Keras
    "monitor.monitor": ("GpuMonitor",),
    "public": ("check", "compare", "diagnose", "find_sessions", "history"),
    "public_results": ("Change", "CheckResult", "Comparison", "Diagnosis", "Evidence", "Finding", "History"),
    "tables": ("Table",),
    "traces.sessions": ("ProfileFile", "Session", "SessionScan"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
