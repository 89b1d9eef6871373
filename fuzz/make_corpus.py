"""Write fuzz/corpus: small planes as profilers write them, odd ones, and ones that sit on an edge.

Run from the repository's root: ``python -m fuzz.make_corpus``. The same files come out each time.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from simulator.xplane_writer import Plane, Ref, StatValue, Unsigned, bytes_field, varint, varint_field
from tests.traces.wire_writing import PlaneWriter, damage_fields

CORPUS = Path(__file__).parent / "corpus"


def device_plane() -> Plane:
    """A GPU with two streams."""
    stats: dict[str, StatValue] = {
        "core_count": Unsigned(108),
        "clock_rate": Unsigned(1_410_000),
        "device_vendor": "Nvidia",
    }
    plane = Plane("/device:GPU:0", 1, stats=stats)
    for stream in (7, 20):
        line = plane.line(stream, f"Stream #{stream}(Compute,MemcpyH2D)", 1_700_000_000_000_000_000)
        for i in range(12):
            details = f"regs:{32 + i} static_shared:0 dynamic_shared:{1024 * i} grid:{i},1,1 block:128,1,1 occ_pct:75"
            values: dict[str, StatValue] = {
                "correlation_id": Unsigned(100 * stream + i),
                "kernel_details": details if i % 2 else Ref(details),
                "theoretical_occupancy_pct": 75.0,
                "tf_op": Ref(f"dense_{i % 3}/MatMul:MatMul"),
                "group_id": i // 4,
            }
            line.event(f"volta_sgemm_{i % 4}", 50_000_000 * i, 40_000_000, values)
        copy: dict[str, StatValue] = {"memcpy_details": "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"}
        line.event("MemcpyH2D", 700_000_000, 3_000_000, copy)
    return plane


def host_plane() -> Plane:
    """Host threads, one with a negative id, and an aggregated event."""
    plane = Plane("/host:CPU")
    for thread in (-4_611_686_018_427_387_904, 17):
        line = plane.line(thread, f"tf_Compute/{thread}", 1_700_000_000_000_000_000, "shown")
        for step in range(5):
            marker: dict[str, StatValue] = {"step_num": step, "_r": 1, "_pt": 3, "_p": Unsigned(1 << 63)}
            line.event("train", 10**9 * step, 9 * 10**8, marker)
            line.event("cuLaunchKernel", 10**9 * step + 5, 10**6, {"correlation_id": step, "_ct": 3, "_c": -step})
        line.occurrences("aggregated", 3, 12_345)
    return plane


def short_slots() -> bytes:
    """The three one-letter slots of the fuzz target, each kind of value in each."""
    maps = b"".join(
        bytes_field(5, varint_field(1, key) + bytes_field(2, bytes_field(2, name)))
        for key, name in ((1, b"i"), (2, b"f"), (3, b"s"))
    )
    values = (
        b"\x11\0\0\0\0\0\0\xf8\x3f",
        b"\x11\0\0\0\0\0\0\xf8\x7f",
        b"\x18" + varint(7),
        b"\x20" + varint(-7),
        bytes_field(5, b"text"),
        bytes_field(6, b"\xff"),
        b"\x38\x02",
        b"\x38\x63",
        b"",
    )
    stats = b"".join(bytes_field(4, varint_field(1, key) + value) for key in (1, 2, 3) for value in values)
    return bytes_field(3, bytes_field(4, stats) * 3) + maps + bytes_field(6, b"\x08\x01\x38\x02")


def many_strings() -> bytes:
    """So many that the tables grow."""
    events = b"".join(bytes_field(4, bytes_field(4, b"\x08\x03" + bytes_field(5, b"%d" % i))) for i in range(300))
    return bytes_field(3, events) + bytes_field(5, b"\x08\x03" + bytes_field(2, bytes_field(2, b"s")))


def main() -> None:
    """Write all files."""
    CORPUS.mkdir(exist_ok=True)
    planes = {
        "empty": b"",
        "empty_line": b"\x1a\x00",
        "empty_event": b"\x1a\x02\x22\x00",
        "short_slots": short_slots(),
        "device": device_plane().encode(),
        "host": host_plane().encode(),
        "task_environment": Plane("Task Environment", stats={"profile_start_time": Unsigned(1 << 60)}).encode(),
        "long_varint": b"\x08" + b"\xff" * 9 + b"\x01",
        "group": b"\x0b\x0c",
        "huge_length": b"\x12" + varint((1 << 64) - 1),
        "many_empty_events": bytes_field(3, b"\x22\x00" * 300),
        "many_strings": many_strings(),
        "sparse_ids": b"".join(
            bytes_field(4, varint_field(1, key) + bytes_field(2, bytes_field(2, b"n")))
            for key in (1, -1, 1 << 40, (1 << 63) - 1, *range(100, 200))
        ),
    }
    random = Random(1)
    for i in range(24):
        plane = PlaneWriter(random, (0.0, 0.05, 0.2)[i % 3]).plane()
        planes[f"odd_{i:02}"] = damage_fields(random, plane) if i >= 12 else plane
    for name, data in planes.items():
        (CORPUS / name).write_bytes(data)


if __name__ == "__main__":
    main()
