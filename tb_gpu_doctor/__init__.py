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
    from tb_gpu_doctor.errors import DoctorError as DoctorError
    from tb_gpu_doctor.monitor.batch_size import find_batch_size as find_batch_size
    from tb_gpu_doctor.monitor.capture import CaptureOptions as CaptureOptions
    from tb_gpu_doctor.monitor.keras_callback import GpuDoctorCallback as GpuDoctorCallback
    from tb_gpu_doctor.monitor.monitor import GpuMonitor as GpuMonitor

__version__ = "0.1.0"
__all__ = [
    "CaptureOptions",
    "DoctorError",
    "GpuDoctorCallback",
    "GpuMonitor",
    "__version__",
    "diagnose",
    "find_batch_size",
]


def __getattr__(name: str) -> Any:
    if name == "diagnose":
        from tb_gpu_doctor.api import diagnose

        return diagnose
    if name == "DoctorError":
        from tb_gpu_doctor.errors import DoctorError

        return DoctorError
    if name == "GpuMonitor":
        from tb_gpu_doctor.monitor.monitor import GpuMonitor

        return GpuMonitor
    if name == "GpuDoctorCallback":  # imports Keras
        from tb_gpu_doctor.monitor.keras_callback import GpuDoctorCallback

        return GpuDoctorCallback
    if name == "CaptureOptions":
        from tb_gpu_doctor.monitor.capture import CaptureOptions

        return CaptureOptions
    if name == "find_batch_size":
        from tb_gpu_doctor.monitor.batch_size import find_batch_size

        return find_batch_size
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
