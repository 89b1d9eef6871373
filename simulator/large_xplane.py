"""Writes big XPlane files fast: ``python -m simulator.large_xplane --device-events N --host-events M --out PATH``.

Eight GPUs with five streams each, launches joined by correlation id, marked steps, input
waits in front of each step. All events of a line have one size, because every number in
them is drawn from the range of one varint width; so planes are filled with numpy, and
their lengths are known before the first event, which lets files of any size stream out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from simulator.hardware import H100, theoretical_occupancy
from simulator.line_templates import LineJob, Metadata, Template, line_head
from simulator.xplane_writer import (
    BYTES,
    bytes_field,
    tag,
    text_field,
    varint,
    varint_field,
)

Int64 = NDArray[np.int64]

GPUS = 8
EVENTS_PER_STEP_AND_GPU = 1_250
# Ranges in which a varint has one width: 7 bytes for offsets, 4 for durations and correlation ids.
FIRST_OFFSET_PS = 1 << 42
LAST_OFFSET_PS = (1 << 49) - 1
MIN_DURATION_PS = 1 << 21
MAX_DURATION_PS = (1 << 28) - 1
FIRST_CORRELATION = 1 << 21
PS_PER_US = 1_000_000
LAUNCH_PS = 2_400_000
LAUNCH_SPACING_PS = 2_500_000
LAUNCH_LEAD_PS = 30 * PS_PER_US
INPUT_WAIT_PS = 1_500 * PS_PER_US

DEVICE_STATS = (
    "correlation_id", "context_id", "theoretical_occupancy_pct", "occupancy_min_grid_size",
    "occupancy_suggested_block_size", "kernel_details", "tf_op", "hlo_op", "hlo_module", "program_id",
    "memcpy_details",
)  # fmt: skip
HOST_STATS = ("correlation_id", "device_id", "tf_op", "step_num", "_r", "_pt", "_p", "_ct", "_c", "id", "iter_num")
KERNELS = 200


@dataclass(frozen=True)
class StreamShare:
    """One stream of each GPU: its name, and its share of the GPU's events."""

    name: str
    share: float
    longest_us: float
    kind: str


STREAMS = (
    StreamShare("Compute", 0.70, 14.0, "kernel"),
    StreamShare("Compute", 0.15, 30.0, "kernel"),
    StreamShare("Compute", 0.02, 200.0, "nccl"),
    StreamShare("MemcpyH2D", 0.08, 40.0, "H2D"),
    StreamShare("MemcpyD2H", 0.05, 30.0, "D2H"),
)


@dataclass(frozen=True)
class Timeline:
    """The events of one GPU's stream, by start; all arrays have one length."""

    start: Int64
    duration: Int64
    kernel: Int64
    correlation: Int64


