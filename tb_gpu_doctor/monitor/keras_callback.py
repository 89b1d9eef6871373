"""`GpuDoctorCallback`: records what Keras's ``fit`` does, step by step.

    model.fit(dataset, callbacks=[GpuDoctorCallback("logs", profile_steps=(50, 60))])

It marks every step for profilers, times it, notes validation and saving, samples the GPUs through its
`GpuMonitor` and takes profiles. No failure of it reaches training.

Keras tells its callbacks nothing about the batch size. The epoch iterator of ``fit`` knows it through its data
adapter, and is looked up on the call stack once per training; what is not found there stays unknown.
``fit(x, y, batch_size=64)``, generators, ``PyDataset`` and ``tf.data`` under any strategy are covered.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras

from tb_gpu_doctor.monitor.capture import CaptureOptions
from tb_gpu_doctor.monitor.notes import complain, describe_error, never_raises

# tf.data's transformations that leave batches as they are; others may split, pad or merge them.
_KEEPING = (
    "Prefetch", "Options", "Repeat", "Take", "Skip", "Cache", "Map", "Shard", "Shuffle", "Model", "Optimize",
    "Interleave", "Distribute", "Rebatch", "AutoShard", "Apply", "Copy", "Assert", "Finalize", "MaxIntraOp",
    "PrivateThreadPool", "Snapshot", "Save", "Load", "Finite", "Ignore",
)  # fmt: skip


@dataclass(frozen=True)
class Batches:
    """Global batch of a training.

    Attributes:
        full: samples of all replicas in one step; None where unknown.
        last: of an epoch's last step, which may be smaller; None where unknown.
    """

    full: int | None = None
    last: int | None = None


def find_batches(replicas: int = 1) -> Batches:
    """Look at the ``fit`` that called the callback.

    Args:
        replicas: ``strategy.num_replicas_in_sync``, for datasets that are made per replica.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals:
            return _of_iterator(frame.f_locals["epoch_iterator"], replicas)
        if frame.f_code.co_name == "fit" and "data_handler" in frame.f_locals:
            return _of_handler(frame.f_locals["data_handler"])
        frame = frame.f_back
    return Batches()


def _of_handler(handler: Any) -> Batches:
    """Keras 2; what it makes of arrays and datasets under a strategy holds global batches."""
    adapter: Any = getattr(handler, "_adapter", None)
    size = None if adapter is None else adapter.batch_size()
    if isinstance(size, int) and size >= 1:
        partial = adapter.has_partial_batch()
        return Batches(size, size if partial is False else adapter.partial_batch_size() if partial else None)
    dataset = getattr(handler, "_dataset", None)
    dataset = getattr(dataset, "_original_dataset", dataset)
    if not hasattr(dataset, "element_spec"):
        return Batches()
    size = _of_element_spec(dataset)
    return Batches(size, size) if size else Batches(_of_batch_op(dataset), None)


def _of_iterator(iterator: Any, replicas: int) -> Batches:
    adapter = getattr(iterator, "data_adapter", None)
    dataset = getattr(adapter, "_dataset", None)
    if "DatasetsFromFunction" in type(dataset).__name__:
        size, whole = _of_element_spec(dataset), True
        return Batches(size * replicas, size * replicas if whole else None) if size else Batches()
    # A dataset that a strategy distributes holds global batches, which are then split.
    dataset = getattr(dataset, "_original_dataset", dataset)
    if dataset is not None and hasattr(dataset, "element_spec"):
        size = _of_element_spec(dataset)
        if size:
            return Batches(size, size)  # known to the graph: every batch is full
        return Batches(_of_batch_op(dataset), None)
    size = getattr(adapter, "batch_size", None)
    if not isinstance(size, int) or size < 1:
        return Batches()
    if not getattr(adapter, "has_partial_batch", None):
        # None: a generator, which does not know.
        return Batches(size, size if getattr(adapter, "has_partial_batch", None) is False else None)
    return Batches(size, getattr(adapter, "partial_batch_size", None))


def _of_element_spec(dataset: Any) -> int | None:
    spec = dataset.element_spec
    while isinstance(spec, (tuple, list, dict)) and len(spec):
        spec = next(iter(spec.values())) if isinstance(spec, dict) else spec[0]
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank in (None, 0):
        return None
    size = shape[0]
    return int(size) if size else None


def _of_batch_op(dataset: Any) -> int | None:
    for _ in range(100):
        if dataset is None:
            return None
        size = getattr(dataset, "_batch_size", None)
        if size is not None:
            return int(size)
        name = type(dataset).__name__.strip("_").removeprefix("Parallel")
        if not name.startswith(_KEEPING):
            return None
        dataset = getattr(dataset, "_input_dataset", None)
    return None


