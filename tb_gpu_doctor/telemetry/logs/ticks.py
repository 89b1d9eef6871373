"""Which rows of a log were taken at one time, where nothing else tells its GPUs apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Rows of one tick are some milliseconds apart; no tool is asked for several GPUs this often.
_FARTHEST_NS = 50_000_000


def place_in_tick(wall_ns: NDArray[np.int64]) -> NDArray[np.int32] | None:
    """The place of each row within its tick, int32[n]; None where the ticks have different numbers of rows.

    Args:
        wall_ns: int64[n], in the order of the log.
    """
    count = len(wall_ns)
    apart = np.diff(wall_ns)
    if count < 2 or int(apart.min()) >= _FARTHEST_NS:
        return np.zeros(count, np.int32)
    far = apart[apart > 0.1 * float(np.quantile(apart, 0.95))]
    limit = float(np.median(far)) / 2 if len(far) else 0.0
    starts = np.flatnonzero(np.concatenate(([True], apart > limit)))
    lengths = np.diff(np.append(starts, count))
    # The last tick may be cut.
    if len(lengths) > 1 and ((lengths[:-1] != lengths[0]).any() or lengths[-1] > lengths[0]):
        return None
    return (np.arange(count) - np.repeat(starts, lengths)).astype(np.int32)
