"""How a monitor's recording lies in an event file: what the writer and the reader must agree on.

A recording is the event file of one process, ``<logdir>/gpu_doctor/<host>/process*/``. Beside scalars it
holds records under the plugin's own name, each a string tensor, so that TensorBoard passes them by:

- ``gpu_doctor/recording``: JSON, once at the start and again when something of it changes (the last one counts),
- ``gpu_doctor/samples``: blocks of samples (`encode_samples`), all GPUs of the process side by side,
- ``gpu_doctor/steps``: blocks of training steps (`encode_steps`),
- ``gpu_doctor/spans``: JSON lists of ``[kind, start_ns, end_ns, step, note]``,
- ``gpu_doctor/notes``: JSON lists of ``{"key", "params", "sentence"}``,
- ``gpu_doctor/facts/<name>``: JSON.

- ``gpu_doctor/history``: what old samples come to (`encode_history`), and ``gpu_doctor/history_steps``: some old steps.

Blocks are little-endian and compressed with zlib, whose checksum tells a damaged one.

A long recording stays bounded. When its file has grown to some megabytes, samples and steps go on into parts beside it,
``part_000001.gpu_doctor_part`` and so on, framed like it and begun with the same head; TensorBoard does not know them.
The newest parts are kept and older ones deleted. What was in those is in the history, which goes on from the first
part: an interval a row, whose number grows with the logarithm of time.

Beside it lies, while the process lives, ``python_stacks.txt``: empty, unless the process stood still while it held
Python's lock; then `faulthandler` wrote there where each thread stood (`parse_stacks`).
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

FORMAT_VERSION = 1
PLUGIN_NAME = "gpu_doctor"
FOLDER = "gpu_doctor"
# The end of a recording's file name: a logdir's recordings are found without opening a file.
FILE_SUFFIX = ".gpu_doctor"

PART_SUFFIX = ".gpu_doctor_part"
STACKS_FILE = "python_stacks.txt"
FACT_LOCK_HELD = "lock_held"

TAG_RECORDING = "gpu_doctor/recording"
TAG_SAMPLES = "gpu_doctor/samples"
TAG_STEPS = "gpu_doctor/steps"
TAG_SPANS = "gpu_doctor/spans"
TAG_NOTES = "gpu_doctor/notes"
TAG_FACTS = "gpu_doctor/facts/"
TAG_HISTORY = "gpu_doctor/history"
TAG_HISTORY_STEPS = "gpu_doctor/history_steps"

# Magic, ticks, GPUs, columns of 32 and of 64 bits.
_SAMPLES = struct.Struct("<4sIHHH")
_SAMPLES_MAGIC = b"GDs1"
_STEPS = struct.Struct("<4sI")
_STEPS_MAGIC = b"GDt1"
# Larger blocks are not written; a file that claims one is damaged.
MAX_TICKS = 100_000
MAX_GPUS = 1_024
MAX_COLUMNS = 256
MAX_STEPS = 1_000_000
MAX_BLOCK_BYTES = 64 << 20


class DamagedBlock(ValueError):
    """A block that the writer cannot have written."""


@dataclass(frozen=True)
class SampleBlock:
    """Some ticks of all GPUs.

    Attributes:
        wall_ns: int64[ticks].
        step: int64[ticks], -1 where unknown.
        ids32, ids64: places in the recording's list of metrics; those without any value are absent.
        values32, values64: float32 and float64[ids, GPUs, ticks], NaN where there is no value.
    """

    wall_ns: NDArray[np.int64]
    step: NDArray[np.int64]
    gpus: int
    ids32: NDArray[np.uint16]
    ids64: NDArray[np.uint16]
    values32: NDArray[np.float32]
    values64: NDArray[np.float64]

    @property
    def columns(self) -> dict[int, NDArray[Any]]:
        """[GPUs, ticks] by place in the list of metrics."""
        return dict(zip((*self.ids32.tolist(), *self.ids64.tolist()), (*self.values32, *self.values64), strict=True))


def encode_samples(wall_ns: NDArray[np.int64], step: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """Pack ticks; ``values`` is float64[metrics, GPUs, ticks]. Loses nothing: 32 bits only where they are exact."""
    import numpy as np

    present = ~np.isnan(values).all(axis=(1, 2))
    # A value beyond float32 becomes infinite there, and hence unequal: it keeps its 64 bits.
    with np.errstate(over="ignore", invalid="ignore"):
        short = values.astype("<f4")
        exact = ((short == values) | np.isnan(values)).all(axis=(1, 2))
    ids32, ids64 = np.flatnonzero(present & exact), np.flatnonzero(present & ~exact)
    body = b"".join(
        (
            wall_ns.astype("<i8").tobytes(),
            step.astype("<i8").tobytes(),
            ids32.astype("<u2").tobytes(),
            ids64.astype("<u2").tobytes(),
            short[ids32].tobytes(),
            values[ids64].astype("<f8").tobytes(),
        )
    )
    head = _SAMPLES.pack(_SAMPLES_MAGIC, values.shape[2], values.shape[1], len(ids32), len(ids64))
    return head + zlib.compress(body, 1)


def decode_samples(block: bytes) -> SampleBlock:
    """Unpack a block.

    Raises:
        DamagedBlock: it is none, or not whole.
    """
    import numpy as np

    if len(block) < _SAMPLES.size:
        raise DamagedBlock("shorter than its head")
    magic, ticks, gpus, n32, n64 = _SAMPLES.unpack_from(block)
    if magic != _SAMPLES_MAGIC or ticks > MAX_TICKS or gpus > MAX_GPUS or max(n32, n64) > MAX_COLUMNS:
        raise DamagedBlock("not a block of samples")
    body = _inflate(block[_SAMPLES.size :], 16 * ticks + 2 * (n32 + n64) + gpus * ticks * (4 * n32 + 8 * n64))
    wall_ns = np.frombuffer(body, "<i8", ticks)
    step = np.frombuffer(body, "<i8", ticks, 8 * ticks)
    ids = np.frombuffer(body, "<u2", n32 + n64, 16 * ticks)
    at = 16 * ticks + 2 * (n32 + n64)
    values32 = np.frombuffer(body, "<f4", n32 * gpus * ticks, at).reshape(n32, gpus, ticks)
    values64 = np.frombuffer(body, "<f8", n64 * gpus * ticks, at + values32.nbytes).reshape(n64, gpus, ticks)
    return SampleBlock(wall_ns, step, gpus, ids[:n32], ids[n32:], values32, values64)


def part_name(number: int) -> str:
    """The name of a part beside its recording."""
    return f"part_{number:06d}{PART_SUFFIX}"


@dataclass(frozen=True)
class HistoryBlock:
    """Some intervals of all GPUs: what the samples of each fold to by their metric's rule, and their extremes."""

    folded: SampleBlock
    low: SampleBlock
    high: SampleBlock


