"""A log as a recording: what was written is what the log holds, and TensorBoard has its points."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.importing import import_log, ticks
from tb_gpu_doctor.telemetry.recordings import read_telemetry

START = datetime(2031, 3, 4, 5, 0, 0, tzinfo=timezone.utc)


def log(folder: Path, seconds: int = 40) -> Path:
    lines = ["timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], memory.total [MiB]"]
    for second in range(seconds):
        for gpu in range(2):
            moment = START + timedelta(seconds=second, milliseconds=3 * gpu)
            told = moment.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            power = "[N/A]" if gpu else f"{second}.25 W"
            lines.append(f"{told}, {gpu}, GPU-0a{gpu}, Toy, {second + gpu} %, {power}, 1024 MiB")
    path = folder / "gpu.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_recording_holds_what_the_log_holds(tmp_path: Path) -> None:
    done = import_log(str(log(tmp_path)), str(tmp_path / "logs"), zone_s=0, host="node9")
    assert (done.rows, done.gpus, done.said) == (80, 2, ())
    (recording,) = read_telemetry(tmp_path / "logs").recordings
    assert (recording.host, recording.is_log, recording.process_id) == ("node9", True, 0)
    for number, gpu in enumerate(recording.gpus):
        assert gpu.values["utilization_percent"].tolist() == [second + number for second in range(40)]
        assert gpu.facts.uuid == f"GPU-0a{number}" and gpu.facts.limits == {"memory_total_bytes": 2.0**30}
    assert int(recording.gpus[0].wall_ns[0]) == round(START.timestamp()) * 10**9
    assert recording.gpus[0].values["power_watts"][39] == 39.25 and "power_watts" not in recording.gpus[1].values


def test_tensorboard_has_the_points(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    import_log(str(log(tmp_path)), str(tmp_path / "logs"), zone_s=0)
    found = EventAccumulator(str(tmp_path / "logs" / "gpu_doctor" / "imported" / "gpu1"))
    found.Reload()
    assert found.Tags()["tensors"] or found.Tags()["scalars"]


def test_the_command_says_what_it_did_and_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, logdir = log(tmp_path), tmp_path / "logs"
    assert main(["import", str(path), str(logdir), "--lang", "en", "--log-zone", "+05:30"]) == 0
    said = capsys.readouterr()
    assert "80 samples of 2 GPUs" in said.out and not said.err
    assert main(["import", str(path), str(logdir), "--lang", "en"]) == 0
    assert "no zone" in capsys.readouterr().err
    assert main(["import", str(path), str(logdir), "--log-zone", "soon", "--lang", "en"]) == 2
    assert "+02:00" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["import", str(path), str(tmp_path / "file"), "--lang", "en"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none"), str(logdir), "--lang", "en"]) == 2


@given(
    st.integers(1, 5),
    st.lists(st.integers(1, 10_000), min_size=1, max_size=40),
    st.data(),
)
def test_every_sample_has_its_tick(gpus: int, gaps: list[int], data: st.DataObject) -> None:
    """None is lost, none shares a tick with another of its GPU, and ticks go on in time."""
    base = np.cumsum(np.array(gaps, np.int64))
    times = []
    for gpu in range(gpus):
        kept = data.draw(st.lists(st.booleans(), min_size=len(base), max_size=len(base)))
        chosen = base[np.array(kept)] if any(kept) else base
        times.append(np.unique(chosen + gpu))
    wall_ns, tick_of = ticks(times)
    assert (np.diff(wall_ns) >= 0).all()
    for when, tick in zip(times, tick_of, strict=True):
        assert len(when) == len(tick) and (np.diff(tick) > 0).all()
        assert (wall_ns[tick] <= when).all() and tick[-1] < len(wall_ns)
