"""What a host event's name says about why the host is late: tables as data, first match wins.

`Kind` adds to the causes what is no cause by itself: waiting or glue (WAIT: the thread sits in a
call that another thread works for), events that say nothing (NEUTRAL: the encloser counts) and names
that no table knows (UNKNOWN_NAME: inside a framework call they are its inner steps, such as the thunks of
an XLA executable, hence launch work; elsewhere they are the user's own, hence host_other).
"""

from __future__ import annotations

import re
from enum import IntEnum

from tb_gpu_doctor.analysis.vocabulary import Cause


class Kind(IntEnum):
    """Meaning of a host event; the first values are those of the host's causes."""

    INPUT = Cause.INPUT
    LAUNCH = Cause.LAUNCH
    SYNC = Cause.SYNC
    COMPILE = Cause.COMPILE
    CHECKPOINT = Cause.CHECKPOINT
    HOST_OTHER = Cause.HOST_OTHER
    WAIT = 16
    NEUTRAL = 17
    UNKNOWN_NAME = 18


_MAX_NAME = 512

# A thread that fetches the next element blocks its caller: such an op in flight explains why
# threads that wait for the step's executor do nothing.
_BLOCKING_INPUT = re.compile(
    r"^(?:IteratorGetNext(?:AsOptional|Sync)?(?:Op)?::DoCompute|IteratorGetNext(?:AsOptional|Sync)?$"
    r"|MultiDeviceIteratorGetNextFromShard(?:Op)?::DoCompute"
    r"|(?:EagerLocalExecute|EagerExecute|EagerKernelExecute): (?:OptionalGetValue|IteratorGetNext\w*)"
    r"|[^:\s]*IteratorGetNext(?:AsOptional|Sync)?\w*:IteratorGetNext(?:AsOptional|Sync)?$)"
)

