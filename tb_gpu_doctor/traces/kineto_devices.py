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
_NOTHING_SAID = table.Said(-1, None)


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
    said = np.append(calls.facts, -1)[call] + 1
    works, work = first_met(named * len(table.KINDS) + kind, len(names) * len(table.KINDS))
    launches, launch = first_met(shape * (len(calls.said) + 1) + said, len(facts) * (len(calls.said) + 1))
    # Every combination of a name, a launch's shape and what the call says, in the order of the events.
    combined, which = first_met(work * len(launches) + launch, len(works) * len(launches))
    texts = list(names)
    named_kinds = [(texts[code // len(table.KINDS)] or "", code % len(table.KINDS)) for code in works.tolist()]
    launched = [divmod(code, len(calls.said) + 1) for code in launches.tolist()]
    pairs = [divmod(code, len(launches)) for code in combined.tolist()]
    rows, values = _meanings(
        [(named_kinds[one], launched[other]) for one, other in pairs], facts, [_NOTHING_SAID, *calls.said], strings
    )
    name, klass, copy_kind, memory, details, size = np.array(rows, np.int64).reshape(-1, 6).T[:, which]
    columns = {
        "device": where[placed, 0], "stream": where[placed, 1], "name": name, "klass": klass,
        "correlation": correlation, "details": details, "op": np.append(calls.op, -1)[call],
        "copy_kind": copy_kind, "copy_memory": memory, "graph": np.array([found.graph for found in args], np.int64),
        "copy_async": _asynchronous(kind, np.append(calls.name, -1)[call], strings),
    }  # fmt: skip
    own = np.array([found.bytes for found in args], np.int64)
    columns["copy_bytes"] = np.where(own >= 0, own, size)
    stats = {stat: _spread(by_launch, shape, kept, len(facts)) for stat, by_launch in values.items()}
    idents = [place[0] for place in places]
    return DeviceColumns(kept, columns, stats, _sm_counts(idents, placed, facts, shape))


def _meanings(
    combinations: Sequence[tuple[tuple[str, int], tuple[int, int]]],
    facts: Sequence[table.LaunchFacts],
    said: Sequence[table.Said],
    strings: Strings,
) -> tuple[list[tuple[int, ...]], dict[str, dict[int, int]]]:
    """What combinations of ((name, kind), (index of facts, index of what the call says)) mean.

    Returns:
        of each (string id, class, copy kind, host memory, string id of the details, size of a copy by its call);
        and by stat its value by index of facts.
    """
    names: dict[tuple[str, int], tuple[int, ...]] = {}
    rows: list[tuple[int, ...]] = []
    values: dict[str, dict[int, int]] = {}
    for named, (launch, call) in combinations:
        role = table.KINDS[named[1]]
        if named not in names:
            names[named] = _named(strings, named[0], role)
        is_copy = role == table.COPY
        details = None if is_copy else facts[launch].details or said[call].details
        rows.append((*names[named], strings.id(details), said[call].size if is_copy else -1))
        for stat, text in facts[launch].texts.items():
            values.setdefault(stat, {})[launch] = strings.id(text)
        for stat, value in facts[launch].numbers.items():
            values.setdefault(stat, {})[launch] = value
    return rows, values


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


def _spread(by_launch: dict[int, int], shape: Int64, kept: Int64, count: int) -> tuple[Int64, Int64]:
    """Values by launch as (indices of events, values)."""
    values = np.full(count, -1, np.int64)
    values[list(by_launch)] = list(by_launch.values())
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
