"""The categories of Kineto's trace events, in lower case; files before 2022 wrote ``Kernel``, ``Runtime``."""

from __future__ import annotations

KERNEL, COPY, MEMSET = "kernel", "copy", "memset"
DEVICE_CATEGORIES = {
    "kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": MEMSET, "memset": MEMSET,
    "concurrent_kernel": KERNEL,
}  # fmt: skip
OPERATOR, CALL, FRAME, MARK, OVERHEAD = "operator", "call", "frame", "mark", "overhead"
HOST_CATEGORIES = {
    "cpu_op": OPERATOR, "operator": OPERATOR, "user_annotation": MARK, "python_function": FRAME,
    "cuda_runtime": CALL, "cuda_driver": CALL, "runtime": CALL, "driver": CALL, "hip_runtime": CALL,
    "hip_driver": CALL, "xpu_runtime": CALL, "xpu_driver": CALL, "mtia_runtime": CALL, "privateuse1_runtime": CALL,
    "privateuse1_driver": CALL, "overhead": OVERHEAD,
}  # fmt: skip
# The whole recording, as one event.
RECORDING_CATEGORY = "trace"
