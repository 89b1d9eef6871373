"""What a worker process runs: tasks from its standard input, results to its standard output, one after the other.

It ends when its input does, whatever it is doing: so none outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from tb_gpu_doctor.parallel.resources import return_free_memory
from tb_gpu_doctor.parallel.transport import Message, Writer

# Finer steps of progress than this are not worth a message.
_STEP = 0.02
# Beside a process of normal priority this is two fifths of a core. Not less: where training keeps all cores busy, a
# profile of it must be analysed all the same.
_NICENESS = 2


@dataclass(frozen=True)
class Task:
    """A call; with ``reports`` the function gets one more argument, a function that sends progress."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    reports: bool = False


@dataclass(frozen=True)
class Ready:
    """The worker has imported what it needs."""


@dataclass(frozen=True)
class Progress:
    """What the task reported."""

    stage: str
    fraction: float


@dataclass(frozen=True)
class Done:
    """The task's result."""

    result: Message


@dataclass(frozen=True)
class Raised:
    """The task's exception, which may lack what cannot be pickled, and where it came from, as text."""

    error: BaseException
    where: str


def main(scratch: int | None, background: bool = False) -> None:
    """Serve until the input ends.

    Args:
        scratch: descriptor of the file that results go to, see `transport`.
        background: work at a low priority, and keep no memory between tasks.
    """
    out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what anything prints must not come between the messages
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("500")  # where memory ends, rather this process than TensorBoard
    if background:
        _stand_back()
    _import_all()
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, tasks), daemon=True).start()
    writer = Writer(scratch)
    _send(out, Ready())
    while True:
        _send(out, _run(tasks.get(), writer, out))
        if background:
            gc.collect()
            return_free_memory()


def _stand_back() -> None:
    """Let whoever answers requests have the core first."""
    with contextlib.suppress(OSError, AttributeError):  # Windows has a flag for it, see `processes`
        os.nice(_NICENESS)
    # A process of a session of its own is weighed by this instead, where the kernel groups sessions.
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as group:
        group.write(str(_NICENESS))


def _import_all() -> None:
    """What a task will need, while the first one is still on its way."""
    import tb_gpu_doctor.parallel.one_file
    import tb_gpu_doctor.traces.trace_json
    import tb_gpu_doctor.traces.xplane  # noqa: F401


def _receive(source: BinaryIO, tasks: queue.SimpleQueue[Task]) -> None:
    try:
        while True:
            tasks.put(pickle.load(source))
    except BaseException:
        os._exit(0)  # whoever started this process has closed the pipe, or is gone


def _run(task: Task, writer: Writer, out: BinaryIO) -> Done | Raised:
    last = -1.0
    stage_before = ""

    def report(stage: str, fraction: float) -> None:
        nonlocal last, stage_before
        if stage != stage_before or fraction - last >= _STEP:
            stage_before, last = stage, fraction
            _send(out, Progress(stage, fraction))

    try:
        extra = (report,) if task.reports else ()
        return Done(writer.pack(task.function(*task.arguments, *extra, **task.named)))
    except BaseException as error:
        where = "".join(traceback.format_exception(error))
        error.__traceback__ = error.__cause__ = error.__context__ = None
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Raised(RuntimeError(f"{type(error).__name__}: {error}"), where)
        return Raised(error, where)


def _send(out: BinaryIO, message: Any) -> None:
    try:
        pickle.dump(message, out, protocol=5)
        out.flush()
    except (BrokenPipeError, ValueError):
        os._exit(0)
