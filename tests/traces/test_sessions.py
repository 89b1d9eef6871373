"""Finding sessions: whatever people have at hand, and whatever state it is in."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces import sessions
from tb_gpu_doctor.traces.sessions import MAX_DEPTH, SessionScan, find_sessions
from tests.conftest import REPOSITORY, SHARED_TRACES


def put(root: Path, name: str, content: bytes = b"x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def found(scan: SessionScan) -> list[tuple[str, str, list[str]]]:
    """(run, session, hosts), newest first."""
    return [(s.run, s.session, [f.host for f in s.files]) for s in scan.sessions]


FIRST, SECOND = "2026_03_02_09_14_05", "2026_03_04_08_20_11"


@pytest.mark.parametrize("run", ["", "train", "a/b/train", "/".join("abcdefghijklmnopqrstuvwxyz")])
def test_any_depth(tmp_path: Path, run: str) -> None:
    put(tmp_path, f"{run}/plugins/profile/{FIRST}/host.xplane.pb".lstrip("/"))
    assert found(find_sessions(str(tmp_path))) == [(run, FIRST, ["host"])]


def test_the_newest_comes_first_by_the_recording_and_not_by_the_copy(tmp_path: Path) -> None:
    old = put(tmp_path, f"b/plugins/profile/{FIRST}/host.xplane.pb")
    new = put(tmp_path, f"a/plugins/profile/{SECOND}/host.xplane.pb")
    os.utime(old, (2e9, 2e9))
    os.utime(new, (1e9, 1e9))
    assert [s.session for s in find_sessions(str(tmp_path)).sessions] == [SECOND, FIRST]


def test_sessions_with_other_names_go_by_their_files(tmp_path: Path) -> None:
    for name, when in (("early", 1e9), ("late", 1.9e9)):
        os.utime(put(tmp_path, f"plugins/profile/{name}/host.xplane.pb"), (when, when))
    assert [s.session for s in find_sessions(str(tmp_path)).sessions] == ["late", "early"]


@pytest.mark.parametrize("name", ["2026_99_99_99_99_99", "2026_03_02", "9999_12_31_23_59_59", "0000_00_00_00_00_00"])
def test_odd_session_names(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"plugins/profile/{name}/host.xplane.pb")
    assert found(find_sessions(str(tmp_path))) == [("", name, ["host"])]


def test_hosts_of_a_session_are_grouped(tmp_path: Path) -> None:
    for host in ("node-1", "node-0", "node.10"):
        put(tmp_path, f"train/plugins/profile/{FIRST}/{host}.xplane.pb", b"12345")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [f.host for f in session.files] == ["node-0", "node-1", "node.10"]
    assert session.size_bytes == 15 and session.problem is None
    assert {f.format for f in session.files} == {"xplane"}


@pytest.mark.parametrize(
    "below", ["", "train", "train/plugins", "train/plugins/profile", f"train/plugins/profile/{FIRST}"]
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_any_folder_on_the_way(tmp_path: Path, below: str, slash: str) -> None:
    put(tmp_path, f"train/plugins/profile/{FIRST}/host.xplane.pb")
    ((_, session, hosts),) = found(find_sessions(str(tmp_path / below) + slash))
    assert (session, hosts) == (FIRST, ["host"])


def test_the_folder_may_be_the_one_we_are_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, f"train/plugins/profile/{FIRST}/host.xplane.pb")
    for folder in (tmp_path, path.parent, path.parent.parent, path.parent.parent.parent):
        monkeypatch.chdir(folder)
        assert [s.session for s in find_sessions(".").sessions] == [FIRST]


def test_one_file(tmp_path: Path) -> None:
    path = put(tmp_path, f"train/plugins/profile/{FIRST}/host.xplane.pb", b"abc")
    put(tmp_path, f"train/plugins/profile/{FIRST}/other.xplane.pb")
    (session,) = find_sessions(str(path)).sessions
    assert [f.path for f in session.files] == [str(path)]
    assert (session.session, session.files[0].host, session.size_bytes) == (FIRST, "host", 3)


def test_a_file_with_another_name(tmp_path: Path) -> None:
    (session,) = find_sessions(str(put(tmp_path, "profile.bin"))).sessions
    assert session.files[0].host == "profile.bin" and session.problem is None


def test_a_bare_folder_of_files(tmp_path: Path) -> None:
    put(tmp_path, "my_profile/host.xplane.pb")
    assert found(find_sessions(str(tmp_path / "my_profile"))) == [("", "my_profile", ["host"])]


def test_symlink_loops_end(tmp_path: Path) -> None:
    tmp_path = tmp_path / "logs"
    put(tmp_path, f"train/plugins/profile/{FIRST}/host.xplane.pb")
    (tmp_path / "train" / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    scan = find_sessions(str(tmp_path))
    assert [s.session for s in scan.sessions] == [FIRST]


def test_a_logdir_behind_a_symlink(tmp_path: Path) -> None:
    put(tmp_path, f"data/train/plugins/profile/{FIRST}/host.xplane.pb")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "data")
    assert found(find_sessions(str(tmp_path / "logs"))) == [("linked/train", FIRST, ["host"])]
    (tmp_path / "session").symlink_to(tmp_path / "data" / "train" / "plugins" / "profile" / FIRST)
    assert [f.host for f in find_sessions(str(tmp_path / "session")).sessions[0].files] == ["host"]


def test_a_maze_of_links_ends_soon(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"d{i}").mkdir()
    for i in range(12):
        for j in range(12):
            (tmp_path / f"d{i}" / f"l{j}").symlink_to(tmp_path / f"d{j}")
    began = time.perf_counter()
    assert find_sessions(str(tmp_path)).sessions == ()
    assert time.perf_counter() - began < 2


def test_deeper_than_any_logdir_is_left_alone(tmp_path: Path) -> None:
    deep = "/".join(["d"] * (MAX_DEPTH + 5))
    put(tmp_path, f"{deep}/plugins/profile/{FIRST}/host.xplane.pb")
    assert find_sessions(str(tmp_path)).sessions == ()


def test_caches_of_the_stock_profiler_are_no_sessions_and_no_hosts(tmp_path: Path) -> None:
    folder = f"plugins/profile/{FIRST}"
    for name in (
        "host.op_stats_v2.pb", ".cached_tools.json", "host.SSTABLE", "cache_version.txt", "module.hlo_proto.pb",
        "host.kernel_stats.pb", "host.overview_page.pb", "host.memory_profile.json.gz", "ALL_HOSTS.op_stats_v2.pb",
    ):  # fmt: skip
        put(tmp_path, f"{folder}/{name}")
    scan = find_sessions(str(tmp_path))
    assert scan.sessions == () and scan.problems == ()
    put(tmp_path, f"{folder}/host.xplane.pb")
    assert found(find_sessions(str(tmp_path))) == [("", FIRST, ["host"])]


def test_formats_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    name, code = "host.xplane.riegeli", "riegeli"
    path = put(tmp_path, f"train/plugins/profile/{FIRST}/{name}")
    for where in (tmp_path, path, path.parent):
        (session,) = find_sessions(str(where)).sessions
        assert session.problem is not None
        assert (session.problem.code, session.problem.params["file"]) == (code, name)
        assert [f.host for f in session.files] == ["host"]


def test_a_trace_beside_an_xplane_is_the_same_recording(tmp_path: Path) -> None:
    put(tmp_path, f"plugins/profile/{FIRST}/host.xplane.pb")
    put(tmp_path, f"plugins/profile/{FIRST}/host.trace.json.gz")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert session.problem is None and [f.host for f in session.files] == ["host"]


@pytest.mark.parametrize("name", ["host.trace.json.gz", "host.trace.json"])
def test_an_export_alone_is_read(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, f"train/plugins/profile/{FIRST}/{name}")
    for where in (tmp_path, path, path.parent):
        (session,) = find_sessions(str(where)).sessions
        assert session.problem is None and session.session == FIRST
        assert [(f.host, f.format) for f in session.files] == [("host", "trace_json")]


def test_every_host_by_the_best_format_it_has(tmp_path: Path) -> None:
    names = ("a.xplane.pb", "a.trace.json.gz", "b.trace.json.gz", "b.trace.json", "c.trace.json", "c.xplane.riegeli")
    for name in names:
        put(tmp_path, f"plugins/profile/{FIRST}/{name}")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [(f.host, f.format, Path(f.path).name) for f in session.files] == [
        ("a", "xplane", "a.xplane.pb"), ("b", "trace_json", "b.trace.json.gz"), ("c", "trace_json", "c.trace.json"),
    ]  # fmt: skip


@pytest.mark.parametrize("below", ["", "train", "a/b/train"])
def test_ranks_in_one_folder_are_one_session(tmp_path: Path, below: str) -> None:
    for rank in (0, 1, 2, 10):
        put(tmp_path, f"{below}/rank{rank}.pt.trace.json.gz".lstrip("/"))
    expected = (below, Path(below).name or tmp_path.name, ["rank0", "rank1", "rank2", "rank10"])
    scan = find_sessions(str(tmp_path))
    assert found(scan) == [expected]
    assert {f.format for f in scan.sessions[0].files} == {"kineto"}
    assert found(find_sessions(str(tmp_path / below))) == [("", expected[1], expected[2])]


def torch_time(session: str) -> int:
    """Seconds since 1970 of a session's name."""
    return int(time.mktime(time.strptime(session, "%Y_%m_%d_%H_%M_%S")))


