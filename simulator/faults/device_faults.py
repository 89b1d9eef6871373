"""Faults of the GPUs, of what runs on them and of what is copied to them, and of the profile itself."""

from __future__ import annotations

from dataclasses import replace

from simulator.device import Kernel
from simulator.engine import ms
from simulator.export import Recorder
from simulator.faults.plant import Plant, extra_us, longer_us, slowed
from simulator.faults.setup import Setup
from simulator.items import HostWork, StepSync

PCIE_BYTES_PER_US = {"keras": 22_000, "jax": 24_000, "eager_tf": 22_000, "eager_jax": 22_000}


def _in_turn(setup: Setup) -> int:
    """How many GPUs one thread copies for, one after the other."""
    return setup.gpus if setup.style == "jax" else 1


def blocking_input(setup: Setup, share: float) -> Setup:
    """The batch is copied from pageable memory while the GPU waits."""
    size = round(extra_us(setup, share) * PCIE_BYTES_PER_US[setup.style] / _in_turn(setup))
    return setup.with_run(copy_bytes=size, blocking_copy=True)


def wide_input(setup: Setup, share: float) -> Setup:
    """Copies run beside the kernels but take longer than these."""
    return setup.with_run(copy_bytes=round(longer_us(setup, share) * PCIE_BYTES_PER_US[setup.style]))


def outputs_tf(setup: Setup, share: float) -> Setup:
    """All outputs of each step are copied to the host, by a call that waits for them."""
    return setup.with_items(_download(setup, share))


def outputs_jax(setup: Setup, share: float) -> Setup:
    """``np.asarray`` of all outputs in each step."""
    copy = _download(setup, share)
    names = ("$array.py:421 __array__", "PjRtStreamExecutorBuffer::ToLiteral")
    return setup.with_run(sync=StepSync(names, "cuMemcpyDtoH_v2", copy.copy_bytes, copy.micros))


def _download(setup: Setup, share: float) -> Kernel:
    micros = extra_us(setup, share) / _in_turn(setup)
    return Kernel(
        "MemcpyD2H",
        micros,
        op="Identity/_9:_HostRecv",
        copy="D2H",
        copy_bytes=round(micros * PCIE_BYTES_PER_US[setup.style]),
        call="cuMemcpyDtoH_v2",
        blocking=True,
    )


def slow_gpu(setup: Setup, share: float) -> Setup:
    """One GPU computes more slowly."""
    return slowed(setup, 1 / (1 - share))


def uneven_work(setup: Setup, share: float) -> Setup:
    """One GPU has more kernels to run."""
    kernels = [item for item in setup.model(setup.target) if isinstance(item, Kernel) and not item.joins]
    wanted = extra_us(setup, share)
    more, at = [], 0
    while wanted > 0:
        kernel = kernels[at % len(kernels)]
        more.append(replace(kernel, micros=min(kernel.micros, wanted)))
        wanted -= kernel.micros
        at += 1
    return setup.with_items(*more, at=0.3, gpu=setup.target)


def late_host(setup: Setup, share: float) -> Setup:
    """The thread that launches for one GPU does something else first."""
    work = HostWork(("$worker.py:61 log_gradients",), longer_us(setup, share), "host_other")
    return setup.with_run(late_host={setup.target: work})


def late_input(setup: Setup, share: float) -> Setup:
    """One GPU's shard of the input takes longer to arrive."""
    return setup.with_run(late_input={setup.target: longer_us(setup, share)})


def _spread_out(setup: Setup, share: float, kernel: Kernel, each_us: float) -> Setup:
    """The same kernel again and again over the step, ``share`` of its time in all."""
    wanted = extra_us(setup, share)
    count = max(2, round(wanted / each_us))
    for i in range(count):
        op = f"{kernel.op}_{i}:{kernel.op.rsplit('/', 1)[-1]}"
        named = replace(kernel, micros=wanted / count, hlo_op=f"{kernel.hlo_op}.{i}", op=op)
        setup = setup.with_items(named, at=i / count)
    return setup


def registers(setup: Setup, share: float) -> Setup:
    """Kernels that need so many registers that few warps fit."""
    kernel = Kernel(
        "loop_advect_stencil_fusion",
        1,
        (4_096, 1, 1),
        (128, 1, 1),
        232,
        op="advect/Stencil",
        hlo_op="loop_advect_stencil_fusion",
    )
    return _spread_out(setup, share, kernel, 700)


