"""Where the tests of the plane decoders get planes from, and how they compare what came out."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np

from simulator.xplane_writer import Plane, Ref, Unsigned
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import wire
from tb_gpu_doctor.traces.wire import SLOTS, RawPlane, SlotKind
from tb_gpu_doctor.traces.wire_numpy import decode_plane_numpy
from tests.conftest import DEMO_LOGS, SHARED_TRACES
from tests.traces.wire_writing import PlaneWriter, damage_bytes, damage_fields, fields_of

Outcome = RawPlane | str  # a plane, or the code of the error


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.xplane.pb"))


def planes_of(path: Path) -> Iterator[bytes]:
    """The planes of an XSpace."""
    return (payload for number, _, payload in fields_of(path.read_bytes()) if number == 1)


def realistic_plane() -> bytes:
    """A small plane as CUPTI's collector writes them."""
    plane = Plane(
        "/device:GPU:0", 1, stats={"core_count": Unsigned(108), "device_vendor": "Nvidia", "gpu": Ref("A100")}
    )
    for stream in range(3):
        line = plane.line(stream, f"Stream #{stream}(Compute)", 1_700_000_000_000_000_000, f"stream {stream}")
        for i in range(20):
            details = f"regs:{32 + i} static_shared:0 dynamic_shared:0 grid:{i},1,1 block:128,1,1 occ_pct:75"
            stats = {
                "correlation_id": Unsigned(1000 * stream + i),
                "kernel_details": details,
                "theoretical_occupancy_pct": 75.0,
                "tf_op": Ref(f"layer/op{i % 4}:MatMul"),
                "group_id": i // 5,
                "unread": b"\0\1",
            }
            line.event(f"kernel_{i % 7}", 10_000_000 * i, 9_000_000, stats)
        line.occurrences("aggregated", 12, 34)
    return plane.encode()


def damaged(seed: int) -> Iterator[bytes]:
    """Sound planes, each with some damage."""
    random = Random(seed)
    sources = [realistic_plane()]
    for folder in (SHARED_TRACES, DEMO_LOGS):
        for path in files(folder):
            small = sorted((plane for plane in planes_of(path) if 100 < len(plane) < 30_000), key=len)
            sources += small[-2:]
    while True:
        if random.random() < 0.5:
            source = PlaneWriter(random, random.choice((0.0, 0.02, 0.2))).plane()
        else:
            source = random.choice(sources)
        for _ in range(random.choice((0, 1, 1, 3))):
            source = damage_fields(random, source)
        yield damage_bytes(random, source) if random.random() < 0.5 else source


def outcome_compiled(module: ModuleType, data: bytes) -> Outcome:
    try:
        return wire.decode_plane_compiled(module, data)
    except ProfileError as error:
        return error.code


def outcome_numpy(data: bytes) -> Outcome:
    try:
        return decode_plane_numpy(data)
    except ProfileError as error:
        return error.code


def resolved(plane: RawPlane, ids: Sequence[int] | np.ndarray) -> list[bytes | None]:
    """String ids as what they stand for."""
    raw = [plane.strings.raw(i) for i in range(len(plane.strings))]
    return [raw[i] if i >= 0 else None for i in np.asarray(ids).tolist()]


def slot_values(plane: RawPlane, index: int) -> list[Any]:
    """A slot's column with None where an event has no value."""
    column, kind = plane.slots[index], SLOTS[index][1]
    if column is None:
        return [None] * len(plane.line)
    if kind is SlotKind.STR:
        return resolved(plane, column)
    if kind is SlotKind.FLOAT:
        return [None if math.isnan(value) else value for value in column.tolist()]
    return [None if value == -1 else value for value in column.tolist()]


def bits(value: int | float | bytes) -> tuple[type, int | bytes]:
    """A plane stat so that NaN equals NaN, 1 is not 1.0, and 0.0 is not -0.0."""
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


def assert_equal(one: Outcome, other: Outcome) -> None:
    """Event for event."""
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    assert (one.name, one.id) == (other.name, other.id)
    assert [(n, bits(v)) for n, v in one.stats] == [(n, bits(v)) for n, v in other.stats]
    assert one.line_name == other.line_name
    assert one.line_display_name == other.line_display_name
    for field in ("line_id", "line_timestamp_ns", "line_duration_ps", "line_events"):
        assert getattr(one, field).tolist() == getattr(other, field).tolist(), field
    for field in ("line", "offset", "duration", "has_start"):
        mine, theirs = getattr(one, field), getattr(other, field)
        assert mine.dtype == theirs.dtype, field
        assert np.array_equal(mine, theirs), field
    assert resolved(one, one.event_name) == resolved(other, other.event_name)
    for index, (name, _) in enumerate(SLOTS):
        if one.slots[index] is not None or other.slots[index] is not None:
            assert slot_values(one, index) == slot_values(other, index), name
    for plane in (one, other):
        assert len({plane.strings.raw(i) for i in range(len(plane.strings))}) == len(plane.strings)
        for column, (name, kind) in zip(plane.slots, SLOTS, strict=True):
            assert column is None or column.dtype == wire.SLOT_DTYPES[kind], name
