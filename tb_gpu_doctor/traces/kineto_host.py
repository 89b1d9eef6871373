"""The host columns of PyTorch's trace events, and the driver's calls as the device events look for them.

Columns are made of columns: what depends on a name, a category or a thread alone is found once for each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces import kineto_events as table
from tb_gpu_doctor.traces.columns import HostEvents, Int64, host_events, row_order
from tb_gpu_doctor.traces.enclosing import last_above
from tb_gpu_doctor.traces.json_columns import Numbered, Strings, first_met
from tb_gpu_doctor.traces.json_document import Event


@dataclass(frozen=True)
class Calls:
    """The driver's calls by their correlation; of several with the same one the first in the columns counts.

    Attributes:
        correlation: rising.
        name, op: string ids.
        facts: index into ``said``, -1 for calls that say no more than their correlation.
        said: what others say.
    """

    correlation: Int64
    name: Int64
    op: Int64
    facts: Int64
    said: list[table.Said]

    def at(self, correlation: Int64) -> Int64:
        """The call of each correlation; -1 for none."""
        if not len(self.correlation):
            return np.full(len(correlation), -1, np.int64)
        found = np.minimum(np.searchsorted(self.correlation, correlation), len(self.correlation) - 1)
        return np.where(self.correlation[found] == correlation, found, -1)


def host_columns(
    events: Sequence[Event],
    kinds: NDArray[np.uint8],
    start: Int64,
    duration: Int64,
    strings: Strings,
    thread_of: Callable[[Event], int],
) -> tuple[HostEvents, Int64, Calls]:
    """Columns, the rows that are operators, and the calls.

    Args:
        events: of the host.
        kinds: of each, index into `kineto_events.KINDS`.
        start: picoseconds.
        duration: picoseconds.
        strings: gets the names.
        thread_of: index of the thread of an event.
    """
    count = len(events)
    at_call = np.flatnonzero(kinds == table.KINDS.index(table.CALL))
    numbers, odd = table.call_facts([events[at] for at in at_call.tolist()])
    correlation = np.full(count, -1, np.int64)
    correlation[at_call] = numbers
    thread = _threads(events, thread_of)
    names, many = Numbered(), len(table.KINDS)
    named = names.of([event.name for event in events], count) * many + kinds
    texts = list(names)
    combined, which = first_met(named, len(names) * many)
    means = [_named(strings, texts[code // many] or "", code % many) for code in combined.tolist()]
    name, step, kind = np.array(means, np.int64).reshape(-1, 3).T[:, which]
    facts = np.full(count, -1, np.int64)
    said = Numbered()  # the same launches in every step
    facts[at_call[list(odd)]] = said.of(odd.values(), len(odd))
    # Sorted here: most columns of `HostEvents` are not recorded and need no order.
    if (order := row_order(thread, start, duration)) is not None:
        thread, start, duration, name, correlation, step, kind, facts = (
            column[order] for column in (thread, start, duration, name, correlation, step, kind, facts)
        )
    host = host_events(
        count, thread=thread, start=start, duration=duration, name=name, correlation=correlation, step_num=step,
        is_root=(step >= 0).astype(np.int8),
    )  # fmt: skip
    operators = np.flatnonzero(kind == table.KINDS.index(table.OPERATOR))
    _find_operators(host, operators, np.flatnonzero(kind == table.KINDS.index(table.CALL)))
    return host, operators, _calls(host, facts, list(said))


def _named(strings: Strings, text: str, kind: int) -> tuple[int, int, int]:
    """(string id, number of a step, kind) of events by their name and kind."""
    role = table.KINDS[kind]
    marked = table.STEP.match(text)
    mark = table.KINDS.index(table.MARK)
    if marked and role != table.CALL:
        # one name for all, so that they are seen to be the same kind of marker
        return strings.id(table.STEP_NAME), int(marked.group(1)), mark
    if role == table.OVERHEAD:  # of the process as a whole: nothing else says that it is no call of a thread
        return strings.id(f"overhead: {text}"), -1, kind
    if role == table.OPERATOR and text.startswith(table.NO_OPERATOR):
        kind = mark
    return strings.id(text), -1, kind


def _threads(events: Sequence[Event], thread_of: Callable[[Event], int]) -> Int64:
    """The thread of each event; a run of events of one thread is looked up once."""
    processes, lines = [event.pid for event in events], [event.tid for event in events]
    known: dict[tuple[object, object], int] = {}

    def index(at: int) -> int:
        line = processes[at], lines[at]
        if (found := known.get(line)) is None:
            found = known[line] = thread_of(events[at])
        return found

    try:
        process = np.frombuffer(array("q", processes), np.int64)  # type: ignore[type-var]  # raises
        line = np.frombuffer(array("q", lines), np.int64)  # type: ignore[type-var]
    except (TypeError, OverflowError):  # not all are numbers
        return np.array([index(at) for at in range(len(events))], np.int64)
    first = np.flatnonzero(np.append(True, (process[1:] != process[:-1]) | (line[1:] != line[:-1]))[: len(events)])
    return np.repeat(np.array([index(at) for at in first.tolist()], np.int64), np.diff(first, append=len(events)))


def _find_operators(host: HostEvents, operators: Int64, calls: Int64) -> None:
    """Set the operator that each call of the driver works for: the innermost around it."""
    last = np.searchsorted(operators, calls) - 1
    around = last_above(host.end[operators], last, host.start[calls])
    found = np.flatnonzero(around >= 0)
    operator = operators[around[found]]
    # rows are sorted by thread: one of an earlier thread means that there is none in this one
    same = host.thread[operator] == host.thread[calls[found]]
    host.op[calls[found[same]]] = host.name[operator[same]]


def _calls(host: HostEvents, facts: Int64, said: list[table.Said]) -> Calls:
    rows = np.flatnonzero(host.correlation > 0)
    rows = rows[np.argsort(host.correlation[rows], kind="stable")]
    correlation = host.correlation[rows]
    rows = rows[np.append(True, correlation[1:] != correlation[:-1])[: len(rows)]]
    return Calls(
        host.correlation[rows], host.name[rows].astype(np.int64), host.op[rows].astype(np.int64), facts[rows], said
    )
