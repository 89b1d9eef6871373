"""What the monitor asks of TensorFlow, JAX and PyTorch, behind one interface.

No framework is ever imported here: only one that training has loaded already is asked. Each method
may raise whatever the framework raises; the callers, which run inside training, catch it.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

FRAMEWORKS = ("tensorflow", "jax", "torch")
# The name of the marks; with the step's number it is what TensorFlow's and JAX's own loops use.
STEP_NAME = "train"


class Mark(Protocol):
    """An open step mark."""

    recorded: bool

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class AllocatorReading:
    """Memory figures of one GPU as the framework numbers it, in bytes."""

    gpu: int
    used_bytes: int
    peak_bytes: int
    limit_bytes: int | None


class Framework(Protocol):
    """One framework that training uses."""

    name: str

    def mark(self, step: int) -> Mark:
        """Open a mark that profilers show as step ``step``, on the calling thread."""

    def allocator(self) -> Iterator[AllocatorReading]:
        """Memory of each of its GPUs; nothing where it has none."""

    def synchronize(self) -> None:
        """Wait until the devices have done what was launched."""

    def start_profile(self, folder: str) -> None:
        """Start the framework's profiler."""

    def stop_profile(self, save: bool = True) -> None:
        """Stop it; the profile is then below ``folder``."""


def module(name: str) -> ModuleType | None:
    """A framework's module if training has loaded it to the end."""
    found = sys.modules.get(name)
    spec = getattr(found, "__spec__", None)
    return None if found is None or getattr(spec, "_initializing", False) else found


class TensorFlow:
    """TensorFlow, also below Keras."""

    name = "tensorflow"

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._trace: Callable[..., Any] = tf.profiler.experimental.Trace
        self._gpus: list[str] | None = None

    def mark(self, step: int) -> Mark:
        """A ``Trace``; without a running profiler it is nothing but a Python object."""
        return _TraceMark(self._trace(STEP_NAME, step_num=step, _r=1))

    def allocator(self) -> Iterator[AllocatorReading]:
        """What the BFC allocator holds, not what it took from the driver at the start."""
        if self._gpus is None:
            # Logical devices exist once training runs; asking earlier would initialise them.
            self._gpus = [
                device.name.rpartition("device:")[2] for device in self._tf.config.list_logical_devices("GPU")
            ]
        for index, device in enumerate(self._gpus):
            info = self._tf.config.experimental.get_memory_info(device)
            yield AllocatorReading(index, int(info["current"]), int(info["peak"]), None)

    def synchronize(self) -> None:
        """Wait for all devices where this version can."""
        sync = getattr(getattr(self._tf.test, "experimental", None), "sync_devices", None)
        if sync is not None and self._tf.executing_eagerly():
            sync()

    def start_profile(self, folder: str) -> None:
        """Write below ``folder/plugins/profile`` when stopped."""
        module_of_it = sys.modules.get("tensorflow.python.profiler.profiler_v2")
        free = getattr(module_of_it, "_profiler", None) is None
        try:
            self._tf.profiler.experimental.start(folder)
        except Exception:
            # Refused since a profile is taken from outside (TensorBoard's button), TensorFlow keeps what it
            # could not start, and would refuse for ever.
            if free and getattr(module_of_it, "_profiler", None) is not None:
                self._tf.profiler.experimental.stop(save=False)
            raise

    def stop_profile(self, save: bool = True) -> None:
        """Stop and write."""
        self._tf.profiler.experimental.stop(save=save)


class _TraceMark:
    __slots__ = ("_trace", "recorded")

    def __init__(self, trace: Any) -> None:
        self._trace = trace
        self._trace.__enter__()
        # A Trace without a TraceMe was made while no profiler, ours or anybody's, was running.
        self.recorded = getattr(trace, "_traceme", None) is not None

    def close(self) -> None:
        self._trace.__exit__(None, None, None)


class Jax:
    """JAX."""

    name = "jax"

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._annotation: Callable[..., Any] = jax.profiler.StepTraceAnnotation
        self._gpus: list[Any] | None = None

    def mark(self, step: int) -> Mark:
        """A ``StepTraceAnnotation``."""
        return _AnnotationMark(self._annotation(STEP_NAME, step_num=step))

    def allocator(self) -> Iterator[AllocatorReading]:
        """``memory_stats`` of this process's GPUs."""
        if self._gpus is None:
            if not self._initialised():
                return
            self._gpus = [device for device in self._jax.local_devices() if device.platform in ("gpu", "cuda", "rocm")]
        for index, device in enumerate(self._gpus):
            stats = device.memory_stats() or {}
            if "bytes_in_use" in stats:
                used, peak = int(stats["bytes_in_use"]), int(stats.get("peak_bytes_in_use", stats["bytes_in_use"]))
                limit = stats.get("bytes_limit")
                yield AllocatorReading(index, used, peak, int(limit) if limit else None)

    def _initialised(self) -> bool:
        bridge = module("jax._src.xla_bridge")
        check = getattr(bridge, "backends_are_initialized", None)
        return bool(check()) if check is not None else True

    def synchronize(self) -> None:
        """Wait for everything that is being computed: JAX returns before its results exist."""
        if self._initialised():
            for array in self._jax.live_arrays():
                if not array.is_deleted():
                    array.block_until_ready()

    def start_profile(self, folder: str) -> None:
        """Write below ``folder/plugins/profile`` when stopped."""
        self._jax.profiler.start_trace(folder)

    def stop_profile(self, save: bool = True) -> None:
        """Stop and write; JAX cannot stop without writing."""
        self._jax.profiler.stop_trace()


