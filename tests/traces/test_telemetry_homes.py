"""Which runs hold recordings, and which of them a profile belongs to."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.traces.sessions import find_sessions
from tb_gpu_doctor.traces.telemetry_homes import nearest_homes, recording_files

SESSION = "plugins/profile/2026_01_01_00_00_00"
NAME = "events.out.tfevents.1700000000.node1.42.0.gpu_doctor"


def put(root: Path, name: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")


@pytest.mark.parametrize(
    ("run", "homes", "nearest"),
    [
        ("a", ["a", "b", ""], ["a"]),
        ("a", ["b"], []),  # two runs of one logdir have nothing to do with each other
        ("a", [""], [""]),
        ("a/train", ["a", ""], ["a"]),
        ("a", ["a/x", "a/y"], ["a/x", "a/y"]),
        ("", ["a", "b"], ["a", "b"]),
        ("a/prof", ["a/tele", "b/tele"], ["a/tele"]),
        ("a/prof", ["a/tele", "a/prof/x"], ["a/prof/x"]),
        ("ab", ["a"], []),
        ("a/b/c", ["a/b", "a"], ["a/b"]),
    ],
)
def test_nearest(run: str, homes: list[str], nearest: list[str]) -> None:
    assert list(nearest_homes(run, homes)) == nearest


_RUN = st.lists(st.sampled_from("ab"), max_size=3).map("/".join)


@given(_RUN, st.lists(_RUN, max_size=5))
def test_no_home_is_nearer_than_those_chosen(run: str, homes: list[str]) -> None:
    def shared(home: str) -> int:
        pairs = zip(run.split("/"), home.split("/"), strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1] != "", pairs)))

    chosen = nearest_homes(run, homes)
    assert len({shared(home) for home in chosen}) <= 1
    for home in set(homes) - set(chosen):
        related = shared(home) > 0 or not run or not home
        assert not related or (chosen and shared(home) <= shared(chosen[0]))


def test_a_home_is_listed_behind_the_profiles_and_known_to_them(tmp_path: Path) -> None:
    put(tmp_path, f"old/{SESSION}/h.xplane.pb")
    put(tmp_path, f"run/{SESSION}/h.xplane.pb")
    put(tmp_path, f"run/gpu_doctor/node1/process/{NAME}")
    put(tmp_path, f"run/gpu_doctor/node2/process/{NAME}")
    put(tmp_path, "run/gpu_doctor/node1/gpu0/events.out.tfevents.1700000000.node1.42.0")
    scan = find_sessions(str(tmp_path))
    assert [(s.run, s.session, s.is_telemetry) for s in scan.sessions[-1:]] == [("run", "telemetry", True)]
    telemetry = scan.sessions[-1]
    assert [file.host for file in telemetry.files] == ["node1", "node2"] and telemetry.problem is None
    homes = {s.run: [home.run for home in s.homes] for s in scan.sessions if not s.is_telemetry}
    assert homes == {"old": [], "run": ["run"]}
    assert telemetry.homes[0].folder == str(tmp_path / "run/gpu_doctor")


@pytest.mark.parametrize(
    "path", ["run", f"run/{SESSION}", f"run/{SESSION}/h.xplane.pb", "run/plugins", "run/plugins/profile"]
)
def test_a_profile_named_by_any_of_its_paths_knows_its_home(tmp_path: Path, path: str) -> None:
    put(tmp_path, f"run/{SESSION}/h.xplane.pb")
    put(tmp_path, f"run/gpu_doctor/node1/process/{NAME}")
    first = find_sessions(str(tmp_path / path)).sessions[0]
    assert not first.is_telemetry
    if not path.endswith(("plugins", "plugins/profile")):
        assert [home.folder for home in first.homes] == [str(tmp_path / "run/gpu_doctor")]


def test_pytorch_files_know_the_home_beside_them(tmp_path: Path) -> None:
    put(tmp_path, "run/node1_7.1700000000000000000.pt.trace.json")
    put(tmp_path, f"run/gpu_doctor/node1/process/{NAME}")
    for path in (tmp_path, tmp_path / "run", tmp_path / "run/node1_7.1700000000000000000.pt.trace.json"):
        assert len(find_sessions(str(path)).sessions[0].homes) == 1


def test_an_empty_folder_of_that_name_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "gpu_doctor/node1").mkdir(parents=True)
    assert find_sessions(str(tmp_path)).sessions == ()
    assert recording_files(str(tmp_path / "nowhere")) == []


def test_a_maze_of_links_ends(tmp_path: Path) -> None:
    put(tmp_path, f"gpu_doctor/node1/process/{NAME}")
    (tmp_path / "gpu_doctor/node1/loop").symlink_to(tmp_path / "gpu_doctor", target_is_directory=True)
    assert len(recording_files(str(tmp_path / "gpu_doctor"))) == 1


@pytest.mark.parametrize(
    "path",
    ["run/gpu_doctor", "run/gpu_doctor/node1", "run/gpu_doctor/node1/process", f"run/gpu_doctor/node1/process/{NAME}"],
)
def test_a_recording_may_be_named_itself(tmp_path: Path, path: str) -> None:
    put(tmp_path, f"run/gpu_doctor/node1/process/{NAME}")
    (found,) = find_sessions(str(tmp_path / path)).sessions
    assert found.is_telemetry and found.homes[0].folder == str(tmp_path / "run/gpu_doctor")


def test_a_folder_that_is_only_called_so_hides_nothing(tmp_path: Path) -> None:
    put(tmp_path, f"gpu_doctor/logs/{SESSION}/h.xplane.pb")
    put(tmp_path, f"gpu_doctor/logs/gpu_doctor/node1/process/{NAME}")
    found = find_sessions(str(tmp_path)).sessions
    assert [(s.run, s.is_telemetry) for s in found] == [("gpu_doctor/logs", False), ("gpu_doctor/logs", True)]
    assert [home.run for home in found[0].homes] == ["gpu_doctor/logs"]
    # A logdir below it without telemetry takes none from its neighbours.
    put(tmp_path, f"gpu_doctor/other/{SESSION}/h.xplane.pb")
    (other,) = find_sessions(str(tmp_path / "gpu_doctor/other")).sessions
    assert other.homes == ()
