"""`GpuDoctorCallback` in real Keras trainings on the CPU."""

from __future__ import annotations

import copy
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazily import Lazily
from tests.monitor.memory import MemoryMonitor, Step

tf, keras, keras_callback = map(Lazily, ("tensorflow", "keras", "tb_gpu_doctor.monitor.keras_callback"))
pytestmark = pytest.mark.slow  # TensorFlow alone takes seconds to import


def model(**compile_options: Any) -> Any:
    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **compile_options)
    return made


def arrays(count: int = 40) -> tuple[Any, Any]:
    return np.ones((count, 4), np.float32), np.ones((count, 1), np.float32)


def dataset(count: int = 40, batch: int = 8, drop: bool = False) -> Any:
    return tf.data.Dataset.from_tensor_slices(arrays(count)).batch(batch, drop_remainder=drop).prefetch(1)


def fit(made: Any, monitor: MemoryMonitor | None = None, **options: Any) -> list[Step]:
    """Train and return what was recorded."""
    monitor = monitor or MemoryMonitor(framework="tensorflow")
    options.setdefault("verbose", 0)
    callbacks = [keras_callback.GpuDoctorCallback(monitor=monitor), *options.pop("callbacks", [])]
    data = options.pop("data", None)
    x, y = (data, None) if data is not None else arrays()
    made.fit(x, y, callbacks=callbacks, **options)
    assert not monitor.recorder.notes
    return monitor.recorder.steps


def test_steps_are_numbered_through_all_epochs_and_have_their_samples() -> None:
    before = time.time_ns()
    steps = fit(model(), batch_size=16, epochs=3)
    assert [step.number for step in steps] == list(range(9))
    assert [step.samples for step in steps] == [16, 16, 8] * 3
    ends = [step.end_ns for step in steps]
    assert before < ends[0] and ends == sorted(ends) and ends[-1] <= time.time_ns()
    assert all(step.duration_ns > 0 for step in steps)
    # Within an epoch each step begins where the one before it ended.
    off = [other.end_ns - one.end_ns - other.duration_ns for one, other in pairwise(steps) if one.number % 3 != 2]
    assert np.median(np.abs(off)) < 1e6


def test_a_second_fit_and_a_resumed_one_go_on_counting() -> None:
    made, monitor = model(), MemoryMonitor(framework="tensorflow")
    fit(made, monitor, batch_size=8)
    steps = fit(made, monitor, batch_size=8)
    assert [step.number for step in steps] == list(range(10))
    resumed = fit(model(), batch_size=8, initial_epoch=3, epochs=4)
    assert [step.number for step in resumed] == list(range(15, 20))


def test_a_restored_optimizer_knows_the_step(tmp_path: Path) -> None:
    path = str(tmp_path / "state.weights.h5")
    made = model()
    made.fit(*arrays(), batch_size=8, epochs=2, verbose=0)
    made.save_weights(path)
    other = model()
    other.load_weights(path)
    assert [step.number for step in fit(other, batch_size=8)] == list(range(10, 15))


def test_backup_and_restore_behind_the_callback(tmp_path: Path) -> None:
    """It loads the weights and the epoch after the callback's own start."""

    class Fails(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise RuntimeError("preempted")

    options: Any = {"batch_size": 8, "epochs": 3}
    with pytest.raises(RuntimeError, match="preempted"):
        fit(model(), callbacks=[keras.callbacks.BackupAndRestore(str(tmp_path)), Fails()], **options)
    steps = fit(model(), callbacks=[keras.callbacks.BackupAndRestore(str(tmp_path))], **options)
    assert [step.number for step in steps] == list(range(10, 15))


@pytest.mark.parametrize(("batches", "per_execution", "numbers", "counts"), [
    (10, 4, [3, 7, 9], [4, 4, 2]), (8, 4, [3, 7], [4, 4]), (3, 8, [2], [3]),
])  # fmt: skip
def test_several_steps_in_one_execution(
    batches: int, per_execution: int, numbers: list[int], counts: list[int]
) -> None:
    made = model(steps_per_execution=per_execution)
    steps = fit(made, data=dataset(8 * batches, 8, drop=True), epochs=2)
    assert [step.number for step in steps] == numbers + [number + batches for number in numbers]
    assert [step.samples for step in steps] == [8] * len(steps)
    # The duration is that of one step, so that samples over duration is the throughput.
    whole = [steps[len(numbers) + 1].end_ns - steps[len(numbers)].end_ns] if len(numbers) > 1 else []
    for span in whole:
        assert steps[len(numbers) + 1].duration_ns * counts[1] == pytest.approx(span, abs=20e6)


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (lambda: dataset(40, 8), [8, 8, 8, 8, None]),
        (lambda: dataset(40, 8, drop=True), [8] * 5),
        (lambda: dataset(36, 8), [8, 8, 8, 8, None]),
        (lambda: dataset(40, 8).map(lambda x, y: (x, y)).cache(), [8, 8, 8, 8, None]),
        (lambda: dataset(40, 8).unbatch().ragged_batch(8), None),
        (lambda: dataset(40, 4).rebatch(10), None),
    ],
)  # fmt: skip
def test_samples_of_datasets(data: Any, samples: list[int | None] | None) -> None:
    steps = fit(model(), data=data())
    found = [step.samples for step in steps]
    if samples is None:  # what is claimed must be true; nothing need be
        assert set(found) <= {None, 8, 10}
    else:
        assert found == samples


