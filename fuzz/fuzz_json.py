"""Feeds the readers of trace JSON damaged files for SECONDS: ``python -m fuzz.fuzz_json SECONDS [--seed N]``.

Every input must become a `Trace` that keeps its promises and a diagnosis that keeps those of `whole_diagnosis`, told
in all languages, or a `ProfileError`, within bounds of time and memory. The inputs follow from the seed alone. One
that fails stays in fuzz/ (``crash-*.json``); give it as ``--input`` to run it again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from fuzz.whole_diagnosis import Failure, check_diagnosis, facts_of
from fuzz.whole_diagnosis import expect as _expect
from simulator.torch_models import gpt
from simulator.torch_program import TorchRun
from simulator.torch_scenarios import torch_job
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import DeviceEvents, HostEvents, Trace
from tb_gpu_doctor.traces.trace_json import read_trace_json

HERE = Path(__file__).parent
INPUT_SECONDS = 10
# Far above what the readers may take for such inputs, the unpacked size of a bomb included.
MEMORY_BYTES = 6 << 30
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 0.5, -0.0, 1e308, -1e308, 1e-320, 2**31, 2**53 + 1, 2**62, 2**63, 2**64, 10**30,
    -(2**63), "", "7", "-7", "stream 7", "nan", "1e9", "\x00", "é𝕏\ud83d", "x" * 3000, [], {}, [[]], [1, 2, 3], ["a"],
    [2**62] * 3, {"a": {"b": [None]}}, [None, None, None], "ProfilerStep#99999999999999999999", "ProfilerStep#1",
    "Memcpy HtoD (Pinned -> Device)", "ncclDevKernel_AllReduce", "/device:GPU:0", "/host:CPU", "kernel", "cpu_op",
)  # fmt: skip
BARE = (
    b"NaN",
    b"-Infinity",
    b"nan",
    b"N/A",
    b"1e999",
    b"-0",
    b"01",
    b"1e400",
    b"99999999999999999999999",
    b"tru",
    b"'",
)
TEXTS = (b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\x01", b"\xf0\x9f", b"\xef\xbb\xbf", b"\\", b'"')
Json = dict[str, Any]


# -- whole files to begin with ---------------------------------------------------------------------


def kineto_document() -> Json:
    """A small file as PyTorch writes it."""
    job = torch_job("fuzz", 1_772_353_263_204_117_905, TorchRun(2, gpt(layers=1)), seed=1, ranks=2)
    found = json.loads(job.ranks[0].content())
    assert isinstance(found, dict)
    events = found["traceEvents"]
    found["traceEvents"] = [*events[:90], *events[-90:]]
    return found


def tf_document() -> Json:
    """A small export as TensorFlow's trace viewer writes it."""

    def named(kind: str, pid: int, name: str, tid: int | None = None) -> Json:
        return {"ph": "M", "name": kind, "pid": pid, **({} if tid is None else {"tid": tid}), "args": {"name": name}}

    events = [
        named("process_name", 1, "/device:GPU:0"), named("process_name", 701, "/host:CPU"),
        named("thread_name", 1, "Stream #7(Compute,MemcpyH2D)", 7), named("thread_name", 1, "XLA Ops", 99),
        named("thread_name", 701, "python", 5),
    ]  # fmt: skip
    for i in range(20):
        copy = {"memcpy_details": "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"}
        details = {"kernel_details": "regs:32 static_shared:0 dynamic_shared:0 grid:8,1,1 block:128,1,1 occ_pct:50"}
        args = {"correlation_id": str(i), "tf_op": "a/MatMul:MatMul", "group_id": "1", **(details if i % 3 else copy)}
        work = {"ph": "X", "pid": 1, "tid": 7, "name": f"kernel_{i % 4}", "ts": 100.5 * i, "dur": 80.25, "args": args}
        call = {"ph": "X", "pid": 701, "tid": 5, "name": "cuLaunchKernel", "ts": 100.5 * i - 20, "dur": 5}
        events += [work, {**call, "args": {"correlation_id": str(i)}}]
        if i % 5 == 0:
            marker = {"ph": "X", "pid": 701, "tid": 5, "name": f"train {i}", "ts": 100.5 * i - 30, "dur": 400}
            events.append({**marker, "args": {"step_num": str(i), "_r": "1"}})
    return {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*events, {}]}


# -- damage ------------------------------------------------------------------------------------------


def odd_values(random: Random, document: Json) -> bytes:
    """Other types and absurd numbers where the events' values stand."""
    for _ in range(random.randint(1, 12)):
        event = random.choice(document["traceEvents"])
        if not isinstance(event, dict) or not event:
            continue
        args = event.get("args")
        target = args if isinstance(args, dict) and args and random.random() < 0.6 else event
        target[random.choice(list(target))] = random.choice(ODD_VALUES)
    return json.dumps(document).encode()


