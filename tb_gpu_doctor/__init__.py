"""GPU Doctor: what is wrong with a GPU training run, what it costs, what to change.

    import tb_gpu_doctor
    diagnosis = tb_gpu_doctor.diagnose("logs")
    print(diagnosis.to_dict()["verdict"])

    with tb_gpu_doctor.GpuMonitor("logs"):
        train()

Importing this package imports nothing else: the loader of the TensorBoard plugin
lives below it and must not slow TensorBoard's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tb_gpu_doctor.api import diagnose as diagnose
    from tb_gpu_doctor.monitor.monitor import GpuMonitor as GpuMonitor

__version__ = "0.1.0"
__all__ = ["GpuMonitor", "__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    if name == "diagnose":
        from tb_gpu_doctor.api import diagnose

        return diagnose
    if name == "GpuMonitor":
        from tb_gpu_doctor.monitor.monitor import GpuMonitor

        return GpuMonitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
