"""The device columns of PyTorch's trace events. What depends on a launch's shape or a name alone is found once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces import kineto_events as table
from tb_gpu_doctor.traces.columns import Int64
from tb_gpu_doctor.traces.json_columns import Numbered, Strings, first_met
from tb_gpu_doctor.traces.json_document import Event
from tb_gpu_doctor.traces.kineto_host import Calls

_PLACE = attrgetter("device", "stream")
_SHAPE = attrgetter(*table.SHAPE)
_NO_FACTS = table.CallFacts(-1, -1, None)


@dataclass(frozen=True)
class DeviceColumns:
    """Device events in file order.

    Attributes:
        kept: index of those that can be used: it is known on which device they ran.
        columns: of those, by the names of `DeviceEvents`.
        stats: indices of the given events and values, by the name of the stat.
        sm_counts: by the device's own number, how often kernels count how many multiprocessors.
    """

    kept: Int64
    columns: dict[str, NDArray[Any]]
    stats: dict[str, tuple[Int64, Int64]]
    sm_counts: dict[int, Counter[int]]


def device_columns(
    events: Sequence[Event],
    kinds: NDArray[np.uint8],
    calls: Calls,
    strings: Strings,
    place_of: Callable[[int, Any], tuple[int, int]],
) -> DeviceColumns:
    """Columns of kernels, copies and memsets.

    Args:
        events: of devices.
        kinds: of each, index into `kineto_events.KINDS`.
        calls: the driver's.
        strings: gets names, details and texts.
        place_of: index of a device and of its stream.
    """
    args, odd = table.device_args(events)
    kept = np.arange(len(events))
    if any(args[at].device < 0 for at in odd):
        kept = np.array([at for at, found in enumerate(args) if found.device >= 0], np.int64)
        place = {int(at): new for new, at in enumerate(kept)}
        odd = {place[at]: facts for at, facts in odd.items() if at in place}
        args, events = [args[at] for at in kept.tolist()], [events[at] for at in kept.tolist()]
    kind = kinds[kept].astype(np.int64)
    correlation = np.array([found.correlation for found in args], np.int64)
    call = calls.at(correlation)
    places = Numbered()
    placed = places.of(map(_PLACE, args), len(args))
    where = np.array([place_of(*place) for place in places], np.int64).reshape(-1, 2)
    names = Numbered()
    named = names.of([event.name for event in events], len(events))
    facts, shape = _launches(args, odd)
    # Every combination of a name, a launch's shape and what the call says, in the order of the events.
    said = np.append(calls.facts, -1)[call] + 1
    kinds_count, said_count = len(table.KINDS), len(calls.said) + 1
    works, work = first_met(named * kinds_count + kind, len(names) * kinds_count)
    launches, launch = first_met(shape * said_count + said, len(facts) * said_count)
    combined, which = first_met(work * len(launches) + launch, len(works) * len(launches))
    texts = list(names)
    meanings: dict[int, tuple[int, ...]] = {}
    rows: list[tuple[int, ...]] = []
    values: dict[str, dict[int, int]] = {}  # by stat and launch
    for code in combined.tolist():
        work_code, launch_code = int(works[code // len(launches)]), int(launches[code % len(launches)])
        launched, call_said = facts[launch_code // said_count], launch_code % said_count
        role = table.KINDS[work_code % kinds_count]
        if work_code not in meanings:
            meanings[work_code] = _named(strings, texts[work_code // kinds_count] or "", role)
        is_copy = role == table.COPY
        by_call = calls.said[call_said - 1] if call_said else _NO_FACTS
        details = None if is_copy else launched.details or by_call.details
        rows.append((*meanings[work_code], strings.id(details), by_call.size if is_copy else -1))
        for stat, text in launched.texts.items():  # of one event only
            values.setdefault(stat, {})[launch_code // said_count] = strings.id(text)
    name, klass, copy_kind, memory, details_id, size = np.array(rows, np.int64).reshape(-1, 6).T[:, which]
    columns = {
        "device": where[placed, 0], "stream": where[placed, 1], "name": name, "klass": klass,
        "correlation": correlation, "details": details_id, "op": np.append(calls.op, -1)[call],
        "copy_kind": copy_kind, "copy_memory": memory, "graph": np.array([found.graph for found in args], np.int64),
    }  # fmt: skip
    own = np.array([found.bytes for found in args], np.int64)
    columns["copy_bytes"] = np.where(own >= 0, own, size)
    columns["copy_async"] = _asynchronous(kind, np.append(calls.name, -1)[call], strings)
    for number, launched in enumerate(facts):
        for stat, value in launched.numbers.items():
            values.setdefault(stat, {})[number] = value
    stats = {stat: _spread(by_shape, shape, kept, len(facts)) for stat, by_shape in values.items()}
    idents = [place[0] for place in places]
    return DeviceColumns(kept, columns, stats, _sm_counts(idents, placed, facts, shape))


def _launches(
    args: Sequence[table.UsualDeviceArgs], odd: dict[int, table.LaunchFacts]
) -> tuple[list[table.LaunchFacts], Int64]:
    """What the distinct shapes of launches tell, and the shape of each event; an odd event is one for itself."""
    shapes = Numbered()
    shape = shapes.of(map(_SHAPE, args), len(args))
    facts = [table.launch_facts(*one) for one in shapes]
    if odd:
        shape[list(odd)] = len(facts) + np.arange(len(odd))
    return facts + list(odd.values()), shape


def _named(strings: Strings, name: str, role: str) -> tuple[int, int, int, int]:
    """(string id, class, copy kind, host memory) of device events by their name."""
    klass, kind = table.device_class(role, name)
    return strings.id(name), int(klass), int(kind), table.host_memory(name) if role == table.COPY else -1


def _asynchronous(kind: Int64, call_name: Int64, strings: Strings) -> Int64:
    """Whether each copy's call returns before the copy is done: 1 or 0, -1 where that is not known."""
    found = np.full(len(kind), -1, np.int64)
    copies = np.flatnonzero((kind == table.KINDS.index(table.COPY)) & (call_name >= 0))
    if len(copies):
        texts = list(strings.ids)
        distinct, which = np.unique(call_name[copies], return_inverse=True)
        found[copies] = np.array([table.is_async_copy(texts[name]) for name in distinct.tolist()], np.int64)[which]
    return found


def _spread(by_shape: dict[int, int], shape: Int64, kept: Int64, count: int) -> tuple[Int64, Int64]:
    """Values by shape as (indices of events, values)."""
    values = np.full(count, -1, np.int64)
    values[list(by_shape)] = list(by_shape.values())
    found = np.flatnonzero(values[shape] >= 0)
    return kept[found], values[shape[found]]


def _sm_counts(
    idents: Sequence[int], placed: Int64, facts: Sequence[table.LaunchFacts], shape: Int64
) -> dict[int, Counter[int]]:
    """The votes by the number of the device; each event has one of the places and one of the launches' facts."""
    pairs, which = first_met(placed * len(facts) + shape, len(idents) * len(facts))
    counted: dict[int, Counter[int]] = {}
    for pair, votes in zip(pairs.tolist(), np.bincount(which).tolist(), strict=True):
        place, launch = divmod(pair, len(facts))
        if facts[launch].sm_count > 0:
            counted.setdefault(idents[place], Counter())[facts[launch].sm_count] += votes
    return counted