def encode_history(wall_ns: NDArray[np.int64], step: NDArray[np.int64], values: Sequence[NDArray[np.float64]]) -> bytes:
    """Pack intervals by their ends; ``values``: what they fold to, their least and their greatest, as for samples."""
    blocks = [encode_samples(wall_ns, step, part) for part in values]
    return b"".join(struct.pack("<I", len(block)) + block for block in blocks)


def decode_history(content: bytes) -> HistoryBlock:
    """Unpack intervals.

    Raises:
        DamagedBlock: they are none, or not whole.
    """
    blocks = []
    at = 0
    for _ in range(3):
        if len(content) < at + 4:
            raise DamagedBlock("shorter than its heads")
        (length,) = struct.unpack_from("<I", content, at)
        blocks.append(decode_samples(content[at + 4 : at + 4 + length]))
        at += 4 + length
    folded, low, high = blocks
    if not len(folded.wall_ns) == len(low.wall_ns) == len(high.wall_ns) or len({b.gpus for b in blocks}) > 1:
        raise DamagedBlock("of different lengths")
    return HistoryBlock(folded, low, high)


def encode_steps(rows: NDArray[np.int64]) -> bytes:
    """Pack training steps: int64[5, steps], number, end_ns, duration_ns, samples, profiled."""
    import numpy as np

    # Differences of neighbours are small numbers, which compress well.
    deltas = np.diff(rows, axis=1, prepend=np.int64(0))
    return _STEPS.pack(_STEPS_MAGIC, rows.shape[1]) + zlib.compress(deltas.astype("<i8").tobytes(), 1)


