"""Faults of the host: input, synchronisation, launching, compilation, checkpoints, placement."""

from __future__ import annotations

from dataclasses import replace

from simulator.device import Kernel
from simulator.faults.plant import Plant, backlog_us, extra_us, longer_us
from simulator.faults.setup import Setup
from simulator.host import Interruption
from simulator.items import Bounce, HostWork, StepSync, Synchronize
from simulator.tf_input import InputSpec

ELEMENTS = 8
# What Python and the copy of the batch need anyway between a synchronisation and the next kernel.
HOST_PATH_US = 450.0


def _input(setup: Setup, spec: InputSpec) -> Setup:
    return setup.with_run(**{"input" if setup.style == "keras" else "tf_data": spec})


def serial_map(setup: Setup, share: float) -> Setup:
    """tf.data's map runs one call at a time."""
    each = longer_us(setup, share) / ELEMENTS
    return _input(setup, InputSpec(ELEMENTS, map_us=each, parallelism=1, read_us=25))


def slow_reader(setup: Setup, share: float) -> Setup:
    """Reading takes longer than all mapping."""
    each = longer_us(setup, share) / ELEMENTS
    return _input(setup, InputSpec(ELEMENTS, map_us=min(200, each / 4), parallelism=4, read_us=each))


def no_prefetch(setup: Setup, share: float) -> Setup:
    """Who asks for a batch makes it."""
    each = longer_us(setup, share) / ELEMENTS
    return _input(setup, InputSpec(ELEMENTS, map_us=each * 0.8, read_us=each * 0.2, prefetch=False))


def python_loader(setup: Setup, share: float) -> Setup:
    """Python's own data loader runs in the loop, and the loop on one thread."""
    launching = sum(1 for _ in setup.model(0)) * 32.0 if setup.style.startswith("eager") else HOST_PATH_US
    micros = longer_us(setup, share) - launching
    return setup.with_run(loader=HostWork(("$loader.py:57 __next__", "$transforms.py:204 resize"), micros, "input"))


def exposed(setup: Setup, share: float) -> Interruption:
    """Python's own work between two steps, which a synchronisation exposes."""
    millis = max(0.05, (extra_us(setup, share) - HOST_PATH_US) / 1e3)
    return Interruption(1, ("$train.py:131 log_metrics",), millis, "host_other", every=1)


def looked_at_tf(setup: Setup, share: float) -> Setup:
    """``.numpy()`` in each step."""
    sync = StepSync(("$ops.py:412 numpy", "TensorHandle::CopyToDevice"))
    return setup.with_run(sync=sync).with_interruption(exposed(setup, share))


def looked_at_driver(setup: Setup, share: float) -> Setup:
    """A stream is synchronised in each step; the file shows the driver's call only."""
    sync = StepSync((), "cuStreamSynchronize", copy_bytes=0)
    return setup.with_run(sync=sync).with_interruption(exposed(setup, share))


def blocked_jax(setup: Setup, share: float) -> Setup:
    """``block_until_ready`` in each step, and Python that launches slowly after it."""
    sync = StepSync(("$api.py:2839 block_until_ready",), copy_bytes=0)
    return setup.with_run(sync=sync, python_us=350.0 + max(0.0, extra_us(setup, share) - HOST_PATH_US))


def looked_at_jax(setup: Setup, share: float) -> Setup:
    """``float(loss)`` in each step."""
    sync = StepSync(("$array.py:350 __float__", "PjRtStreamExecutorBuffer::ToLiteral"), "cuMemcpyDtoH_v2")
    return setup.with_run(sync=sync).with_interruption(exposed(setup, share))


def many_looks(setup: Setup, share: float) -> Setup:
    """Several times a step the loop waits for the GPU and then goes on slowly."""
    for i in range(4):
        work = HostWork(("$train.py:77 clip_gradients",), extra_us(setup, share) / 4 - 40, "host_other")
        look = Synchronize(("$ops.py:412 numpy", "cuStreamSynchronize"))
        setup = setup.with_items(look, work, at=0.2 + 0.25 * i)
    return setup