_TABLE: tuple[tuple[re.Pattern[str], Kind], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        # Says nothing: thread pool bookkeeping, allocator events, markers.
        (r"^(?:ThreadpoolListener::|ThreadPool|<UNKNOWN>|Memory(?:Allocation|Deallocation)$|Profiled batch|TraceContext)", Kind.NEUTRAL),
        (r"^(?:train|train_step|step)$", Kind.NEUTRAL),
        # Input pipeline.
        (_BLOCKING_INPUT.pattern, Kind.INPUT),
        (r"^Iterator(?:::|Resource|GetNext)|^MultiDeviceIterator|^(?:\w+(?:Consume|Produce))$", Kind.INPUT),
        (r"^InstantiatedCapturedFunction::", Kind.INPUT),
        (r"^\$(?:data_?loaders?|iterator_ops|dataset_ops|grain\w*|data_loader)\.py:\d+ ", Kind.INPUT),
        (r"DataLoader.*__next__|^\$\S*(?:data|input|loader|pipeline)\S*\.py:\d+ (?:__next__|next|__iter__|next_batch|get_batch)", Kind.INPUT),
        # Compilation and tracing.
        (r"(?i)graph_building|autotun|^xla_?compile|XlaCompil|CompileToExecutable|PjRt\w*(?:Client|Compiler)?::Compile|GpuCompiler|Llvm\w*Compile|HloPass|RunBackend\b|backend_compile|^\$pxla\.py:\d+ .*(?:compile|lower)|^\$compiler\.py:|^\$\S*jit\S*\.py:\d+ .*(?:trace_to|lower)|TraceToJaxpr|^tf\.function", Kind.COMPILE),
        # Saving and summaries.
        (r"(?i)checkpoint|^SaveV2|:SaveV2$|MergeV2|orbax|ShardedFilename|:Write\w*Summary$|^Write\w*Summary|FlushSummary|SummaryWriter|^\$(?:saver|saving\w*|tensorboard_callback|event_file_writer)\.py:", Kind.CHECKPOINT),
        # Waiting for the device.
        (r"^(?:cu|hip|cuda)\w*Synchronize|^(?:cu|hip|cuda)Memcpy(?:DtoH|HtoD|DtoD)?(?:_v\d)?$|BlockHostUntil|BlockUntilReady|block_until_ready|AwaitReady|TensorHandle::(?:CopyToDevice|Resolve|WaitReady)|TFE_TensorHandleResolve|::ToLiteral|CopyRawToHost|_single_device_array_to_np_array|^\$\S+\.py:\d+ (?:numpy|item|block_until_ready)$", Kind.SYNC),
        # Calls in which a thread waits while others execute for it.
        (r"^(?:FunctionRun|EagerExecute|EagerLocalExecute|KernelAndDeviceFunc\w*|TFE_Py_\w+|EagerKernelExecute|ProcessFunctionLibraryRuntime\w*|RemoteCallOp\w*)\b", Kind.WAIT),
        (r"^(?:ExecutorState::Process|ExecutorDoneCallback)", Kind.WAIT),
        (r"^\$(?:polymorphic_function|def_function|tracing_compilation|concrete_function|atomic_function|function_type\w*|execute|trainer|training)\.py:\d+ ", Kind.WAIT),
        # Python frames: the interpreter's and the helpers of the frameworks say nothing of their own,
        # the frameworks' dispatch is launching, any other file is the user's code.
        (r"^\$(?:builtins|<unknown>|_operator|_functools|_abc|_thread|jaxlib[.\w]*|numpy|tensorflow[.\w]*) ", Kind.NEUTRAL),
        (r"^\$(?:abc|enum|functools|contextlib|typing|weakref|collections|threading|traceback_utils|util|tree_util|api_util|profiler|dtypes|core|array|literals|abstract_arrays|scalar_types|sharding_impls|named_sharding|sharding|mesh|linear_util|source_info_util|config|fromnumeric|context|ops|func_graph|tensor_shape|nest|nest_util|tensor_conversion\w*)\.py:\d+ ", Kind.NEUTRAL),
        (r"^\$(?:dispatch|pjit|pxla|xla|api|lax|array_methods|array_creation|ufuncs|gen_\w+_ops|math_ops|\w+_ops|cpp_\w+)\.py:\d+ ", Kind.LAUNCH),
        (r"^\$", Kind.HOST_OTHER),
        # Launching and the framework work around it.
        (r"^(?:cu|hip|cuda)\w*(?:Launch|Memcpy|Memset|Graph|Event|Stream|Ctx|Func|Module|OccupancyM)\w*", Kind.LAUNCH),
        (r"^(?:ExecutorPropagateOutputs|PjitFunction|PjRt\w*|TfrtGpu\w*|CommonPjRt\w*|ThunkExecutor|GpuExecutable|SequentialThunk|CommandBuffer\w*|KernelThunk|Execute\w*|EnqueueExecution|ParseArguments|BufferFromHost\w*|ShardArgs|ComputeSemaphore\w*|CheckAndPin\w*|LocalExecutable\w*|StreamExecutor\w*|ExecutableRun|DevicePut\w*|NcclLaunch|ncclGroup\w*|Nccl\w*|RunCallback)", Kind.LAUNCH),
        (r"^[\w./\-]+(?::\w+)+$|^[\w./\-]+:_\w+$|^[\w./\-]+/_\d+:_\w+$", Kind.LAUNCH),  # name:OpType of a framework op
    )
)  # fmt: skip


def kind_of(name: str, launches: bool = False) -> Kind:
    """Meaning of a host event; ``launches``: the event carries a correlation id, so it called the device."""
    short = name[:_MAX_NAME]
    for pattern, kind in _TABLE:
        if pattern.search(short):
            return kind
    return Kind.LAUNCH if launches else Kind.UNKNOWN_NAME


def is_blocking_input(name: str) -> bool:
    """Whether the event is a fetch that the step waits for."""
    return bool(_BLOCKING_INPUT.search(name[:_MAX_NAME]))
