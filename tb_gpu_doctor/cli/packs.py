"""Packs in place of logdirs: unpacked for as long as a command reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.summary import RunSummary

_ENDINGS = (".gpudoctor.zip", ".zip")


@contextmanager
def readable(path: str, lang: str) -> Iterator[tuple[str, str | None]]:
    """(path to read, name to call it by) of a path: a folder with a pack's content, the path itself for others.

    Raises:
        PackError: it is a pack that cannot be opened, or is not to be trusted.
    """
    if not _is_zip(path):
        yield path, None
        return
    # Here, so that others need not wait for it.
    from tb_gpu_doctor.packing.view import opened

    name = os.path.basename(path)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    with opened(path) as folder:
        yield folder, name or os.path.basename(path)


def called(run: RunSummary, name: str | None) -> RunSummary:
    """The summary under another name, where there is one."""
    return run if name is None else replace(run, label=name)


def _is_zip(path: str) -> bool:
    """Whether a local file begins as a zip does."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except (OSError, ValueError):
        return False