def odd_properties(random: Random, document: Json) -> bytes:
    """The same for what surrounds the events."""
    for _ in range(random.randint(1, 4)):
        key = random.choice([*document, "distributedInfo", "deviceProperties", "baseTimeNanoseconds", "schemaVersion"])
        value = document.get(key)
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict) and inner and random.random() < 0.7:
            inner[random.choice(list(inner))] = random.choice(ODD_VALUES)
        else:
            document[key] = random.choice(ODD_VALUES)
    return json.dumps(document).encode()


def lost_and_doubled(random: Random, document: Json) -> bytes:
    """Events lost, doubled, out of order, without some of their keys; odd things between them."""
    events = document["traceEvents"]
    for _ in range(random.randint(1, 20)):
        at = random.randrange(len(events)) if events else 0
        what = random.randrange(5)
        if what == 0 and events:
            del events[at]
        elif what == 1 and events:
            events.insert(random.randrange(len(events)), events[at])
        elif what == 2:
            random.shuffle(events)
        elif what == 3 and events and isinstance(events[at], dict) and events[at]:
            events[at].pop(random.choice(list(events[at])))
        else:
            events.insert(at, random.choice(ODD_VALUES))
    return json.dumps(document).encode()


def broken_text(random: Random, document: Json) -> bytes:
    """Bytes changed, lost and doubled anywhere; bare words, broken UTF-8."""
    data = bytearray(json.dumps(document).encode())
    for _ in range(random.randint(1, 8)):
        at, length = random.randrange(len(data)), random.randint(1, 40)
        what = random.randrange(6)
        if what == 0:
            data[at] = random.randrange(256)
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at:at] = data[at : at + length]
        elif what == 3:
            data[at:at] = random.choice(TEXTS)
        elif what == 4:
            colon = data.find(b":", at)
            data[colon + 1 : colon + 2] = b" " + random.choice(BARE) + random.choice((b"", b",", b"}"))
        else:
            del data[at:]
            data += b"]" * random.randrange(3) + b"}" * random.randrange(2) or b" "
    return bytes(data)


def doubled_keys(random: Random, document: Json) -> bytes:
    """Keys twice in one object."""
    data = json.dumps(document).encode()
    for _ in range(random.randint(1, 6)):
        key = random.choice((b'"ts"', b'"args"', b'"ph"', b'"correlation"', b'"traceEvents"', b'"name"'))
        value = json.dumps(random.choice(ODD_VALUES)).encode()
        at = data.find(key, random.randrange(len(data)))
        if at > 0:
            data = data[:at] + key + b":" + value + b"," + data[at:]
    return data


