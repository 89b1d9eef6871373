"""Kernel time by scope and op, against sums over the ops' prefixes."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.analysis.kernel_tree import MAX_DEPTH, kernel_tree, largest, op_path
from tests.diagnosis.build import kernel


@pytest.mark.parametrize(
    ("op", "path"),
    [
        ("model/dense/MatMul:MatMul", ("model", "dense", "MatMul")),
        ("model/dense/MatMul_1:MatMul", ("model", "dense", "MatMul_1")),
        ("model/drop/GreaterEqual:Cast", ("model", "drop", "GreaterEqual (Cast)")),
        ("jit(f)/jvp(bsd,de->bse)/dot_general", ("jit(f)", "jvp(bsd,de->bse)", "dot_general")),
        ("jit(f)/transpose(jvp(a/b))/add", ("jit(f)", "transpose(jvp(a/b))", "add")),
        ("aten::mm", ("aten::mm",)),
        ("torch::autograd::CppNode<Split/Op>", ("torch::autograd::CppNode<Split/Op>",)),
        ("", ("",)),
        ("//a//b/", ("a", "b")),
        ("a)b/c", ("a)b", "c")),
        ("a(b/c", ("a(b/c",)),
        (":MatMul", (":MatMul",)),
        ("x:", ("x:",)),
    ],
)
def test_paths(op: str, path: tuple[str, ...]) -> None:
    assert op_path(op) == path


@given(st.text(alphabet="ab/:()<>-", max_size=200))
def test_any_name_is_a_path(op: str) -> None:
    path = op_path(op)
    assert 1 <= len(path) <= MAX_DEPTH and (path == ("",) or all(path))


def test_endless_names_end() -> None:
    assert len(op_path("a/" * 100_000)) == MAX_DEPTH
    assert len(op_path("(" * 100_000)) == 1


OPS = st.sampled_from(["m/a/X:X", "m/a/Y:Y", "m/b/X:X", "m/a", "z", "", "m/a/X:Z"])
TIMES = st.lists(
    st.tuples(st.sampled_from(["k1", "k2"]), st.sampled_from([0.5, None]), OPS, st.integers(1, 9), st.integers(0, 99)),
    max_size=40,
)


@given(TIMES)
def test_every_level_sums_up_what_lies_below(times: list[tuple[str, float | None, str, int, int]]) -> None:
    rows: list[tuple[KernelRow, str, int, int]] = [
        (kernel(name, occupancy=occupancy), op, calls, total) for name, occupancy, op, calls, total in times
    ]
    expected: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for row, op, calls, total in rows:
        path = (*op_path(op), f"kernel {row.name}")
        for depth in range(1, len(path) + 1):
            # an op and a scope of one name are two nodes
            kind = "kernel" if depth == len(path) else "op" if depth == len(path) - 1 else "scope"
            sums = expected[(*path[:depth], kind)]
            sums[0] += total
            sums[1] += calls
            if row.occupancy is not None:
                sums[2] += row.occupancy * total
                sums[3] += total
    root = kernel_tree(rows)
    nodes, truncated = largest(root, 1000)
    assert not truncated
    paths: list[tuple[str, ...]] = []
    for parent, node in nodes:
        assert parent < len(paths)
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, f"kernel {node.name}" if node.kind == "kernel" else node.name))
        total, calls, weighted, known = expected.pop((*paths[-1], node.kind))
        assert (node.total_ps, node.calls) == (total, calls)
        assert node.mean("occupancy") == (pytest.approx(weighted / known) if known else None)
        assert node.kind != "kernel" or node.row is not None
    assert not expected
    assert root.total_ps == sum(total for *_, total in times)


@given(TIMES, st.integers(0, 12))
def test_the_longest_are_kept_with_all_above_them(
    times: list[tuple[str, float | None, str, int, int]], most: int
) -> None:
    root = kernel_tree((kernel(name), op, calls, total) for name, _, op, calls, total in times)
    everything, _ = largest(root, 1000)
    kept, truncated = largest(root, most)
    assert len(kept) == min(most, len(everything)) and truncated == (len(everything) > most)
    left_out = {id(node) for _, node in everything} - {id(node) for _, node in kept}
    shortest = min((node.total_ps for _, node in kept), default=0)
    assert all(node.total_ps <= shortest for _, node in everything if id(node) in left_out) or not kept
    siblings = defaultdict(list)
    for parent, node in kept:
        siblings[parent].append(node.total_ps)
    assert all(times == sorted(times, reverse=True) for times in siblings.values())
