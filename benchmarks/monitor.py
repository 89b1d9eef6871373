"""What the monitor costs training: CPU time, memory and bytes of `GpuMonitor` on the stand-in driver.

A process that only sleeps and tells its steps is measured with a monitor and without one. The stand-in answers
at once, except for the PCIe throughput, which takes 20 ms a question as with a real driver; what a real driver
computes inside its calls is not in these numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.run import put_section
from simulator.nvml_stub import build

# Start-up, imports and the first samples are not the cost of an hour.
WARM_UP_S = 5.0
STEPS_PER_S = 10
GOAL = 0.01

SCENARIO = """
gpus 8
delay_ms 20
gpu * utilization 97
gpu * power 0:600 60:650
gpu * temperature 0:60 60:80
gpu * reasons 0x4
gpu * links 18
gpu * nvlink_rx 0:0 1000:1e9
gpu * process self 2e9
"""

CHILD = """
import json, resource, sys, time
from tb_gpu_doctor import GpuMonitor
logdir, seconds, warm_up, rate, interval = sys.argv[1], *map(float, sys.argv[2:6])
monitor = GpuMonitor(logdir, interval_s=interval or 1.0)
if interval:
    monitor.start()
def train(until):
    step = 0
    while time.monotonic() < until:
        time.sleep(1 / rate)
        monitor.step(step, samples=64)
        step += 1
train(time.monotonic() + warm_up)
cpu, wall = time.process_time(), time.monotonic()
train(time.monotonic() + seconds)
cpu, wall = time.process_time() - cpu, time.monotonic() - wall
count = 100_000
began = time.process_time()
for step in range(10**6, 10**6 + count):
    monitor.step(step, samples=64)
call = (time.process_time() - began) / count
monitor.stop()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"share": cpu / wall, "call_ns": call * 1e9, "peak": peak}))
"""


def run(seconds: float, interval_s: float, stub: Path) -> dict[str, float]:
    """One process: its share of a core, what a call of `step` costs, and its memory."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.txt"
        scenario.write_text(SCENARIO, encoding="utf-8")
        environment = os.environ | {"LD_LIBRARY_PATH": str(stub.parent), "NVML_STUB_SCENARIO": str(scenario)}
        arguments = [folder + "/logs", *(str(value) for value in (seconds, WARM_UP_S, STEPS_PER_S, interval_s))]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        files = [path.stat().st_size for path in Path(folder, "logs").rglob("*tfevents*")]
        found: dict[str, float] = json.loads(done.stdout)
        return found | {"bytes": float(sum(files))}


def reading(hours: float) -> tuple[float, float, int]:
    """Write a long recording without a driver: (CPU seconds to read it, megabytes, samples of each GPU)."""
    from tb_gpu_doctor.telemetry.recordings import read_telemetry
    from tests.telemetry.recorded import Recorded

    with tempfile.TemporaryDirectory() as folder:
        recorded = Recorded(Path(folder), gpus=8)
        for tick in range(round(hours * 3600)):
            values = {
                "utilization_percent": [(tick * 7 + gpu) % 100 for gpu in range(8)],
                "power_watts": [400 + (tick * 13 + gpu * 5) % 250 for gpu in range(8)],
                "temperature_celsius": [60 + (tick // 60 + gpu) % 20 for gpu in range(8)],
                "memory_used_bytes": [4e10] * 8,
                "sm_clock_mhz": [1980 - (tick + gpu) % 400 for gpu in range(8)],
                "energy_joules": [tick * 600.5 + gpu for gpu in range(8)],
                "busy_seconds": [tick * 0.97] * 8,
            }
            recorded.sample(tick * 3, **values)
            if tick % 3 == 0:
                recorded.write()
        path = recorded.write(last=True)
        best = float("inf")
        for _ in range(5):
            began = time.process_time()
            telemetry = read_telemetry(folder)
            best = min(best, time.process_time() - began)
        return best, path.stat().st_size / 1e6, len(telemetry.recordings[0].gpus[0])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement (60)")
    parser.add_argument("--rounds", type=int, default=3, help="the smallest of so many counts (3)")
    parser.add_argument("--hours", type=float, default=10.0, help="of the recording that is read (10)")
    given = parser.parse_args(argv)
    rows, shares = [], {}
    with tempfile.TemporaryDirectory() as folder:
        stub = build(folder)
        cases = (("no monitor", 0.0), ("8 GPUs at 1 Hz", 1.0), ("8 GPUs at 10 Hz", 0.1))
        measured: dict[str, list[dict[str, float]]] = {name: [] for name, _ in cases}
        for _ in range(given.rounds):  # in turns, since the machine's other work comes and goes
            for name, interval_s in cases:
                measured[name].append(run(given.seconds, interval_s, stub))
    for name, _ in cases:
        best = {key: min(one[key] for one in measured[name]) for key in measured[name][0]}
        shares[name] = best["share"]
        rows.append(
            [
                name,
                f"{best['share']:.2%}",
                f"{best['share'] - shares['no monitor']:.2%}",
                f"{best['call_ns'] / 1e3:.2f}",
                f"{best['peak'] / 1e6:.0f}",
                f"{best['bytes'] / (given.seconds + WARM_UP_S) / 1e3:.1f}",
            ]
        )
    own = shares["8 GPUs at 1 Hz"] - shares["no monitor"]
    seconds, megabytes, samples = reading(given.hours)
    head = ["", "of one core", "more than without", "a call of step, us", "peak MB", "kB/s written"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    measured_table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    body = f"""A process that sleeps and tells {STEPS_PER_S} steps a second, for {given.seconds:.0f} s after
{WARM_UP_S:.0f} s of warm-up; CPU time of all threads, the smallest of {given.rounds} runs in turns, on the stand-in
driver (`python -m benchmarks.monitor`). The rate of bytes includes a burst of steps at the end.

{measured_table}

- Goal: under {GOAL:.0%} of one core at 1 Hz with 8 GPUs: {own:.2%}: {"met" if own < GOAL else "missed"}
- Reading {given.hours:g} hours of 8 GPUs at 1 Hz ({samples:,} samples of each GPU, {megabytes:.1f} MB):
  {seconds:.2f} s of CPU time"""
    put_section("The monitor", body)
    print(body)
    return 0 if own < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
