"""Compute once: what a session gave is looked up before it is computed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    beside: Callable[[T], Mapping[str, object]] | None = None,
) -> T:
    """The value of a session, from the cache or made and kept.

    Args:
        session: its files name the entry.
        kind: what value it is, and whatever else it depends on.
        expected: its class; anything else under that name is made anew.
        make: returns the value, and whether it may be kept: a file that could not be read for want of memory or rights
            may be read the next time.
        store: where, by default the user's.
        beside: from a value that was made to others by kind that come with it and are kept as well.
    """
    place = store or default_store()
    state = state_of(session) if place.is_usable else None
    if state is None:
        return make()[0]
    kept = place.get(_key(kind, state))
    if isinstance(kept, expected):
        return kept
    value, is_whole = make()
    # What was read while it was being rewritten belongs to no state.
    if is_whole and state_of(session) == state:
        place.put(_key(kind, state), value)
        for other, part in (beside(value) if beside is not None else {}).items():
            place.put(_key(other, state), part)
    return value


def recalled(session: Session, kind: str, expected: type[T], store: Store | None = None) -> T | None:
    """What `remembered` has kept; None where it would be made."""
    place = store or default_store()
    state = state_of(session) if place.is_usable else None
    kept = None if state is None else place.get(_key(kind, state))
    return kept if isinstance(kept, expected) else None


def _key(kind: str, state: str) -> str:
    return f"{kind}\0{state}"