def deep(random: Random, document: Json) -> bytes:
    """Nesting without end, in arguments, properties, names or as the whole."""
    depth = random.choice((100, 2_000, 60_000, 400_000))
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nested = opened * depth + b"1" + closed * (depth if random.random() < 0.7 else 0)
    if random.random() < 0.2:
        return nested
    data = json.dumps(document).encode()
    key = random.choice((b'"args":', b'"name":', b'"distributedInfo":', b'"traceEvents":', b'"deviceProperties":'))
    at = data.find(key, random.randrange(len(data) // 2))
    return data[: at + len(key)] + nested + b"," + data[at:] if at >= 0 else nested


def many(random: Random, document: Json) -> bytes:
    """Very many small things of one kind."""
    count = random.choice((10_000, 100_000))
    item = random.choice((b"{}", b"[]", b"1", b'{"ph":"X"}', b'{"ph":"X","cat":"kernel","args":{"device":0}}', b'""'))
    return b'{"schemaVersion":1,"traceEvents":[' + b",".join([item] * count) + b"]}"


def foreign(random: Random, document: Json) -> bytes:
    """No trace at all."""
    return random.choice(
        (b"", b"\x00" * 100, b"{", b"[]", b"{}", b"null", b'{"traceEvents":null}', b'{"traceEvents":[]}', b"<html>",
         random.randbytes(300), b'{"traceEvents":{}}', b" " * 10_000, b"\xef\xbb\xbf", b"PK\x03\x04" + bytes(64)),
    )  # fmt: skip


Damage = Callable[[Random, Json], bytes]
DAMAGES: tuple[Damage, ...] = (
    odd_values, odd_values, odd_properties, lost_and_doubled, broken_text, broken_text, doubled_keys, deep, many,
    foreign,
)  # fmt: skip


def packed(random: Random, content: bytes) -> bytes:
    """The content, packed, and often not as it should be."""
    what = random.randrange(8)
    data = bytearray(gzip.compress(content, random.choice((0, 1, 6)), mtime=0))
    if what == 0:
        del data[random.randrange(len(data)) :]
    elif what == 1:
        for _ in range(random.randint(1, 5)):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif what == 2:
        data += random.choice((bytes(50), b"junk", gzip.compress(content[:50], mtime=0), data[:20]))
    elif what == 3:
        half = len(content) // 2
        data = bytearray(gzip.compress(content[:half], mtime=0) + gzip.compress(content[half:], mtime=0))
    elif what == 4:
        return zlib.compress(content)
    return bytes(data)


def bomb(random: Random) -> bytes:
    """A few hundred kilobytes that unpack to hundreds of megabytes."""
    megabytes = random.choice((40, 300))
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    piece = random.choice((b" ", b"0", b"[", b'{"ph":"X"},')) * (1 << 18)
    out = packer.compress(b'{"schemaVersion":1,"traceEvents":[')
    for _ in range((megabytes << 20) // len(piece)):
        out += packer.compress(piece)
    return out + packer.flush()


def make_input(random: Random, documents: Sequence[str]) -> tuple[str, bytes]:
    """What the damage is called, and the file."""
    if random.random() < 0.002:
        return "bomb", bomb(random)
    damage = random.choice(DAMAGES)
    content = damage(random, json.loads(random.choice(documents)))
    if random.random() < 0.4:
        return f"{damage.__name__}, packed", packed(random, content)
    return damage.__name__, content


# -- promises ------------------------------------------------------------------------------------------


def check_trace(trace: Trace) -> None:
    """What `Trace` says of its columns.

    Raises:
        Failure: it does not hold.
    """
    texts = len(trace.strings)
    list(trace.strings)
    for events, kind, lines in (
        (trace.device_events, DeviceEvents, trace.device_events.device),
        (trace.host_events, HostEvents, trace.host_events.thread),
    ):
        count = len(events)  # type: ignore[arg-type]
        columns = {spec.name: getattr(events, spec.name) for spec in fields(kind)}
        _expect(all(len(column) == count for column in columns.values()), "columns of one length")
        _expect(bool((columns["duration"] >= 0).all()), "no negative durations")
        _expect(bool((columns["start"] + columns["duration"] >= columns["start"]).all()), "no overflow")
        _expect(bool((lines[1:] >= lines[:-1]).all()), "sorted by line")
        same = lines[1:] == lines[:-1]
        _expect(bool((columns["start"][1:] >= columns["start"][:-1])[same].all()), "sorted by start")
        for name in ("name", "details", "op", "hlo_op", "hlo_module"):
            if name in columns and count:
                _expect(int(columns[name].min()) >= -1 and int(columns[name].max()) < texts, f"{name} is in the table")
    if len(trace.device_events):
        _expect(int(trace.device_events.device.min()) >= 0, "devices exist")
        _expect(int(trace.device_events.device.max()) < len(trace.devices), "devices exist")
        _expect(int(trace.device_events.stream.max()) < len(trace.streams), "streams exist")
    if len(trace.host_events):
        _expect(int(trace.host_events.thread.max()) < len(trace.threads), "threads exist")


def try_input(content: bytes, folder: Path) -> str:
    """What became of an input: ``trace``, or the code of the `ProfileError`."""
    path = folder / "fuzz.pt.trace.json"
    path.write_bytes(content)
    signal.alarm(INPUT_SECONDS)
    try:
        trace = read_trace_json(str(path))
        check_trace(trace)
        check_diagnosis(facts_of(trace))
    except ProfileError as error:
        return error.code
    finally:
        signal.alarm(0)
    return "trace"


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise Failure(f"longer than {INPUT_SECONDS} s")


def run(seconds: float, seed: int, most: int | None = None) -> Counter[str]:
    """Tries inputs for a time, or so many.

    Raises:
        Exception: what one ended in; that one is kept beside this file.
    """
    documents = [json.dumps(kineto_document()), json.dumps(tf_document())]
    outcomes: Counter[str] = Counter()
    began, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < seconds and number != most:
            number += 1
            # a generator for each input: the next ones do not depend on what this one took
            damage, content = make_input(Random(seed * 1_000_003 + number), documents)
            try:
                outcomes[try_input(content, Path(folder))] += 1
            except Exception as error:
                kept = HERE / f"crash-{seed}-{number}.json"
                kept.write_bytes(content)
                print(f"fuzz: input {number} of seed {seed} ({damage}): {error!r}; kept as {kept}", file=sys.stderr)
                raise
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzzes, or runs one input again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=Path, help="one file instead")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if arguments.input:
        with tempfile.TemporaryDirectory() as folder:
            print(try_input(arguments.input.read_bytes(), Path(folder)))
        return 0
    outcomes = run(arguments.seconds, arguments.seed)
    said = ", ".join(f"{count} {code}" for code, count in outcomes.most_common())
    print(f"fuzz: {outcomes.total()} damaged trace JSON files in {arguments.seconds:.0f} s without a finding: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