if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.monitor import GpuMonitor
    from tb_gpu_doctor.monitor.step_hooks import StepHooks

    _Callback: Any = object
else:
    _Callback = keras.callbacks.Callback

# Methods of a model with which callbacks save it. ModelCheckpoint, BackupAndRestore and most own ones use them.
_SAVING = ("save", "save_weights", "export")


class GpuDoctorCallback(_Callback):  # type: ignore[misc]
    """Records a Keras training for GPU Doctor.

    Steps are numbered through the whole training: from the optimizer's own count where training goes
    on from a checkpoint, else from ``initial_epoch``. With ``steps_per_execution`` above 1 an execution is
    recorded as one entry under its last step's number, with the mean time of its steps.

    Args:
        logdir: TensorBoard's logdir; a `GpuMonitor` is then started and stopped with the training.
        monitor: use this one instead, which the caller starts and stops.
        batch_size: global batch, where it cannot be found out.
        interval_s: between two samples of the GPUs.
        gpus: which GPUs to sample (`GpuMonitor`).
        capture: when to take profiles.
        on_hang: what to do when steps stop coming (`GpuMonitor`).
        **options: those of `CaptureOptions`, in place of ``capture``: ``profile_steps=(50, 60)``.

    Raises:
        ValueError: options that make no sense.
    """

    def __init__(
        self,
        logdir: Any = None,
        *,
        monitor: GpuMonitor | None = None,
        batch_size: int | None = None,
        interval_s: float = 1.0,
        gpus: Any = "visible",
        capture: CaptureOptions | None = None,
        on_hang: Any = "dump",
        **options: Any,
    ) -> None:
        super().__init__()
        if (logdir is None) == (monitor is None):
            raise ValueError("GpuDoctorCallback needs a logdir or a monitor, and not both")
        if monitor is not None and (capture is not None or options):
            raise ValueError("with monitor=... profiles are asked for at the monitor: GpuMonitor(logdir, capture=...)")
        if capture is not None and options:
            raise ValueError("give capture=... or its options, not both")
        self.monitor = monitor
        self._owned = monitor is None
        self._arguments = {"logdir": logdir, "interval_s": interval_s, "gpus": gpus, "on_hang": on_hang}
        self._capture = capture or CaptureOptions(**options)
        self._batch_size = batch_size
        self._batches = Batches(batch_size, None)
        self._base: int | None = None
        self._first = 0  # number of the step that runs
        self._done = 0  # steps of this fit
        self._in_step = False
        self._validation: int | None = None
        self._watched: Any = None

    # --- training ------------------------------------------------------------------------------

    @never_raises("begin_training")
    def on_train_begin(self, logs: Any = None) -> None:
        """Start the monitor, and find out what a step is."""
        self._begin_training()

    @never_raises("begin_epoch")
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """What lies between two epochs is no step."""
        if self.monitor is not None:
            self._begin_epoch(epoch)

    @never_raises("begin_step")
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """A step begins, or an execution of several."""
        if self.monitor is not None:
            self._begin_step(batch)

    @never_raises("end_step")
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """It ended."""
        if self.monitor is not None:
            self._end_step(batch)

    @never_raises("abandon")
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """A step that found no more data was none."""
        if self.monitor is not None:
            self._abandon()

    @never_raises("end_training")
    def on_train_end(self, logs: Any = None) -> None:
        """Stop what this callback started."""
        if self.monitor is not None:
            self._end_training()

    @never_raises("begin_validation")
    def on_test_begin(self, logs: Any = None) -> None:
        """Validation begins."""
        if self.monitor is not None:
            self._begin_validation()

    @never_raises("end_validation")
    def on_test_end(self, logs: Any = None) -> None:
        """Validation ended."""
        if self.monitor is not None:
            self._end_validation()

    def _begin_training(self) -> None:
        self._abandon()
        self._unwatch()  # a training before this one ended by an exception
        self._validation = None
        self._base = None
        backend = keras.config.backend() if hasattr(keras, "config") else "tensorflow"  # Keras 2 has no other
        if self.monitor is None:
            from tb_gpu_doctor.monitor.monitor import GpuMonitor

            framework = backend if backend in ("tensorflow", "jax", "torch") else None
            self.monitor = GpuMonitor(**self._arguments, step_hook=True, capture=self._capture, framework=framework)
        if self._owned:
            self.monitor.start()
        if self._batch_size is None:
            self._batches = find_batches(self._replicas())
        self._watch()

    def _end_training(self) -> None:
        self._abandon()
        self._unwatch()
        if self._owned and self.monitor is not None:
            monitor, self.monitor = self.monitor, None
            monitor.stop()

    def _begin_epoch(self, epoch: int) -> None:
        if self._base is None:
            # Not before: BackupAndRestore loads the weights, and the counts, when training begins.
            self._base = self._steps_before(epoch)
            self._done = 0
        self._hooks.interrupt()

    def _begin_step(self, batch: int) -> None:
        if self._base is None:
            self._begin_epoch(0)
        self._abandon()
        self._first = batch
        self._in_step = True
        self._hooks.begin((self._base or 0) + self._done, self._per_execution())

    def _end_step(self, batch: int) -> None:
        if not self._in_step:
            return
        self._in_step = False
        steps = (self.params or {}).get("steps")
        # With several steps in one execution the last one of an epoch may be cut short; Keras does not say so.
        last = min(batch, steps - 1) if steps else batch
        count = max(last - self._first + 1, 1)
        self._done += count
        self._hooks.end(count, self._samples(last, count, steps))

    def _samples(self, last: int, count: int, steps: int | None) -> int | None:
        full, partial = self._batches.full, self._batches.last
        if full is None or self._batch_size is not None or not steps or last < steps - 1:
            return full  # of an epoch of unknown length only the last step, which nobody can tell, may be smaller
        return None if partial is None else (full * (count - 1) + partial) // count

    def _abandon(self) -> None:
        if self._in_step:
            self._in_step = False
            self._hooks.abandon()

    def _begin_validation(self) -> None:
        self._abandon()
        if self.monitor is not None and self._validation is None:
            self._validation = self._hooks.begin_span()

    def _end_validation(self) -> None:
        if self._validation is not None:
            begin, self._validation = self._validation, None
            self._hooks.end_span("validation", begin)

    # --- what Keras does not tell --------------------------------------------------------------

    def _steps_before(self, epoch: int) -> int:
        """Steps of this training before its first epoch here."""
        # `_model`: on JAX the property would copy all weights back.
        optimizer = getattr(self._trained, "optimizer", None)
        count = getattr(optimizer, "_iterations", None)
        if count is None:
            count = getattr(optimizer, "iterations", None)
        if count is not None:
            done = int(keras.ops.convert_to_numpy(count) if hasattr(keras, "ops") else count)
            if done > 0:
                return done
        steps = (self.params or {}).get("steps")
        return int(epoch) * int(steps) if steps else 0

    def _replicas(self) -> int:
        strategy = getattr(self._trained, "distribute_strategy", None)
        return int(getattr(strategy, "num_replicas_in_sync", 1) or 1)

    def _watch(self) -> None:
        """See the model being saved, whoever saves it: through its own methods, on this model only."""
        model = self._trained
        if model is None:
            return
        self._watched = model
        for name in _SAVING:
            method = getattr(model, name, None)
            # The instance's dictionary and not setattr: Keras tracks what is set as a part of the model.
            if callable(method) and name not in model.__dict__:
                model.__dict__[name] = self._noting(method, name)

    def _unwatch(self) -> None:
        model, self._watched = self._watched, None
        if model is not None:
            for name in _SAVING:
                if getattr(model.__dict__.get(name), "_gpu_doctor", None) is self:
                    del model.__dict__[name]

    def _noting(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(method)
        def noted(*args: Any, **kwargs: Any) -> Any:
            hooks = getattr(self.monitor, "hooks", None)
            if hooks is None:
                return method(*args, **kwargs)
            with hooks.span("checkpoint", name):
                return method(*args, **kwargs)

        noted._gpu_doctor = self  # type: ignore[attr-defined]
        return noted

    @property
    def _trained(self) -> Any:
        """The model; on JAX, Keras 3's own property would copy all weights back."""
        return self._model if hasattr(self, "_model") else self.model

    def _per_execution(self) -> int:
        """Steps in one execution."""
        model = self._trained
        told = getattr(model, "steps_per_execution", None)
        if told is None:
            told = getattr(model, "_steps_per_execution", None)  # Keras 2
        return 1 if told is None else max(1, int(told))

    def failed(self, part: str, error: Exception) -> None:
        """Training never learns of a failure; the log does, once."""
        complain("hook_failed", part=part, reason=describe_error(error))

    @property
    def _hooks(self) -> StepHooks:
        assert self.monitor is not None
        return self.monitor.hooks
