"""Where a command writes: the terminal, coloured where it can be; a bar on the way; a file, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tb_gpu_doctor.errors import DocumentError
from tb_gpu_doctor.files.writing import part_of
from tb_gpu_doctor.texts import text

if TYPE_CHECKING:
    from rich.console import Console

# What is done sooner needs no bar, which would only flicker.
_PATIENCE_S = 1.0


def console(no_color: bool, piped_width: int = 100) -> Console:
    """Standard output for rich; nothing printed to it is read as markup."""
    from rich.console import Console

    class Piped(Console):
        """Ends as everything else does when the reader goes away, and not with rich's own exit status."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(
        file=sys.stdout,
        no_color=True if no_color else None,
        color_system=None if no_color else "auto",
        width=None if sys.stdout.isatty() else piped_width,
        markup=False,
        highlight=False,
        emoji=False,
    )


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


def check_writable(path: str) -> None:
    """Say before the work that its result could not be written.

    Raises:
        DocumentError: the path is a folder, or lies in one that does not exist.
    """
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or "."):
        raise DocumentError("no_folder_to_write", path)


def write_whole(path: str, content: str) -> None:
    """Write a file, which appears whole or not at all.

    Raises:
        DocumentError: it cannot be written.
    """
    beside = part_of(path)
    try:
        with open(beside, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        if beside != path:
            os.replace(beside, path)
    except OSError as error:
        if beside != path:
            with contextlib.suppress(OSError):
                os.unlink(beside)
        raise DocumentError("cannot_write", path, reason=error.strerror or str(error)) from error
