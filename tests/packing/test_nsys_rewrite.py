"""Packs of Nsight Systems' exports."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.nsys_rewrite import rewrite_nsys
from tb_gpu_doctor.packing.pack import pack_sessions
from tb_gpu_doctor.traces.columns import DeviceEvents
from tb_gpu_doctor.traces.nsys import read_nsys
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.traces.nsys_files import Export, process, training

SECRETS = (b"TOKEN=hush", b"falcon", b"acme_layer", b"node-a")


def telling(path: Path) -> Export:
    export = training(path)
    export.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=hush")
    export.kernel("void acme_layer_forward(float *)", 900_000_000, 700)
    export.range("falcon forward", 900_000_000, 10_000)
    export.add("ThreadNames", globalTid=process(100) | 100, nameId=export.string("falcon"))
    export.add("DIAGNOSTIC_EVENT", severity=2, text="Not all CUDA events might have been collected.")
    return export


def rewritten(source: Path, target: Path, names: Names | None) -> bytes:
    out = io.BytesIO()
    rewrite_nsys(str(source), out, names)
    target.write_bytes(out.getvalue())
    return out.getvalue()


def test_numbers_stay_and_names_go(tmp_path: Path) -> None:
    source = telling(tmp_path / "a.sqlite").write()
    names = Names()
    names.learn_hosts(["node-a"])
    content = rewritten(source, tmp_path / "b.sqlite", names)
    assert [secret for secret in SECRETS if secret in content] == []
    before, after = (read_nsys(str(tmp_path / name), "node") for name in ("a.sqlite", "b.sqlite"))
    for column in ("start", "duration", "klass", "correlation", "copy_kind", "stream", "device"):
        assert np.array_equal(getattr(before.device_events, column), getattr(after.device_events, column)), column
    assert np.array_equal(before.host_events.step_num, after.host_events.step_num)
    assert (before.warnings, before.wall_start_unix_ns) == (after.warnings, after.wall_start_unix_ns)
    assert isinstance(after.device_events, DeviceEvents)


def test_the_environment_goes_without_redaction_too(tmp_path: Path) -> None:
    source = telling(tmp_path / "a.sqlite").write()
    content = rewritten(source, tmp_path / "b.sqlite", None)
    assert [secret for secret in SECRETS if secret in content] == [b"falcon", b"acme_layer", b"node-a"]


def test_a_redacted_pack_says_the_same(tmp_path: Path) -> None:
    telling(tmp_path / "run" / "report1.sqlite").write()
    packed = pack_sessions(find_sessions(str(tmp_path / "run")).sessions, str(tmp_path / "a.zip"), redact=True)
    assert (packed.files, packed.sessions, packed.differences) == (1, 1, ())
