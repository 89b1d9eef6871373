"""Feeds whole diagnoses damaged XPlane files for SECONDS: ``python -m fuzz.fuzz_xplane SECONDS [--seed N]``.

The files are well-formed, and what they hold is odd: events and names dropped, doubled, moved and reordered, clocks
off, threads and GPUs without anything, of one GPU only or of all. Every input must become a diagnosis that keeps the
promises of `whole_diagnosis`, told in all languages, or a `ProfileError`. The inputs follow from the seed alone. One
that fails stays in fuzz/ (``crash-*.xplane.pb``); give it as ``--input`` to run it again.
"""

from __future__ import annotations

import argparse
import copy
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import FrameType

from fuzz.whole_diagnosis import Failure, check_diagnosis, facts_of
from simulator.faults.cases import all_cases
from simulator.xplane_writer import Line, Plane, Space
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.xplane import read_xplane

HERE = Path(__file__).parent
INPUT_SECONDS = 20
# What is damaged: waiting for input, launching, several GPUs that meet in collectives, and a healthy run.
CASES = ("input_bound.no_prefetch.strong/jax/1", "launch_bound.slow.strong/keras/1", "imbalance.slow_gpu.medium/jax/2",
         "healthy.plain/keras/2")  # fmt: skip
PLANES = ("/device:GPU:0", "/device:GPU:7", "/device:GPU:x", "/device:TPU:0", "/host:CPU", "")
ODD_NAMES = ("", "x" * 5_000, "{gpus} %s {", "train_step", "IteratorGetNext", "\u202eevil", "Memcpy", "nccl", "a\nb")


def damaged_planes(random: Random, space: Space) -> list[Plane]:
    """The planes that are damaged: one GPU alone, the host alone, or any."""
    gpus = [plane for plane in space.planes if "GPU" in plane.name]
    others = [plane for plane in space.planes if "GPU" not in plane.name]
    return random.choice((gpus[:1], others, space.planes))


