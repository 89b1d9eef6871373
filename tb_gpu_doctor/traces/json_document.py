"""Trace JSON as typed structs: the Chrome trace event format, as PyTorch and TensorFlow write it.

Only what is read later is decoded; ``args`` and the properties stay raw bytes until somebody asks.
That keeps hostile nesting and huge values out of memory and is what makes it fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, Union

import msgspec

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.columns import PART
from tb_gpu_doctor.traces.json_salvage import salvage, without_bare_words

# More objects than this are no profile; each costs some hundred bytes once decoded.
MAX_OBJECTS = 24_000_000
# The arguments of one event; PyTorch writes shapes and stacks there.
MAX_ARGS_BYTES = 1 << 18
# Properties of devices, of the job: some kilobytes in reality.
MAX_PROPERTIES_BYTES = 4 << 20

# Fewer arguments than this are decoded together; so many of a usual size stay below the bound of one.
_TOGETHER = 512
# No object is shorter, with what parts it from the next.
_OBJECT_BYTES = 3
# PyTorch writes its `schemaVersion` in front of the events.
_HEAD_BYTES = 4096

# A file that has lost a larger share of its events is a part of one.
_MOST_LOST = 0.05

_Scalar = int | float | str | None
_Kind = TypeVar("_Kind")


class _Timed(msgspec.Struct, gc=False):
    """What every event has but its kind; times in microseconds."""

    cat: str | None = None
    name: str | None = None
    pid: _Scalar = None
    tid: _Scalar = None
    ts: float | None = None
    dur: float | None = None
    args: msgspec.Raw = msgspec.Raw()


class Event(_Timed, gc=False):
    """One trace event of any kind."""

    ph: str | None = None


class _Complete(_Timed, gc=False, tag_field="ph", tag="X"):
    """An event with a duration, told from others before it is decoded."""

    ph: ClassVar[str] = "X"


class _Metadata(_Timed, gc=False, tag_field="ph", tag="M"):
    """What names processes and threads."""

    ph: ClassVar[str] = "M"


# Arrows, instants, counters: nothing is read from them, so they are passed over. A third of PyTorch's events.
_PASSED_OVER = tuple(
    msgspec.defstruct(f"_PassedOver{number}", [], tag_field="ph", tag=phase, gc=False, namespace={"ph": phase})
    for number, phase in enumerate("stfiIBEbneCNODPRc")
)
_AnyPassedOver: Any = Union[_PASSED_OVER]  # noqa: UP007
_AnyEvent: Any = Union[(_Complete, _Metadata, *_PASSED_OVER)]


class _Properties(msgspec.Struct):
    """What stands beside the events."""

    deviceProperties: msgspec.Raw = msgspec.Raw()
    distributedInfo: msgspec.Raw = msgspec.Raw()
    baseTimeNanoseconds: msgspec.Raw = msgspec.Raw()
    schemaVersion: msgspec.Raw = msgspec.Raw()


class _Document(_Properties, kw_only=True):
    traceEvents: list[Event]


class _Usual(_Properties, kw_only=True):
    """As `_Document`, of PyTorch's events; one of another kind does not fit."""

    traceEvents: list[_AnyEvent]


class _Lenient(_Properties, kw_only=True):
    traceEvents: list[msgspec.Raw]


class Document(msgspec.Struct):
    """A decoded file.

    Attributes:
        complete: the events with a duration (``X``), in file order.
        metadata: those that name processes and threads (``M``), in file order.
        others: how many events of other kinds there are.
        broken: events whose values have types that no trace has; left out.
        mended: events whose text is no JSON, and was made some.
        lost: events whose text is so damaged that they were left out.
        is_part: the file was cut off, or a part from its middle is missing.
        device_properties, distributed: PyTorch's descriptions, as plain values; None without.
        base_ns: epoch nanoseconds that all times count from; 0 when the times are absolute.
        has_schema: PyTorch's ``schemaVersion`` is there.
    """

    complete: list[Event]
    metadata: list[Event]
    others: int = 0
    broken: int = 0
    mended: int = 0
    lost: int = 0
    is_part: bool = False
    device_properties: Any = None
    distributed: Any = None
    base_ns: int = 0
    has_schema: bool = False

    def notes(self, host: str = "", broken: int = 0) -> tuple[Phrase, ...]:
        """What had to be left out or mended.

        Args:
            host: label of the process, which the notes name.
            broken: so many more events whose values make no sense.
        """
        counts = {"broken_events": self.broken + broken, "lost_events": self.lost, "mended_events": self.mended}
        notes = [Phrase(f"notes.{code}", {"count": count, "host": host}) for code, count in counts.items() if count]
        if self.is_part or self.lost > _MOST_LOST * len(self.complete):
            notes.append(Phrase(PART, {"count": len(self.complete), "host": host}))
        return tuple(notes)


