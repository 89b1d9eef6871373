"""What the step hooks cost a training step: the callback and `train_step`, with and without a profiler's mark.

    python -m benchmarks.monitor_steps

Each number is the least of several rounds, for the hooks' own cost and not the machine's. Training of no
real size has steps of under a millisecond.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable

from benchmarks.run import put_section

STEPS = 2_000
ROUNDS = 7
GOAL_US = 50.0


def least_us(work: Callable[[int], None]) -> float:
    """Microseconds of one call, the least of all rounds; steps go on growing."""
    best, step = float("inf"), 0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for number in range(step, step + STEPS):
            work(number)
        best = min(best, (time.perf_counter() - begin) / STEPS)
        step += STEPS
    return best * 1e6


def measure() -> dict[str, float]:
    """Microseconds a step by what records it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    from tb_gpu_doctor import CaptureOptions, GpuDoctorCallback, GpuMonitor

    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as logdir:
        with GpuMonitor(logdir, framework="tensorflow") as monitor:

            def loop(number: int) -> None:
                with monitor.train_step(number, batch_size=64):
                    pass

            found["`monitor.train_step`"] = least_us(loop)
            callback = GpuDoctorCallback(monitor=monitor)
            callback.set_params({"steps": None, "epochs": 1})
            callback.set_model(keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)]))
            callback.on_train_begin()
            callback.on_epoch_begin(0)

            def keras_step(number: int) -> None:
                callback.on_train_batch_begin(number)
                callback.on_train_batch_end(number)

            found["`GpuDoctorCallback`"] = least_us(keras_step)
        options = CaptureOptions(
            profile_steps=(10**9, 10**9), profile_every=10**9, profile_slower=1e9, profile_below=(1, 10**9),
            profile_throttling=True,
        )  # fmt: skip
        with GpuMonitor(logdir, framework="tensorflow", capture=options) as monitor:
            found["`monitor.train_step`, all triggers watching"] = least_us(loop)
    return found


def main() -> int:
    """Measure, print, and write the section of RESULTS.md."""
    found = measure()
    rows = [f"| {name} | {value:.1f} |" for name, value in found.items()]
    body = "\n".join(["| what records a step | µs a step |", "|---|---:|", *rows])
    body += f"\n\nGoal: under {GOAL_US:.0f} µs.\n"
    print(body)
    if "--print" not in sys.argv:
        put_section("Step hooks", body)
    return 0 if max(found.values()) < GOAL_US else 1


if __name__ == "__main__":
    sys.exit(main())
