"""Damaged trace JSON, made valid again: what is damaged costs its own event, a file that was cut off what is missing.

Profilers print names as they find them: paths with backslashes, source lines with quotes, bytes of another encoding.
Processes are killed while they write. So the list of events is taken apart where events begin, each is looked at by
itself, and what can be read is put together to a document without the rest.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

# The keys that an event can begin with; objects inside of arguments seldom stand in lists.
_START = re.compile(
    rb'[\[,}\]]\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|bp|s|sf|cname|tts|tdur|scope|bind_id)"\s*:)'
)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_PROPERTIES = (b"schemaVersion", b"deviceProperties", b"distributedInfo", b"displayTimeUnit", b"baseTimeNanoseconds")
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
# Where a list of objects inside of an event's arguments was taken for events: looked for so far, and so often.
_LONG_BYTES, _LONG_LOOKS = 1 << 15, 200
# What is longer holds no single event.
_MAX_EVENT_BYTES = 4 << 20
# Zeros in a row that no writer writes: a block of the file that never reached the disk.
_HOLE = b"\0" * 64
_BETWEEN = b" \t\r\n,\0"

_BAD_ESCAPE = re.compile(rb'(?<!\\)((?:\\\\)*)\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_UNICODE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_CONTROL = re.compile(rb"[\x00-\x1f]")
# A name, and the quote at its end: the one in front of the next key of an event, whatever lies between.
_NAME = re.compile(rb'"name"\s*:\s*"')
_BEHIND_NAME = re.compile(rb'"\s*(?:,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:|\}\s*,?\s*$)')
_QUOTE = re.compile(rb'\\?"')
_ARGS = re.compile(rb'"args"\s*:\s*\{')
_NUMBER = re.compile(rb'"(correlation|device|stream|bytes|graph id)"\s*:\s*(\d{1,18})(?=\s*[,}])')
_END_OF_LIST = re.compile(rb"\}\s*\](?=\s*(?:\}|,\s*\"|$))")
# Writers print these bare where they divide by zero or know nothing; JSON has no such words.
_BARE_WORD = re.compile(rb"(?<=[:,\[])\s*(?:-?nan(?:\([a-z]*\))?|-?inf(?:inity)?|N/A)\s*(?=[,\]}])", re.IGNORECASE)
_TRAILING_COMMA = re.compile(rb",\s*(?=[\]}])")


@dataclass(frozen=True)
class Salvaged:
    """What is left of a damaged file.

    Attributes:
        text: a valid document with all events that could be read.
        events: how many.
        mended: how many of them held text that is no JSON.
        lost: events that could not be read.
        is_part: the end is missing, or a part from the middle.
    """

    text: bytes
    events: int
    mended: int
    lost: int
    is_part: bool


def without_bare_words(data: bytes | bytearray) -> bytes:
    """The document without what JSON does not know and real writers write outside of strings all the same."""
    return _TRAILING_COMMA.sub(b"", _BARE_WORD.sub(b"null", bytes(data)))


def salvage(data: bytes) -> Salvaged | None:
    """A valid document of the readable events; None where there is no list of events."""
    is_list = data[:64].lstrip().startswith(b"[")
    begin = re.match(rb"\s*\[", data) if is_list else _EVENTS.search(data)
    if begin is None:
        return None
    pieces = _Pieces(data, begin.end() - 1)
    good = list(pieces)
    head = b"" if is_list else data[: begin.start()]
    tail = pieces.tail or b""
    properties = b"".join(_properties(head, tail))
    # More events behind the end of their list: it is no end.
    is_part = pieces.tail is None or pieces.has_hole or b'"ph"' in tail
    return Salvaged(
        b"{" + properties + b'"traceEvents":[' + b",\n".join(good) + b"]}",
        len(good), pieces.mended, pieces.lost, is_part,
    )  # fmt: skip


class _Pieces:
    """The readable events behind the bracket that opens their list, as valid text.

    Attributes:
        tail: what stands behind the list; None where the list does not end.
        mended, lost: see `Salvaged`.
        has_hole: a part from the middle is missing.
    """

    def __init__(self, data: bytes, bracket: int) -> None:
        self._data = data
        self._bracket = bracket
        self._long_looks = _LONG_LOOKS
        self.tail: bytes | None = None
        self.mended = self.lost = 0
        self.has_hole = False

    def __iter__(self) -> Iterator[bytes]:
        data = self._data
        self._close(data[self._bracket + 1 : self._bracket + 65], self._bracket + 65)
        starts = [match.end() for match in _START.finditer(data, self._bracket)]
        starts.append(len(data))
        at = 0
        while at + 1 < len(starts) and self.tail is None:
            found, parts = self._event(starts, at)
            if found is not None:
                yield found
            at += parts

    def _close(self, rest: bytes, behind: int) -> None:
        """Note the end of the list if it is the first thing in ``rest``, which goes on ``behind`` a place."""
        rest = rest.lstrip(_BETWEEN)
        if rest.startswith(b"]"):
            self.tail = rest[1:] + self._data[behind:]

    def _event(self, starts: list[int], at: int) -> tuple[bytes | None, int]:
        """The event at a start, None where it is lost, and how many starts it takes up."""
        chunk = self._data[starts[at] : starts[at + 1]]
        is_last = at + 2 == len(starts)
        usual = chunk.rstrip(_BETWEEN)
        if not is_last and _is_valid(usual):
            return usual, 1
        end_of_list = _END_OF_LIST.search(chunk)
        is_cut = is_last and end_of_list is None
        for number, text in enumerate(_attempts(chunk, is_cut)):
            end = end_of_value(text)
            if end > 0 and _is_valid(text[:end]):
                self.mended += number > 0
                self._close(text[end:], starts[at + 1])
                return text[:end], 1
            if number == 0 and (joined := self._joined(starts, at)) is not None:
                return joined
        if is_cut:
            return None, 1
        if is_last and end_of_list is not None:
            self.tail = chunk[end_of_list.end() :]
        self.has_hole |= _HOLE in chunk or len(chunk) > _MAX_EVENT_BYTES
        self.lost += 1
        return None, 1

    def _joined(self, starts: list[int], at: int) -> tuple[bytes, int] | None:
        """An event whose arguments hold a list of objects that look like events."""
        if at + 2 == len(starts) or not self._long_looks:
            return None
        self._long_looks -= 1
        text = self._data[starts[at] : starts[at] + _LONG_BYTES]
        end = end_of_value(text)
        parts = bisect_left(starts, starts[at] + end) - at
        if end < 0 or parts < 2 or not _is_valid(text[:end]):
            return None
        self._close(self._data[starts[at] + end : starts[at + parts]], starts[at + parts])
        return text[:end], parts


def _is_valid(text: bytes) -> bool:
    try:
        _SYNTAX.decode(text)
        return text.isascii() or bool(text.decode("utf-8"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def end_of_value(text: bytes) -> int:
    """Behind the object or list that a text begins with; -1 where it does not end."""
    depth = 0
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
            if depth <= 0:
                return token.end() if depth == 0 else -1
    return -1


def _attempts(chunk: bytes, is_cut: bool) -> Iterator[bytes]:
    """An event as it is, and with more and more of what may be wrong with it taken away."""
    yield chunk
    if len(chunk) <= _MAX_EVENT_BYTES:
        yield _mended(chunk)
        requoted = _requoted(chunk)
        yield _mended(requoted)
        if not is_cut:
            yield _mended(_with_numbers_alone(requoted))


def _mended(text: bytes) -> bytes:
    """Text with valid escapes, without control characters, halves of surrogate pairs and bytes that are no UTF-8."""
    text = text.decode("utf-8", "replace").encode("utf-8")
    text = _CONTROL.sub(b" ", _BAD_ESCAPE.sub(rb"\1\\\\", text))
    if b"\\ud" in text or b"\\uD" in text:
        text = _UNICODE.sub(lambda found: found[1] + (found[2] if len(found[2]) == 12 else rb"\ufffd"), text)
    return without_bare_words(text)


def _requoted(text: bytes) -> bytes:
    """An event with the quotes inside of its name escaped."""
    begin = _NAME.search(text)
    end = None if begin is None else _BEHIND_NAME.search(text, begin.end())
    if begin is None or end is None:
        return text
    inner = _QUOTE.sub(rb'\\"', text[begin.end() : end.start()])
    if (len(inner) - len(inner.rstrip(b"\\"))) % 2:  # it would escape the quote behind it
        inner += b"\\"
    return text[: begin.end()] + inner + text[end.start() :]


def _with_numbers_alone(text: bytes) -> bytes:
    """An event with no other arguments than those that join it with others; it must end with them."""
    args = _ARGS.search(text)
    if args is None or b'"ts"' not in text[: args.start()]:
        return text
    numbers = dict(_NUMBER.findall(text, args.end()))
    kept = b",".join(b'"' + name + b'":' + number for name, number in numbers.items())
    end_of_list = _END_OF_LIST.search(text, args.end())
    rest = text[end_of_list.start() + 1 :] if end_of_list is not None else b""
    return text[: args.end()] + kept + b"}}" + rest


def _properties(head: bytes, tail: bytes) -> Iterator[bytes]:
    """``"key": value,`` of what is read beside the events, as far as it is valid or can be made so."""
    for key in _PROPERTIES:
        found = re.search(rb'"' + key + rb'"\s*:\s*', head)
        place = head
        if found is None:
            found, place = re.search(rb'"' + key + rb'"\s*:\s*', tail), tail
        if found is None:
            continue
        value = place[found.end() : found.end() + _MAX_EVENT_BYTES]
        if value.startswith((b"{", b"[")):
            value = value[: max(0, end_of_value(value))]
        else:
            value = re.split(rb"[,}\]\n]", value[:256], maxsplit=1)[0].strip()
        for text in (value, _mended(value)):
            if text and _is_valid(text):
                yield b'"' + key + b'":' + text + b","
                break