@pytest.mark.parametrize("digits", [13, 19])
@pytest.mark.parametrize("suffix", [".pt.trace.json", ".pt.trace.json.gz"])
def test_recordings_of_the_handler_are_told_apart_by_time(tmp_path: Path, digits: int, suffix: str) -> None:
    for session in (FIRST, SECOND):
        for host, lag in (("node-1.example_17", 0.2), ("node-0_16", 3.5)):
            stamp = int((torch_time(session) + lag) * 1000) * 10 ** (digits - 13)
            put(tmp_path, f"run/{host}.{stamp}{suffix}")
    assert found(find_sessions(str(tmp_path))) == [
        ("run", name, ["node-0_16", "node-1.example_17"]) for name in (SECOND, FIRST)
    ]


def test_quick_recordings_of_one_worker_are_sessions_of_their_own(tmp_path: Path) -> None:
    base = torch_time(FIRST)
    for worker, times in (("a", (0, 4, 8)), ("b", (5, 9, 13))):  # b is late, yet its first belongs to a's first
        for seconds in times:
            put(tmp_path, f"{worker}.{(base + seconds) * 1000}.pt.trace.json")
    sessions_found = find_sessions(str(tmp_path)).sessions
    assert [[Path(f.path).name for f in s.files] for s in reversed(sessions_found)] == [
        [f"a.{(base + a) * 1000}.pt.trace.json", f"b.{(base + a + 5) * 1000}.pt.trace.json"] for a in (0, 4, 8)
    ]
    assert len({s.session for s in sessions_found}) == 3