def executor_waits(setup: Setup, share: float) -> Setup:
    """An op of the step waits for the GPU, three times a step."""
    for i in range(3):
        op = "Where:Where"
        work = HostWork((op,), extra_us(setup, share) / 3 - 40, "launch")
        setup = setup.with_items(Synchronize((op, "cuStreamSynchronize")), work, at=0.2 + 0.3 * i)
    return setup


def slow_launches(setup: Setup, share: float) -> Setup:
    """The host needs longer for a launch than the GPU for the kernel."""
    kernels = [item for item in setup.model(0) if isinstance(item, Kernel)]
    gpu = sum(kernel.micros for kernel in kernels) / len(kernels) + 1.3
    each = max(gpu / (1 - share), 1.12 * gpu)
    if setup.style == "jax":
        return setup.with_run(launch_us=each * 0.6, thunk_us=each * 0.4)
    return setup.with_run(launch_us=min(4.6, each / 2), op_us=each - min(4.6, each / 2))


def retracing_tf(setup: Setup, share: float) -> Setup:
    """A tf.function is traced anew every other step."""
    millis = (2 * extra_us(setup, share) + backlog_us(setup)) / 1e3
    return setup.with_interruption(
        Interruption(1, ("tf.function-graph_building",), millis, "compile", every=2, inside=True)
    )


def recompiling_jax(setup: Setup, share: float) -> Setup:
    """A jitted step is compiled anew every third step."""
    millis = (3 * extra_us(setup, share) + backlog_us(setup)) / 1e3
    names = ("$compiler.py:289 backend_compile", "PjRtStreamExecutorClient::Compile", "GpuCompiler::RunBackend")
    return setup.with_interruption(Interruption(2, names, millis, "compile", every=3, inside=True))


def xla_recompiling(setup: Setup, share: float) -> Setup:
    """As `recompiling_jax`, each step, without Python's frames in the file."""
    names = ("XlaCompile:#module=jit_train_step,program_id=18#", "XlaCompileBackend:#module=jit_train_step#")
    millis = (longer_us(setup, share) - HOST_PATH_US) / 1e3
    return setup.with_interruption(Interruption(1, names, millis, "compile", every=1, inside=True))


def saving_tf(setup: Setup, share: float) -> Setup:
    """Weights are saved every third step."""
    millis = (3 * extra_us(setup, share) + backlog_us(setup)) / 1e3
    names = ("$model_checkpoint.py:263 on_train_batch_end", "EagerLocalExecute: SaveV2", "SaveV2:SaveV2")
    return setup.with_interruption(Interruption(2, names, millis, "checkpoint", every=3))


def saving_ops(setup: Setup, share: float) -> Setup:
    """As `saving_tf`, every other step, without Python's frames in the file."""
    millis = (2 * extra_us(setup, share) + backlog_us(setup)) / 1e3
    names = ("EagerExecute", "EagerLocalExecute: SaveV2", "EagerKernelExecute", "SaveV2")
    return setup.with_interruption(Interruption(1, names, millis, "checkpoint", every=2))


def saving_jax(setup: Setup, share: float) -> Setup:
    """Weights are saved every third step, by orbax."""
    millis = (3 * extra_us(setup, share) + backlog_us(setup)) / 1e3
    names = ("$checkpoint_manager.py:1161 save", "$type_handlers.py:512 serialize")
    return setup.with_interruption(Interruption(2, names, millis, "checkpoint", every=3))


def on_another_thread(setup: Setup, share: float) -> Setup:
    """As `on_the_cpu`; another thread of the pool runs the ops."""
    return on_the_cpu(setup, share, elsewhere=True)


def on_the_cpu(setup: Setup, share: float, elsewhere: bool = False) -> Setup:
    """Three ops of each step have no GPU kernel."""
    micros = max(60.0, extra_us(setup, share) / 3 - 2 * 48 - 70)
    for i, op in enumerate(("unique/Unique:Unique", "boundaries/Bucketize:Bucketize", "strings/AsString:AsString")):
        setup = setup.with_items(Bounce(op, micros, 1_048_576, 48.0, elsewhere), at=0.2 + 0.3 * i)
    return setup


