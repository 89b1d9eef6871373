"""What PyTorch's names on the host mean: tables as data, first match wins.

The kinds are named as in `host_names.Kind`. Frames of its Python tracer are written
``torch/nn/modules/linear.py(124): forward`` or ``<built-in method item of Tensor object at 0x..>``.
A frame that no table knows is the user's own: inside a module it prepares launches, elsewhere it is
work of its own; so it stays UNKNOWN_NAME, and what encloses it decides.
"""

from __future__ import annotations

import re

FRAME = re.compile(r"^(?:.+\.py|<[^>]*>)\(\d+\): |^<built-in |^nn\.Module: ")
# The user's own code, as far as a path tells.
USER_FRAME = re.compile(
    r"^(?!(?:torch|triton|numpy|accelerate|lightning|pytorch_lightning|threading|multiprocessing|runpy|contextlib"
    r"|functools|inspect|typing|concurrent|asyncio|logging|tqdm)\b)[^<].*\.py\(\d+\): "
)

_STANDARD = (
    r"^(?:threading|inspect|functools|contextlib|typing|dataclasses|enum|abc|copy|copyreg|runpy|queue|warnings|weakref"
    r"|types|operator|_weakrefset|random|string|re|os|posixpath|genericpath|selectors|socket|traceback|pickle|shutil"
    r"|tempfile|codecs|bdb|pdb|site|argparse|statistics|heapq|bisect|numbers|decimal|uuid|time)\.py\(\d+\): "
    r"|^(?:multiprocessing|collections|logging|concurrent|asyncio|importlib|json|tqdm|numpy|ctypes|unittest|packaging"
    r"|typing_extensions)[/.]"
)

FRAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("INPUT", (
        r"^(?:\S*/)?(?:torch/utils/data|torchdata|webdataset|nvidia/dali|grain|streaming|ffcv)/\S*\.py\(\d+\): "
        r"(?:__next__|next|_next_data|_get_data|_try_get_data|fetch)$",
        r"(?i:^\S*(?:data|input|loader|pipeline)\w*\.py\(\d+\): "
        r"(?:__next__|next|next_batch|get_batch|_next_data|__getitem__)$)",
    )),
    ("CHECKPOINT", (
        r"^torch/serialization\.py\(\d+\): _?(?:legacy_)?(?:save|load)$",
        r"^torch/distributed/checkpoint/", r"^safetensors/\S*\.py\(\d+\): (?:save|load)",
        r"\.py\(\d+\): _?(?:save_checkpoint|load_checkpoint|save_pretrained|save_model|save_weights)$",
        r"^torch/utils/tensorboard/\S*\.py\(\d+\): (?:add_|flush)", r"^tensorboard/summary/writer/",
    )),
    ("COMPILE", (
        r"^torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_transformation|guards)\.py",
        r"^torch/_inductor/(?:compile_fx|graph|scheduler|codegen/\S+|async_compile|lowering|codecache)\.py\(\d+\): "
        r"(?!__call__|run$|call$)",
        r"^torch/_functorch/_aot_autograd/\S+\.py\(\d+\): (?:aot_|create_|dispatch_)",
        r"^torch/export/", r"^torch/jit/_(?:script|trace|recursive)\.py", r"^triton/compiler/",
        r"^torch/utils/cpp_extension\.py",
    )),
    ("SYNC", (
        r"^torch/cuda/(?:__init__|streams)\.py\(\d+\): synchronize$",
        r"^<built-in (?:method|function) (?:item|tolist|cpu|numpy|nonzero|is_nonzero|_?(?:cuda_)?synchronize)\b",
    )),
    # Python's garbage collector (no other built-in is called so), and what stands still until somebody else is done.
    ("HOST_OTHER", (
        r"^<built-in function (?:collect|sleep|select)>$",
        r"^<built-in method (?:acquire|poll|recv|recv_into|select|epoll|sleep|get) of ",
        r"^(?:queue|threading|selectors|subprocess)\.py\(\d+\): "
        r"(?:get|wait|wait_for|acquire|join|_wait_for_tstate_lock|select|communicate|_wait)$",
        r"^(?:multiprocessing/(?:queues|connection|synchronize|pool|process|popen_fork)|concurrent/futures/_base"
        r"|concurrent/futures/thread)\.py\(\d+\): (?:get|recv|recv_bytes|wait|poll|join|acquire|result|shutdown)$",
    )),
    ("NEUTRAL", (
        r"^<built-in ", r"^<(?:frozen|string)", _STANDARD,
        # wrappers around the whole of somebody's program
        r"^torch/utils/_contextlib\.py", r"^torch/distributed/(?:elastic|run|launch)", r"^torch/autograd/grad_mode\.py",
        r"^torch/(?:_jit_internal|profiler/|autograd/profiler|multiprocessing/|_utils\.py|utils/hooks)",
    )),
    ("LAUNCH", (
        r"^nn\.Module: ", r"^torch/", r"^triton/", r"^(?:flash_attn|xformers|flashinfer|apex|transformer_engine)/",
    )),
)  # fmt: skip

NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NEUTRAL", (r"^ProfilerStep",)),
    # Collectives that run on the host keep it until all have come.
    ("HOST_OTHER", (r"^(?:gloo|mpi|ucc):",)),
    ("SYNC", (r"^aten::(?:item|_local_scalar_dense|is_nonzero|nonzero|equal|_unique2?|masked_select)$",)),
    ("COMPILE", (
        r"^[\w.<>:/-]+ \(dynamo_timed\)", r"^(?:entire_frame_compile|compile_fx|inductor_compile)\b",
    )),
    ("LAUNCH", (
        r"^aten::", r"^(?:autograd|torch)::", r"^\w+Backward\d*$", r"^Optimizer\.", r"^(?:nccl|c10d\w*|_c10d\w*):",
        r"^record_param_comms$", r"^DistributedDataParallel\.", r"^FullyShardedDataParallel\.", r"^FSDP::",
        r"^Torch-Compiled Region", r"^TorchDynamo Cache Lookup", r"^## Call CompiledFxGraph", r"^CompiledFunction",
        r"^triton_\w+$",
    )),
)  # fmt: skip
