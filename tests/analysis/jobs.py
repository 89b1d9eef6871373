"""Jobs of several files with planted clock offsets: everything is known on the true clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tb_gpu_doctor.analysis.analyse import analyse
from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
from tb_gpu_doctor.traces.columns import EventClass, Trace
from tb_gpu_doctor.traces.grouping import distinct
from tests.analysis.small_traces import US, Recorder

NAMES = ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", "ncclDevKernel_AllGather_RING_LL")


@dataclass
class Job:
    """Files of ``gpus`` GPUs each; times in microseconds on the true clock, a file's own is ``offsets`` ahead.

    All clocks begin early enough that no file holds a time below zero.

    Collective k of the job has true starts and ends per participant (file by file, GPU by GPU); the
    kernel before it runs from the end of the collective before to its start.
    """

    offsets: Sequence[int]
    gpus: int = 1
    starts: list[list[int]] = field(default_factory=list)
    ends: list[list[int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    lost: set[tuple[int, int]] = field(default_factory=set)
    steps: int = 0

    @property
    def participants(self) -> int:
        return len(self.offsets) * self.gpus

    def collective(self, starts: Sequence[int], ends: Sequence[int], name: str = NAMES[0]) -> None:
        self.starts.append(list(starts))
        self.ends.append(list(ends))
        self.names.append(name)

    def ahead(self, host: int) -> int:
        """What to add to a true time for a file's own, in microseconds."""
        return self.offsets[host] - min(0, *self.offsets)

    def traces(self) -> list[Trace]:
        return [self._trace(host) for host in range(len(self.offsets))]

    def _trace(self, host: int) -> Trace:
        record = Recorder(gpus=self.gpus)
        shift = self.ahead(host)
        correlation = 0
        per_step = -(-len(self.names) // self.steps) if self.steps else len(self.names)
        for k, name in enumerate(self.names):
            if self.steps and k % per_step == 0:
                base = (min(self.ends[k - 1]) if k else 0) + shift
                last = min(k + per_step, len(self.names)) - 1
                record.step("main", k // per_step, base, base + max(1, min(self.ends[last]) - 1 - (base - shift)))
            for gpu in range(self.gpus):
                at = host * self.gpus + gpu
                before = self.ends[k - 1][at] if k else 0
                start, end = self.starts[k][at], self.ends[k][at]
                # launched as soon as the collective before has ended everywhere
                call = (min(self.ends[k - 1]) if k else 0) + shift
                correlation += 2
                record.launch("main", call, before + shift, start + shift, correlation, gpu=gpu)
                if (k, at) not in self.lost:
                    record.launch(
                        "main", call, start + shift, end + shift, correlation + 1, gpu=gpu, stream=1,
                        klass=EventClass.COMMUNICATION, name=name,
                    )  # fmt: skip
        trace = record.trace()
        object.__setattr__(trace, "host", f"host{host}")
        return trace

    def analysed(self) -> tuple[list[Trace], list[TraceAnalysis]]:
        traces = self.traces()
        return traces, [analyse(trace) for trace in traces]

    def identity(self, trace: int, gpu: int, start: int) -> int:
        """The collective that started at a time on a file's clock, in picoseconds."""
        at = trace * self.gpus + gpu
        return [starts[at] for starts in self.starts].index(start // US - self.ahead(trace))


def random_job(
    seed: int,
    hosts: int = 3,
    gpus: int = 1,
    count: int = 30,
    steps: int = 0,
    lost: int = 0,
    jitter: int = 60,
    end_spread: int = 3,
    far: int = 5_000_000,
) -> Job:
    """Collectives at random intervals; everybody comes within ``jitter``, ends differ by up to ``end_spread``."""
    rng = np.random.default_rng(seed)
    job = Job([0, *rng.integers(-far, far, hosts - 1).tolist()], gpus, steps=steps)
    now = 100
    for _ in range(count):
        starts = now + rng.integers(20, 200) + rng.integers(0, jitter, job.participants)
        ends = starts.max() + rng.integers(10, 60) + rng.integers(0, end_spread + 1, job.participants)
        job.collective(starts.tolist(), ends.tolist(), NAMES[int(rng.integers(0, 2))])
        now = int(ends.max())
    if lost:
        places = [(k, at) for k in range(count) for at in range(job.participants)]
        job.lost = {places[i] for i in rng.choice(len(places), lost, replace=False).tolist()}
    return job


def used_names(trace: Trace) -> list[str]:
    """Names of the device events, each once."""
    return [trace.strings[int(i)] for i in distinct(trace.device_events.name)]