def test_samples_of_generators_and_given_batch_sizes() -> None:
    class Sequence(keras.utils.PyDataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return arrays(6)

    steps = fit(model(), data=Sequence())
    assert len(steps) == 5 and {step.samples for step in steps} <= {6, None}
    monitor = MemoryMonitor()
    model().fit(dataset(), callbacks=[keras_callback.GpuDoctorCallback(monitor=monitor, batch_size=8)], verbose=0)
    assert [step.samples for step in monitor.recorder.steps] == [8] * 5


def test_samples_under_a_strategy_are_global() -> None:
    cpus = tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([cpu.name for cpu in cpus])
    with strategy.scope():
        made = model()
    assert {step.samples for step in fit(made, batch_size=8)} == {8}
    with strategy.scope():
        made = model()
    per_replica = strategy.distribute_datasets_from_function(lambda context: dataset(40, 4, drop=True))
    steps = fit(made, data=per_replica, steps_per_epoch=3)
    assert {step.samples for step in steps} == {4 * strategy.num_replicas_in_sync}


def test_data_of_unknown_length() -> None:
    def generate() -> Any:
        for _ in range(5):
            yield arrays(8)

    spec = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    steps = fit(model(), data=tf.data.Dataset.from_generator(generate, output_signature=spec), epochs=2)
    assert [step.number for step in steps] == list(range(10))


def test_validation_and_saving_are_spans_and_no_part_of_steps(tmp_path: Path) -> None:
    class SlowSave(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def save_weights(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(0.1)
            super().save_weights(*args, **kwargs)

    made = SlowSave()
    made.compile("sgd", "mse")
    monitor = MemoryMonitor(framework="tensorflow")
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "{epoch}-{batch}.weights.h5"), save_weights_only=True, save_freq=2
    )
    for order in (lambda own: [own, checkpoint], lambda own: [checkpoint, own]):
        monitor.recorder.steps.clear()
        monitor.recorder.spans.clear()
        callbacks = order(keras_callback.GpuDoctorCallback(monitor=monitor))
        made.fit(*arrays(), batch_size=8, epochs=2, validation_data=arrays(8), callbacks=callbacks, verbose=0)
        kinds = monitor.recorder.kinds()
        assert kinds.count("validation") == 2 and kinds.count("checkpoint") == 5
        assert all(end - start >= 0.1e9 for kind, start, end, *_ in monitor.recorder.spans if kind == "checkpoint")
        # Saving takes 0.1 s; the steps that are followed, or ended, by it do not count it.
        saved = {step for kind, _, _, step, _ in monitor.recorder.spans if kind == "checkpoint"}
        touched = [step.duration_ns for step in monitor.recorder.steps if {step.number, step.number - 1} & saved]
        assert len(touched) > 5 and np.median(touched) < 0.1e9
    assert "save_weights" not in made.__dict__


def test_the_model_can_be_saved_copied_and_loaded_while_it_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    monitor = MemoryMonitor(framework="tensorflow")

    class Clones(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.save(path)
            self.clone = keras.models.clone_model(self.model)

    clones = Clones()
    made = model()
    made.fit(*arrays(), callbacks=[keras_callback.GpuDoctorCallback(monitor=monitor), clones], verbose=0)
    restored = keras.models.load_model(path)
    assert np.allclose(restored.predict(arrays()[0], verbose=0), made.predict(arrays()[0], verbose=0))
    assert [kind for kind in monitor.recorder.kinds() if kind == "checkpoint"] == ["checkpoint"]
    assert clones.clone.count_params() == made.count_params()
    made.save(path)  # after training: nobody listens
    assert monitor.recorder.kinds().count("checkpoint") == 1


def test_stop_training_and_exceptions_leave_a_usable_callback() -> None:
    class Stops(keras.callbacks.Callback):  # type: ignore[misc,name-defined]
        def __init__(self, error: type[BaseException] | None) -> None:
            super().__init__()
            self.error = error

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2 and self.error:
                raise self.error("stop")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1 and not self.error:
                self.model.stop_training = True

    assert [step.number for step in fit(model(), batch_size=8, epochs=4, callbacks=[Stops(None)])] == [0, 1]
    made, monitor = model(), MemoryMonitor(framework="tensorflow")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            fit(made, monitor, batch_size=8, callbacks=[Stops(error)])
    steps = fit(made, monitor, batch_size=8)
    # The step that failed never ended; its number is that of the step that came next.
    assert [step.number for step in steps] == [0, 1, 2, 3, *range(4, 9)]


class Broken:
    """A recorder of which nothing works."""

    def __getattr__(self, name: str) -> Any:
        raise OSError("no space left on device")


def test_nothing_reaches_training_when_all_fails(tmp_path: Path) -> None:
    monitor = MemoryMonitor(framework="tensorflow", recorder=Broken())
    history = model().fit(
        *arrays(), epochs=2, validation_data=arrays(8), verbose=0,
        callbacks=[
            keras_callback.GpuDoctorCallback(monitor=monitor),
            keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras")),
        ],
    )  # fmt: skip
    assert len(history.history["loss"]) == 2 and (tmp_path / "model.keras").exists()


def test_it_can_be_copied_before_training() -> None:
    """Tuners copy the callbacks for each trial."""
    twin = copy.deepcopy(keras_callback.GpuDoctorCallback("logs", profile_steps=(50, 60)))
    assert isinstance(twin, keras.callbacks.Callback)


def test_arguments_that_make_no_sense_are_told_at_once() -> None:
    for arguments in (
        {}, {"logdir": "logs", "monitor": MemoryMonitor()}, {"logdir": "logs", "profile_steps": (60, 50)},
        {"logdir": "logs", "profile_below": (200, 1)}, {"logdir": "logs", "profile_every": 3},
        {"logdir": "logs", "profile_throttling": "heat"}, {"logdir": "logs", "profile_slower": 0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            keras_callback.GpuDoctorCallback(**arguments)