_USUAL_DECODER = msgspec.json.Decoder(_Usual)
_STRICT_DECODER = msgspec.json.Decoder(_Document)
_LENIENT_DECODER = msgspec.json.Decoder(_Lenient)
_EVENT_DECODER = msgspec.json.Decoder(Event)
_PASSED_OVER_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_AnyPassedOver)
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# How `torch.autograd.profiler` names the two sides of its own export, a bare list of events without categories.
_LEGACY_HOST, _LEGACY_DEVICE = "CPU functions", "CUDA functions"


def parse_document(data: bytes | bytearray, path: str = "", is_cut: bool = False) -> Document:
    """Decode a whole trace, or a bare list of its events.

    What real writers get wrong (bare ``nan``, quotes, control characters, text that is no UTF-8) is mended, and of a
    file that ends early the part that is there is read.

    Args:
        data: the text.
        path: of the file, for errors.
        is_cut: the file is known to have ended early.

    Raises:
        ProfileError: ``not_trace_json``, ``malformed``, ``cut_off`` (without a whole event) or ``too_many_events``.
    """
    if len(data) > _OBJECT_BYTES * MAX_OBJECTS and (count := data.count(b"{")) > MAX_OBJECTS:
        raise ProfileError("too_many_events", path, count=count, limit=MAX_OBJECTS)
    data = utf8(data)
    begin = data[:64].lstrip()[:1]
    if begin not in (b"{", b"["):
        raise ProfileError("not_trace_json", path)
    try:
        document = (_mostly_valid(data) if begin == b"{" else None) or _salvaged(data, path, is_cut)
    except msgspec.ValidationError:
        raise ProfileError("cut_off" if is_cut else "not_trace_json", path) from None
    document.is_part |= is_cut
    if document.complete and document.complete[0].pid in (_LEGACY_HOST, _LEGACY_DEVICE):
        _categorise(document)
    return document


def utf8(data: bytes | bytearray) -> bytes | bytearray:
    """The text without a byte order mark."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return bytes(data).decode(encoding, "replace").encode()
    return data


def _mostly_valid(data: bytes | bytearray) -> Document | None:
    """The document where nothing but bare words and commas is wrong with it."""
    for is_mended in (False, True):
        try:
            return _decode(without_bare_words(data) if is_mended else data)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _salvaged(data: bytes | bytearray, path: str, is_cut: bool) -> Document:
    """The readable events of a damaged file, or of a list of events."""
    found = salvage(bytes(data))
    if found is None or not found.events:
        raise ProfileError("cut_off" if is_cut else what_it_is(data), path)
    document = _decode(found.text)
    document.mended, document.lost, document.is_part = found.mended, found.lost, found.is_part
    return document


def what_it_is(data: bytes | bytearray) -> str:
    """Why a text without any readable event is none: the code of an error."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        return "not_trace_json"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return "cut_off" if "truncated" in str(error) else "malformed"


def _categorise(document: Document) -> None:
    """Give the events of a bare list the categories that PyTorch's own files have."""
    for event in document.complete:
        if event.cat is not None:
            continue
        if event.pid == _LEGACY_HOST:
            event.cat = "cpu_op"
        elif event.pid == _LEGACY_DEVICE:  # its threads are devices
            name = event.name or ""
            event.cat = (
                "gpu_memcpy" if name.startswith("Memcpy") else "gpu_memset" if name.startswith("Memset") else "kernel"
            )
            event.pid = event.tid


