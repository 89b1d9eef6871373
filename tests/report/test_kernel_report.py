"""The kernels of a session as one list: sums over GPUs, and CSV that no name can spoil."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.analysis.kernel_results import KernelRow
from tb_gpu_doctor.report.kernel_report import CSV_HEAD, ListedGpu, as_dict, csv_lines, kernel_list, over_gpus
from tb_gpu_doctor.traces.columns import Device
from tests.diagnosis.build import kernel

GPUS = [ListedGpu(host, Device(index, host, index, "H100", "NVIDIA", 132)) for host in "ab" for index in range(2)]


def listed(*rows: KernelRow) -> list[object]:
    devices = [gpu.device for gpu in GPUS[:2]]
    tables = [[replace(row, device=row.device % 2) for row in rows if row.device // 2 == host] for host in range(2)]
    return kernel_list([(devices, table) for table in tables])


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.integers(1, 99), st.sampled_from([32, 64])),
        max_size=20,
    )
)
def test_sums_over_gpus(given_rows: list[tuple[str, int, int, int]]) -> None:
    rows = [replace(kernel(name, gpu, in_window_ms=ms), registers=r) for name, gpu, ms, r in given_rows]
    kernels = listed(*rows)
    together = over_gpus(kernels, GPUS)
    assert sum(k.row.total_ps for k in together) == sum(row.total_ps for row in rows)
    assert len({(k.row.name, k.row.registers) for k in together}) == len(together)
    for entry in together:
        same = [r for r in rows if (r.name, r.registers) == (entry.row.name, entry.row.registers)]
        assert entry.row.calls == sum(r.calls for r in same)
        assert entry.row.total_ps == sum(r.total_ps for r in same)
        assert set(entry.gpus) == {r.device for r in same}
        assert entry.row.mean_ps == entry.row.total_ps / entry.row.calls


def test_gpus_of_different_kinds_stay_apart() -> None:
    gpus = [*GPUS[:1], ListedGpu("a", Device(1, "a", 1, "A100", "NVIDIA", 108)), *GPUS[2:]]
    kernels = listed(kernel("k", 0), kernel("k", 1), kernel("k", 2))
    assert sorted(entry.gpus for entry in over_gpus(kernels, gpus)) == [(0, 2), (1,)]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", " =", "\r", "\n+", "＝1"])
def test_no_name_is_a_formula(start: str) -> None:
    name = f'{start}HYPERLINK("http://x","y")'
    (line,) = list(csv_lines(listed(kernel(name)), GPUS))[1:]
    (cells,) = csv.reader(io.StringIO(line, newline=""))
    cell = cells[CSV_HEAD.index("name")]
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert "HYPERLINK" in cell


@given(st.text(), st.text())
def test_any_name_is_one_cell_of_one_line(name: str, op: str) -> None:
    lines = list(csv_lines(listed(replace(kernel(name), op=op)), GPUS))
    assert len(lines) == 2 and all(line.endswith("\r\n") and line.count("\n") == 1 for line in lines)
    head, cells = csv.reader(io.StringIO("".join(lines), newline=""))
    assert tuple(head) == CSV_HEAD and len(cells) == len(head)
    "".join(lines).encode("utf-8", "replace")


def test_every_column_of_the_json_is_in_the_csv() -> None:
    (entry,) = listed(kernel("k", 2))
    data = as_dict(entry)
    assert set(CSV_HEAD) == {*data, "gpus"} - {"device", "devices"}
    (line,) = list(csv_lines([entry], GPUS))[1:]
    (cells,) = csv.reader(io.StringIO(line, newline=""))
    row = dict(zip(CSV_HEAD, cells, strict=True))
    assert (row["gpus"], row["grid"], row["persistent"], row["bound"]) == ("b:0", "20x1x1", "false", "")
    assert float(row["total_ms"]) == data["total_ms"]


def test_no_kernels() -> None:
    assert kernel_list([]) == [] and over_gpus([], []) == []
    assert list(csv_lines([], [])) == [",".join(CSV_HEAD) + "\r\n"]