@dataclass(frozen=True)
class Shape:
    """How many events of each kind a file gets."""

    device_events: int
    host_events: int
    gpus: int = GPUS

    @property
    def steps(self) -> int:
        """Marked steps; at least one."""
        return max(1, self.device_events // (self.gpus * EVENTS_PER_STEP_AND_GPU))

    def per_step(self, gpu: int) -> list[tuple[int, ...]]:
        """Events of each stream in each step; sums over all GPUs to ``device_events``."""
        total = self.device_events // self.gpus + (gpu < self.device_events % self.gpus)
        bounds = [total * i // self.steps for i in range(self.steps + 1)]
        counts = []
        for low, high in pairwise(bounds):
            others = [int((high - low) * stream.share) for stream in STREAMS[1:]]
            counts.append((high - low - sum(others), *others))
        return counts


def gpu_timeline(shape: Shape, gpu: int, step_ps: int, seed: int, rank: int = 0) -> list[Timeline]:
    """The streams of one GPU; the same arguments give the same events, and all ranks of a job the same collectives."""
    random = np.random.default_rng([seed, gpu, rank] if rank else [seed, gpu])
    counts = np.array(shape.per_step(gpu), dtype=np.int64)
    starts, durations = [], []
    for index, stream in enumerate(STREAMS):
        n = int(counts[:, index].sum())
        step = np.repeat(np.arange(shape.steps), counts[:, index])
        first = np.cumsum(counts[:, index]) - counts[:, index]
        position = np.arange(n) - first[step]
        busy = step_ps - INPUT_WAIT_PS - 100 * PS_PER_US
        slot = busy // np.maximum(counts[:, index], 1)
        # the GPUs of a job run the same collectives, at the same time
        draw = np.random.default_rng([seed, GPUS]) if stream.kind == "nccl" else random
        duration = draw.integers(MIN_DURATION_PS, int(stream.longest_us * PS_PER_US), n)
        duration = np.clip(duration, MIN_DURATION_PS, np.maximum(slot[step] - PS_PER_US, MIN_DURATION_PS))
        slack = np.maximum(slot[step] - duration - PS_PER_US, 1)
        start = FIRST_OFFSET_PS + step * step_ps + INPUT_WAIT_PS + position * slot[step]
        starts.append((start + (draw.random(n) * slack).astype(np.int64)) // 1000 * 1000)
        durations.append(np.maximum(duration // 1000 * 1000, MIN_DURATION_PS))
    order = np.argsort(np.concatenate(starts), kind="stable")
    correlation = np.empty(len(order), dtype=np.int64)
    correlation[order] = np.arange(len(order)) * shape.gpus + gpu + FIRST_CORRELATION
    ends = np.cumsum([len(start) for start in starts])[:-1]
    kernels = np.split(random.zipf(1.3, len(order)) % KERNELS, ends)
    for index, stream in enumerate(STREAMS):
        if stream.kind == "nccl":  # ... for the same ops
            kernels[index] = np.random.default_rng([seed, GPUS]).integers(0, KERNELS, len(starts[index]))
    columns = zip(starts, durations, kernels, np.split(correlation, ends), strict=True)
    return [Timeline(*column) for column in columns]


def step_length(shape: Shape) -> int:
    """Length of a step: 8 us for each event of a GPU, and the wait for input in front."""
    return max(1, shape.device_events // (shape.gpus * shape.steps)) * 8 * PS_PER_US + INPUT_WAIT_PS + 400 * PS_PER_US


def kernel_names() -> list[tuple[str, str, str, float]]:
    """Name, details, op and occupancy of the kernels, from the usual families."""
    rows = []
    for i in range(KERNELS):
        if i % 4 == 0:
            name = f"nvjet_hsh_{64 << i % 3}x256_64x4_1x2_h_bz_coop{i}_NNT"
            registers, shared, grid, block = 168, 213_504, 132 * (1 + i % 5), 384
        elif i % 4 == 1:
            name, (registers, shared, grid, block) = f"loop_add_multiply_fusion_{i}", (32, 0, 4_096 + i, 256)
        elif i % 4 == 2:
            name, (registers, shared, grid, block) = f"input_reduce_fusion_{i}", (40, 4_224, 512 + i, 512)
        else:
            name, (registers, shared, grid, block) = f"wrapped_transpose_{i}", (24, 8_448, 2_048 + i, 128)
        occupancy = 100.0 * theoretical_occupancy(H100, registers, shared, block)
        details = (
            f"regs:{registers} static_shared:0 dynamic_shared:{shared} grid:{grid},1,1 block:{block},1,1 "
            f"occ_pct:{occupancy:g}"
        )
        rows.append((name, details, f"jit(train_step)/layer_{i}/op_{i % 7}", occupancy))
    return rows


def device_plane(
    shape: Shape, gpu: int, timelines: Sequence[Timeline], clock_ns: int = 0
) -> tuple[bytes, list[LineJob], bytes]:
    """Head, lines and tail of one GPU's plane; ``clock_ns`` puts its clock ahead."""
    names = Metadata(DEVICE_STATS)
    kernels = kernel_names()
    stat = names.stat
    columns = {
        "name": np.array([names.event(name) for name, *_ in kernels]),
        "details": np.array([names.ref(details) for _, details, *_ in kernels]),
        "op": np.array([names.ref(op) for _, _, op, _ in kernels]),
        "hlo": np.array([names.ref(name) for name, *_ in kernels]),
    }
    occupancy = np.array([occupancy for *_, occupancy in kernels])
    nccl = names.event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    context = tag(5, BYTES) + varint(len(f"$${gpu + 1}")) + f"$${gpu + 1}".encode()
    module = tag(7, 0) + varint(names.ref("jit_train_step"))
    jobs = []
    for index, (stream, timeline) in enumerate(zip(STREAMS, timelines, strict=True)):
        template = _timed().stat(stat["correlation_id"], 3, "correlation", 4).constant(stat["context_id"], context)
        given: dict[str, NDArray[np.generic]] = {
            "offset": timeline.start - 216_823_000,
            "duration": timeline.duration,
            "correlation": timeline.correlation,
        }
        if stream.kind in ("kernel", "nccl"):
            template.double(stat["theoretical_occupancy_pct"], "occupancy")
            template.constant(stat["occupancy_min_grid_size"], tag(4, 0) + varint(264))
            template.constant(stat["occupancy_suggested_block_size"], tag(4, 0) + varint(1_024))
            template.stat(stat["kernel_details"], 7, "details", 2).stat(stat["tf_op"], 7, "op", 2)
            template.stat(stat["hlo_op"], 7, "hlo", 2).constant(stat["hlo_module"], module)
            template.constant(stat["program_id"], tag(3, 0) + varint(17))
            given |= {key: column[timeline.kernel] for key, column in columns.items()}
            given["occupancy"] = occupancy[timeline.kernel]
        else:
            direction = "pageable kind_dst:device" if stream.kind == "H2D" else "device kind_dst:pageable"
            details = names.ref(f"kind_src:{direction} size:1048576 dest:{gpu} async:1")
            template.constant(stat["memcpy_details"], tag(7, 0) + varint(details))
            given["name"] = np.full(len(timeline.start), names.event(stream.name))
        if stream.kind == "nccl":
            given["name"] = np.full(len(timeline.start), nccl)
        line_id = 16 + 10 * gpu + index
        head = line_head(line_id, f"Stream #{line_id}({stream.name})", 216_823 + clock_ns)
        jobs.append(LineJob(head, template, given))
    facts: dict[str, int] = {
        "core_count": H100.sm_count,
        "clock_rate": H100.clock_khz,
        "memory_bandwidth": H100.memory_bandwidth_bytes_per_s,
        "memory_size": H100.memory_size_bytes,
        "compute_cap_major": H100.compute_capability[0],
    }
    texts = {"device_vendor": "Nvidia", "gpu_device_name": H100.name}
    for name in (*facts, *texts):
        stat[name] = len(stat) + 1
    stats = [bytes_field(6, varint_field(1, stat[k]) + tag(3, 0) + varint(v)) for k, v in facts.items()]
    stats += [bytes_field(6, varint_field(1, stat[k]) + bytes_field(5, v.encode())) for k, v in texts.items()]
    return varint_field(1, gpu) + text_field(2, f"/device:GPU:{gpu}"), jobs, names.encode() + b"".join(stats)


def _timed() -> Template:
    return Template().number(1, "name", 2).number(2, "offset", 7).number(3, "duration", 4)


def launches(timelines: Sequence[Timeline]) -> tuple[Int64, Int64, Int64]:
    """Start, correlation id and kernel of each launch of a GPU, one after the other on one thread."""
    starts = np.concatenate([timeline.start for timeline in timelines])
    order = np.argsort(starts, kind="stable")
    correlation = np.concatenate([timeline.correlation for timeline in timelines])[order]
    kernel = np.concatenate([timeline.kernel for timeline in timelines])[order]
    ramp = np.arange(len(order)) * LAUNCH_SPACING_PS
    called = np.maximum.accumulate(starts[order] - LAUNCH_LEAD_PS - ramp) + ramp
    return called, correlation, kernel


@dataclass(frozen=True)
class HostPlane:
    """The host plane, written line by line: its length is known from the counts alone."""

    shape: Shape
    step_ps: int
    seed: int
    rank: int = 0
    clock_ns: int = 0

    def write(self, out: BinaryIO) -> None:
        """Writes the plane; makes the launches of one GPU at a time."""
        names = Metadata(HOST_STATS)
        jobs = list(self._small_lines(names))
        wanted = max(0, self.shape.host_events - sum(job.count for job in jobs))
        per_gpu = [sum(map(sum, self.shape.per_step(gpu))) for gpu in range(self.shape.gpus)]
        lines: list[tuple[bytes, int]] = []
        template = self._launch_template(names)
        for gpu in range(self.shape.gpus):
            head = line_head(7_000 + gpu, f"tf_Compute/{7_000 + gpu}", 138_006 + self.clock_ns)
            lines.append((head, min(per_gpu[gpu], wanted)))
            wanted -= lines[-1][1]
        jobs += self._rest(names, wanted)
        ops = np.array([names.ref(op) for _, _, op, _ in kernel_names()])
        call = names.event("cuLaunchKernel")
        head, tail = text_field(2, "/host:CPU"), names.encode()
        sizes = [len(line) + count * template.size for line, count in lines] + [job.size for job in jobs]
        size = len(head) + sum(len(tag(3, BYTES) + varint(size)) + size for size in sizes) + len(tail)
        out.write(tag(1, BYTES) + varint(size) + head)
        for gpu, (line, count) in enumerate(lines):
            timelines = gpu_timeline(self.shape, gpu, self.step_ps, self.seed, self.rank)
            called, correlation, kernel = (column[:count] for column in launches(timelines))
            columns = {
                "name": np.full(count, call),
                "offset": called - 138_006_000,
                "duration": np.full(count, LAUNCH_PS),
                "correlation": correlation,
                "op": ops[kernel],
                "device": np.full(count, gpu),
            }
            LineJob(line, template, columns).write(out)
        for job in jobs:
            job.write(out)
        out.write(tail)

    def _launch_template(self, names: Metadata) -> Template:
        template = _timed().stat(names.stat["correlation_id"], 3, "correlation", 4)
        return template.stat(names.stat["device_id"], 4, "device", 1).stat(names.stat["tf_op"], 7, "op", 2)

    def _small_lines(self, names: Metadata) -> Iterator[LineJob]:
        """Step markers on the Python thread, and the wait for input in front of each step."""
        steps = np.arange(self.shape.steps)
        start = FIRST_OFFSET_PS + steps * self.step_ps - 138_006_000
        marker = Template().number(1, "name", 2).number(2, "offset", 7).number(3, "duration", 5)
        marker.stat(names.stat["step_num"], 4, "step", 3).constant(names.stat["_r"], tag(4, 0) + varint(1))
        columns: dict[str, NDArray[np.generic]] = {
            "name": np.full(len(steps), names.event("train")),
            "offset": start,
            "duration": np.full(len(steps), self.step_ps - 100 * PS_PER_US),
            "step": steps + (1 << 14),
        }
        yield LineJob(line_head(6_999, "python", 138_006 + self.clock_ns), marker, columns)
        wait = Template().number(1, "name", 2).number(2, "offset", 7).number(3, "duration", 5)
        wait.stat(names.stat["id"], 3, "step", 3).constant(names.stat["iter_num"], tag(4, 0) + varint(0))
        for gpu in range(self.shape.gpus):
            columns = {
                "name": np.full(len(steps), names.event("IteratorGetNextOp::DoCompute")),
                "offset": start + 40 * PS_PER_US,
                "duration": np.full(len(steps), INPUT_WAIT_PS - 90 * PS_PER_US),
                "step": steps + (1 << 14),
            }
            head = line_head(7_100 + gpu, f"tf_data_iterator_get_next/{7_100 + gpu}", 138_006 + self.clock_ns)
            yield LineJob(head, wait, columns)

    def _rest(self, names: Metadata, count: int) -> list[LineJob]:
        """Host events beyond the launches: calls of the map function on the thread pool."""
        if count <= 0:
            return []
        length = self.shape.steps * self.step_ps
        offset = FIRST_OFFSET_PS + np.arange(count) * max(length // count, 1) - 138_006_000
        columns: dict[str, NDArray[np.generic]] = {
            "name": np.full(count, names.event("Iterator::Root::Prefetch::ParallelMapV2")),
            "offset": offset,
            "duration": np.full(count, MIN_DURATION_PS),
        }
        return [
            LineJob(line_head(7_200, "tf_data_private_threadpool/7200", 138_006 + self.clock_ns), _timed(), columns)
        ]


def generate(path: Path, shape: Shape, seed: int = 1, rank: int = 0, clock_ns: int = 0, start_s: int = 0) -> int:
    """Writes the file and returns its size in bytes.

    Args:
        path: the file.
        shape: of its content.
        seed: the same for all files of a job, and they run the same collectives at the same time.
        rank: of the file in its job.
        clock_ns: how far its clock is ahead of the other files'.
        start_s: when it was recorded, after the usual time.

    Raises:
        ValueError: more events than fit into the fixed widths (about 500 million).
    """
    step_ps = step_length(shape)
    if FIRST_OFFSET_PS + shape.steps * step_ps > LAST_OFFSET_PS:
        raise ValueError("too many device events for offsets of seven bytes")
    with path.open("wb") as out:
        for gpu in range(shape.gpus):
            head, jobs, tail = device_plane(shape, gpu, gpu_timeline(shape, gpu, step_ps, seed, rank), clock_ns)
            size = len(head) + len(tail) + sum(len(tag(3, BYTES) + varint(job.size)) + job.size for job in jobs)
            out.write(tag(1, BYTES) + varint(size) + head)
            for job in jobs:
                job.write(out)
            out.write(tail)
        HostPlane(shape, step_ps, seed, rank, clock_ns).write(out)
        stop_ps = FIRST_OFFSET_PS + shape.steps * step_ps + 2_000 * PS_PER_US
        out.write(_environment((1_772_000_000 + start_s) * 10**9, stop_ps // 1000))
        out.write(bytes_field(4, b"generated"))
        return out.tell()


def _environment(start_ns: int, length_ns: int) -> bytes:
    names = Metadata(("profile_start_time", "profile_stop_time"))
    stats = [
        bytes_field(6, varint_field(1, key) + tag(3, 0) + varint(value))
        for key, value in ((1, start_ns), (2, start_ns + length_ns))
    ]
    return bytes_field(1, text_field(2, "Task Environment") + names.encode() + b"".join(stats))


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a big XPlane file.")
    parser.add_argument("--device-events", type=int, default=1_000_000)
    parser.add_argument("--host-events", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    size = generate(options.out, Shape(options.device_events, options.host_events), options.seed)
    print(f"{options.out}: {size:,} bytes in {time.perf_counter() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
