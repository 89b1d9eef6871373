"""Compute once: what a session gave is looked up before it is computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tb_gpu_doctor.cache.session_state import state_of
from tb_gpu_doctor.cache.store import Store, default_store

if TYPE_CHECKING:
    from tb_gpu_doctor.traces.sessions import Session

T = TypeVar("T")


def remembered(
    session: Session,
    kind: str,
    expected: type[T],
    make: Callable[[], tuple[T, bool]],
    store: Store | None = None,
) -> T:
    """The value of a session, from the cache or made and kept.

    Args:
        session: its files name the entry.
        kind: what value it is, and whatever else it depends on.
        expected: its class; anything else under that name is made anew.
        make: returns the value, and whether it may be kept: a file that could not be read for want of memory or rights
            may be read the next time.
        store: where, by default the user's.
    """
    place = store or default_store()
    state = state_of(session) if place.is_usable else None
    if state is None:
        return make()[0]
    key = f"{kind}\0{state}"
    kept = place.get(key)
    if isinstance(kept, expected):
        return kept
    value, is_whole = make()
    # What was read while it was being rewritten belongs to no state.
    if is_whole and state_of(session) == state:
        place.put(key, value)
    return value
