"""Training loops written down event by event and run through the real analysis; times in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tb_gpu_doctor.analysis.analyse import analyse
from tests.analysis.small_traces import US, Recorder
from tests.hosts import AnalysedFile

STEP, COMPUTE = 10_000, 8_000
# (recorder, step, time at which the GPU is done, time at which the next launch comes)
Between = Callable[[Recorder, int, float, float], None]


def loop(
    between: Between | None = None,
    pauses: Mapping[int, float] | float = 0.0,
    *,
    steps: int = 10,
    gpus: int = 1,
    compute: Mapping[int, float] | None = None,
    marked: bool = True,
    thread: str = "python",
) -> Recorder:
    """A loop whose GPUs compute for `COMPUTE` in each step and stand still for ``pauses`` (by step) before it.

    ``between`` records what the host does in the pause in front of a step, and in the work before it.
    """
    recorder = Recorder(gpus=gpus)
    now, free = 100.0, 0.0
    for step in range(steps):
        pause = pauses if isinstance(pauses, int | float) else pauses.get(step, 0.0)
        launch = now + pause
        if between is not None and step > 0:
            between(recorder, step, free, launch)
        length = COMPUTE * (compute or {}).get(step, 1.0)
        if marked:
            recorder.step(thread, step + 100, launch - 1, launch + 20)
        for gpu in range(gpus):
            recorder.launch(thread, launch + 2 * gpu, launch + 8, launch + 8 + length, 1 + step * gpus + gpu, gpu=gpu)
        free = now = launch + 8 + length
    return recorder


def host(recorder: Recorder, label: str = "host") -> AnalysedFile:
    """The host with everything that the analysis makes of it."""
    trace = recorder.trace()
    return AnalysedFile(label, trace, analyse(trace))


def microseconds(value: float) -> float:
    """Picoseconds."""
    return value * US