def shared_memory(setup: Setup, share: float) -> Setup:
    """Kernels that need so much shared memory that few blocks fit."""
    kernel = Kernel(
        "input_histogram_reduce_fusion",
        1,
        (2_048, 1, 1),
        (256, 1, 1),
        48,
        dynamic_shared_bytes=116_736,
        op="moments/Histogram",
        hlo_op="input_histogram_reduce_fusion",
    )
    return _spread_out(setup, share, kernel, 500)


def few_blocks(setup: Setup, share: float) -> Setup:
    """Kernels with fewer blocks than the GPU has multiprocessors."""
    kernel = Kernel(
        "wrapped_cumsum_scan",
        1,
        (20, 1, 1),
        (512, 1, 1),
        40,
        op="boundary/Cumsum",
        hlo_op="wrapped_cumsum_scan",
    )
    return _spread_out(setup, share, kernel, 600)


def unused(setup: Setup, share: float) -> Setup:
    """Some of the machine's GPUs get no work."""
    return replace(setup, unused=max(1, round(setup.gpus * share / (1 - share))))


def serialized(setup: Setup, _share: float) -> Setup:
    """Kernels of several streams run one after the other."""
    return replace(setup, serialized=True)


def no_markers(setup: Setup, _share: float) -> Setup:
    """Nothing marks the steps."""
    return replace(setup, recorder=replace(setup.recorder, markers=False))


def short(setup: Setup, share: float) -> Setup:
    """Two steps only, or most of the recording without training."""
    if share < 0.2:
        return replace(setup, steps=setup.recorder.skip + 2)
    idle_ms = setup.recorded_steps * setup.step_us / 1e3 * (1.5 + 2 * share)
    return replace(setup, recorder=replace(setup.recorder, runs_on_ps=ms(idle_ms)))


def dropped(setup: Setup, share: float) -> Setup:
    """The profiler lost the last events of each stream."""
    text = (
        "Detected GPU events dropped on gpu-node-0: Profiler has collected 2097152 driver events and 2097152 device "
        "events. 73216 events dropped because total device(activity) events reaches max: 2097152."
    )
    recorder: Recorder = replace(setup.recorder, warnings=(text,), dropped=share / 2)
    return replace(setup, recorder=recorder)


DEVICE_FAULTS = (
    Plant("transfer_bound", "pageable", blocking_input, ("keras", "jax", "eager_tf", "eager_jax"), culprit="MemcpyH2D"),
    Plant("transfer_bound", "wide", wide_input, ("keras", "jax"), culprit="MemcpyH2D"),
    Plant("transfer_bound", "outputs", outputs_tf, ("keras", "eager_tf"), culprit="MemcpyD2H"),
    Plant("transfer_bound", "asarray", outputs_jax, ("jax", "eager_jax"), culprit="MemcpyD2H"),
    Plant("imbalance", "slow_gpu", slow_gpu, cause="slow_gpu", scope="target", min_gpus=2),
    Plant("imbalance", "uneven_work", uneven_work, cause="uneven_work", scope="target", min_gpus=2),
    Plant("imbalance", "late_host", late_host, cause="late_host", scope="target", min_gpus=2),
    Plant(
        "imbalance",
        "late_input",
        late_input,
        ("keras",),
        "late_input",
        scope="target",
        min_gpus=2,
        also=("input_bound",),
    ),
    Plant("low_occupancy", "registers", registers, cause="registers", culprit="stencil", timed=False),
    Plant("low_occupancy", "shared", shared_memory, cause="shared_memory", culprit="histogram", timed=False),
    Plant("underfilled_gpu", "blocks", few_blocks, culprit="cumsum", timed=False),
    Plant("idle_gpus", "unused", unused, scope="unused", timed=False, max_gpus=4),
    Plant("serialized_kernels", "streams", serialized, shape="forked", timed=False, also=("underfilled_gpu",)),
)
PROFILE_FAULTS = (
    Plant("no_steps", "markers", no_markers, ("keras", "jax", "eager_tf"), scope="none", timed=False),
    Plant("short_profile", "short", short, ("keras", "jax"), scope="none", timed=False),
    Plant("dropped_events", "cupti", dropped, ("keras", "jax"), scope="none", timed=False, steps=10),
)