def _lines(random: Random, space: Space) -> list[Line]:
    found = [line for plane in damaged_planes(random, space) for line in plane.lines]
    return random.sample(found, max(1, len(found) // random.choice((1, 2, 5)))) if found else []


def lost(random: Random, space: Space) -> None:
    """Events that are not there: some, a stretch, or all."""
    for line in _lines(random, space):
        events = line._events
        low, high = sorted(random.randrange(len(events) + 1) for _ in range(2))
        kept = random.choice((0.0, 0.3, 0.9, 1.0))
        line._events[:] = [e for i, e in enumerate(events) if not low <= i < high and random.random() < kept]


def doubled(random: Random, space: Space) -> None:
    """Events that are there twice, or a thousand times."""
    for line in _lines(random, space):
        if line._events:
            line._events += [random.choice(line._events)] * random.choice((1, 3, 1_000))


def reordered(random: Random, space: Space) -> None:
    """Events out of order."""
    for line in _lines(random, space):
        random.shuffle(line._events)


def moved(random: Random, space: Space) -> None:
    """Events on another thread or stream."""
    lines = _lines(random, space)
    for line in lines:
        other = random.choice(lines)
        cut = random.randrange(len(line._events) + 1)
        if other.plane is line.plane:
            other._events += line._events[cut:]
            del line._events[cut:]


def other_clock(random: Random, space: Space) -> None:
    """Lines whose clock is off."""
    for line in _lines(random, space):
        line.timestamp_ns += random.choice((-(10**6), 10**6, 10**9, -line.timestamp_ns, 2**62, -(2**62)))


def unnamed(random: Random, space: Space) -> None:
    """Names that the file does not hold, or others."""
    for plane in damaged_planes(random, space):
        ids = plane.event_names._ids
        for name in random.sample(list(ids), min(len(ids), random.choice((1, 5, 10_000)))):
            number = ids.pop(name)
            if random.random() < 0.5:
                ids[random.choice(ODD_NAMES) + random.choice(("", str(number)))] = number


def unknown_stats(random: Random, space: Space) -> None:
    """Stats without a name: no correlation, no steps, no details."""
    for plane in damaged_planes(random, space):
        ids = plane.stat_names._ids
        for name in random.sample(list(ids), min(len(ids), random.choice((1, 2, 10_000)))):
            del ids[name]


def fewer(random: Random, space: Space) -> None:
    """Planes and lines that are not there."""
    for plane in damaged_planes(random, space):
        plane.lines[:] = [line for line in plane.lines if random.random() < 0.5]
    if random.random() < 0.3:
        space.planes[:] = [plane for plane in space.planes if random.random() < 0.6]


def renamed(random: Random, space: Space) -> None:
    """Planes, threads and streams by other names; two GPUs by one."""
    for plane in damaged_planes(random, space):
        if random.random() < 0.5:
            plane.name = random.choice(
                ("/device:GPU:0", "/device:GPU:7", "/device:TPU:0", "/host:CPU", "", "/device:GPU:x")
            )
        for line in plane.lines:
            if random.random() < 0.3:
                line.name = random.choice(ODD_NAMES)


DAMAGES: tuple[Callable[[Random, Space], None], ...] = (
    lost, doubled, reordered, moved, other_clock, unnamed, unknown_stats, fewer, renamed,
)  # fmt: skip


def spaces() -> list[list[Space]]:
    """The files to begin with, by session."""
    cases = all_cases()
    return [[host.space for host in cases[name].run(1).hosts] for name in CASES if name in cases]


def make_input(random: Random, whole: Sequence[Sequence[Space]]) -> tuple[str, list[bytes]]:
    """What was done, and the files of one session."""
    session = copy.deepcopy(list(random.choice(whole)))
    done = []
    for space in session:
        for _ in range(random.choice((1, 1, 2, 4))):
            damage = random.choice(DAMAGES)
            damage(random, space)
            done.append(damage.__name__)
    return ", ".join(done), [space.encode() for space in session]


def try_input(files: Sequence[bytes], folder: Path) -> str:
    """What became of an input: its verdict, or the code of the `ProfileError`."""
    signal.alarm(INPUT_SECONDS)
    try:
        facts = []
        for number, content in enumerate(files):
            path = folder / f"host{number}.xplane.pb"
            path.write_bytes(content)
            facts.append(facts_of(read_xplane(str(path), f"host{number}")))
        return check_diagnosis(*facts).verdict
    except ProfileError as error:
        return error.code
    finally:
        signal.alarm(0)


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise Failure(f"longer than {INPUT_SECONDS} s")


def run(seconds: float, seed: int, most: int | None = None) -> Counter[str]:
    """Tries inputs for a time, or so many.

    Raises:
        Exception: what one ended in; that one is kept beside this file.
    """
    whole, outcomes = spaces(), Counter[str]()
    began, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() - began < seconds and number != most:
            number += 1
            # a generator for each input: the next ones do not depend on what this one took
            damage, files = make_input(Random(seed * 1_000_003 + number), whole)
            try:
                outcomes[try_input(files, Path(folder))] += 1
            except Exception as error:
                for which, content in enumerate(files):
                    (HERE / f"crash-{seed}-{number}-{which}.xplane.pb").write_bytes(content)
                print(f"fuzz: input {number} of seed {seed} ({damage}): {error!r}; kept in {HERE}", file=sys.stderr)
                raise
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzzes, or runs one input again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float, nargs="?", default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", type=Path, nargs="+", help="the files of one session instead")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGALRM, _too_long)
    if arguments.input:
        with tempfile.TemporaryDirectory() as folder:
            print(try_input([path.read_bytes() for path in arguments.input], Path(folder)))
        return 0
    outcomes = run(arguments.seconds, arguments.seed)
    said = ", ".join(f"{count} {code}" for code, count in outcomes.most_common())
    print(f"fuzz: {outcomes.total()} damaged XPlane files in {arguments.seconds:.0f} s without a finding: {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
