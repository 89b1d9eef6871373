"""The fuzzer of the JSON readers: repeatable, and it notices what it is there to notice."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fuzz import fuzz_json
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.columns import Trace
from tb_gpu_doctor.traces.trace_json import read_trace_json
from tests.traces.json_writing import write


def kinds(count: int, seed: int) -> Counter[str]:
    documents = [json.dumps(fuzz_json.kineto_document()), json.dumps(fuzz_json.tf_document())]
    return Counter(fuzz_json.make_input(Random(seed + i), documents)[0] for i in range(count))


@pytest.mark.slow
def test_damaged_files_end_in_traces_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "alarm", lambda _seconds: 0)
    first = fuzz_json.run(60, seed=7, most=120)
    assert first.total() == 120 and first["trace"] > 20
    assert set(first) - {"trace"} >= {"malformed", "not_trace_json"}
    assert fuzz_json.run(60, seed=7, most=40) == fuzz_json.run(60, seed=7, most=40), "the same inputs each time"


@pytest.mark.slow
def test_every_kind_of_damage_is_done() -> None:
    done = kinds(400, seed=1)
    names = {name.removesuffix(", packed") for name in done}
    assert names - {"bomb"} == {damage.__name__ for damage in fuzz_json.DAMAGES}


def test_the_files_to_begin_with_are_whole(tmp_path: Path) -> None:
    kineto = read_trace_json(write(tmp_path / "a.pt.trace.json", fuzz_json.kineto_document()))
    export = read_trace_json(write(tmp_path / "b.trace.json", fuzz_json.tf_document()))
    assert (kineto.format, export.format) == ("kineto", "trace_json") and kineto.notes == export.notes == ()
    for trace in (kineto, export):
        assert len(trace.device_events) and len(trace.host_events)
        fuzz_json.check_trace(trace)


def test_a_bomb_is_one(tmp_path: Path) -> None:
    content = fuzz_json.bomb(Random(3))
    assert len(content) < 2_000_000
    path = tmp_path / "bomb.pt.trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as error:
        read_trace_json(str(path))
    assert error.value.code in ("gzip_bomb", "malformed", "cut_off", "not_trace_json")


def test_what_breaks_is_kept_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: str) -> Trace:
        raise KeyError(path)

    monkeypatch.setattr(fuzz_json, "read_trace_json", broken)
    monkeypatch.setattr(fuzz_json, "HERE", tmp_path)
    with pytest.raises(KeyError):
        fuzz_json.run(10, seed=5, most=3)
    (kept,) = tmp_path.iterdir()
    assert kept.name == "crash-5-1.json" and str(kept) in capsys.readouterr().err
    monkeypatch.undo()
    assert fuzz_json.try_input(kept.read_bytes(), tmp_path)


@pytest.mark.parametrize("column", ["duration", "name", "stream"])
def test_a_broken_promise_is_noticed(tmp_path: Path, column: str) -> None:
    trace = read_trace_json(write(tmp_path / "a.pt.trace.json", fuzz_json.kineto_document()))
    values = getattr(trace.device_events, column).copy()
    values[3] = -5 if column == "duration" else 10**6
    events = dataclasses.replace(trace.device_events, **{column: values})
    with pytest.raises(fuzz_json.Failure):
        fuzz_json.check_trace(dataclasses.replace(trace, device_events=events))
    assert np.array_equal(trace.device_events.start, np.sort(trace.device_events.start))
