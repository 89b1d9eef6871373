"""Read an XSpace file and decode its planes, one thread for each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.wire import RawPlane, decode_plane
from tb_gpu_doctor.traces.xspace import SpaceItem, walk


def decoded_items(path: str) -> Iterator[tuple[SpaceItem, RawPlane | ProfileError | None]]:
    """The file's items with their planes decoded (or why not; None for texts), one behind the reader.

    The compiled decoder leaves Python to others while it works, so one plane is decoded while the next
    is read and the last one is classified and sorted. Only decoding has a thread of its own: a read
    that hangs must end with Ctrl+C.
    """
    items = walk(path)
    before: tuple[SpaceItem, Future[RawPlane | ProfileError] | None] | None = None
    broken: ProfileError | None = None
    with ThreadPoolExecutor(1) as side:
        while True:
            try:
                item = next(items, None)
            except ProfileError as error:  # what was read before it comes first
                item, broken = None, error
            coming = None
            if item is not None:
                coming = item, side.submit(_decode, item.data) if item.kind == "plane" else None
            if before is not None:
                yield before[0], before[1].result() if before[1] is not None else None
            before = coming
            if before is None:
                break
    if broken is not None:
        raise broken


def _decode(data: bytes) -> RawPlane | ProfileError:
    try:
        return decode_plane(data)
    except ProfileError as error:
        return error
