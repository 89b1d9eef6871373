"""A monitor's event files without names, read back by the reader of recordings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tb_gpu_doctor import recording_format as form
from tb_gpu_doctor.metrics import METRICS
from tb_gpu_doctor.monitor.event_file import EventFile, Origin
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.telemetry_rewrite import (
    _header,
    _note,
    append_stacks,
    redacted_file_name,
    redacted_run,
    rewrite_events,
)
from tb_gpu_doctor.telemetry.recordings import read_homes, read_telemetry
from tb_gpu_doctor.traces.telemetry_homes import Home

SECRETS = ("zebra", "alice", "acme", "48211", "abcd-ef01", "s3cr3t", "/srv/")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with names in every place that holds one."""
    folder = tmp_path / "logs" / "gpu_doctor" / "zebra-node" / "process"
    folder.mkdir(parents=True)
    file = EventFile(str(folder), Origin("zebra-node", 48211, lambda: 1_700_000_000_000_000_000), form.FILE_SUFFIX)
    gpu = {"label": "gpu0", "framework_id": 0, "nvml_index": 0, "mig": None, "uuid": "GPU-abcd-ef01",
           "pci_bus_id": "00000000:10:00.0", "name": "NVIDIA H100 80GB HBM3", "limits": {"sm_clock_max_mhz": 1980},
           "run": "gpu_doctor/zebra-node/gpu0", "owner": "alice"}  # fmt: skip
    header = {"version": 1, "host": "zebra-node", "process_id": 48211, "start_ns": 1_700_000_000_000_000_000,
              "interval_s": 1.0, "metrics": [metric.id for metric in METRICS], "gpus": [gpu],
              "run": "gpu_doctor/zebra-node/process", "command": "python /srv/alice/zebra.py"}  # fmt: skip
    records = {
        form.TAG_RECORDING: header,
        form.TAG_SPANS: [["checkpoint", 1, 2, 3, "epoch of zebra"]],
        form.TAG_NOTES: [{"key": "recording.metric_unsupported", "params": {"metric": "fan_percent", "gpus": "gpu0"},
                          "sentence": "alice"}],
        form.TAG_FACTS + "environment": {"memory_growth": True, "paths": ["/srv/alice"], "user": "alice"},
        form.TAG_FACTS + "driver": {"driver_version": "550.54.15", "processes": [{"pid": 48211, "name": "zebra"}]},
        "gpu_doctor/s3cr3t": {"alice": 1},
    }  # fmt: skip
    for tag, content in records.items():
        file.record(tag, json.dumps(content).encode(), 0, 1.7e9)
    wall = 1_700_000_000_000_000_000 + np.arange(5, dtype=np.int64) * 10**9
    values = np.arange(len(METRICS) * 5, dtype=np.float64).reshape(len(METRICS), 1, 5)
    file.record(form.TAG_SAMPLES, form.encode_samples(wall, np.arange(5, dtype=np.int64), values), 0, 1.7e9)
    file.scalars([("training/step_ms", 3.5), ("acme/loss", 1.0)], 4, 1.7e9)
    file.close()
    return Path(file.path)


def test_the_recording_says_the_same_of_nobody(recording: Path, tmp_path: Path) -> None:
    names = Names()
    names.learn_hosts(["zebra-node"])
    target = tmp_path / "new" / "gpu_doctor" / "host1" / "process"
    target.mkdir(parents=True)
    path = target / redacted_file_name(recording.name, names)
    with path.open("wb") as out:
        rewrite_events(str(recording), out, names)
    assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()]
    assert path.name.startswith("events.out.tfevents.1700000000.host1.100001.0") and path.name.endswith(".gpu_doctor")
    before = read_homes([Home("", str(tmp_path / "logs" / "gpu_doctor"))]).telemetry.recordings[0]
    after = read_homes([Home("", str(tmp_path / "new" / "gpu_doctor"))]).telemetry.recordings[0]
    assert (after.host, after.process_id) == ("host1", 100001) and before.host == "zebra-node"
    assert after.memory_growth is before.memory_growth is True
    assert after.notes == before.notes
    assert [(s.kind, s.start_ns, s.end_ns, s.step) for s in after.spans] == [("checkpoint", 1, 2, 3)]
    one, other = before.gpus[0], after.gpus[0]
    assert other.facts.name == one.facts.name and other.facts.limits == one.facts.limits
    assert other.facts.uuid and other.facts.uuid != one.facts.uuid
    assert other.run == "gpu_doctor/host1/gpu0"
    assert one.values.keys() == other.values.keys()
    assert all(np.array_equal(one.values[key], other.values[key], equal_nan=True) for key in one.values)
    assert b"training/step_ms" in path.read_bytes() and b"loss" not in path.read_bytes()


def test_a_damaged_end_is_left_out(recording: Path, tmp_path: Path) -> None:
    data = recording.read_bytes()
    for cut in range(0, len(data), 97):
        recording.write_bytes(data[:cut])
        with (tmp_path / "out").open("wb") as out:
            rewrite_events(str(recording), out, Names())


def test_runs_and_files_of_other_forms() -> None:
    names = Names()
    assert redacted_run("exp7/alice/gpu_doctor/zebra/gpu3", names).endswith("/gpu_doctor/host1/gpu3")
    assert "alice" not in redacted_run("exp7/alice/gpu_doctor/zebra/gpu3", names)
    assert "zebra" not in redacted_file_name("zebra.tfevents", names)


def test_what_rules_read_of_notes_stays() -> None:
    names = Names()
    lost = {"key": "recording.gpu_lost", "params": {"gpu": "gpu2", "reason": "GPU is lost"}, "sentence": "secret"}
    assert _note(lost, names)["params"] == {"gpu": "gpu2", "reason": "GPU is lost"}
    other = {"key": "recording.no_driver", "params": {"gpu": "alice", "reason": "/data/alice is full"}, "sentence": ""}
    assert "alice" not in str(_note(other, names))
    assert _header({"ended": "normal"}, names) == {"ended": "normal"}
    assert _header({"ended": "alice"}, names) != {"ended": "alice"}


def test_stacks_beside_a_recording_become_a_fact_of_it(recording: Path, tmp_path: Path) -> None:
    text = 'Thread 0x01 (most recent call first):\n  File "/data/alice/loop.py", line 3 in secret_step\n'
    (recording.parent / "python_stacks.txt").write_text(text)
    for names in (None, Names()):
        target = tmp_path / f"named_{names is None}" / recording.name
        target.parent.mkdir()
        with target.open("wb") as out:
            out.write(recording.read_bytes())
            append_stacks(str(recording), out, names)
        held = read_telemetry(target.parent).recordings[0].facts["lock_held"]
        assert held["resumed"] is False and held["threads"][0]["main"] is True
        assert (held["threads"][0]["frames"] == ["data/alice/loop.py:3 secret_step"]) == (names is None)
        assert "alice" not in str(held) or names is None