def test_numbered_recordings_are_told_apart(tmp_path: Path) -> None:
    for rank in (0, 1):
        for step in (10, 20):
            put(tmp_path, f"rank{rank}_step_{step}.pt.trace.json.gz")
    assert sorted(found(find_sessions(str(tmp_path)))) == [
        ("", "step_10", ["rank0", "rank1"]), ("", "step_20", ["rank0", "rank1"]),
    ]  # fmt: skip


def test_a_packed_copy_is_no_second_recording(tmp_path: Path) -> None:
    put(tmp_path, "rank0.pt.trace.json")
    put(tmp_path, "rank0.pt.trace.json.gz")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert [Path(f.path).name for f in session.files] == ["rank0.pt.trace.json.gz"]


def test_both_frameworks_in_one_logdir(tmp_path: Path) -> None:
    put(tmp_path, f"plugins/profile/{FIRST}/host.xplane.pb")
    put(tmp_path, "torch/rank0.pt.trace.json.gz")
    (tmp_path / "folder.pt.trace.json").mkdir()
    assert sorted(found(find_sessions(str(tmp_path)))) == [("", FIRST, ["host"]), ("torch", "torch", ["rank0"])]


@pytest.mark.parametrize(
    ("name", "host", "form", "code"),
    [
        ("node_17.1700000000000.pt.trace.json.gz", "node_17", "kineto", None),
        ("worker0_step_12.1694128201545.pt.trace.json", "worker0", "kineto", None),
        ("my trace.json", "my trace", "trace_json", None),
        ("trace.json.gz", "trace", "trace_json", None),
        ("logs.tar.gz", "logs.tar.gz", "xplane", "unsupported_format"),
        ("host.xplane.pb.gz", "host.xplane.pb.gz", "xplane", "unsupported_format"),
    ],
)
def test_one_file_of_any_format(tmp_path: Path, name: str, host: str, form: str, code: str | None) -> None:
    (session,) = find_sessions(str(put(tmp_path, name))).sessions
    (file,) = session.files
    assert (file.host, file.format) == (host, form)
    assert (session.problem.code if session.problem else None) == code


