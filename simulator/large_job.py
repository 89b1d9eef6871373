"""Writes a whole job: one file a rank, one GPU a file, all with the same collectives and each on its own clock.

python -m simulator.large_job --format kineto --ranks 64 --events 100000 --out FOLDER
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from simulator.hardware import H100
from simulator.large_xplane import (
    FIRST_OFFSET_PS,
    INPUT_WAIT_PS,
    LAUNCH_PS,
    PS_PER_US,
    STREAMS,
    Shape,
    Timeline,
    generate,
    gpu_timeline,
    kernel_names,
    launches,
    step_length,
)

FORMATS = ("xplane", "kineto")
SEED = 1
PID = 4_242
# Milliseconds between the clocks of ranks, as between hosts that keep time by the network.
MAX_SKEW_NS = 5_000_000


def clock_ns(rank: int) -> int:
    """How far a rank's clock is ahead; rank 0 has the job's time."""
    return int(np.random.default_rng([SEED, rank, 7]).integers(0, MAX_SKEW_NS)) if rank else 0


def job_file(folder: Path, form: str, rank: int) -> Path:
    """Where a rank's file lies below the logdir, under the names that its profiler gives."""
    if form == "kineto":
        return (
            folder / f"node{rank // 8:02d}_{PID + rank}.{1_772_000_000_000_000_000 + rank * 1_000_000}.pt.trace.json.gz"
        )
    return folder / "plugins" / "profile" / "2026_02_25_06_13_20" / f"node{rank:02d}.xplane.pb"


def write_job(folder: Path, form: str, ranks: int, events: int) -> int:
    """Write all files, half of whose events are the device's; the size of all in bytes."""
    shape, size = Shape(events // 2, events - events // 2, gpus=1), 0
    for rank in range(ranks):
        path = job_file(folder, form, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        if form == "xplane":
            size += generate(path, shape, SEED, rank, clock_ns(rank))
        else:
            # The lowest level: packing is not what is measured, and unpacking takes the same time.
            path.write_bytes(gzip.compress("".join(_document(shape, rank, ranks)).encode(), 1))
            size += path.stat().st_size
    return size


def _document(shape: Shape, rank: int, ranks: int) -> Iterator[str]:
    """A rank's file as Kineto writes it."""
    step_ps = step_length(shape)
    timelines = gpu_timeline(shape, 0, step_ps, SEED, rank)
    shift = clock_ns(rank) / 1e3
    yield (
        f'{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "{H100.name}", "numSms": {H100.sm_count}, '
        f'"computeMajor": 9, "computeMinor": 0, "totalGlobalMem": {H100.memory_size_bytes}}}], '
        f'"distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {ranks}}}, '
        f'"displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceEvents": [\n'
    )
    for stream, timeline in zip(STREAMS, timelines, strict=True):
        yield from _device_events(stream.kind, timeline, ranks, shift)
    yield from _host_events(shape, timelines, step_ps, shift)
    yield (
        f'{{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", '
        f'"ts": {FIRST_OFFSET_PS / PS_PER_US + shift:.3f}, "dur": {(shape.steps * step_ps) / PS_PER_US:.3f}, '
        '"args": {}}\n], "traceName": "generated"}'
    )


def _device_events(kind: str, timeline: Timeline, ranks: int, shift: float) -> Iterator[str]:
    names = kernel_names()
    stream = {"kernel": 7, "nccl": 20, "H2D": 24, "D2H": 28}[kind]
    place = f'"pid": 0, "tid": {stream}'
    columns = (timeline.start, timeline.duration, timeline.kernel, timeline.correlation)
    for start, duration, kernel, correlation in zip(*(column.tolist() for column in columns), strict=True):
        time = f'"ts": {start / PS_PER_US + shift:.3f}, "dur": {duration / PS_PER_US:.3f}'
        args = f'"device": 0, "stream": {stream}, "correlation": {correlation}'
        if kind == "kernel":
            name, details, _, occupancy = names[kernel]
            fields = dict(part.split(":") for part in details.split())
            args += (
                f', "registers per thread": {fields["regs"]}, "shared memory": {fields["dynamic_shared"]}, '
                f'"grid": [{fields["grid"]}], "block": [{fields["block"]}], '
                f'"est. achieved occupancy %": {occupancy:.0f}'
            )
            yield f'{{"ph": "X", "cat": "kernel", "name": "{name}", {place}, {time}, "args": {{{args}}}}},\n'
        elif kind == "nccl":
            args += (
                f', "grid": [24, 1, 1], "block": [544, 1, 1], "Collective name": "allreduce", '
                f'"In msg nelems": {1 << (16 + kernel % 6)}, "Out msg nelems": {1 << (16 + kernel % 6)}, '
                f'"dtype": "BFloat16", "Group size": {ranks}, "Process Group Name": "0"'
            )
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            yield f'{{"ph": "X", "cat": "kernel", "name": "{name}", {place}, {time}, "args": {{{args}}}}},\n'
        else:
            name = "Memcpy HtoD (Pageable -> Device)" if kind == "H2D" else "Memcpy DtoH (Device -> Pageable)"
            args += ', "bytes": 1048576'
            yield f'{{"ph": "X", "cat": "gpu_memcpy", "name": "{name}", {place}, {time}, "args": {{{args}}}}},\n'


def _host_events(shape: Shape, timelines: Sequence[Timeline], step_ps: int, shift: float) -> Iterator[str]:
    place = f'"pid": {PID}, "tid": {PID}'
    left = shape.host_events - 2 * shape.steps
    called, correlation, _ = launches(timelines)
    for start, ident in zip(called[:left].tolist(), correlation[:left].tolist(), strict=True):
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {place}, '
            f'"ts": {start / PS_PER_US + shift:.3f}, "dur": {LAUNCH_PS / PS_PER_US:.3f}, '
            f'"args": {{"External id": {ident}, "cbid": 211, "correlation": {ident}}}}},\n'
        )
    for step in range(shape.steps):
        start = (FIRST_OFFSET_PS + step * step_ps) / PS_PER_US + shift
        length, wait = (step_ps - 100 * PS_PER_US) / PS_PER_US, (INPUT_WAIT_PS - 90 * PS_PER_US) / PS_PER_US
        yield (
            f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step + 10}", {place}, '
            f'"ts": {start:.3f}, "dur": {length:.3f}, "args": {{}}}},\n'
        )
        yield (
            f'{{"ph": "X", "cat": "user_annotation", '
            f'"name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", {place}, '
            f'"ts": {start + 40:.3f}, "dur": {wait:.3f}, "args": {{}}}},\n'
        )


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the profile of a job, one file a rank.")
    parser.add_argument("--format", choices=FORMATS, default="kineto")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--events", type=int, default=100_000, help="of each rank")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    size = write_job(options.out, options.format, options.ranks, options.events)
    print(f"{options.out}: {options.ranks} files, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
