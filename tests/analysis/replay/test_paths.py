"""The longest paths, against a plain count over all predecessors until nothing changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.replay.paths import HOST, MEETING, Nodes, follow


def chain(files: list[list[int]], met: list[int], members: list[int]) -> Nodes:
    """One stream a file; the first node of each starts at 0."""
    spans, stream, host, duration = [], [], [], []
    for own in files:
        low = len(stream)
        stream += [-1, *range(low, low + len(own) - 1)]
        host += [-1, *[-2] * (len(own) - 1)]
        duration += own
        spans.append((low, len(stream)))
    zero = [0] * len(stream)
    return Nodes(spans, duration, stream, zero, host, zero, [-1] * len(stream), zero, met, members)


def test_a_stream_is_the_sum_of_its_work() -> None:
    assert follow(chain([[3, 4, 5]], [-1] * 3, [])).end == [3, 7, 12]


def test_who_meets_waits_for_the_last() -> None:
    found = follow(chain([[3, 10], [8, 10]], [-1, 0, -1, 0], [2]))
    assert found.end == [3, 18, 8, 18]
    assert found.by[1] == MEETING and found.last == [3] and not found.forced


def test_what_the_order_does_not_fit_is_told_and_ends() -> None:
    # each file needs the other one's second meeting before its own first
    found = follow(chain([[1, 1, 1], [1, 1, 1]], [0, 1, -1, 1, 0, -1], [2, 2]))
    assert found.forced > 0


@given(st.data())
def test_equals_a_count_until_nothing_changes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 25))
    lag = st.integers(-5, 50)

    def nodes_before(least: int) -> list[int]:
        return [data.draw(st.integers(least, at - 1)) for at in range(count)]

    stream, other, host = nodes_before(-1), nodes_before(-1), nodes_before(-2)
    duration, lags = data.draw(st.lists(st.integers(0, 100), min_size=count, max_size=count)), []
    for _ in range(3):
        lags.append(data.draw(st.lists(lag, min_size=count, max_size=count)))
    host = [-1 if stream[at] < 0 and other[at] < 0 else host[at] for at in range(count)]
    nodes = Nodes(
        [(0, count)], duration, stream, lags[0], host, lags[1], other, lags[2], [-1] * count, []
    )  # fmt: skip
    end = [-(1 << 40)] * count
    for _ in range(count):
        for at in range(count):
            starts = [end[b] + lags[i][at] for i, b in ((0, stream[at]), (1, host[at]), (2, other[at])) if b >= 0]
            starts += [lags[1][at]] if host[at] == -1 else []
            end[at] = max(starts) + duration[at]
    found = follow(nodes)
    assert found.end == end
    assert all(why != HOST or host[at] > -2 for at, why in enumerate(found.by))