def test_a_host_that_cannot_be_read_is_named_beside_those_that_can(tmp_path: Path) -> None:
    put(tmp_path, f"plugins/profile/{FIRST}/a.xplane.pb")
    put(tmp_path, f"plugins/profile/{FIRST}/b.xplane.riegeli")
    (session,) = find_sessions(str(tmp_path)).sessions
    assert session.problem is None
    assert [(f.host, f.problem.code if f.problem else None) for f in session.files] == [("a", None), ("b", "riegeli")]


def test_nothing_found_says_what_was_searched(tmp_path: Path) -> None:
    scan = find_sessions(str(tmp_path))
    assert scan.root == str(tmp_path) and scan.sessions == () and scan.problems == ()
    assert any("plugins/profile" in pattern for pattern in scan.searched)


@pytest.mark.parametrize("below", ["plugins", "plugins/profile", f"plugins/profile/{FIRST}"])
def test_folders_that_hold_nothing(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(parents=True)
    assert find_sessions(str(tmp_path)).sessions == ()
    assert find_sessions(str(tmp_path / below)).sessions == ()


def test_files_where_folders_should_be(tmp_path: Path) -> None:
    put(tmp_path, "a/plugins")
    put(tmp_path, "b/plugins/profile")
    put(tmp_path, "c/plugins/profile/session")
    put(tmp_path, f"d/plugins/profile/{FIRST}/host.xplane.pb")
    (tmp_path / "e" / "plugins" / "profile" / FIRST / "host.xplane.pb").mkdir(parents=True)
    runs = {s.run for s in find_sessions(str(tmp_path)).sessions}
    assert "d" in runs and not runs & {"a", "b", "c"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/no/such/place", "missing_path"),
        ("", "missing_path"),
        ("memory://no/such/place", "missing_path"),
        ("gpudoctor://bucket", "remote_unknown"),
        ("a\0b", "io_error"),
        ("x" * 5000, "io_error"),
    ],
)
def test_paths_that_cannot_be(path: str, code: str) -> None:
    with pytest.raises(ProfileError) as error:
        find_sessions(path)
    assert (error.value.code, error.value.path) == (code, path)


def test_a_path_below_a_file(tmp_path: Path) -> None:
    put(tmp_path, "file")
    with pytest.raises(ProfileError) as error:
        find_sessions(str(tmp_path / "file" / "below"))
    assert error.value.code in ("missing_path", "io_error")


def test_a_broken_link_is_a_missing_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ProfileError) as error:
        find_sessions(str(tmp_path / "link"))
    assert error.value.code == "missing_path"


def test_names_with_anything_in_them(tmp_path: Path) -> None:
    for i, run in enumerate(("<b>run</b>", "a b", "größe", "\x01\x02", "{x}%s", "-rf")):
        put(tmp_path, f"{run}/plugins/profile/2026_03_0{i + 1}_00_00_00/host <i>.xplane.pb")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff\xfe")
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")), f"plugins/profile/{FIRST}/h.xplane.pb")
    assert len(find_sessions(str(tmp_path)).sessions) == 7


def test_a_broken_link_among_the_files(tmp_path: Path) -> None:
    put(tmp_path, f"plugins/profile/{FIRST}/a.xplane.pb")
    (tmp_path / "plugins" / "profile" / FIRST / "b.xplane.pb").symlink_to("nowhere")
    (session,) = find_sessions(str(tmp_path)).sessions
    good, bad = session.files
    assert good.problem is None and session.problem is None
    assert bad.problem is not None and bad.problem.code == "unreadable_file"


