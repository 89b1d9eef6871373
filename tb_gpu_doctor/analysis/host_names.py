"""What a host event's name says about why the host is late: tables as data, first match wins.

`Kind` adds to the causes what is no cause by itself: waiting or glue (WAIT: the thread sits in a
call that another thread works for), events that say nothing (NEUTRAL: the encloser counts) and names
that no table knows (UNKNOWN_NAME: inside a framework call they are its inner steps, such as the thunks of
an XLA executable, hence launch work; elsewhere they are the user's own, hence host_other).
"""

from __future__ import annotations

import re
from enum import IntEnum

from tb_gpu_doctor.analysis import torch_host_names as torch
from tb_gpu_doctor.analysis.results import Cause


class Kind(IntEnum):
    """Meaning of a host event; the first values are those of the host's causes."""

    INPUT = Cause.INPUT
    LAUNCH = Cause.LAUNCH
    SYNC = Cause.SYNC
    COMPILE = Cause.COMPILE
    CHECKPOINT = Cause.CHECKPOINT
    HOST_OTHER = Cause.HOST_OTHER
    ALLOCATOR = Cause.ALLOCATOR
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

# Code that is brought to the GPU when it is first needed, or made ready for it: each happens once.
LOADING = re.compile(
    r"^(?:overhead: )?Lazy (?:Function|Module) Loading|^(?:cu|hip)(?:Module|Library)(?:Load|GetFunction|GetKernel)"
    r"|^(?:cuda|hip|cu)Graph(?:Instantiate|ExecUpdate|Upload)|^(?:cuda|hip)Module(?:Load|GetFunction)"
    r"|^(?:cuda|cu)Library(?:Load|GetKernel)|^(?:cuda|cu|hip)Stream(?:Begin|End)Capture|^cu(?:Init|DevicePrimaryCtxRetain)\b"
)

