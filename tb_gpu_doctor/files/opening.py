"""Opens files for reading, and only those that a read of comes to an end."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO


def open_regular(path: str) -> BinaryIO:
    """A regular file, opened for reading; nobody waits for the other end of a pipe, or for a device.

    Raises:
        OSError: it cannot be opened, or is something else.
        ValueError: a path that no file can have.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(None, os.strerror(21), path)
        if not stat.S_ISREG(mode):
            raise OSError(None, "no regular file", path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
