"""Faults in which time is lost beside the work: the driver's allocator, values read in a row, own work, a shared GPU.

Also what leaves no trace in the file, and what happens once: code that is loaded when it is first needed, a start-up.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.device import Kernel
from simulator.engine import us
from simulator.faults.host_faults import HOST_PATH_US, exposed
from simulator.faults.plant import Plant, backlog_us, extra_us, longer_us
from simulator.faults.setup import Setup
from simulator.host import Interruption
from simulator.items import Allocation, HostWork, StepSync

# What a call of the driver's allocator, and the launches behind it until the GPU runs again, take beside it.
_REFILL_US = 35.0


def allocating(setup: Setup, share: float) -> Setup:
    """Memory is given back to the driver and asked for again in the middle of each step."""
    each = max(5.0, extra_us(setup, share) / 2 - _REFILL_US)
    for i, call in enumerate(("cuMemFree_v2", "cuMemAlloc_v2")):
        setup = setup.with_items(Allocation(call, each), at=0.3 + 0.4 * i)
    return setup


def two_values(setup: Setup, share: float) -> Setup:
    """Python reads the loss and then the accuracy in each step."""
    if setup.style == "jax":
        names: tuple[str, ...] = ("$array.py:350 __float__", "PjRtStreamExecutorBuffer::ToLiteral")
    else:
        names = ("$ops.py:412 numpy", "TensorHandle::CopyToDevice")
    sync = StepSync(names, "cuMemcpyDtoH_v2" if setup.style != "keras" else "", values=2)
    return setup.with_run(sync=sync).with_interruption(exposed(setup, share))


def _own(setup: Setup, share: float, *names: str) -> Setup:
    """Python is busy between two steps for longer than the GPU is."""
    launching = sum(isinstance(item, Kernel) for item in setup.model(0)) * _LAUNCH_US[setup.style]
    millis = max(0.05, longer_us(setup, share) - HOST_PATH_US - launching) / 1e3
    return setup.with_interruption(Interruption(1, names, millis, "host_other", every=1))


_LAUNCH_US = {"keras": 13.6, "jax": 0.0, "eager_tf": 28.6, "eager_jax": 28.6}


def own_code(setup: Setup, share: float) -> Setup:
    """The user's own function between the steps."""
    return _own(setup, share, "$train.py:88 log_metrics")


def garbage(setup: Setup, share: float) -> Setup:
    """Python's garbage collector runs between the steps."""
    return _own(setup, share, "$train.py:41 train_loop", "$gc collect")


def unseen(setup: Setup, share: float) -> Setup:
    """As `own_code`, with nothing of it in the file."""
    return _own(setup, share)


def shared_gpu(setup: Setup, share: float) -> Setup:
    """Another process has the GPU in turns."""
    own = setup.step_us * 0.31
    return replace(setup, shared=(own, own * share / (1 - share)))


def loading(setup: Setup, share: float) -> Setup:
    """In one step code is loaded into the GPU that has not been needed before."""
    micros = setup.recorded_steps * extra_us(setup, share) + backlog_us(setup)
    step = setup.recorder.skip + setup.recorded_steps // 2
    work = HostWork(("overhead: Lazy Function Loading", "cuLibraryLoadData"), micros, "compile", steps=(step,))
    return setup.with_items(work, at=0.5)


def start_up(setup: Setup, share: float) -> Setup:
    """The recording begins with the run: the first step is compiled, the others are steady."""
    steps = setup.recorded_steps
    names = ("tf.function-graph_building",) if setup.style == "keras" else ("$compiler.py:289 backend_compile",)
    compiled = Interruption(0, names, steps * extra_us(setup, share) / 1e3, "compile", inside=True)
    setup = setup.with_interruption(compiled)
    return replace(setup, steps=steps, recorder=replace(setup.recorder, skip=0, cut=(0.0, 1.0)))


def hole(setup: Setup, share: float) -> Setup:
    """The profiler lost the device events of a stretch in the middle, and says nothing of it."""
    return replace(setup, recorder=replace(setup.recorder, hole=(0.5 - share / 2, 0.5 + share / 2)))


def with_early_clock(setup: Setup) -> Setup:
    """By the file, work comes before its launch: the GPUs' clocks are early in it."""
    return replace(setup, recorder=replace(setup.recorder, clock_ps=-us(setup.step_us * 0.6)))


def early_clock(setup: Setup, share: float) -> Setup:
    """`two_values` where the device's clock is early within the file."""
    return two_values(with_early_clock(setup), share)


LOST_TIME_FAULTS = (
    Plant("allocator_stall", "step", allocating, ("keras", "jax", "eager_tf"), culprit="cuMem", max_gpus=2),
    Plant("sync_stall", "twice", two_values, ("keras", "jax", "eager_tf"), culprit="numpy|__float__|DtoH"),
    Plant("sync_stall", "early_clock", early_clock, ("keras", "jax"), culprit="numpy|__float__|DtoH"),
    Plant("host_bound", "own_code", own_code, ("keras", "jax", "eager_tf"), "own_code", "log_metrics"),
    Plant("host_bound", "garbage", garbage, cause="garbage_collection", culprit="gc collect"),
    Plant("device_wait", "shared", shared_gpu, ("keras", "jax", "eager_tf"), "queued", max_gpus=1),
    Plant("unexplained_idle", "unseen", unseen, scope="none"),
    Plant("compile_stall", "loading", loading, cause="loading", culprit="Lazy|cuLibraryLoadData", steps=12),
    Plant("compile_stall", "start_up", start_up, culprit="graph_building|backend_compile", max_gpus=1, steps=12),
    Plant("dropped_events", "hole", hole, scope="none", timed=False, steps=10),
)
