"""Where files lie in a pack, so that the scan finds the same sessions again."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tb_gpu_doctor.packing.archive import safe_path, unpack_archive
from tb_gpu_doctor.packing.layout import packed_files
from tb_gpu_doctor.packing.names import Names
from tb_gpu_doctor.packing.pack import pack_sessions
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.conftest import DEMO_LOGS

TORCH = "gpu-node-0_2417.1772353263923134194.pt.trace.json.gz"


def targets(root: Path, names: Names | None = None, slim: bool = False) -> list[str]:
    return [file.target for file in packed_files(find_sessions(str(root)).sessions, names, slim)]


def test_the_demo_runs_lie_where_they_lay() -> None:
    found = targets(DEMO_LOGS)
    assert all((DEMO_LOGS / target).is_file() for target in found)
    assert len(found) == len(set(found)) == 22
    assert sum("tfevents" in target for target in targets(DEMO_LOGS, slim=True)) == 3


def test_a_session_folder_or_a_file_is_given(tmp_path: Path) -> None:
    folder = next((DEMO_LOGS / "healthy").glob("plugins/profile/*"))
    expected = [f"plugins/profile/{folder.name}/gpu-node-0.xplane.pb"]
    assert targets(folder) == targets(folder.parent) == targets(next(folder.glob("*.pb"))) == expected
    assert targets(folder, Names()) == [f"plugins/profile/{folder.name}/host1.xplane.pb"]


def test_names_of_people_and_odd_names_are_no_paths(tmp_path: Path) -> None:
    source = next((DEMO_LOGS / "healthy").rglob("*.xplane.pb"))
    folder = tmp_path / "logs" / "alice\\zebra" / "plugins" / "profile" / "my\nsession"
    folder.mkdir(parents=True)
    shutil.copy(source, folder / "a:b c.xplane.pb")
    for names in (None, Names()):
        found = targets(tmp_path / "logs", names)
        assert len(found) == 1 and safe_path(found[0])
    assert "alice" not in targets(tmp_path / "logs", Names())[0]


@pytest.mark.parametrize("name", [TORCH, "rank3.pt.trace.json.gz", "zebra_step_12.pt.trace.json.gz", "trace.json.gz"])
@pytest.mark.parametrize("redact", [False, True])
def test_recordings_of_pytorch_are_found_again(tmp_path: Path, name: str, redact: bool) -> None:
    source = DEMO_LOGS / "pytorch_ddp" / TORCH
    (tmp_path / "zebra_runs").mkdir()
    given = tmp_path / "zebra_runs" / name
    given.write_bytes(source.read_bytes())
    root = given if name == "trace.json.gz" else given.parent
    before = find_sessions(str(root)).sessions[0]
    packed = pack_sessions([before], str(tmp_path / "p.zip"), redact=redact)
    assert packed.sessions == 1 and packed.differences == ()
    (tmp_path / "open").mkdir()
    files = unpack_archive(str(tmp_path / "p.zip"), str(tmp_path / "open"))
    after = find_sessions(str(tmp_path / "open")).sessions
    assert len(after) == 1 and len(after[0].files) == 1
    if redact:
        assert not [file for file in files if "zebra" in file or "gpu-node" in file or "2417" in file]
        assert before.session == after[0].session or name != TORCH
    else:
        assert after[0].session == before.session
    assert gzip.decompress(Path(after[0].files[0].path).read_bytes())


def test_files_that_would_meet_get_names_of_their_own(tmp_path: Path) -> None:
    source = next((DEMO_LOGS / "healthy").rglob("*.xplane.pb"))
    for run in ("a\\b", "a_b"):
        folder = tmp_path / run / "plugins" / "profile" / "s"
        folder.mkdir(parents=True)
        shutil.copy(source, folder / "h.xplane.pb")
    found = targets(tmp_path)
    assert len(set(found)) == 2
