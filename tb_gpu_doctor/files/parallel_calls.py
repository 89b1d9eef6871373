"""Many slow calls at once, each mostly waiting for a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

WORKERS = 16
# Waiting in pieces lets Ctrl-C through on every system.
_PULSE_S = 0.2


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], deadline: float | None = None, workers: int = WORKERS
) -> list[Result | BaseException | None]:
    """What became of each item, in order: the result, the exception, or None for what was not done in time.

    Args:
        function: is called in threads that do not keep the process alive: a server that never answers may not.
        items: each is passed once.
        deadline: by `time.monotonic`; None waits for all.
        workers: how many at a time.
    """
    outcomes: list[Result | BaseException | None] = [None] * len(items)
    if len(items) == 1 and deadline is None:
        try:
            return [function(items[0])]
        except Exception as error:
            return [error]
    lock = threading.Condition()
    taken = finished = 0
    stopped = False

    def work() -> None:
        nonlocal taken, finished
        while True:
            with lock:
                if taken == len(items) or stopped:
                    return
                index, taken = taken, taken + 1
            try:
                outcome: Result | BaseException = function(items[index])
            except BaseException as error:
                outcome = error
            with lock:
                finished += 1
                if not stopped:
                    outcomes[index] = outcome
                lock.notify_all()

    for _ in range(min(workers, len(items))):
        threading.Thread(target=work, name="gpu-doctor-remote", daemon=True).start()
    try:
        with lock:
            while finished < len(items) and (deadline is None or time.monotonic() < deadline):
                lock.wait(_PULSE_S)
    finally:
        with lock:
            stopped = True
    return outcomes


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """What a function returns, waited for so long and no longer.

    Args:
        seconds: how long to wait.
        function: is called in a thread that does not keep the process alive. Nobody can end it: it may go on.

    Raises:
        TimeoutError: it takes longer. Else what the function raises.
    """
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=work, name="gpu-doctor-remote", daemon=True).start()
    return waited_for(answer, seconds)


def waited_for(answer: Future[Result], seconds: float) -> Result:
    """The result of a future, waited for so long and no longer; Ctrl-C ends the wait on every system.

    Raises:
        TimeoutError: it takes longer. Else what the work raised.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if wait((answer,), min(left, _PULSE_S)).done:
            break
    if not answer.done():
        raise TimeoutError
    return answer.result()
