"""Trace JSON of any quality: read, mended or refused with the right reason; never a traceback."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import json_document
from tb_gpu_doctor.traces.json_document import parse_document, whole

GOOD = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.5,"dur":2,"args":{"device":0}}'


def wrapped(*events: bytes) -> bytes:
    return b'{"schemaVersion":1,"traceEvents":[' + b",".join(events) + b"]}"


def code_of(data: bytes) -> str:
    with pytest.raises(ProfileError) as error:
        parse_document(data, "the path")
    assert error.value.path == "the path"
    return error.value.code


def test_what_is_kept() -> None:
    found = parse_document(
        b'{"baseTimeNanoseconds":5,"deviceProperties":[{"id":0}],"distributedInfo":{"rank":3},"schemaVersion":1,'
        b'"secret":{"TOKEN":"x"},"traceEvents":[' + GOOD + b",{}]}"
    )
    (one,) = found.complete
    assert (one.ph, one.cat, one.name, one.pid, one.tid, one.ts, one.dur) == ("X", "kernel", "k", 0, 7, 1.5, 2.0)
    assert json.loads(bytes(one.args)) == {"device": 0} and found.others == 1
    assert (found.base_ns, found.device_properties, found.distributed) == (5, [{"id": 0}], {"rank": 3})
    assert found.has_schema and not found.broken


@pytest.mark.parametrize(
    "data",
    [b"", b"   ", b"[]", b"[[]]", b"[5]", b"12", b'"text"', b"null", b"nonsense", b"<html></html>", b"\x00\x01\x02",
     b"{}", b'{"a":1}', b'{"traceEvents":5}', b'{"traceEvents":{}}', b'{"traceEvents":null}', b'{"nodes":[1,2]}'],
)  # fmt: skip
def test_something_else(data: bytes) -> None:
    assert code_of(data) == "not_trace_json"


@pytest.mark.parametrize("kept", [1, 20, 40, 60, 100])
def test_a_file_that_ends_before_its_first_event(kept: int) -> None:
    assert code_of(wrapped(GOOD, GOOD)[:kept]) == "cut_off"


@pytest.mark.parametrize(("kept", "events"), [(-3, 1), (-2, 2), (-30, 1)])
def test_a_file_that_ends_early(kept: int, events: int) -> None:
    found = parse_document(wrapped(GOOD, GOOD)[:kept])
    assert len(found.complete) == events and found.is_part and not found.lost
    assert [note.code for note in found.notes()] == ["cut_off_part"]


def test_without_its_last_bracket_all_events_are_there() -> None:
    found = parse_document(wrapped(GOOD, GOOD)[:-1])
    assert len(found.complete) == 2 and not found.is_part


@pytest.mark.parametrize("data", [wrapped(GOOD) + b"}", wrapped(GOOD + GOOD), b'{"traceEvents":[' + GOOD + b"]]"])
def test_stray_brackets_cost_nothing(data: bytes) -> None:
    found = parse_document(data)
    assert len(found.complete) == data.count(GOOD) and not found.lost and not found.is_part


def test_a_bare_list_of_events() -> None:
    one = parse_document(b"[" + GOOD + b"]")
    assert len(one.complete) == 1 and not one.is_part and one.complete[0].cat == "kernel"
    # as torch.autograd.profiler writes its own recordings
    mine = b'{"name": "aten::mul", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": "CPU functions", "args": {}}'
    theirs = b'{"name": "%s", "ph": "X", "ts": 3, "dur": 2, "tid": 1, "pid": "CUDA functions", "args": {}}'
    found = parse_document(b"[" + b", ".join([mine, theirs % b"k", theirs % b"Memcpy HtoD", theirs % b"Memset"]) + b"]")
    assert [event.cat for event in found.complete] == ["cpu_op", "kernel", "gpu_memcpy", "gpu_memset"]
    assert [event.pid for event in found.complete[1:]] == [1, 1, 1]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_that_went_through_another_shell(encoding: str) -> None:
    found = parse_document(wrapped(GOOD).decode().encode(encoding))
    assert len(found.complete) == 1 and not found.notes()


@pytest.mark.parametrize(
    "field",
    [b'"ts":"1"', b'"ts":1e999', b'"dur":[1]', b'"name":5', b'"cat":{}', b'"pid":[0]', b'"pid":1e999',
     b'"pid":' + b"9" * 5000, b'"ts":true', b'"ph":1', b'"tid":{"a":1}'],
)  # fmt: skip
def test_an_event_of_odd_types_is_left_out(field: bytes) -> None:
    found = parse_document(wrapped(GOOD, GOOD[:-1] + b"," + field + b"}", GOOD))
    assert len(found.complete) == 2 and found.broken == 1


@pytest.mark.parametrize("field", [b'"ts":"1"', b'"name":5', b'"pid":[0]', b'"args":1'])
@pytest.mark.parametrize("head", [b"", b'"schemaVersion":1,'])
@pytest.mark.parametrize("other", [GOOD, b"{}", b"5"])
def test_nothing_is_read_from_arrows(head: bytes, other: bytes, field: bytes) -> None:
    arrow = b'{"ph":"s","id":1,"cat":"ac2g",' + field + b"}"
    found = parse_document(b"{" + head + b'"traceEvents":[' + GOOD + b"," + arrow + b"," + other + b"]}")
    assert found.broken == (other == b"5") and found.others == 1 + (other == b"{}")
    assert len(found.complete) == 1 + (other == GOOD) and not found.metadata


@pytest.mark.parametrize("extra", [b"{}", b'{"ph":"unheard of"}', b'{"ph":null}', b'{"ph":"s","id":1}', b'{"ph":"i"}'])
def test_events_are_the_same_whatever_stands_beside_them(extra: bytes) -> None:
    meta = b'{"ph":"M","name":"thread_name","pid":1,"tid":"7","args":{"name":"python"}}'
    last = GOOD.replace(b'{"ph"', b'{"id":3,"ph"').replace(b"kernel", b"cpu_op")
    one, other = (parse_document(wrapped(GOOD, *more, meta, last)) for more in ([], [extra]))
    assert (one.others, other.others, other.broken) == (0, 1, 0)
    for found, wanted in zip([*one.complete, *one.metadata], [*other.complete, *other.metadata], strict=True):
        for field in ("ph", "cat", "name", "pid", "tid", "ts", "dur"):
            assert getattr(found, field) == getattr(wanted, field)
        assert bytes(found.args) == bytes(wanted.args)


@pytest.mark.parametrize("data", [b"[1]", b'"text"', b"null", b"5"])
def test_what_is_no_event_is_left_out(data: bytes) -> None:
    found = parse_document(wrapped(GOOD, data))
    assert len(found.complete) == 1 and found.broken == 1


@pytest.mark.parametrize("word", [b"nan", b"-nan", b"NaN", b"inf", b"-inf", b"Infinity", b"N/A", b" nan "])
def test_words_that_are_no_json_are_mended(word: bytes) -> None:
    bad = GOOD.replace(b'"device":0', b'"device":0,"bandwidth":' + word + b',"list":[1,' + word + b"]")
    (one,) = parse_document(wrapped(bad)).complete
    assert json.loads(bytes(one.args)) == {"device": 0, "bandwidth": None, "list": [1, None]}
    (one,) = parse_document(wrapped(GOOD.replace(b"1.5", word))).complete
    assert one.ts is None


@pytest.mark.parametrize("name", [b"a\nb", b"a\x00b", b"\xff\xfe", b"caf\xe9"])
def test_text_that_is_no_json_is_mended(name: bytes) -> None:
    (one,) = parse_document(wrapped(GOOD.replace(b'"k"', b'"' + name + b'"'))).complete
    assert one.name


def test_a_comma_behind_the_last_event_is_mended() -> None:
    assert len(parse_document(b'{"traceEvents":[' + GOOD + b",\n]}").complete) == 1


def test_a_byte_order_mark_is_no_reason_to_refuse() -> None:
    assert len(parse_document(b"\xef\xbb\xbf" + wrapped(GOOD)).complete) == 1


def test_the_last_of_equal_keys_counts() -> None:
    (one,) = parse_document(wrapped(GOOD.replace(b'"ts":1.5', b'"ts":9,"ts":1.5'))).complete
    assert one.ts == 1.5


@pytest.mark.slow
@pytest.mark.parametrize("open_, close", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("depth", [900, 200_000])
def test_deep_nesting(open_: bytes, close: bytes, depth: int) -> None:
    deep = open_ * depth + b"1" + close * depth
    for data in (wrapped(GOOD.replace(b"0}", deep + b"}")), b'{"traceEvents":[' + GOOD + b'],"x":' + deep + b"}", deep):
        try:
            assert len(parse_document(data).complete) == 1
        except ProfileError as error:
            assert error.code in ("malformed", "not_trace_json", "too_many_events", "cut_off")


def test_more_objects_than_a_profile_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "MAX_OBJECTS", 10)
    assert code_of(wrapped(*[b"{}"] * 10)) == "too_many_events"
    assert parse_document(wrapped(*[b"{}"] * 9)).others == 9


def test_large_arguments_are_not_decoded() -> None:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
    large = b'{"a":"' + b"x" * json_document.MAX_ARGS_BYTES + b'"}'
    (one,) = parse_document(wrapped(GOOD.replace(b'{"device":0}', large))).complete
    assert json_document.parse_args(decoder, one.args) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [(5, 5), ("5", 5), (" 7 ", 7), (5.0, 5), (5.5, -1), (-1, -1), ("-1", -1), ("", -1), ("x", -1), (None, -1),
     (True, -1), ([1], -1), (1 << 63, -1), ("9" * 40, -1), (float("inf"), -1), (float("nan"), -1), ("٣", -1), (0, 0)],
)  # fmt: skip
def test_whole_numbers(value: Any, number: int) -> None:
    assert whole(value) == number


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(
    events=st.lists(
        st.dictionaries(st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "x"]), json_values)
    ),
    more=st.dictionaries(
        st.sampled_from(["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "schemaVersion"]), json_values
    ),
)
def test_any_json_gives_events_or_counts_them(events: list[dict[str, Any]], more: dict[str, Any]) -> None:
    found = parse_document(json.dumps({**more, "traceEvents": events}).encode())
    assert len(found.complete) + len(found.metadata) + found.others + found.broken == len(events)


@given(data=st.binary(max_size=60), at=st.integers(0, 200))
def test_any_bytes_end_in_words(data: bytes, at: int) -> None:
    good = wrapped(GOOD, GOOD)
    for content in (data, good[:at] + data + good[at:], b'{"traceEvents":[' + data):
        try:
            parse_document(content)
        except ProfileError as error:
            assert error.code in ("not_trace_json", "malformed", "cut_off")