class _AnnotationMark:
    __slots__ = ("_annotation", "recorded")

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        self._annotation.__enter__()
        enabled = getattr(annotation, "is_enabled", None)
        self.recorded = bool(enabled()) if callable(enabled) else False

    def close(self) -> None:
        self._annotation.__exit__(None, None, None)


class Torch:
    """PyTorch. Steps are marked during our own profiles only: a user's profiler marks its own."""

    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profiler: Any = None

    def mark(self, step: int) -> Mark:
        """A range called ``ProfilerStep#<step>``, as `profiler.step()` makes them."""
        if self._profiler is None:
            return _NO_MARK
        return _RangeMark(self._torch.profiler.record_function(f"ProfilerStep#{step}"))

    def allocator(self) -> Iterator[AllocatorReading]:
        """The caching allocator's figures of the GPUs that this process uses."""
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return
        for index in range(cuda.device_count()):
            peak = int(cuda.max_memory_allocated(index))
            if peak:  # asking is free; a GPU of another rank was never used here
                yield AllocatorReading(index, int(cuda.memory_allocated(index)), peak, None)

    def synchronize(self) -> None:
        """Wait for the current GPU."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def start_profile(self, folder: str) -> None:
        """Write ``<host>_<pid>.<time>.pt.trace.json.gz`` into ``folder`` when stopped."""
        profiler = self._torch.profiler
        handler = profiler.tensorboard_trace_handler(folder, f"{socket.gethostname()}_{os.getpid()}", use_gzip=True)
        self._profiler = profiler.profile(on_trace_ready=handler)
        self._profiler.start()

    def stop_profile(self, save: bool = True) -> None:
        """Stop and write."""
        running, self._profiler = self._profiler, None
        if running is not None:
            if not save:
                running.on_trace_ready = None
            running.stop()


class _RangeMark:
    __slots__ = ("_range", "recorded")

    def __init__(self, entered: Any) -> None:
        self._range = entered
        self._range.__enter__()
        self.recorded = True

    def close(self) -> None:
        self._range.__exit__(None, None, None)


class _NoMark:
    recorded = False

    def close(self) -> None:
        pass


_NO_MARK = _NoMark()
_CLASSES: dict[str, Callable[[Any], Framework]] = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}


class Frameworks:
    """Those frameworks that training has loaded, the one that trains first.

    Args:
        wanted: the one that trains, where the caller knows it; the others are then left alone.
    """

    def __init__(self, wanted: str | None = None) -> None:
        if wanted is not None and wanted not in FRAMEWORKS:
            raise ValueError(f"framework must be one of {', '.join(FRAMEWORKS)}, not {wanted!r}")
        self._wanted = wanted
        self._modules: tuple[Any, ...] = ()
        self._found: tuple[Framework, ...] = ()
        self._asked_ns = 0

    def loaded(self) -> tuple[Framework, ...]:
        """All of them; looked for anew when another one was imported."""
        names = FRAMEWORKS if self._wanted is None else (self._wanted,)
        modules = tuple(sys.modules.get(name) for name in names)
        if modules != self._modules or (not self._found and time.monotonic_ns() - self._asked_ns > 1_000_000_000):
            self._asked_ns = time.monotonic_ns()
            complete = [module(name) for name in names]
            found: list[Framework] = []
            for name, usable in zip(names, complete, strict=True):
                if usable is not None:
                    try:
                        found.append(_CLASSES[name](usable))
                    except AttributeError:
                        continue  # still importing, or another package of that name
            self._found = tuple(found)
            if all(usable is sys.modules.get(name) for name, usable in zip(names, complete, strict=True)):
                self._modules = modules
        return self._found

    def training(self) -> Framework | None:
        """The framework whose profiler sees the training.

        TensorFlow is often loaded for nothing but tf.data or TensorBoard, so a JAX or PyTorch that has
        begun to compute comes first.
        """
        found = {framework.name: framework for framework in self.loaded()}
        bridge = module("jax._src.xla_bridge")
        started = getattr(bridge, "backends_are_initialized", None)
        torch: Any = module("torch")
        if "torch" in found and torch is not None and torch.cuda.is_initialized():
            return found["torch"]
        if "jax" in found and started is not None and started():
            return found["jax"]
        return found.get("tensorflow") or found.get("torch") or found.get("jax")
