"""GPU Doctor in PyTorch Lightning: ``pip install 'tb-gpu-doctor[lightning]'``.

    from tb_gpu_doctor.lightning import GpuDoctorCallback

    trainer = Trainer(callbacks=[GpuDoctorCallback("logs", profile_steps=(50, 60))])

It works with ``lightning`` and with ``pytorch_lightning``, whichever trains. Each batch is a step, numbered through the
whole training, also where gradients of several are added up. Nothing of it reaches training.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.monitor.loop_callback import LoopCallback, samples_of
from tb_gpu_doctor.monitor.notes import never_raises

if TYPE_CHECKING:
    _Callback: Any = object
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback as _Callback
else:
    try:
        from lightning.pytorch import Callback as _Callback
    except ImportError:
        from pytorch_lightning import Callback as _Callback

__all__ = ["GpuDoctorCallback"]


class GpuDoctorCallback(LoopCallback, _Callback):  # type: ignore[misc]
    """Records a training of Lightning: steps, validation, saving, profiles and the GPUs.

    Arguments are those of `LoopCallback`: ``logdir`` or ``monitor``, ``batch_size``, options of `CaptureOptions` such
    as ``profile_steps``, and of `GpuMonitor` such as ``interval_s``.
    """

    _saving: Any = None

    @never_raises("begin_training")
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the monitor."""
        self._begin_training()
        self._watch(trainer)

    @never_raises("begin_epoch")
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """What lies between two epochs is no step."""
        if self.monitor is not None:
            self._hooks.interrupt()

    @never_raises("begin_step")
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins."""
        if self.monitor is not None:
            self._begin_step(int(trainer.fit_loop.epoch_loop.total_batch_idx))

    @never_raises("end_step")
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """It ended."""
        if self.monitor is not None:
            samples = samples_of(batch)
            self._end_step(None if samples is None else samples * int(trainer.world_size))

    @never_raises("begin_validation")
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins."""
        if self.monitor is not None and not trainer.sanity_checking:
            self._begin_beside()

    @never_raises("end_validation")
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation ended."""
        if self.monitor is not None:
            self._end_beside("validation")

    @never_raises("end_training")
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop what this callback started."""
        self._unwatch(trainer)
        self._end_training()

    @never_raises("end_training")
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training ends by an exception, or by Ctrl-C."""
        self._unwatch(trainer)
        self._end_training(exception)

    def _watch(self, trainer: Any) -> None:
        """See the trainer save, whoever asks for it."""
        save = trainer.save_checkpoint

        @functools.wraps(save)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if self.monitor is None:
                return save(*args, **kwargs)
            with self._hooks.span("checkpoint", "save_checkpoint"):
                return save(*args, **kwargs)

        self._saving = noted
        trainer.save_checkpoint = noted

    def _unwatch(self, trainer: Any) -> None:
        if self._saving is not None and trainer.__dict__.get("save_checkpoint") is self._saving:
            del trainer.__dict__["save_checkpoint"]
        self._saving = None