def _decode(data: bytes | bytearray) -> Document:
    found, events, broken = _events(data)
    metadata: list[Any] = []
    put_aside: Callable[[Any], object] = metadata.append  # which says None: not kept
    complete = [event for event in events if event.ph == "X" or (event.ph == "M" and put_aside(event))]
    base = _small(found.baseTimeNanoseconds)
    return Document(
        complete=complete,
        metadata=metadata,
        others=len(events) - len(complete) - len(metadata),
        broken=broken,
        device_properties=_small(found.deviceProperties),
        distributed=_small(found.distributedInfo),
        base_ns=base if isinstance(base, int) and 0 <= base < 1 << 62 else 0,
        has_schema=len(bytes(found.schemaVersion)) > 0,
    )


def _events(data: bytes | bytearray) -> tuple[_Usual | _Document | _Lenient, list[Any], int]:
    """The decoded file, its events, and how many had to be left out."""
    if b'"schemaVersion"' in data[:_HEAD_BYTES]:
        try:
            usual = _USUAL_DECODER.decode(data)
            return usual, usual.traceEvents, 0
        except msgspec.ValidationError:
            pass
    try:
        strict = _STRICT_DECODER.decode(data)
        return strict, strict.traceEvents, 0
    except msgspec.ValidationError:
        lenient = _LENIENT_DECODER.decode(data)
    events: list[Any] = []
    broken = 0
    for raw in lenient.traceEvents:
        event = _event(raw)
        if event is None:
            broken += 1
        else:
            events.append(event)
    return lenient, events, broken


def _event(raw: msgspec.Raw) -> Any:
    """One event; None when it is broken."""
    for decoder in (_EVENT_DECODER, _PASSED_OVER_DECODER):
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return None


def _small(raw: msgspec.Raw) -> Any:
    """A property as plain values; None when it is absent, too large or broken."""
    content = bytes(raw)
    if not content or len(content) > MAX_PROPERTIES_BYTES:
        return None
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def parse_args(decoder: msgspec.json.Decoder[_Kind], raw: msgspec.Raw) -> _Kind | None:
    """The arguments of one event; None when there are none, too many, or of other types."""
    try:
        size = len(memoryview(raw))
        return decoder.decode(raw) if 0 < size <= MAX_ARGS_BYTES else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def parse_all_args(
    many: msgspec.json.Decoder[list[_Kind]], one: msgspec.json.Decoder[_Kind], raws: Sequence[msgspec.Raw]
) -> list[_Kind | None]:
    """As `parse_args` of each, but decoded many at a time, which is quicker.

    Args:
        many: decodes a list of what ``one`` decodes.
        one: for those among which one does not fit.
        raws: the arguments of events.
    """
    found: list[_Kind | None] = []
    for at in range(0, len(raws), _TOGETHER):
        part = raws[at : at + _TOGETHER]
        together = _together(many, part)
        found += [parse_args(one, raw) for raw in part] if together is None else together
    return found


def _together(many: msgspec.json.Decoder[list[_Kind]], raws: Sequence[msgspec.Raw]) -> Sequence[_Kind] | None:
    """All arguments as one list; None when one is missing, of other types or perhaps too large."""
    joined = b"[" + b",".join(raws) + b"]"
    if len(joined) > MAX_ARGS_BYTES:
        return None
    try:
        found = many.decode(joined)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if len(found) == len(raws) else None


class _NameArgs(msgspec.Struct):
    name: str | None = None


_NAME_DECODER = msgspec.json.Decoder(_NameArgs)


def name_of(event: Event) -> str | None:
    """The name that a metadata event gives to its process or thread."""
    args = parse_args(_NAME_DECODER, event.args)
    return args.name if args is not None else None


def whole(value: Any) -> int:
    """A number or its decimal text as a non-negative int64; -1 when it is none."""
    if type(value) is int:  # nearly always
        return value if 0 <= value < 1 << 62 else -1
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
    if isinstance(value, float):
        value = int(value) if 0 <= value < 1 << 62 and value == int(value) else -1
    return value if type(value) is int and 0 <= value < 1 << 62 else -1
