"""``gpu-doctor kernels`` as its users call it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from simulator.xplane_writer import Space
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.report.kernel_report import CSV_HEAD
from tests.cli.profiles import MS, session_file, training, write


@pytest.fixture
def low(demo_logs: Path) -> str:
    path = demo_logs / "low_occupancy"
    if not path.is_dir():
        pytest.fail("demo_logs/low_occupancy not present: run make demo-logs")
    return str(path)


def test_the_table_shows_what_limits_each(low: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", low, "--top", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "limited by" in out[0] and "tensor cores" in out[0]
    assert "registers" in out[1] and out[1].endswith("loop_advect_stencil_fusion") and "13%" in out[1]
    assert "shared memory" in out[3]
    assert "more kernels" in out[4]
    assert any(line.startswith("gpu-node-0:1:") and "multiprocessors" in line for line in out)


def test_both_languages(low: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", low, "--lang", "es"]) == 0
    assert "limitada por" in capsys.readouterr().out


def test_csv_and_json_hold_all_kernels(low: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", low, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main(["kernels", low, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert tuple(rows[0]) == CSV_HEAD and len(rows) == len(data["kernels"]) > 20
    assert [row["name"] for row in rows] == [kernel["name"] for kernel in data["kernels"]]
    assert all(kernel["devices"] == [0, 1] for kernel in data["kernels"]) and "grid_scaling" not in data
    assert main(["kernels", low, "--csv", "--by", "gpu", "--top", "5"]) == 0
    per_gpu = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [len(row["gpus"].split()) for row in per_gpu] == [1] * 5


@pytest.mark.slow
def test_two_batch_sizes(low: str, capsys: pytest.CaptureFixture[str]) -> None:
    compare = ["kernels", low, "--batch-size", "4", "--compare", low, "--compare-batch-size", "8"]
    assert main(compare) == 0
    out = capsys.readouterr().out
    assert "Blocks at a batch of 4 and of 8" in out and "fixed" in out
    assert "this grid does not grow with the batch" in out
    assert main([*compare, "--json"]) == 0
    scaling = json.loads(capsys.readouterr().out)["grid_scaling"]
    assert {entry["scales"] for entry in scaling} == {False}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--top", "0"], "--top"),
        (["--top", "x"], "--top"),
        (["--csv", "--json"], "cannot be combined with"),
        (["--batch-size", "4"], "belong together"),
        (["--compare", "."], "belong together"),
        (["--batch-size", "4", "--compare", ".", "--compare-batch-size", "4"], "equal"),
        (["--batch-size", "-4", "--compare", ".", "--compare-batch-size", "4"], "--batch-size"),
        (["--by", "stream"], "stream"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    low: str, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["kernels", low, *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_other_gpus_cannot_be_compared(low: str, demo_logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(demo_logs / "launch_bound")
    assert main(["kernels", low, "--batch-size", "1", "--compare", other, "--compare-batch-size", "2"]) == 2
    assert "A100" in capsys.readouterr().err


def test_a_profile_without_gpu_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(training(0), session_file(tmp_path))
    assert main(["kernels", str(tmp_path)]) == 0
    assert "no kernel" in capsys.readouterr().out
    assert main(["kernels", str(tmp_path), "--csv"]) == 0
    assert capsys.readouterr().out.strip() == ",".join(CSV_HEAD)


def test_nothing_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_names_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(training(kernel="\x1b[31m[bold]k\x07"), session_file(tmp_path))
    assert main(["kernels", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "[bold]k" in out


def test_a_recorded_occupancy_that_differs_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = Space()
    stats = {"compute_cap_major": 9, "compute_cap_minor": 0, "core_count": 132, "device_vendor": "Nvidia"}
    line = space.plane("/device:GPU:0", 1, stats).line(7, "Stream #7(Compute)")
    for name, percent in (("as_recorded", 100), ("otherwise", 40)):
        details = f"regs:32 static_shared:0 dynamic_shared:0 grid:4,1,1 block:256,1,1 occ_pct:{percent}"
        line.event(name, len(name) * MS, MS, {"kernel_details": details})
    write(space, session_file(tmp_path))
    assert main(["kernels", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in out if "100%*" in line] == ["otherwise"]
    assert any(line.startswith("* The profile itself") for line in out)


def test_what_was_read_once_is_remembered(
    demo_logs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_DOCTOR_CACHE_DIR", str(tmp_path))
    assert main(["kernels", str(demo_logs / "low_occupancy")]) == 0
    first = capsys.readouterr().out

    def read_again(*_: object) -> None:
        raise AssertionError("a file is read again")

    monkeypatch.setattr("tb_gpu_doctor.parallel.many_files.read_files", read_again)
    assert main(["kernels", str(demo_logs / "low_occupancy")]) == 0
    assert capsys.readouterr().out == first
    assert main(["diagnose", str(demo_logs / "low_occupancy")]) == 0, "its answer is remembered with it"