# (kind, patterns): the first group with a match wins. Python frames are written `$file.py:line function`.
_TABLE: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    # Says nothing: thread pool bookkeeping, allocator events, markers.
    (Kind.NEUTRAL, (
        r"^ThreadpoolListener::", r"^ThreadPool", r"^<UNKNOWN>", r"^Memory(?:Allocation|Deallocation)$",
        r"^Profiled batch", r"^TraceContext", r"^(?:train|train_step|step)$",
    )),
    # Input pipeline.
    (Kind.INPUT, (
        _BLOCKING_INPUT.pattern,
        r"^Iterator(?:::|Resource|GetNext)",
        r"^MultiDeviceIterator",
        r"^\w+(?:Consume|Produce)$", r"^InstantiatedCapturedFunction::", r"DataLoader.*__next__",
        r"^\$\S*py_dataset_adapter\.py:\d+ (?:get|__next__|next|_wait_queue|_get_batch|__getitem__|enqueuer)",
        r"^\$(?:iterator_ops|dataset_ops)\.py:\d+ (?:__next__|next|get_next|_next_internal)\b",
        r"^\$\S*(?:data|input|loader|pipeline|grain)\S*\.py:\d+ (?:__next__|next|_next_data|next_batch|get_batch)\b",
    )),
    # The driver's own allocator: each call synchronises or maps memory, which a caching allocator avoids.
    (Kind.ALLOCATOR, (
        r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)",
        r"^cuMem(?:Alloc|Free|HostAlloc|HostRegister|HostUnregister|Create|Release|Map|Unmap|SetAccess|Address\w+|Pool)",
        r"^(?:cuda|hip)MemPool", r"^hipMem(?:Create|Release|Map|Unmap|SetAccess|Address\w+|Alloc\w*)",
    )),
    # Compilation and tracing.
    (Kind.COMPILE, (
        LOADING.pattern,
        r"(?i:graph_building)", r"(?i:autotun)", r"(?i:^xla_?compile)", r"XlaCompil", r"CompileToExecutable",
        r"PjRt\w*(?:Client|Compiler)?::Compile", r"GpuCompiler", r"Llvm\w*Compile", r"HloPass",
        r"RunBackend\b", r"backend_compile", r"TraceToJaxpr", r"^tf\.function",
        r"^\$compiler\.py:", r"^\$pxla\.py:\d+ .*(?:compile|lower)",
        r"^\$partial_eval\.py:\d+ trace_to_jaxpr", r"^\$mlir\.py:\d+ .*lower",
        r"^\$\S*jit\S*\.py:\d+ .*(?:trace_to|lower)",
    )),
    # Saving and summaries.
    (Kind.CHECKPOINT, (
        r"^\w*Checkpoint", r"^(?:Save|Restore)V2", r":RestoreV2$",
        # what people call the ranges in which they save
        r"(?i:^(?!\$)[\w./: #-]{0,40}(?:save|saving|write|writing|dump)[_ -]?(?:the[_ -])?"
        r"(?:checkpoint|ckpt|model|weights|state_?dict|optimizer_state))",
        r"(?i:^(?!\$)[\w./: #-]{0,40}(?:checkpoint|ckpt)[_ -]?(?:save|saving|write|io|dump))",
        r"(?i:^(?:checkpoint|ckpt)\w*$)",
        r"^\$(?!ad_checkpoint)\S*checkpoint\S*\.py:\d+ _?(?:async_)?(?:save|write|commit|restore)",
        r"^\$\S+ (?:save_(?:weights|model|checkpoint)|write_checkpoint)\b", r"CheckpointManager",
        r":SaveV2$", r"MergeV2", r"(?i:orbax)", r"ShardedFilename",
        r":Write\w*Summary$", r"^Write\w*Summary", r"FlushSummary", r"SummaryWriter",
        r"^\$(?:saver|saving\w*)\.py:\d+ _?(?:save|restore)", r"^\$event_file_writer\.py:\d+ ",
    )),
    # Waiting for the device.
    (Kind.SYNC, (
        r"^(?:cu|hip|cuda)\w*Synchronize", r"^(?:cu|hip|cuda)Memcpy(?!\w*Async)\w*$", r"Buffer::Await",
        r"BlockHostUntil", r"BlockUntilReady", r"block_until_ready", r"try_to_block", r"AwaitReady",
        r"TensorHandle::(?:CopyToDevice|Resolve|WaitReady)", r"TFE_TensorHandleResolve", r"::ToLiteral",
        r"CopyRawToHost", r"_single_device_array_to_np_array",
        r"^np\.asarray\(jax\.Array\)", r"^\$\S+\.py:\d+ (?:numpy|item)$",
    )),
    # Calls in which a thread waits while others execute for it.
    (Kind.WAIT, (
        r"^(?:FunctionRun|EagerExecute|EagerLocalExecute|EagerKernelExecute)\b", r"^KernelAndDeviceFunc",
        r"^TFE_Py_", r"^ProcessFunctionLibraryRuntime", r"^RemoteCallOp", r"^ExecutorState::Process",
        r"^ExecutorDoneCallback",
        r"^\$(?:polymorphic_function|def_function|tracing_compilation|concrete_function)\.py:",
        r"^\$(?:atomic_function|function_type\w*|execute|trainer|training)\.py:",
    )),
    # Python frames: the interpreter's own and the helpers of the frameworks say nothing ...
    (Kind.NEUTRAL, (
        r"^overhead: ",
        r"^\$(?:builtins|<unknown>|_operator|_functools|_abc|_thread|numpy|jaxlib[.\w]*|tensorflow[.\w]*) ",
        r"^\$(?:abc|enum|functools|contextlib|typing|weakref|collections|threading)\.py:",
        r"^\$(?:traceback_utils|util|tree_util|api_util|profiler|dtypes|core|array|literals|mesh|config)\.py:",
        r"^\$(?:abstract_arrays|scalar_types|\w*sharding\w*|linear_util|source_info_util|fromnumeric)\.py:",
        r"^\$(?:context|ops|func_graph|tensor_shape|nest|nest_util|tensor_conversion\w*)\.py:",
    )),
    # ... their dispatch is launching, and any other file is the user's code.
    (Kind.LAUNCH, (
        r"^\$(?:dispatch|pjit|pxla|xla|api|lax|array_methods|array_creation|ufuncs|\w+_ops|cpp_\w+)\.py:",
    )),
    (Kind.HOST_OTHER, (r"^\$",)),
    # Launching and the framework work around it.
    (Kind.LAUNCH, (
        r"^(?:cu|hip|cuda)\w*(?:Launch|Memcpy|Memset|Graph|Event|Stream|Ctx|Func|Module|OccupancyM)\w*",
        r"^ExecutorPropagateOutputs", r"^PjitFunction", r"^(?:CommonPjRt|PjRt|TfrtGpu|PJRT_)\w*", r"^Execut",
        r"^(?:ThunkExecutor|GpuExecutable|SequentialThunk|CommandBuffer|KernelThunk|LocalExecutable)",
        r"^(?:EnqueueExecution|ParseArguments|BufferFromHost|ShardArgs|ComputeSemaphore|CheckAndPin)",
        r"^(?:StreamExecutor|DevicePut|NcclLaunch|ncclGroup|Nccl|RunCallback)",
        # name:OpType of a framework op
        r"^[\w./\-]+(?::\w+)+$", r"^[\w./\-]+/_\d+:_\w+$",
    )),
)  # fmt: skip
_PATTERNS, _TORCH_FRAMES, _TORCH_NAMES = (
    tuple((Kind(kind), re.compile("|".join(f"(?:{pattern})" for pattern in patterns))) for kind, patterns in table)
    for table in (
        _TABLE,
        *([(Kind[kind], patterns) for kind, patterns in table] for table in (torch.FRAMES, torch.NAMES)),
    )
)


def kind_of(name: str, launches: bool = False) -> Kind:
    """Meaning of a host event; ``launches``: the event carries a correlation id, so it called the device."""
    short = name[:_MAX_NAME]
    if torch.FRAME.match(short):
        return next((kind for kind, pattern in _TORCH_FRAMES if pattern.search(short)), Kind.UNKNOWN_NAME)
    for kind, pattern in _TORCH_NAMES:
        if pattern.search(short):
            return kind
    for kind, pattern in _PATTERNS:
        if pattern.search(short):
            return kind
    return Kind.LAUNCH if launches else Kind.UNKNOWN_NAME


def is_loading(name: str) -> bool:
    """Whether the event brings code to the GPU when it is first needed (modules, graphs), which happens once."""
    return bool(LOADING.search(name[:_MAX_NAME]))


def is_blocking_input(name: str) -> bool:
    """Whether the event is a fetch that the step waits for."""
    return bool(_BLOCKING_INPUT.search(name[:_MAX_NAME]))
