"""GPU Doctor in Hugging Face's Trainer: ``pip install 'tb-gpu-doctor[transformers]'``.

    from tb_gpu_doctor.transformers import GpuDoctorCallback

    trainer = Trainer(..., callbacks=[GpuDoctorCallback("logs", profile_steps=(50, 60))])

A step is one of the optimizer's, as the Trainer counts them, with all batches whose gradients are added up. Nothing of
it reaches training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.monitor.loop_callback import LoopCallback
from tb_gpu_doctor.monitor.notes import never_raises

if TYPE_CHECKING:
    _Callback: Any = object
else:
    from transformers import TrainerCallback as _Callback

__all__ = ["GpuDoctorCallback"]


class GpuDoctorCallback(LoopCallback, _Callback):  # type: ignore[misc]
    """Records a training of the Trainer: steps, evaluation, saving, profiles and the GPUs.

    Arguments are those of `LoopCallback`: ``logdir`` or ``monitor``, ``batch_size``, options of `CaptureOptions` such
    as ``profile_steps``, and of `GpuMonitor` such as ``interval_s``.
    """

    @never_raises("begin_training")
    def on_train_begin(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """Start the monitor."""
        self._end_training()  # one before it that ended by an exception, of which the Trainer says nothing
        self._begin_training()

    @never_raises("begin_epoch")
    def on_epoch_begin(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """What lies between two epochs is no step."""
        if self.monitor is not None:
            self._hooks.interrupt()

    @never_raises("begin_step")
    def on_step_begin(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """A step begins."""
        if self.monitor is not None:
            self._begin_step(int(state.global_step))

    @never_raises("end_step")
    def on_step_end(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """It ended; what the Trainer does next, it has decided already."""
        if self.monitor is None:
            return
        self._end_step(int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size))
        if control.should_evaluate or control.should_save:
            self._begin_beside()

    @never_raises("begin_validation")
    def on_epoch_end(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """At the end of an epoch the Trainer may evaluate and save."""
        if self.monitor is not None:
            self._abandon()
            if control.should_evaluate or control.should_save:
                self._begin_beside()

    @never_raises("end_validation")
    def on_evaluate(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """Evaluation ended."""
        if self.monitor is not None:
            self._end_beside("validation")
            if control.should_save:
                self._begin_beside()

    @never_raises("end_checkpoint")
    def on_save(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """Saving ended."""
        if self.monitor is not None:
            self._end_beside("checkpoint")

    @never_raises("end_training")
    def on_train_end(self, args: Any, state: Any, control: Any, /, **kwargs: Any) -> None:
        """Stop what this callback started."""
        self._end_training()
