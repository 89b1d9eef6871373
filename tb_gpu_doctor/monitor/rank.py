"""Which process of a job this one is, by its launcher's word: torchrun, SLURM, MPI, TensorFlow's cluster, JAX."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

# (rank, how many, on this host) as launchers set them; the first complete pair counts.
_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    # A shell inside an allocation has these too: last, and only where several tasks were asked for.
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def rank_of_process(environment: Mapping[str, str] = os.environ) -> dict[str, int] | None:
    """``number``, ``of`` and, where told, ``local``; None for a process alone, or whose launcher says nothing."""
    found = _of_jax() or _of_tensorflow(environment.get("TF_CONFIG"))
    if found is None:
        for names in _VARIABLES:
            number, count, local = (_number(environment.get(name)) for name in names)
            if number is not None and count is not None and number < count:
                found = {"number": number, "of": count, **({} if local is None else {"local": local})}
                break
    return found if found is not None and found["of"] > 1 else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else None


def _of_tensorflow(config: str | None) -> dict[str, int] | None:
    """Chief first, then the workers: as `MultiWorkerMirroredStrategy` numbers its replicas."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
        told = json.loads(config or "")
        cluster, task = told["cluster"], told["task"]
        chiefs, workers = len(cluster.get("chief") or ()), len(cluster.get("worker") or ())
        index = int(task["index"])
        if task["type"] == "chief":
            return {"number": index, "of": chiefs + workers}
        if task["type"] == "worker":
            return {"number": chiefs + index, "of": chiefs + workers}
    return None


def _of_jax() -> dict[str, int] | None:
    """Only where the job has connected already: asking must not start anything."""
    distributed: Any = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    number, count = getattr(state, "process_id", None), getattr(state, "num_processes", None)
    return {"number": number, "of": count} if isinstance(number, int) and isinstance(count, int) and count else None