def paused(setup: Setup, share: float) -> Setup:
    """Python stands still once in the recording."""
    millis = (setup.recorded_steps * extra_us(setup, share) + backlog_us(setup)) / 1e3
    pause = Interruption(5, ("$train.py:88 rotate_logs",), millis, "host_other")
    return setup.with_interruption(pause)


def slow_steps(setup: Setup, share: float) -> Setup:
    """Two steps in which the GPUs compute more slowly."""
    factor = 1 + setup.recorded_steps * share / (1 - share) / 2
    return replace(setup, slow_steps={4: factor, 8: factor})


def slower_from_the_middle(setup: Setup, share: float) -> Setup:
    """From the middle of the recording on the GPUs compute more slowly, as one does that has become hot."""
    first = setup.recorded_steps // 2
    late = setup.recorded_steps - first
    factor = 1 + setup.recorded_steps * share / (1 - share) / late
    return replace(setup, slow_steps=dict.fromkeys(range(first, setup.recorded_steps + 8), factor))


def crowded_host(setup: Setup, share: float) -> Setup:
    """Bursts of input workers, many more than processors, beside the thread that launches."""
    spec = InputSpec(16, map_us=160, parallelism=16, buffer=2, ready=1, read_us=4, spread=0.3)
    return replace(_input(setup, spec), processors=5 if share < 0.2 else 4 if share < 0.4 else 3)


HOST_FAULTS = (
    Plant("input_bound", "map", serial_map, ("keras", "jax", "eager_tf"), culprit="ParallelMapV2"),
    Plant("input_bound", "reader", slow_reader, ("keras", "jax"), culprit="TFRecord"),
    Plant("input_bound", "no_prefetch", no_prefetch, ("keras", "jax", "eager_tf"), culprit="Map"),
    Plant("input_bound", "loader", python_loader, ("jax", "eager_tf", "eager_jax"), culprit="loader.py"),
    Plant("sync_stall", "numpy", looked_at_tf, ("keras",), culprit="numpy"),
    Plant("sync_stall", "driver", looked_at_driver, ("keras", "eager_tf"), culprit="cuStreamSynchronize"),
    Plant("sync_stall", "block", blocked_jax, ("jax",), culprit="block_until_ready"),
    Plant("sync_stall", "float", looked_at_jax, ("jax", "eager_jax"), culprit="__float__|ToLiteral|cuMemcpyDtoH"),
    Plant("sync_stall", "often", many_looks, ("eager_tf", "eager_jax"), culprit="numpy|cuStreamSynchronize"),
    Plant("sync_stall", "op", executor_waits, ("keras",), culprit="Where"),
    Plant("launch_bound", "slow", slow_launches, ("keras", "jax", "eager_tf", "eager_jax"), shape="tiny"),
    Plant("cpu_contention", "workers", crowded_host, shape="tiny", also=("launch_bound",)),
    Plant("compile_stall", "retrace", retracing_tf, ("keras",), culprit="graph_building"),
    Plant("compile_stall", "recompile", recompiling_jax, ("jax",), culprit="ompile", steps=8),
    Plant("compile_stall", "xla", xla_recompiling, ("jax",), culprit="train_step"),
    Plant("checkpoint_stall", "callback", saving_tf, ("keras", "eager_tf"), culprit="SaveV2", steps=8),
    Plant("checkpoint_stall", "ops", saving_ops, ("keras",), culprit="SaveV2"),
    Plant("checkpoint_stall", "orbax", saving_jax, ("jax",), culprit="serialize", steps=8),
    Plant("op_placement", "bounce", on_the_cpu, ("keras", "eager_tf"), culprit="Unique"),
    Plant("op_placement", "pool", on_another_thread, ("keras",), culprit="Unique"),
    Plant("step_outliers", "pause", paused, ("keras", "jax"), steps=12),
    Plant("step_outliers", "gpu", slow_steps, ("keras", "jax"), steps=12),
    Plant("slower_steps", "gpu", slower_from_the_middle, ("keras", "jax"), steps=24),
)
