"""Records small tf.data pipelines with a planted slow stage under TensorFlow's profiler: one process, many profiles.

Usage: python -m tests.analysis.recorded_pipelines FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STEPS = 12
BATCH = 4
SLEEP_S = 0.004


def main(folder: Path) -> None:
    """Writes one profile per pipeline below ``folder``."""
    import numpy as np
    import tensorflow as tf

    tf.random.set_seed(1)
    random = np.random.default_rng(1)
    files = []
    for number in range(2):
        files.append(str(folder / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(files[-1], "GZIP") as writer:
            for _ in range(25):  # compresses to little, so reading is decompressing, which takes longest by far
                writer.write(random.integers(0, 3, 1_200_000, np.uint8).tobytes())

    def nap(x: Any) -> Any:
        time.sleep(SLEEP_S)
        return x

    def sleepy(x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(nap, [x], tf.int64), ())

    def heavy(x: Any) -> Any:
        square = tf.ones((160, 160)) * tf.cast(x, tf.float32)
        for _ in range(6):
            square = tf.linalg.matmul(square, square) * 1e-3
        return tf.reduce_sum(square)

    def numbers() -> Iterator[int]:
        for number in range(10**6):
            time.sleep(SLEEP_S)
            yield number

    def light(x: Any) -> Any:
        return tf.strings.length(x)

    def generated() -> Any:
        return tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int64))

    as_written = tf.data.Options()
    as_written.experimental_optimization.inject_prefetch = False
    counted = tf.data.Dataset.range(10**6)
    read = tf.data.TFRecordDataset(files, compression_type="GZIP").repeat()
    pipelines: dict[str, Callable[[], Any]] = {
        "python_map": lambda: counted.map(sleepy, num_parallel_calls=1).batch(BATCH).prefetch(2),
        "heavy_map": lambda: counted.map(heavy, num_parallel_calls=1).batch(BATCH).prefetch(2),
        "autotuned_map": lambda: counted.map(heavy, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH),
        "generator": lambda: generated().batch(BATCH),
        "in_the_loop": lambda: generated().batch(BATCH).with_options(as_written),
        "reader": lambda: read.map(light, num_parallel_calls=2).batch(BATCH).prefetch(2),
    }

    @tf.function
    def step(source: Any) -> Any:
        return tf.reduce_sum(tf.cast(next(source), tf.float32))

    for name, make in pipelines.items():
        source = iter(make())
        step(source)
        tf.profiler.experimental.start(str(folder / name))
        for number in range(STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                step(source)
        tf.profiler.experimental.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
