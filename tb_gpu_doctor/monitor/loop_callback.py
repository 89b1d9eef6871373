"""What the callbacks for Lightning and for Hugging Face's Trainer share: a monitor that goes with a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.monitor.capture import CaptureOptions
from tb_gpu_doctor.monitor.notes import complain, describe_error

if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.monitor import GpuMonitor
    from tb_gpu_doctor.monitor.step_hooks import SpanKind, StepHooks

# As deep as a batch is looked into for its first tensor.
_DEEPEST = 4


class LoopCallback:
    """Starts and stops a monitor with the training, and hands steps and spans on.

    Args:
        logdir: TensorBoard's logdir; a `GpuMonitor` is then started and stopped with the training.
        monitor: use this one instead, which the caller starts and stops.
        batch_size: global batch, where it cannot be found out.
        capture: when to take profiles.
        **options: those of `CaptureOptions`, in place of ``capture``, and of `GpuMonitor`, such as ``interval_s``.

    Raises:
        ValueError: options that make no sense.
    """

    _OF_MONITOR = ("interval_s", "gpus", "on_hang", "otlp", "prometheus_port")

    def __init__(
        self,
        logdir: Any = None,
        *,
        monitor: GpuMonitor | None = None,
        batch_size: int | None = None,
        capture: CaptureOptions | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if (logdir is None) == (monitor is None):
            raise ValueError("GpuDoctorCallback needs a logdir or a monitor, and not both")
        if monitor is not None and (capture is not None or options):
            raise ValueError("with monitor=... its options belong to the monitor: GpuMonitor(logdir, capture=...)")
        if capture is not None and options.keys() - set(self._OF_MONITOR):
            raise ValueError("give capture=... or its options, not both")
        self.monitor = monitor
        self._owned = monitor is None
        self._logdir = logdir
        self._of_monitor = {name: options.pop(name) for name in self._OF_MONITOR if name in options}
        self._capture = capture or CaptureOptions(**options)
        self._batch_size = batch_size
        self._in_step = False
        self._beside: int | None = None

    def failed(self, part: str, error: Exception) -> None:
        """Training never learns of a failure; the log does, once."""
        complain("hook_failed", part=part, reason=describe_error(error))

    @property
    def _hooks(self) -> StepHooks:
        assert self.monitor is not None
        return self.monitor.hooks

    def _begin_training(self) -> None:
        self._in_step, self._beside = False, None
        if self.monitor is None:
            from tb_gpu_doctor.monitor.monitor import GpuMonitor

            self.monitor = GpuMonitor(
                self._logdir, step_hook=True, capture=self._capture, framework="torch", **self._of_monitor
            )
        if self._owned:
            self.monitor.start()
        self._hooks.interrupt()

    def _end_training(self, error: BaseException | None = None) -> None:
        if self.monitor is None:
            return
        self._abandon()
        self._end_beside("validation")
        if self._owned:
            monitor, self.monitor = self.monitor, None
            monitor.__exit__(None if error is None else type(error), error, None)

    def _begin_step(self, number: int) -> None:
        self._abandon()
        self._drop_beside()
        self._in_step = True
        self._hooks.begin(number)

    def _end_step(self, samples: int | None) -> None:
        if self._in_step:
            self._in_step = False
            self._hooks.end(1, self._batch_size if self._batch_size is not None else samples)

    def _abandon(self) -> None:
        if self._in_step:
            self._in_step = False
            self._hooks.abandon()

    def _begin_beside(self) -> None:
        """Training does something beside stepping from here on; what, is told at its end."""
        if self._beside is None:
            self._beside = self._hooks.begin_span()

    def _end_beside(self, kind: SpanKind) -> None:
        if self._beside is not None:
            begin, self._beside = self._beside, None
            self._hooks.end_span(kind, begin)

    def _drop_beside(self) -> None:
        """What was expected did not come; the time was spent beside stepping all the same."""
        self._end_beside("checkpoint")


def samples_of(batch: Any, depth: int = 0) -> int | None:
    """Samples of a batch: the first extent of its first tensor, however it is nested; None where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if depth >= _DEEPEST or isinstance(batch, str | bytes):
        return None
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else ()
    return next((found for part in parts if (found := samples_of(part, depth + 1)) is not None), None)
