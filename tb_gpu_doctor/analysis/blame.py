"""Whose fault a late arrival is: that of who is late, or of somebody whom it had waited for in another group.

In a job that is parallel in several ways each GPU meets others in several groups. One that waits for its slow neighbour
in a tensor-parallel group comes late to its data-parallel one, though nothing is wrong with it. What it has waited
longer than those who came first is not its own doing. It is that of whom it waited for, whose own lateness stands in
that other group; so the question goes on through any number of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tb_gpu_doctor.analysis.results import BoolArray
from tb_gpu_doctor.traces.columns import Int64


class Waiting(Protocol):
    """When one GPU waited inside collectives with nothing else to do."""

    def __call__(self, start: Int64, end: Int64) -> Int64:
        """How much of it lies in each [start, end) on the clock of the GPU's file, shape (n,)."""
        ...


def who_meets(present: BoolArray) -> Int64:
    """A number per collective, the same for all collectives of the same participants; shape (k,).

    Args:
        present: who takes part in which, shape (k, p).
    """
    if not len(present):
        return np.zeros(0, np.int64)
    return np.unique(np.packbits(present, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def own_lateness(
    behind: Int64, start: Int64, present: BoolArray, waiting: Mapping[int, Waiting], begin: Mapping[int, int]
) -> Int64:
    """The part of each late arrival that its participant does not owe to others; shape (k, p).

    Args:
        behind: arrival after the first participant, shape (k, p).
        start: own start of each collective, each participant on its own clock, shape (k, p).
        present: who takes part in which, shape (k, p).
        waiting: of the participants, by column; what is not known is none.
        begin: when the recording of each of them begins, on its clock, by column.
    """
    among = who_meets(present)
    if not len(among) or not among.any():
        return behind  # all meet in one group: nobody can have waited elsewhere
    own = behind.copy()
    for meeting in range(int(among.max()) + 1):
        rows = np.flatnonzero(among == meeting)
        columns = np.flatnonzero(present[rows[0]])
        rows = rows[np.argsort(start[rows, columns[0]], kind="stable")]
        waited = np.zeros((len(rows), len(columns)), np.int64)
        for at, column in enumerate(columns.tolist()):
            if column in waiting:
                here = start[rows, column]
                since = np.minimum(np.concatenate(([begin[column]], here[:-1])), here)
                waited[:, at] = waiting[column](since, here)
        late = behind[np.ix_(rows, columns)]
        own[np.ix_(rows, columns)] = late - _owed(late, waited)
    return own


def _owed(behind: Int64, waited: Int64) -> Int64:
    """The part of each lateness that comes of waiting for others; collectives of one group in order, shape (k, p).

    Lateness that the others do not wait for, since they have other work to do meanwhile, is still there at the next
    collective; what they wait for is made up for. So a debt grows by what its debtor waits and shrinks by what
    all have waited alike, and is never more than the lateness itself.
    """
    owed = np.zeros_like(behind)
    debt = np.zeros(behind.shape[1], np.int64)
    for row in range(len(behind)):
        debt = debt + waited[row]
        debt = np.minimum(debt - debt.min(), behind[row])
        owed[row] = debt
    return owed


def components(present: BoolArray) -> list[Int64]:
    """The participants that meet each other, directly or through others: rising columns of each such group of several.

    Args:
        present: who takes part in which, shape (k, p).
    """
    kinds = np.unique(present, axis=0)
    label = np.arange(present.shape[1])
    changed = True
    while changed:
        changed = False
        for members in kinds:
            least = int(label[members].min()) if members.any() else 0
            if members.any() and (label[members] != least).any():
                label[np.isin(label, label[members])] = least
                changed = True
    values: Sequence[int] = np.unique(label).tolist()
    found = [np.flatnonzero(label == value) for value in values]
    return [columns for columns in found if len(columns) > 1]
