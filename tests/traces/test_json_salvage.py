"""Damaged text: what is damaged costs itself, and all that stands beside it is as it was."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.json_document import Document, parse_document
from tb_gpu_doctor.traces.json_salvage import salvage

HEAD = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}], "distributedInfo": {"rank": 3}}
TAIL = {"traceName": "the name", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1_700_000_000_000_000_000}
MARK = "the mark"
# What stands in names and arguments as real profilers print them, each no JSON, and what may stay of the name.
DAMAGE = [
    rb"C:\Users\me\log.py(3): step", rb"torch\cuda\__init__.py(219): _lazy_init", b"a\nb", b"tab\there", b"\0\1\2",
    b'Library("_test", "IMPL")', b'say "hi"', rb"\q\w", rb"half \ud83d", rb"\udc00 other half", b"\xff\xfe\x01",
    b"caf\xe9", rb"ends with \u12", b"D:\\logs\\", b'"', b'""', rb"\ud83d\ud83d\ude00", rb'a \" b " c',
    b'{"ph": "X"', b'}]"', b'"[', b"\x1b[31mred\x1b[0m",
]  # fmt: skip


def event(number: int, name: str = "k") -> dict[str, object]:
    args = {"device": 0, "stream": 7, "correlation": number}
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": number * 10.5, "dur": 3.25, "args": args,
    }  # fmt: skip


def text_of(events: list[dict[str, object]], indent: int | None = None, tail: bool = True) -> bytes:
    return json.dumps({**HEAD, "traceEvents": events, **(TAIL if tail else {})}, indent=indent).encode()


def facts(document: Document) -> list[tuple[object, ...]]:
    return [(e.cat, e.pid, e.tid, e.ts, e.dur, json.loads(bytes(e.args))["correlation"]) for e in document.complete]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_damaged_name_costs_nothing_but_itself(damage: bytes, place: int, indent: int | None) -> None:
    events = [event(number) for number in range(7)]
    whole = parse_document(text_of(events, indent))
    events[place]["name"] = MARK
    found = parse_document(text_of(events, indent).replace(MARK.encode(), damage))
    assert facts(found) == facts(whole)
    assert (found.mended, found.lost, found.is_part) == (1, 0, False)
    assert (found.base_ns, found.device_properties, found.distributed) == (
        TAIL["baseTimeNanoseconds"], HEAD["deviceProperties"], HEAD["distributedInfo"],
    )  # fmt: skip


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage != b"caf\xe9"])  # looked at by nobody
@pytest.mark.parametrize("place", [0, 3, 6])
def test_damaged_arguments_leave_what_joins_an_event_with_others(damage: bytes, place: int) -> None:
    events = [event(number) for number in range(7)]
    whole = parse_document(text_of(events))
    events[place]["args"] = {**events[place]["args"], "Concrete Inputs": ["", MARK]}  # type: ignore[dict-item]
    found = parse_document(text_of(events).replace(MARK.encode(), damage))
    assert facts(found) == facts(whole) and not found.is_part
    assert (found.mended, found.lost) == (1, 0)


@given(
    names=st.lists(st.text(max_size=8), min_size=1, max_size=6),
    indent=st.sampled_from([None, 1]),
    data=st.data(),
    tail=st.booleans(),
)
def test_a_file_that_ends_anywhere_is_read_up_to_there(
    names: list[str], indent: int | None, data: st.DataObject, tail: bool
) -> None:
    events = [event(number, name) for number, name in enumerate(names)]
    text = text_of(events, indent, tail)
    # behind the arguments of each event, and the event itself
    ends = [text.find(b"}", text.find(b"}", text.find(b'"correlation": %d' % at)) + 1) + 1 for at in range(len(events))]
    kept = data.draw(st.integers(ends[0], len(text) - 2))
    found = parse_document(text[:kept])
    assert facts(found) == facts(parse_document(text))[: sum(end <= kept for end in ends)]
    assert found.is_part == (b"]" not in text[ends[-1] : kept]) and not found.lost and not found.mended


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)), min_size=1, max_size=4))
def test_any_bytes_anywhere_leave_a_document(damages: list[tuple[int, bytes]]) -> None:
    text = bytearray(text_of([event(number) for number in range(4)]))
    for at, piece in damages:
        text[at : at + 1] = piece
    found = salvage(bytes(text))
    if found is not None and found.events:
        assert found.events == len(json.loads(found.text)["traceEvents"])


def test_arguments_that_look_like_events() -> None:
    events = [event(number) for number in range(5)]
    events[2]["args"] = {**events[2]["args"], "list": [{"name": "a", "id": 1}, {"ph": "X"}, {"id": 2}]}  # type: ignore[dict-item]
    whole = parse_document(text_of(events))
    events[4]["name"] = MARK
    found = parse_document(text_of(events).replace(MARK.encode(), b'"'))
    assert facts(found) == facts(whole) and (found.mended, found.lost) == (1, 0)


def test_a_block_that_never_reached_the_disk() -> None:
    text = text_of([event(number) for number in range(100)])
    hole = text[:3000] + b"\0" * 4096 + text[7096:]
    found = parse_document(hole)
    assert found.is_part and 0 < len(found.complete) < 100
    found = parse_document(text[:5000] + b"\0" * 4096)
    assert found.is_part and not found.lost


def test_two_documents_in_one_file_are_a_part() -> None:
    assert parse_document(text_of([event(1)]) + text_of([event(2)])).is_part


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [b'{"name":"', b',{"ph":"X","args":[', b'"name":"', b"[{", b',{"id":0', b',{"ph":"X","name":"x","args":{"a":"'],
)
def test_hostile_text_ends_in_time(piece: bytes) -> None:
    begin = time.perf_counter()
    salvage(b'{"traceEvents":[' + piece * 20_000)
    assert time.perf_counter() - begin < 20
