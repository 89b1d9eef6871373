"""PyTorch's (Kineto's) trace events: which ones are what, and what their arguments say. Tables are data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from tb_gpu_doctor.traces import classify, kineto_categories
from tb_gpu_doctor.traces.columns import CopyKind, EventClass
from tb_gpu_doctor.traces.json_document import Event, parse_all_args, parse_args, whole

KERNEL, COPY, MEMSET = kineto_categories.KERNEL, kineto_categories.COPY, kineto_categories.MEMSET
OPERATOR, CALL, FRAME = kineto_categories.OPERATOR, kineto_categories.CALL, kineto_categories.FRAME
MARK, OVERHEAD = kineto_categories.MARK, kineto_categories.OVERHEAD
DEVICE_CATEGORIES, HOST_CATEGORIES = kineto_categories.DEVICE_CATEGORIES, kineto_categories.HOST_CATEGORIES
RECORDING_CATEGORY = kineto_categories.RECORDING_CATEGORY

# What an event is, as a number: the index.
KINDS = ("", OPERATOR, CALL, FRAME, MARK, KERNEL, COPY, MEMSET, RECORDING_CATEGORY, OVERHEAD)

STEP = re.compile(r"^ProfilerStep#(\d{1,15})$")
STEP_NAME = "ProfilerStep"
# Events around operators that are none.
NO_OPERATOR = ("ProfilerStep", "Optimizer.", "enumerate(", "autograd::engine::", "DistributedDataParallel", "##")
_PINNED = re.compile(r"\bPinned\b", re.IGNORECASE)
_PAGEABLE = re.compile(r"\bPageable\b", re.IGNORECASE)
_MAX_TEXT = 4096
# GPUs of one process; a larger number is garbage.
MAX_DEVICES = 1024
MAX_SMS = 4096


class _DeviceArgs(msgspec.Struct, gc=False):
    """Arguments of device events; any of them may be absent or odd."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    achieved: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    warps_per_sm: Any = msgspec.field(default=None, name="warps per SM")
    graph: Any = msgspec.field(default=None, name="graph id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    dtype: Any = None
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    group_size: Any = msgspec.field(default=None, name="Group size")
    process_group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")


class _CallArgs(msgspec.Struct, gc=False):
    """Arguments of driver and runtime calls; AMD's say what the kernel's own event does not."""

    correlation: Any = None
    size: Any = None
    grid: Any = None
    block: Any = None
    shared: Any = msgspec.field(default=None, name="shared memory")


_Whole = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Sizes = tuple[_Whole | None, _Whole | None, _Whole | None] | None
_Number = int | float | None


class UsualDeviceArgs(msgspec.Struct, gc=False):
    """The same with the types that they have nearly always; what differs is read as `_DeviceArgs`."""

    device: Annotated[int, msgspec.Meta(ge=0, lt=MAX_DEVICES)]
    stream: int | str
    correlation: _Whole = -1
    bytes: _Whole = -1
    grid: _Sizes = None
    block: _Sizes = None
    registers: _Whole | None = msgspec.field(default=None, name="registers per thread")
    shared: _Whole | None = msgspec.field(default=None, name="shared memory")
    achieved: _Number = msgspec.field(default=None, name="est. achieved occupancy %")
    blocks_per_sm: _Number = msgspec.field(default=None, name="blocks per SM")
    warps_per_sm: _Number = msgspec.field(default=None, name="warps per SM")
    graph: _Whole = msgspec.field(default=-1, name="graph id")
    collective: str | None = msgspec.field(default=None, name="Collective name")


class _UsualCallArgs(msgspec.Struct, gc=False):
    """Arguments of a call that says no more than its correlation."""

    correlation: _Whole
    size: None = None
    grid: None = None
    block: None = None
    shared: None = msgspec.field(default=None, name="shared memory")


_USUAL_DEVICE_DECODER = msgspec.json.Decoder(UsualDeviceArgs)
_USUAL_DEVICES_DECODER = msgspec.json.Decoder(list[UsualDeviceArgs])
_USUAL_CALL_DECODER = msgspec.json.Decoder(_UsualCallArgs)
_USUAL_CALLS_DECODER = msgspec.json.Decoder(list[_UsualCallArgs])
_DEVICE_DECODER = msgspec.json.Decoder(_DeviceArgs)
_CALL_DECODER = msgspec.json.Decoder(_CallArgs)
_NO_DEVICE_ARGS, _NO_CALL_ARGS = _DeviceArgs(), _CallArgs()
# What `launch_facts` needs of `UsualDeviceArgs`.
SHAPE = ("registers", "shared", "grid", "block", "achieved", "blocks_per_sm", "warps_per_sm")
_NUMBERS = ("in_elements", "out_elements", "group_size")
_TEXTS = ("collective", "dtype", "process_group", "group_ranks")


class LaunchFacts(NamedTuple):
    """What the shape of a launch tells, and more where ``odd``; None and empty where it does not."""

    details: str | None
    numbers: dict[str, int]
    texts: dict[str, str]
    sm_count: int = -1


class Said(NamedTuple):
    """What a call of the driver says of the work besides its correlation; -1 and None where it does not."""

    size: int
    details: str | None


_NOTHING: dict[str, Any] = {}


def kinds_of(events: Sequence[Event]) -> NDArray[np.uint8]:
    """What each event is, by its category: index into `KINDS`."""
    codes = _Kinds()
    return np.frombuffer(bytes(map(codes.__getitem__, [event.cat for event in events])), np.uint8)


class _Kinds(dict[str | None, int]):
    """Index into `KINDS` by category; 0 for those that nothing is read from."""

    def __missing__(self, category: str | None) -> int:
        low = (category or "").lower()
        role = HOST_CATEGORIES.get(low) or DEVICE_CATEGORIES.get(low) or (low if low == RECORDING_CATEGORY else "")
        code = self[category] = KINDS.index(role)
        return code


def device_args(events: Sequence[Event]) -> tuple[list[UsualDeviceArgs], dict[int, LaunchFacts]]:
    """Read the arguments of kernels, copies and memsets.

    Returns:
        those of each event; its ``device`` is -1 where neither arguments nor process tell it: such an event cannot
        be used. And by index what `launch_facts` cannot tell: of events with odd arguments, of collectives.
    """
    usual = parse_all_args(_USUAL_DEVICES_DECODER, _USUAL_DEVICE_DECODER, [event.args for event in events])
    odd: dict[int, LaunchFacts] = {}
    for at in [at for at, args in enumerate(usual) if args is None or args.collective is not None]:
        usual[at], odd[at] = odd_device_args(events[at])
    return cast(list[UsualDeviceArgs], usual), odd


def launch_facts(
    registers: Any, shared: Any, grid: Any, block: Any, achieved: Any, blocks_per_sm: Any, warps_per_sm: Any
) -> LaunchFacts:
    """What the arguments that a launch has in each step tell: details, occupancy, multiprocessors."""
    sizes = [None if three is None else list(three) for three in (grid, block)]
    percent = _percent(achieved)
    numbers = {"achieved_occupancy_pct": percent} if percent >= 0 else _NOTHING
    args = _DeviceArgs(grid=sizes[0], block=sizes[1], blocks_per_sm=blocks_per_sm, warps_per_sm=warps_per_sm)
    return LaunchFacts(_details(registers, shared, *sizes), numbers, _NOTHING, _sm_count(args))


def odd_device_args(event: Event) -> tuple[UsualDeviceArgs, LaunchFacts]:
    """As `device_args` of one event, whatever the types are; of collectives too."""
    args = parse_args(_DEVICE_DECODER, event.args) or _NO_DEVICE_ARGS
    device = whole(args.device)
    if device < 0:
        device = whole(event.pid)
    numbers, texts = _NOTHING, _NOTHING
    achieved = _percent(args.achieved)
    if achieved >= 0:
        numbers = {"achieved_occupancy_pct": achieved}
    if args.collective is not None:
        numbers = numbers | {name: value for name in _NUMBERS if (value := whole(getattr(args, name))) >= 0}
        texts = {name: text for name in _TEXTS if (text := _text(getattr(args, name)))}
    plain = UsualDeviceArgs(
        device=device if device < MAX_DEVICES else -1,
        # what is no name of a stream is none of a thread's either
        stream=args.stream if isinstance(args.stream, int | str) else event.tid,  # type: ignore[arg-type]
        correlation=whole(args.correlation),
        bytes=whole(args.bytes),
        graph=whole(args.graph),
    )
    return plain, LaunchFacts(
        _details(args.registers, args.shared, args.grid, args.block), numbers, texts, _sm_count(args)
    )


def call_facts(events: Sequence[Event]) -> tuple[list[int], dict[int, Said]]:
    """The correlations of driver and runtime calls, -1 for none, and by index what the odd ones say besides."""
    usual = parse_all_args(_USUAL_CALLS_DECODER, _USUAL_CALL_DECODER, [event.args for event in events])
    odd = {at: odd_call_facts(events[at]) for at, args in enumerate(usual) if args is None}
    correlations = [odd[at][0] if args is None else args.correlation for at, args in enumerate(usual)]
    return correlations, {at: said for at, (_, said) in odd.items()}


def odd_call_facts(event: Event) -> tuple[int, Said]:
    """As `call_facts` of one event, whatever the types are; of calls that say more too."""
    args = parse_args(_CALL_DECODER, event.args) or _NO_CALL_ARGS
    return whole(args.correlation), Said(whole(args.size), _details(None, args.shared, args.grid, args.block))


@lru_cache(maxsize=16384)
def device_class(role: str, name: str) -> tuple[EventClass, CopyKind]:
    """Class of a device event and direction of a copy."""
    if role == COPY:
        kind = classify.copy_kind(name, "")
        return classify.copy_class(kind), kind
    if role == MEMSET:
        return EventClass.MEMSET, CopyKind.NONE
    return (EventClass.COMMUNICATION if classify.is_collective(name, "") else EventClass.COMPUTE), CopyKind.NONE


@lru_cache(maxsize=256)
def host_memory(name: str) -> int:
    """Host memory of a copy, by ``Memcpy HtoD (Pageable -> Device)``: 1 pageable, 0 page-locked, -1 unknown."""
    short = name[:256]
    return 1 if _PAGEABLE.search(short) else 0 if _PINNED.search(short) else -1


def is_async_copy(call: str) -> int:
    """Whether a copy's call returns before the copy is done, by its name: 1, 0, or -1 for what is no copy call."""
    if "emcpy" not in call[:256]:
        return -1
    return 1 if "Async" in call[:256] else 0


def _percent(value: Any) -> int:
    """A percentage in whole ones, -1 for none; 0 as well, which also stands for "could not be computed"."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        return -1
    return round(value)


def _sm_count(args: _DeviceArgs) -> int:
    """Multiprocessors of the GPU, by the blocks (in old files: the warps) of the grid on each of them; -1 unknown."""
    axes = [sizes for sizes in (args.grid, args.block) if isinstance(sizes, list) and len(sizes) == 3]
    sizes = [whole(size) for three in axes for size in three]
    if len(sizes) != 6 or min(sizes) < 1:
        return -1
    blocks, threads = sizes[0] * sizes[1] * sizes[2], sizes[3] * sizes[4] * sizes[5]
    per_sm, total = args.blocks_per_sm, float(blocks)
    if per_sm is None:
        per_sm, total = args.warps_per_sm, blocks * threads / 32
    if isinstance(per_sm, bool) or not isinstance(per_sm, int | float) or not per_sm > 0:
        return -1
    count = total / per_sm
    near = round(count) if count < MAX_SMS else 0
    # written with seven digits: anything else is no count
    return near if near > 0 and abs(count - near) < 1e-4 * near else -1


def _details(registers: Any, shared: Any, grid: Any, block: Any) -> str | None:
    """Launch facts as ``kernel_details`` text, in the dialect whose shared memory is the total."""
    if registers is shared is grid is block is None:
        return None
    words = []
    if (value := whole(registers)) >= 0:
        words.append(f"regs:{value}")
    if (value := whole(shared)) >= 0:
        words.append(f"shm:{value}")
    for key, sizes in (("grid", grid), ("block", block)):
        if isinstance(sizes, list) and len(sizes) == 3 and min(numbers := [whole(size) for size in sizes]) >= 0:
            words.append(f"{key}:{numbers[0]},{numbers[1]},{numbers[2]}")
    return " ".join(words) if words else None


def _text(value: Any) -> str:
    return str(value)[:_MAX_TEXT] if isinstance(value, str | int) else ""
