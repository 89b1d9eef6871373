"""What a device line and a device event are, by the names that profilers give them. Tables are data."""

from __future__ import annotations

import re

from tb_gpu_doctor.traces.columns import CopyKind, EventClass

# Types in `Stream #12(Compute,MemcpyH2D)` that do not say that the device works: an allocation's
# lifetime, page migrations on pseudo-streams, bookkeeping.
NOT_WORK_TYPES = frozenset({"MemoryResidency", "UnifiedMemory", "MemoryAlloc", "MemoryFree"})
# CUPTI reports unified memory on pseudo-streams with ids from here on (base + counter kind).
UNIFIED_MEMORY_LINE_IDS = range(0x10000000, 0x10000000 + 256)

_STREAM = re.compile(r"^Stream #-?\d+(?:\((?P<types>[^)]*)\))?$")

# Kernels of communication libraries, by name in small letters; the one place that lists them.
COMMUNICATION_KERNELS = (
    r"nccl|rccl",  # ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_..
    r"msccl",  # mscclKernel_.., mscclpp::
    r"nvshmem",
    # expert parallelism: deep_ep::intranode::dispatch, mine::ep::internode::combine, pplx's all-to-all
    r"deep_?ep\b|\bep::(?:internode|intranode|internode_ll|low_latency)|\b(?:internode|intranode|internode_ll)::"
    r"(?:dispatch|combine|notify|get_dispatch|cached_notify)",
    r"\bpplx|all_?to_?all_?v?_?(?:dispatch|combine|kernel|intra|inter)|moe_?(?:all_?to_?all|a2a)",
    # all-reduces of serving stacks and frameworks
    r"(?:one|two)_?shot_?all_?reduce|cross_device_reduce|quick_?reduce|custom_?all_?reduce|multimem_all_?reduce",
    r"all_?reduce_?(?:fusion_?)?kernel|all_?reduce_?fusion|lamport_?\w*all_?reduce|ring_exchange",
    r"all_?gather_?kernel|reduce_?scatter_?kernel|\buserbuffers_|symm_?mem\w*_(?:all_reduce|all_gather|reduce_scatter)",
)
_COLLECTIVE_KERNELS = re.compile("|".join(f"(?:{pattern})" for pattern in COMMUNICATION_KERNELS))
# XLA collectives, by hlo_op: `all-reduce.1`, `all-gather-start`, `reduce-scatter-fusion`.
_COLLECTIVE_HLO = re.compile(
    r"(?:^|[.:])(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute"
    r"|collective-broadcast)(?:-start|-done)?(?=$|[.:\d_-])"
)

_COPY_NAMES = (
    (re.compile(r"HtoD|H2D|HostToDevice", re.IGNORECASE), CopyKind.H2D),
    (re.compile(r"DtoH|D2H|DeviceToHost", re.IGNORECASE), CopyKind.D2H),
    (re.compile(r"PtoP|P2P|PeerToPeer|Memcpy(?:2D|3D)?Peer", re.IGNORECASE), CopyKind.P2P),
    (re.compile(r"DtoD|D2D|DeviceToDevice", re.IGNORECASE), CopyKind.D2D),
    (re.compile(r"HtoH|H2H|HostToHost", re.IGNORECASE), CopyKind.H2H),
)
_DETAIL = re.compile(r"(\w+):(\S+)")
_HOST_MEMORY = frozenset({"pageable", "pinned", "host"})
_DEVICE_MEMORY = frozenset({"device", "array", "device_static", "managed", "managed_static"})
_MAX_DETAIL_LENGTH = 1024


def stream_types(line_name: str) -> frozenset[str] | None:
    """Types of a device line that is a stream; None for any other line (derived, overhead, counters)."""
    match = _STREAM.match(line_name)
    if match is None:
        return None
    types = match.group("types")
    return frozenset(part.strip() for part in types.split(",")) if types else frozenset()


def is_work_stream(line_name: str, line_id: int) -> bool:
    """Whether a device line holds work of the device."""
    types = stream_types(line_name)
    if types is None or line_id in UNIFIED_MEMORY_LINE_IDS:
        return False
    return not types or not types <= NOT_WORK_TYPES


def is_collective(kernel_name: str, hlo_op: str) -> bool:
    """Whether a kernel moves data between GPUs."""
    return is_collective_kernel(kernel_name) or is_collective_op(hlo_op)


def is_collective_kernel(name: str) -> bool:
    """Whether a kernel's name says that it moves data between GPUs."""
    return bool(_COLLECTIVE_KERNELS.search(name[:4096].lower()))


def is_collective_op(hlo_op: str) -> bool:
    """Whether XLA's op of a kernel says that it moves data between GPUs."""
    return bool(_COLLECTIVE_HLO.search(hlo_op[:4096]))


def copy_kind(event_name: str, details: str) -> CopyKind:
    """Direction of a copy from its name, else from ``kind_src:… kind_dst:…``."""
    for pattern, kind in _COPY_NAMES:
        if pattern.search(event_name[:256]):
            return kind
    values = detail_values(details)
    for pattern, kind in _COPY_NAMES:
        if pattern.search(values.get("kind", "")):
            return kind
    source, target = values.get("kind_src", ""), values.get("kind_dst", "")
    if source in _HOST_MEMORY and target in _DEVICE_MEMORY:
        return CopyKind.H2D
    if source in _DEVICE_MEMORY and target in _HOST_MEMORY:
        return CopyKind.D2H
    if source in _DEVICE_MEMORY and target in _DEVICE_MEMORY:
        return CopyKind.D2D
    return CopyKind.OTHER


def detail_values(details: str) -> dict[str, str]:
    """``key:value`` pairs of a details stat; long ones are hostile and give nothing."""
    return dict(_DETAIL.findall(details)) if len(details) <= _MAX_DETAIL_LENGTH else {}


def detail_int(values: dict[str, str], *keys: str) -> int:
    """The first of ``keys`` that is a number that fits, else -1."""
    for key in keys:
        text = values.get(key, "")
        if text.isascii() and text.isdigit() and len(text) <= 18:
            return int(text)
    return -1


def host_memory(values: dict[str, str]) -> int:
    """Host memory of a copy by its ``kind_src`` and ``kind_dst``: 1 pageable, 0 page-locked, -1 neither or unknown."""
    ends = (values.get("kind_src", ""), values.get("kind_dst", ""))
    return 1 if "pageable" in ends else 0 if "pinned" in ends else -1


def copy_class(kind: CopyKind) -> EventClass:
    """Copies between GPUs are communication."""
    return EventClass.COMMUNICATION if kind is CopyKind.P2P else EventClass.COPY
