"""PyTorch's traces at the command: a diagnosis, or one line on what is wrong with the file."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.cli.test_bad_input import Output, diagnosed, refused
from tests.plugin.test_torch_logdir import training
from tests.traces.json_writing import write

WORDS = {
    "pt.trace.json": (b"", "is empty", "está vacío"),
    "half.pt.trace.json": (json.dumps(training(0, 0)).encode()[:90], "before the first whole event", "primer evento"),
    "other.pt.trace.json": (b'{"nodes": []}', "not a trace of PyTorch's", "no es una traza"),
    "list.json": (b"[1, 2, 3]", "not a trace of PyTorch's", "no es una traza"),
    "damaged.json": (b'{"traceEvents": [}]}', "is damaged", "está dañado"),
    "half.json.gz": (
        gzip.compress(json.dumps(training(0, 0)).encode())[:60],
        "before the first whole event",
        "primer evento",
    ),
    "bomb.json.gz": (gzip.compress(bytes(200 << 20), 1), "far more than any trace", "más que cualquier traza"),
    "logs.tar.gz": (gzip.compress(b"x"), "cannot be read", "no se puede leer"),
}


@pytest.mark.parametrize("name", WORDS)
def test_files_that_are_no_trace(tmp_path: Path, capsys: Output, name: str) -> None:
    content, english, spanish = WORDS[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert english in (said := refused(capsys, "diagnose", path)) and name in said
    assert spanish in refused(capsys, "diagnose", path, "--lang", "es")


def test_a_trace_is_diagnosed(tmp_path: Path, capsys: Output) -> None:
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.pt.trace.json.gz", training(rank, 2000 * rank))
    data = diagnosed(capsys, tmp_path)
    assert data["profile"]["format"] == "kineto" and data["profile"]["hosts"] == ["rank0", "rank1"]
    assert [device["rank"] for device in data["devices"]] == [0, 1]
    assert data["steps"]["count"] == 4


@pytest.mark.slow
def test_bytes_changed_at_random(tmp_path: Path, capsys: Output) -> None:
    good = json.dumps(training(0, 0)).encode()
    chance = random.Random(11)
    path = tmp_path / "rank0.pt.trace.json"
    tokens = (
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"null",
        b"-1",
        b"1e308",
        b"9" * 30,
        b"nan",
        b'"x"',
        b"\x00",
        b"\xff",
        b"",
    )
    for _ in range(60):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(bad))
            bad[at : at + chance.randint(0, 12)] = chance.choice(tokens)
        path.write_bytes(bad)
        status = main(["diagnose", str(path), "--json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and "Unexpected" not in err
        assert (status == 0 and json.loads(out)) or (status == 2 and err.count("\n") == 1)
