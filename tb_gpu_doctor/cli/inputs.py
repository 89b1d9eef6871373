"""What every command reads: a logdir, a run, a session folder, a profile file, or a pack of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tb_gpu_doctor.files.addresses import is_remote, shown

if TYPE_CHECKING:
    from tb_gpu_doctor.comparison.summary import RunSummary

_ENDINGS = (".gpudoctor.zip", ".zip")


@dataclass(frozen=True)
class Source:
    """Where to read a run.

    Attributes:
        path: what was given; of a pack, the folder that it was unpacked into.
        name: what to call the run, None where its own name is best.
    """

    path: str
    name: str | None = None

    def named(self, run: RunSummary) -> RunSummary:
        """The summary of a run under the name that its source has, if any."""
        return run if self.name is None else replace(run, label=self.name)


@contextmanager
def opened(path: str) -> Iterator[Source]:
    """Where to read what a path stands for; a pack is unpacked for as long as it is read.

    Raises:
        PackError: it is a pack that cannot be opened, or is not to be trusted.
    """
    if not is_zip(path):
        yield Source(path)
        return
    # Here, so that others need not wait for it.
    from tb_gpu_doctor.errors import DoctorError
    from tb_gpu_doctor.packing.view import opened as unpacked

    name = os.path.basename(path)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    with unpacked(path) as folder:
        try:
            yield Source(folder, name or os.path.basename(path))
        except DoctorError as error:
            if not error.path.startswith(folder):
                raise
            # Nobody knows the folder for temporary files.
            inside = os.path.relpath(error.path, folder)
            raise error.with_path(path if inside == "." else os.path.join(path, inside)) from error


def is_zip(path: str) -> bool:
    """Whether a file begins as a zip does; behind an address the name decides."""
    if is_remote(path):
        return shown(path).endswith(".zip")
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except (OSError, ValueError):
        return False


@contextmanager
def working_place(arguments: argparse.Namespace) -> Iterator[None]:
    """Read sessions on the cluster that the arguments name, if they name one.

    Raises:
        ProfileError: it cannot be reached, or Dask is not installed.
    """
    address = getattr(arguments, "dask", None)
    if address is None:
        yield
        return
    # Here, so that others need not wait for Dask.
    from tb_gpu_doctor.parallel.cluster import dask_cluster
    from tb_gpu_doctor.parallel.many_files import working_on

    with dask_cluster(address) as cluster, working_on(cluster):
        yield
