"""How far a long diagnosis has come, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tb_gpu_doctor.texts import text

# What is done sooner needs no bar, which would only flicker.
_PATIENCE_S = 1.0


@contextmanager
def progress_bar(lang: str, no_color: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A listener to progress that shows a bar on stderr where that is a terminal; the bar is gone in the end."""
    if not sys.stderr.isatty():
        yield lambda _stage, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(
        file=sys.stderr,
        no_color=True if no_color else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("", total=1.0)
    began = time.monotonic()
    shown = False

    def report(stage: str, done: float) -> None:
        nonlocal shown
        bar.update(task, completed=done, description=text(f"cli.stages.{stage}", lang))
        if not shown and time.monotonic() - began > _PATIENCE_S:
            shown = True
            bar.start()

    try:
        yield report
    finally:
        if shown:
            bar.stop()
