"""The longest paths through graphs of one or several files: when each node ends, and what it waited for last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What decided when a node began.
NOTHING, STREAM, HOST, OTHER, MEETING = range(5)
_NEVER = -(1 << 62)


@dataclass(frozen=True)
class Nodes:
    """Nodes of several files end to end, each file's in order; shape (n,) each.

    Attributes:
        files: [low, high) of each file.
        duration: from its begin to its end; of a meeting from the last arrival.
        stream, stream_lag, host, host_lag, other, other_lag: as in `graph.ReplayGraph`; -1 for none. The lag of a
            host's without a wait before counts from zero.
        met: number of the collective that a node is, -1 for none.
        members: how many meet in each collective.
    """

    files: Sequence[tuple[int, int]]
    duration: Sequence[int]
    stream: Sequence[int]
    stream_lag: Sequence[int]
    host: Sequence[int]
    host_lag: Sequence[int]
    other: Sequence[int]
    other_lag: Sequence[int]
    met: Sequence[int]
    members: Sequence[int]


@dataclass(frozen=True)
class Followed:
    """Result of `follow`.

    Attributes:
        end: of each node.
        by: what decided its begin, `NOTHING` to `MEETING`.
        last: of each collective the node that arrived last.
        forced: collectives that not all reached before somebody needed their end: the order does not fit.
    """

    end: list[int]
    by: list[int]
    last: list[int]
    forced: int


def follow(nodes: Nodes) -> Followed:
    """When each node ends: a max-plus recurrence. A file pauses where it needs a collective that others still miss."""
    total = len(nodes.duration)
    end: list[int] = [0] * total
    by = [NOTHING] * total
    arrived: list[list[int]] = [[] for _ in nodes.members]
    latest = [_NEVER] * len(nodes.members)
    last = [-1] * len(nodes.members)
    is_open = [True] * len(nodes.members)
    at = [low for low, _ in nodes.files]
    stream, stream_lag, host, host_lag = nodes.stream, nodes.stream_lag, nodes.host, nodes.host_lag
    other, other_lag, met, duration = nodes.other, nodes.other_lag, nodes.met, nodes.duration

    def settle(meeting: int) -> None:
        is_open[meeting] = False
        for member in arrived[meeting]:
            end[member] = latest[meeting] + duration[member]
            if member != last[meeting]:
                by[member] = MEETING

    forced = 0
    needed = -1
    while True:
        moved, unfinished = False, False
        for which, (_, high) in enumerate(nodes.files):
            node = at[which]
            while node < high:
                begin, why = _NEVER, NOTHING
                before = stream[node]
                if before >= 0:
                    if met[before] >= 0 and is_open[met[before]]:
                        needed = met[before]
                        break
                    begin, why = end[before] + stream_lag[node], STREAM
                waited = host[node]
                if waited >= -1:
                    ready = host_lag[node] if waited < 0 else end[waited] + host_lag[node]
                    if ready > begin:
                        begin, why = ready, HOST
                beside = other[node]
                if beside >= 0:
                    if met[beside] >= 0 and is_open[met[beside]]:
                        needed = met[beside]
                        break
                    ready = end[beside] + other_lag[node]
                    if ready > begin:
                        begin, why = ready, OTHER
                by[node] = why
                meeting = met[node]
                if meeting < 0:
                    end[node] = begin + duration[node]
                else:
                    arrived[meeting].append(node)
                    if begin > latest[meeting]:
                        latest[meeting], last[meeting] = begin, node
                    end[node] = latest[meeting] + duration[node]
                    if is_open[meeting] and len(arrived[meeting]) == nodes.members[meeting]:
                        settle(meeting)
                node += 1
            moved |= node > at[which]
            at[which] = node
            unfinished |= node < high
        if not unfinished:
            break
        if not moved:
            forced += 1
            settle(needed)
    return Followed(end, by, last, forced)