def test_a_folder_that_cannot_be_listed_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, f"good/plugins/profile/{FIRST}/host.xplane.pb")
    put(tmp_path, f"locked/plugins/profile/{FIRST}/host.xplane.pb")
    put(tmp_path, f"half/plugins/profile/{SECOND}/host.xplane.pb")
    for name in ("scandir", "listdir"):
        real = getattr(os, name)

        def refuse(folder: str, real=real) -> object:  # type: ignore[no-untyped-def]
            if os.path.basename(folder) in ("locked", SECOND):
                raise PermissionError(13, "Permission denied", folder)
            return real(folder)

        monkeypatch.setattr(sessions.os, name, refuse)
    scan = find_sessions(str(tmp_path))
    assert [s.run for s in scan.sessions] == ["good"]
    assert {(p.code, os.path.basename(p.path)) for p in scan.problems} == {
        ("no_permission", "locked"),
        ("no_permission", SECOND),
    }


_AS_NOBODY = """
import os, sys
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.traces.sessions import find_sessions
from tb_gpu_doctor.traces.xplane import read_xplane
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        scan = find_sessions(path)
        print(len(scan.sessions), [p.code + " " + os.path.basename(p.path) for p in scan.problems])
        for session in scan.sessions:
            for file in session.files:
                read_xplane(file.path)
    except ProfileError as error:
        print(error.code, os.path.basename(error.path))
"""


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="needs the users of Unix")
def test_without_permission() -> None:
    """Root may read everything, so another user looks."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        logs.chmod(0o755)
        file = put(logs, f"file/plugins/profile/{FIRST}/host.xplane.pb")
        put(logs, f"locked/plugins/profile/{FIRST}/host.xplane.pb")
        file.chmod(0)
        (logs / "locked").chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(logs / "locked"), str(logs), str(file)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        (logs / "locked").chmod(0o755)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "no_permission locked",
        "1 ['no_permission locked']",
        "no_permission host.xplane.pb",
        "1 []",
        "no_permission host.xplane.pb",
    ]


def test_the_real_profiles() -> None:
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"real profiles not present ({SHARED_TRACES})")
    scan = find_sessions(str(SHARED_TRACES))
    folders = {folder.name for folder in SHARED_TRACES.iterdir() if folder.is_dir()}
    folders -= {name for name in folders if name.startswith("smi_")}  # logs of other tools
    assert {s.run for s in scan.sessions if s.problem is None} == folders
    files = {s.run: (s.files[0].format, len(s.files)) for s in scan.sessions}
    assert files["xla_2xgtx1080ti"] == ("xplane", 1)
    assert files["kineto_megatron_tp8_a100"] == files["kineto_dlrm_8xv100"] == ("kineto", 8)
    assert files["nsys_pytorch_2xh100_nccl"] == ("nsys", 1)


def test_the_demo_runs(demo_logs: Path) -> None:
    scan = find_sessions(str(demo_logs))
    runs = ["healthy", "low_occupancy", "launch_bound", "slow_gpu", "input_bound", "pytorch_ddp"]
    profiles = [s for s in scan.sessions if not s.is_telemetry]
    assert [s.run for s in profiles] == runs
    assert [(file.format, file.problem) for file in profiles[-1].files] == [("kineto", None)] * 4
    telemetry = scan.sessions[len(profiles) :]
    assert {s.run for s in telemetry} == {"slow_gpu", "input_bound", "launch_bound"}
    assert {s.session for s in telemetry} == {"telemetry"}


def test_very_many_folders_are_searched_quickly(tmp_path: Path) -> None:
    for i in range(60):
        for j in range(10):
            (tmp_path / f"run{i}" / f"sub{j}").mkdir(parents=True)
        put(tmp_path, f"run{i}/plugins/profile/{FIRST}/host.xplane.pb")
    began = time.perf_counter()
    assert len(find_sessions(str(tmp_path)).sessions) == 60
    assert time.perf_counter() - began < 2
