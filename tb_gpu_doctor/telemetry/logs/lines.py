"""The lines of a log, in pieces of a few megabytes, whatever encoding it came in.

PowerShell writes UTF-16 where others write UTF-8. A byte that is neither costs its own line.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.opening import open_regular
from tb_gpu_doctor.traces.log_heads import HEAD_BYTES, encoding_of

_PIECE_BYTES = 1 << 22
# No tool writes longer ones.
_MAX_LINE = 1 << 20


def pieces(path: str) -> Iterator[tuple[list[str], str]]:
    """(whole lines, "") piece by piece, and last what stands behind the last end of a line: ([], rest).

    Raises:
        ProfileError: ``unreadable_file``, or ``log_long_line`` for what is no log.
    """
    rest = ""
    try:
        with open_regular(path) as file:
            raw = file.read(_PIECE_BYTES)
            decoder = codecs.getincrementaldecoder(encoding_of(raw[:HEAD_BYTES]))("replace")
            while raw:
                lines = (rest + decoder.decode(raw)).replace("\r\n", "\n").split("\n")
                rest = lines.pop()
                if len(rest) > _MAX_LINE:
                    raise ProfileError("log_long_line", path, limit=_MAX_LINE)
                yield lines, ""
                raw = file.read(_PIECE_BYTES)
            rest += decoder.decode(b"", True)
    except (OSError, ValueError) as error:
        raise ProfileError("unreadable_file", path, reason=getattr(error, "strerror", None) or str(error)) from None
    yield [], rest


def modified_ns(path: str) -> int:
    """When the file was written last, 0 where that cannot be told."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
