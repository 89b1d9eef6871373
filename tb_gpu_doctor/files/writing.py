"""Where to write what takes a while to be whole."""

from __future__ import annotations

import os


def part_of(output: str) -> str:
    """Where to write a file until it is whole; the file itself where it is a link, a pipe or a device such as
    ``/dev/stdout``, which renaming another one to it would replace.
    """
    if os.path.islink(output) or (os.path.exists(output) and not os.path.isfile(output)):
        return output
    return f"{output}.{os.getpid()}.part"
