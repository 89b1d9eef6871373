"""What a file is and which process wrote it, by a bounded look at its beginning: names say nothing reliable.

Profiles are called ``rank-0.json.gz``, ``trace0.json`` or ``libkineto_activities_3000.json``, by whoever wrote them.
The head of each says the format, and of PyTorch's the rank, the process, the machine and the time.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tb_gpu_doctor.files.opening import open_regular
from tb_gpu_doctor.traces.kineto_categories import DEVICE_CATEGORIES, HOST_CATEGORIES

# Names that a profile may have. Others are never opened: images, weights, logs.
CANDIDATE_SUFFIXES = (".json", ".json.gz", ".pb", ".trace", ".trace.gz", ".sqlite", ".nsys-rep", ".qdrep")
_HEAD_BYTES = 1 << 16
# Device properties and what people put in front of the events can be longer; looked for where a name promises a trace.
_LONG_HEAD_BYTES = 1 << 20
# The last events of a plain file, and packed files so small that unpacking them costs little.
_TAIL_BYTES = 1 << 15
_SMALL_BYTES = 1 << 17
_MAX_UNPACKED = 1 << 23
_PROMISING = re.compile(r"trace|profil|kineto|rank|worker|activities|torch|xplane|\.sqlite\b", re.IGNORECASE)

_OWN_KEYS = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo)"\s*:')
_CATEGORIES = "|".join(sorted(DEVICE_CATEGORIES.keys() | HOST_CATEGORIES.keys())).encode()
_CATEGORY = re.compile(rb'"cat"\s*:\s*"(?:' + _CATEGORIES + rb')"', re.IGNORECASE)
_LEGACY = re.compile(rb'"pid"\s*:\s*"(?:CPU|CUDA) functions"')
_TF_PROCESS = re.compile(rb'"name"\s*:\s*"/(?:host|device):')
_PLANE_NAME = re.compile(rb"(?:/|Task Environment)[\x20-\x7e]*\Z")
_RANK = re.compile(rb'"rank"\s*:\s*"?(\d{1,8})')
_WORLD = re.compile(rb'"world_size"\s*:\s*"?(\d{1,8})')
_HOST = re.compile(rb'"host_?name"\s*:\s*"([^"\\]{1,256})"')
_PID = re.compile(rb'"pid"\s*:\s*"?(\d{1,10})')
_STAMP = re.compile(rb'"ts"\s*:\s*(\d{1,16}(?:\.\d{1,6})?)')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
_SPAN = re.compile(rb'\{[^{}]*"cat"\s*:\s*"Trace"[^{}]*')
_DURATION = re.compile(rb'"dur"\s*:\s*(\d{1,16}(?:\.\d{1,6})?)')
# The first events carry the start of the recording, or nearly so.
_FIRST_STAMPS = 50
# The plane that says when a profile was taken, and how many are passed over on the way to it.
_ENVIRONMENT, _MAX_PLANES, _PLANE_HEAD = b"Task Environment", 512, 128
_FIRST_YEAR_S, _LAST_YEAR_S = 1e9, 4e9
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Head:
    """What the beginning of a file tells; None for what it does not.

    Attributes:
        format: ``xplane``, ``kineto``, ``trace_json`` or ``nsys``.
        rank, world_size: of the job.
        host: the machine's own name.
        pid: of the process that wrote it.
        start_unix_s, end_unix_s: what was recorded.
    """

    format: str
    rank: int | None = None
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    start_unix_s: float | None = None
    end_unix_s: float | None = None


def promises_a_trace(name: str) -> bool:
    """Whether a file's name sounds like a profile."""
    return _PROMISING.search(name) is not None


def head_of(path: str) -> Head | None:
    """What a local file is; None for what is no profile, no regular file, or cannot be opened."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(state.st_mode) or not state.st_size:
        return None
    return _known_head(path, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=1 << 16)
def _known_head(path: str, size: int, _modified: int, _inode: int) -> Head | None:
    """As `head_of`; what was looked at once is not looked at again while it stays as it is."""
    try:
        with open_regular(path) as file:
            raw = file.read(_HEAD_BYTES)
            if raw.startswith(_SQLITE):
                return _nsys(path)
            if raw.startswith(b"\x1f\x8b"):
                is_small = size <= _SMALL_BYTES
                raw += file.read(_SMALL_BYTES) if is_small else b""
                text = _unpacked(raw, _MAX_UNPACKED if is_small else _HEAD_BYTES)
                tail = text[-_TAIL_BYTES:] if is_small else b""
                more = text
            else:
                if raw[:1] == b"\n" and (found := _xspace(raw)) is not None:
                    return found
                text = more = raw
                tail = b""
                if raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
                    if size > len(raw) and promises_a_trace(os.path.basename(path)) and not _tells(raw):
                        more = raw + file.read(_LONG_HEAD_BYTES)
                    file.seek(max(0, size - _TAIL_BYTES))
                    tail = file.read(_TAIL_BYTES)
    except (OSError, ValueError):
        return None
    return _json(text, tail) or _json(more, tail)


def _nsys(path: str) -> Head | None:
    """What an export of Nsight Systems says of itself; None for a database of something else."""
    from tb_gpu_doctor.traces.nsys_facts import recording_facts  # here: few logdirs hold one

    facts = recording_facts(path)
    if facts is None:
        return None
    start_s = facts.start_unix_ns / 1e9 if facts.start_unix_ns is not None else None
    end_s = start_s + facts.duration_ns / 1e9 if start_s is not None and facts.duration_ns is not None else None
    return Head("nsys", facts.rank, None, facts.host, None, start_s, end_s)


def _unpacked(raw: bytes, max_bytes: int) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, max_bytes)
    except zlib.error:
        return b""


def _tells(text: bytes) -> bool:
    return bool(_OWN_KEYS.search(text) or _CATEGORY.search(text) or _TF_PROCESS.search(text))


def _xspace(raw: bytes) -> Head | None:
    """Whether a file begins with a plane that has a name such as profilers give."""
    at, length = _varint(raw, 1)
    while at is not None and at < len(raw) and length:
        tag = raw[at]
        if tag == 0x08:  # its number
            at, _ = _varint(raw, at + 1)
        elif tag == 0x12:
            begin, size = _varint(raw, at + 1)
            named = begin is not None and 0 < size <= 1024 and _PLANE_NAME.match(raw[begin : begin + size])
            return Head("xplane") if named else None
        else:
            return None
    return None


@lru_cache(maxsize=1 << 14)
def _known_start(path: str, size: int, _modified: int, _inode: int) -> float | None:
    try:
        with open_regular(path) as file:
            at = planes = 0
            while at < size and planes < _MAX_PLANES:
                file.seek(at)
                raw = file.read(_PLANE_HEAD)
                begin, length = _varint(raw, 1)
                if begin is None or raw[0] & 7 != 2:
                    return None
                if raw[0] == 0x0A and _ENVIRONMENT in raw[begin : begin + 64]:
                    file.seek(at + begin)
                    return _profile_start(file.read(min(length, _LONG_HEAD_BYTES)))
                at += begin + length
                planes += 1
    except (OSError, ValueError):
        return None
    return None


def start_of_xspace(path: str) -> float | None:
    """When a local XPlane file was recorded, in Unix seconds, as the profiler notes it; None where it does not say."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    return _known_start(path, state.st_size, state.st_mtime_ns, state.st_ino) if stat.S_ISREG(state.st_mode) else None


