"""Lines that many threads share: no more than there may be, none used by two."""

from __future__ import annotations

import threading
import time

import pytest

from tb_gpu_doctor.files.lines import Lines


class Line:
    def __init__(self) -> None:
        self.users = 0


def use(lines: Lines, times: int = 20) -> tuple[set[Line], bool]:
    """The lines that ten threads got, and whether ever two had one."""
    seen: set[Line] = set()
    shared: list[Line] = []

    def work() -> None:
        for _ in range(times):
            with lines.one(10) as line:
                line.users += 1
                time.sleep(0.001)
                if line.users != 1:
                    shared.append(line)
                line.users -= 1
                seen.add(line)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return seen, bool(shared)


@pytest.mark.parametrize("most", [1, 3])
def test_no_line_has_two_users(most: int) -> None:
    first = Line()
    seen, shared = use(Lines(first, most, lambda _: Line()))
    assert len(seen) == most and first in seen and not shared


def test_a_server_that_allows_no_more() -> None:
    def refuse(_first: object) -> object:
        raise OSError("too many")

    first = Line()
    assert use(Lines(first, 4, refuse)) == ({first}, False)


def test_a_backend_for_many_threads_is_given_to_all() -> None:
    lines = Lines("backend", None, lambda _: None)
    with lines.one(1) as one, lines.one(1) as other:
        assert one == other == "backend"


def test_waiting_for_a_line_ends() -> None:
    lines = Lines("line", 1, lambda _: None)
    with lines.one(1), pytest.raises(TimeoutError), lines.one(0.1):
        pass
    with lines.one(1) as line:
        assert line == "line"
