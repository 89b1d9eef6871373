"""How many samples a step of ``model.fit`` has: Keras tells its callbacks nothing about it.

``fit`` holds an epoch iterator whose data adapter knows; it is looked for on the call stack, once a
training, and whatever is not found there stays unknown. ``fit(x, y, batch_size=64)``, generators,
``PyDataset`` and ``tf.data`` of any strategy are covered.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

# tf.data's transformations that leave batches as they are; others may split, pad or merge them.
_KEEPING = (
    "Prefetch", "Options", "Repeat", "Take", "Skip", "Cache", "Map", "Shard", "Shuffle", "Model", "Optimize",
    "Interleave", "Distribute", "Rebatch", "AutoShard", "Apply", "Copy", "Assert", "Finalize", "MaxIntraOp",
    "PrivateThreadPool", "Snapshot", "Save", "Load", "Finite", "Ignore",
)  # fmt: skip


@dataclass(frozen=True)
class Batches:
    """Global batch of a training.

    Attributes:
        full: samples of all replicas in one step; None where unknown.
        last: of an epoch's last step, which may be smaller; None where unknown.
    """

    full: int | None = None
    last: int | None = None


def find_batches(replicas: int = 1) -> Batches:
    """Look at the ``fit`` that called the callback.

    Args:
        replicas: ``strategy.num_replicas_in_sync``, for datasets that are made per replica.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals:
            return _of_iterator(frame.f_locals["epoch_iterator"], replicas)
        frame = frame.f_back
    return Batches()


def _of_iterator(iterator: Any, replicas: int) -> Batches:
    adapter = getattr(iterator, "data_adapter", None)
    dataset = getattr(adapter, "_dataset", None)
    if "DatasetsFromFunction" in type(dataset).__name__:
        size, whole = _of_element_spec(dataset), True
        return Batches(size * replicas, size * replicas if whole else None) if size else Batches()
    # A dataset that a strategy distributes holds global batches, which are then split.
    dataset = getattr(dataset, "_original_dataset", dataset)
    if dataset is not None and hasattr(dataset, "element_spec"):
        size = _of_element_spec(dataset)
        if size:
            return Batches(size, size)  # known to the graph: every batch is full
        return Batches(_of_batch_op(dataset), None)
    size = getattr(adapter, "batch_size", None)
    if not isinstance(size, int) or size < 1:
        return Batches()
    if not getattr(adapter, "has_partial_batch", None):
        # None: a generator, which does not know.
        return Batches(size, size if getattr(adapter, "has_partial_batch", None) is False else None)
    return Batches(size, getattr(adapter, "partial_batch_size", None))


def _of_element_spec(dataset: Any) -> int | None:
    spec = dataset.element_spec
    while isinstance(spec, (tuple, list, dict)) and len(spec):
        spec = next(iter(spec.values())) if isinstance(spec, dict) else spec[0]
    shape = getattr(spec, "shape", None)
    if shape is None or shape.rank in (None, 0):
        return None
    size = shape[0]
    return int(size) if size else None


def _of_batch_op(dataset: Any) -> int | None:
    for _ in range(100):
        if dataset is None:
            return None
        size = getattr(dataset, "_batch_size", None)
        if size is not None:
            return int(size)
        name = type(dataset).__name__.strip("_").removeprefix("Parallel")
        if not name.startswith(_KEEPING):
            return None
        dataset = getattr(dataset, "_input_dataset", None)
    return None
