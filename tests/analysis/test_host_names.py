"""What the names of host events mean: those of real files, and those that frameworks are known to write."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.host_names import Kind, is_blocking_input, kind_of
from tests.real_traces import XPLANE_FOLDERS, real_trace

# Names as TensorFlow, JAX, XLA and the drivers write them.
KNOWN: dict[Kind, tuple[str, ...]] = {
    Kind.INPUT: (
        "IteratorGetNextOp::DoCompute",
        "IteratorGetNextAsOptionalOp::DoCompute",
        "IteratorGetNextSync",
        "IteratorGetNext",
        "EagerLocalExecute: IteratorGetNext",
        "EagerKernelExecute: IteratorGetNext",
        "Iterator::Root::Prefetch::ParallelMapV2",
        "Iterator::Batch",
        "PrefetchConsume",
        "PrefetchProduce",
        "ParallelMapProduce",
        "ParallelInterleaveConsume",
        "MultiDeviceIteratorGetNextFromShard:MultiDeviceIteratorGetNextFromShard",
        "IteratorGetNextAsOptional_2:IteratorGetNextAsOptional",
        "InstantiatedCapturedFunction::RunWithBorrowedArgs",
        "$iterator_ops.py:826 __next__",
        "$dataloader.py:630 __next__",
        "$input_pipeline.py:51 next_batch",
    ),
    Kind.LAUNCH: (
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cudaLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtModuleLaunchKernel",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "hipMemcpyDtoDAsync",
        "cuMemsetD32Async",
        "cuGraphLaunch",
        "cudaGraphLaunch",
        "cuStreamWaitEvent",
        "cuEventRecord",
        "PjitFunction(train_step)",
        "PjRtStreamExecutorLoadedExecutable::Execute",
        "PjRtStreamExecutorLoadedExecutable::EnqueueExecution",
        "GpuExecutable::ExecuteThunks",
        "ExecutorPropagateOutputs",
        "model/dense/MatMul:MatMul",
        "replica_1/gradient_tape/checkpointed_block/MatMul:MatMul",
        "$dispatch.py:87 apply_primitive",
        "$pjit.py:330 cache_miss",
        "DevicePut",
    ),
    Kind.SYNC: (
        "cuStreamSynchronize",
        "cuCtxSynchronize",
        "cuEventSynchronize",
        "cudaDeviceSynchronize",
        "hipDeviceSynchronize",
        "hipStreamSynchronize",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
        "hipMemcpyDtoH",
        "BlockHostUntilDone",
        "$api.py:2810 block_until_ready",
        "$api.py:2802 try_to_block",
        "PjRtStreamExecutorBuffer::ToLiteral",
        "TFE_TensorHandleResolve",
        "$ops.py:401 numpy",
        "$array.py:290 item",
    ),
    Kind.COMPILE: (
        "tf.function-graph_building on train_step",
        "XlaCompile",
        "PjRtStreamExecutorClient::Compile",
        "GpuCompiler::RunHloPasses",
        "GpuCompiler::RunBackend",
        "backend_compile",
        "$compiler.py:313 backend_compile_and_load",
        "$pjit.py:1020 _pjit_lower",
        "$partial_eval.py:2200 trace_to_jaxpr_dynamic",
        "$mlir.py:1180 lower_jaxpr_to_module",
    ),
    Kind.CHECKPOINT: (
        "SaveV2",
        "save/SaveV2:SaveV2",
        "MergeV2Checkpoints",
        "CheckpointManager.save",
        "$checkpoint_manager.py:812 save",
        "batch_loss/write_summary:WriteSummary",
        "WriteScalarSummary",
    ),
    Kind.WAIT: (
        "FunctionRun",
        "EagerExecute",
        "EagerLocalExecute: MatMul",
        "TFE_Py_Execute",
        "TFE_Py_FastPathExecute",
        "ExecutorState::Process",
        "$polymorphic_function.py:815 __call__",
        "$trainer.py:314 fit",
    ),
    Kind.NEUTRAL: (
        "ThreadpoolListener::Record",
        "ThreadpoolListener::StartRegion",
        "Profiled batch",
        "TraceContext",
        "train",
        "MemoryAllocation",
        "MemoryDeallocation",
        "$builtins isinstance",
        "$<unknown> append",
        "$core.py:502 bind",
    ),
    Kind.HOST_OTHER: (
        "$train.py:12 main",
        "$metrics.py:40 log",
        "$time sleep",
        "$train_from_checkpoint.py:10 main",
        "$ad_checkpoint.py:302 checkpoint",
        "$train_data.py:5 main",
        "$input_bound.py:7 run",
    ),
    Kind.UNKNOWN_NAME: ("loop_transpose_fusion.1", "wrapped_broadcast", "my own annotation", ""),
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for kind, names in KNOWN.items() for name in names])
def test_known_names(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind


def test_a_name_that_no_table_knows_is_a_launch_if_it_called_the_device() -> None:
    """TF 2.3 and 2.4 name the launch call after the kernel."""
    name = "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<...>, int>(float, int)"
    assert kind_of(name, launches=True) is Kind.LAUNCH
    assert kind_of("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", launches=True) is Kind.LAUNCH
    assert kind_of("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn") is Kind.UNKNOWN_NAME


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("IteratorGetNextOp::DoCompute", True),
        ("IteratorGetNextAsOptionalOp::DoCompute", True),
        ("IteratorGetNextSync", True),
        ("MultiDeviceIteratorGetNextFromShardOp::DoCompute", True),
        ("EagerLocalExecute: IteratorGetNext", True),
        ("IteratorGetNextAsOptional_2:IteratorGetNextAsOptional", True),
        ("Iterator::Root::Prefetch", False),
        ("PrefetchProduce", False),
        ("ParallelMapProduce", False),
        ("EagerLocalExecute: MatMul", False),
        ("IteratorGetNextAsOptional_1/_5:_Recv", False),
    ],
)
def test_which_fetches_a_step_waits_for(name: str, blocks: bool) -> None:
    assert is_blocking_input(name) is blocks
    assert not blocks or kind_of(name) is Kind.INPUT


@given(st.text(max_size=600), st.booleans())
def test_any_name_has_a_meaning(name: str, launches: bool) -> None:
    assert kind_of(name, launches) in Kind
    is_blocking_input(name)


@pytest.mark.parametrize("piece", ["a", "Iterator::", "$x.py:1 ", "a/", ":", "_", "checkpoint", "\n", "DataLoader"])
def test_long_names_take_no_long_time(piece: str) -> None:
    kind_of(piece * 100_000)
    is_blocking_input(piece * 100_000)


# The kinds that the names in the real files may have, by what the names look like (first match).
EXPECTED = (
    (r"^ThreadpoolListener", {Kind.NEUTRAL}),
    (r"^Memory(A|Dea)llocation$", {Kind.NEUTRAL}),
    (r"^(cu|hip|cuda)\w*Synchronize", {Kind.SYNC}),
    (r"^(hip|cu)(Module|ExtModule)?Launch|^hipMem(cpy|set)\w*Async$|^Memcpy[HD]2[HD]$", {Kind.LAUNCH}),
    (r"IteratorGetNext\w*::|^Iterator::|^Prefetch|^MultiDeviceIterator", {Kind.INPUT}),
    (r"^PjitFunction|^PjRt|^GpuExecutable|^PJRT_LoadedExecutable_Execute", {Kind.LAUNCH}),
    (r"^(FunctionRun|ExecutorState::Process|RemoteCallOp)", {Kind.WAIT}),
    (r"block_until_ready|try_to_block", {Kind.SYNC}),
    (r"^\$(builtins|<unknown>|core\.py|array\.py)", {Kind.NEUTRAL}),
    (r"^\$(dispatch|lax|pxla)\.py", {Kind.LAUNCH}),
    (r"^\$generate_gemm_trace\.py", {Kind.HOST_OTHER}),
    (r"^(replica_|gradient_tape/)\S*:\w+$", {Kind.LAUNCH}),
)


@pytest.mark.parametrize("folder", XPLANE_FOLDERS)
def test_names_of_the_real_files(folder: str) -> None:
    trace = real_trace(folder)
    host = trace.host_events
    launching = set(host.name[host.correlation > 0].tolist())
    looked = defaultdict(set)
    for i in set(host.name.tolist()):
        name = trace.strings[i]
        kind = kind_of(name, i in launching)
        for pattern, kinds in EXPECTED:
            if re.search(pattern, name):
                assert kind in kinds, name
                looked[pattern].add(kind)
                break
        # nobody saved or compiled anything in these recordings
        assert kind not in (Kind.CHECKPOINT, Kind.COMPILE), name
    assert looked
    # what calls the device never counts as unknown, idle or the user's own work
    for i in launching:
        assert kind_of(trace.strings[i], True) in (Kind.LAUNCH, Kind.SYNC), trace.strings[i]
