"""Trace JSON without names, and slim, read back by the readers."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.packing.json_rewrite import rewrite_json
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.traces.trace_json import read_trace_json
from tests.packing.test_xplane_rewrite import assert_equal_but_for_names

SECRETS = ("zebra", "alice", "acme", "s3cr3t", "/srv/")


def kineto() -> dict[str, Any]:
    """A process that trains a zebra, with names in every place that holds one."""
    events: list[Any] = [
        {"ph": "M", "name": "process_name", "pid": 48211, "tid": 0, "args": {"name": "python zebra_train"}},
        {"ph": "M", "name": "process_labels", "pid": 48211, "tid": 0, "args": {"labels": "alice"}},
        {"ph": "M", "name": "thread_name", "pid": 48211, "tid": 48211, "args": {"name": "thread 48211 (zebra_main)"}},
        {"ph": "M", "name": "process_sort_index", "pid": 48211, "tid": 0, "args": {"sort_index": 48211}},
    ]
    for step in range(5):
        at = 1000.0 * step + 10
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, 900),
            event("python_function", "/srv/alice/zebra_data.py(12): next_batch", at + 1, 90),
            event("python_function", "torch/nn/modules/linear.py(124): forward", at + 100, 90),
            event("cpu_op", "aten::mm", at + 110, 50, {"Call stack": "/srv/alice/zebra.py", "Input Dims": [[2, 3]]}),
            event("cpu_op", "acme::zebra_op", at + 170, 20, {"Concrete Inputs": ["s3cr3t"], "s3cr3t": 1}),
            event("cuda_runtime", "cudaLaunchKernel", at + 120, 5, {"correlation": step + 1, "kernel": "acme_zebra"}),
            event("user_annotation", "## zebra forward ##", at + 100, 300),
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": step + 1, "pid": 48211, "tid": 48211, "ts": at + 121},
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": step + 1, "pid": 0, "tid": 7, "ts": at + 130, "bp": "e"},
            {
                "ph": "X", "cat": "kernel", "name": "acme_zebra_softmax_kernel(float*)", "pid": 0, "tid": 7,
                "ts": at + 130, "dur": 60.5, "args": {"device": 0, "stream": 7, "correlation": step + 1,
                                      "grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 32,
                                      "owner": "alice"},
            },
        ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "trace_name": "/srv/alice/zebra.json",
        "acme_token": "s3cr3t",
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9,
                              "computeMinor": 0, "totalGlobalMem": 85_000_000_000, "owner": "alice"}],
        "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": [{"pg_desc": "alice"}]},
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }  # fmt: skip


def event(category: str, name: str, ts: float, dur: float, args: Any = None) -> dict[str, Any]:
    found = {"ph": "X", "cat": category, "name": name, "pid": 48211, "tid": 48211, "ts": ts, "dur": dur}
    return found | {"args": args} if args is not None else found


def rewritten(path: Path, target: Path, names: Names | None, slim: bool) -> bytes:
    out = io.BytesIO()
    rewrite_json(str(path), out, names, slim)
    target.write_bytes(out.getvalue())
    return gzip.decompress(out.getvalue()) if path.name.endswith(".gz") else out.getvalue()


@pytest.fixture(params=[".json", ".json.gz"])
def trace_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"zebra.pt.trace{request.param}"
    data = json.dumps(kineto()).encode()
    path.write_bytes(gzip.compress(data) if request.param.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("slim", [False, True])
@pytest.mark.parametrize("redact", [False, True])
def test_the_reader_sees_the_same_run(trace_path: Path, tmp_path: Path, redact: bool, slim: bool) -> None:
    target = tmp_path / f"new{''.join(trace_path.suffixes)}"
    names = Names() if redact else None
    content = rewritten(trace_path, target, names, slim)
    before, after = read_trace_json(str(trace_path), "h"), read_trace_json(str(target), "h")
    assert_equal_but_for_names(before, after)
    assert before.rank == after.rank == 1 and before.world_size == after.world_size == 2
    assert after.devices[0].name == "NVIDIA H100 80GB HBM3" and after.devices[0].sm_count == 132
    assert [thread.name for thread in before.threads] != [thread.name for thread in after.threads] or not redact
    if redact:
        assert not [secret for secret in SECRETS if secret.encode() in content]
        assert b"48211" not in content and b"ProfilerStep#3" in content and b"softmax" in content
        assert b"torch/nn/modules/linear.py(124): forward" in content
    if slim:
        found = json.loads(content)
        assert {entry["ph"] for entry in found["traceEvents"]} == {"X", "M"}
        assert all("Input Dims" not in entry.get("args", {}) for entry in found["traceEvents"])


def test_same_input_same_bytes(trace_path: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "1", tmp_path / "2"
    rewritten(trace_path, one, Names(), True)
    rewritten(trace_path, other, Names(), True)
    assert one.read_bytes() == other.read_bytes()


def test_odd_events_are_as_odd_afterwards(tmp_path: Path) -> None:
    content = kineto()
    content["traceEvents"] += [None, 3, "alice", [1], {"ph": 5, "name": ["alice"]}, {"ph": "X", "ts": "zebra"}, {}]
    content["traceEvents"].append({"ph": "X", "cat": "alice", "name": "zebra", "pid": "zebra", "tid": None, "ts": 1})
    path, target = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    path.write_text(json.dumps(content))
    new = rewritten(path, target, Names(), False)
    assert not [secret for secret in SECRETS if secret.encode() in new]
    assert_equal_but_for_names(read_trace_json(str(path), "h"), read_trace_json(str(target), "h"))


def test_what_writers_get_wrong_is_mended_and_other_files_are_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    path.write_bytes(json.dumps(kineto()).replace('"rank": 1', '"rank": nan').encode())
    rewritten(path, target, Names(), True)
    assert read_trace_json(str(target), "h").rank is None
    for data, code in (
        (b"", "empty_file"),
        (b"{", "cut_off"),
        (b"{]", "malformed"),
        (b"[1]", "not_trace_json"),
        (b"{}", "not_trace_json"),
    ):
        path.write_bytes(data)
        with pytest.raises(ProfileError) as caught:
            rewritten(path, target, Names(), True)
        assert caught.value.code == code


def test_a_part_stays_a_part_and_damaged_events_are_mended(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pt.trace.json", tmp_path / "b.pt.trace.json"
    text = json.dumps(kineto()).encode()
    whole = len(read_trace_json(str(_put(path, text)), "h").device_events)
    at = text.rindex(b'"ph"')
    rewritten(_put(path, text[:at]), target, None, False)
    assert "cut_off_part" in {note.code for note in read_trace_json(str(target), "h").notes}
    rewritten(_put(path, text.replace(b'"name": "', b'"name": "\\Users "', 1)), target, Names(), True)
    found = read_trace_json(str(target), "h")
    assert len(found.device_events) == whole and not found.notes


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_an_export_of_tensorflow(tmp_path: Path) -> None:
    gpu, host = {"ph": "M", "name": "process_name", "pid": 1}, {"ph": "M", "name": "process_name", "pid": 701}
    content = {"traceEvents": [
        gpu | {"args": {"name": "/device:GPU:0"}}, host | {"args": {"name": "/host:CPU"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 7, "args": {"name": "Stream #7(Compute)"}},
        {"ph": "M", "name": "thread_name", "pid": 701, "tid": 9, "args": {"name": "alice"}},
        {"ph": "X", "pid": 1, "tid": 7, "ts": 2.5, "dur": 3.25, "name": "zebra_gemm", "args": {
            "tf_op": "acme/MatMul:MatMul", "correlation_id": "4", "kernel_details": "regs:3 grid:1,1,1 block:32,1,1",
            "s3cr3t": "s3cr3t"}},
        {"ph": "X", "pid": 701, "tid": 9, "ts": 1, "dur": 0.5, "name": "cuLaunchKernel",
         "args": {"correlation_id": "4"}},
        {},
    ]}  # fmt: skip
    path, target = tmp_path / "a.trace.json", tmp_path / "b.trace.json"
    path.write_text(json.dumps(content))
    for slim in (False, True):
        new = rewritten(path, target, Names(), slim)
        assert not [secret for secret in SECRETS if secret.encode() in new]
        assert_equal_but_for_names(read_trace_json(str(path), "h"), read_trace_json(str(target), "h"))