def _profile_start(plane: bytes) -> float | None:
    """``profile_start_time`` of the plane that describes the task."""
    wanted = None
    values: dict[int, int] = {}
    for number, value in _fields(plane):
        if not isinstance(value, bytes):
            continue
        if number == 5:
            entry = dict(_fields(value))
            described = entry.get(2)
            if isinstance(described, bytes) and dict(_fields(described)).get(2) == b"profile_start_time":
                key = entry.get(1)
                wanted = key if isinstance(key, int) else None
        elif number == 6:
            found = dict(_fields(value))
            ident, nanoseconds = found.get(1), found.get(3, found.get(4))
            if isinstance(ident, int) and isinstance(nanoseconds, int):
                values[ident] = nanoseconds
    start = values.get(wanted, 0) / 1e9 if wanted is not None else 0.0
    return start if _FIRST_YEAR_S < start < _LAST_YEAR_S else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message as (number, value), up to the first that is broken."""
    at: int | None = 0
    while at is not None and at < len(message):
        at, tag = _varint(message, at)
        if at is None:
            return
        kind = tag & 7
        if kind == 0:
            at, value = _varint(message, at)
            yield tag >> 3, value
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            at, length = _varint(message, at)
            if at is None or at + length > len(message):
                return
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            return


def _varint(raw: bytes, at: int) -> tuple[int | None, int]:
    value = 0
    for index in range(10):
        if at + index >= len(raw):
            break
        value |= (raw[at + index] & 0x7F) << (7 * index)
        if raw[at + index] < 0x80:
            return at + index + 1, value
    return None, 0


def _json(text: bytes, tail: bytes) -> Head | None:
    """What JSON tells; its last part may be missing."""
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = text.decode("utf-16", "ignore").encode()
    begin = text.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin == b"[":
        return Head("kineto") if _LEGACY.search(text) or _CATEGORY.search(text) else None
    if begin != b"{":
        return None
    is_events = b'"traceEvents"' in text
    if _OWN_KEYS.search(text) or (is_events and _CATEGORY.search(text)):
        return _kineto(text, tail)
    return Head("trace_json") if is_events and _TF_PROCESS.search(text) else None


def _kineto(text: bytes, tail: bytes) -> Head:
    rank = world = None
    at = text.find(b'"distributedInfo"')
    place, at = (text, at) if at >= 0 else (tail, tail.find(b'"distributedInfo"'))
    if at >= 0 and (brace := place.find(b"{", at)) >= 0:
        info = place[brace : brace + 4096].partition(b'"traceEvents"')[0]
        rank, world = _number(_RANK, info), _number(_WORLD, info)
    events = text.find(b'"traceEvents"')
    body = text[max(0, events) :]
    host = _HOST.search(text[: max(0, events)] if events >= 0 else text)
    start, end_s = _recorded(text, body, tail)
    return Head(
        "kineto", rank, world or None, host[1].decode("utf-8", "replace") if host else None, _number(_PID, body),
        start, end_s,
    )  # fmt: skip


def _recorded(text: bytes, body: bytes, tail: bytes) -> tuple[float | None, float | None]:
    """(start, end) in Unix seconds."""
    base = _BASE.search(text) or _BASE.search(tail)
    base_s = int(base[1]) / 1e9 if base else 0.0
    stamps = [float(match[1]) for match, _ in zip(_STAMP.finditer(body), range(_FIRST_STAMPS), strict=False)]
    start = min(stamps) / 1e6 + base_s if stamps else None
    end = None
    if (span := _SPAN.search(tail)) is not None:
        stamp, length = _STAMP.search(span[0]), _DURATION.search(span[0])
        if stamp and length:
            start = float(stamp[1]) / 1e6 + base_s
            end = start + float(length[1]) / 1e6
    if start is None or not _FIRST_YEAR_S < start < _LAST_YEAR_S:
        return None, None
    return start, end


def _number(pattern: re.Pattern[bytes], text: bytes) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None