def step_deltas(block: bytes) -> NDArray[np.int64]:
    """Unpack training steps to int64[5, steps] differences, for `join_steps`.

    Raises:
        DamagedBlock: it is no such block, or not whole.
    """
    import numpy as np

    if len(block) < _STEPS.size:
        raise DamagedBlock("shorter than its head")
    magic, count = _STEPS.unpack_from(block)
    if magic != _STEPS_MAGIC or count > MAX_STEPS:
        raise DamagedBlock("not a block of steps")
    return np.frombuffer(_inflate(block[_STEPS.size :], 40 * count), "<i8").reshape(5, count)


def join_steps(blocks: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The steps of blocks in a row: int64[5, steps], as they were given to `encode_steps`."""
    import numpy as np

    blocks = [block for block in blocks if block.shape[1]]
    if not blocks:
        return np.zeros((5, 0), np.int64)
    deltas = np.concatenate(blocks, axis=1)
    # Each block counts from zero: its first difference has to count from the end of the one before it.
    starts = np.cumsum([0, *(block.shape[1] for block in blocks[:-1])])
    deltas[:, starts[1:]] -= np.add.reduceat(deltas, starts, axis=1)[:, :-1]
    return np.cumsum(deltas, axis=1, dtype=np.int64)


def _inflate(packed: bytes, size: int) -> bytes:
    if size > MAX_BLOCK_BYTES:
        raise DamagedBlock(f"a block of {size} bytes")
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise DamagedBlock(str(error)) from None
    if len(body) != size or not inflater.eof:
        raise DamagedBlock("not as long as its head says")
    return body


_THREAD = re.compile(r"(?:Current t|T)hread 0x([0-9a-f]+)(?: \[([^\]]*)\])? \(most recent call first\)")
_FRAME = re.compile(r'\s+File "([^"]*)", line (\d+|\?\?\?) in (.*)')
_MOST_THREADS, _MOST_FRAMES = 200, 60


def frame_text(path: str, line: object, function: str) -> str:
    """``file:line function``; of the path only the end, since the rest tells of the machine and not of the program."""
    return f"{'/'.join(path.replace(chr(92), '/').split('/')[-3:])}:{line} {function}"


def parse_stacks(text: str, main_thread: int | None) -> list[dict[str, Any]]:
    """What `faulthandler` wrote of each thread, but the monitor's own: ``name``, ``main``, and ``frames`` outwards.

    Args:
        text: any text; of several dumps in a row the first counts.
        main_thread: the main thread's number, by which it is told from the others; else the last thread is it, for
            `faulthandler` begins with the youngest.
    """
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head is not None and len(threads) < _MOST_THREADS:
            number = int(head[1], 16)
            if any(thread["number"] == number for thread in threads):
                break
            threads.append({"number": number, "name": head[2] or f"thread {head[1].lstrip('0')}", "frames": []})
        elif frame is not None and threads and len(threads[-1]["frames"]) < _MOST_FRAMES:
            threads[-1]["frames"].append(frame_text(frame[1], frame[2], frame[3]))
    if threads and main_thread not in {thread["number"] for thread in threads}:
        main_thread = threads[-1]["number"]
    return [
        {"name": thread["name"], "main": thread["number"] == main_thread, "frames": thread["frames"]}
        for thread in threads
        if thread["number"] == main_thread or not any("tb_gpu_doctor/monitor/" in frame for frame in thread["frames"])
    ]
