"""Listing remote folders: the same answers as `os`, bounded, cached, and with nothing that leads elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import fsspec
import pytest

from tb_gpu_doctor.errors import RemoteError
from tb_gpu_doctor.files import looking, remote
from tb_gpu_doctor.files.remote import RemoteFiles
from tests.remote_stores import OddStore, in_memory, odd_store


@pytest.fixture
def odd() -> Iterator[type[OddStore]]:
    with odd_store() as store:
        yield store


def folder(name: str) -> dict[str, object]:
    return {"name": name, "type": "directory", "size": 0}


def file(name: str, size: int | None = 1) -> dict[str, object]:
    return {"name": name, "type": "file", "size": size, "mtime": 1.7e9}


def test_it_looks_like_os() -> None:
    root = in_memory({"a/b.pb": b"123", "c.pb": b"", "a/d/e.pb": b"5"})
    files = remote.remote_at(root)
    with files.scandir(root) as entries:
        assert [(entry.name, entry.path, entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in entries] == [
            ("a", f"{root}/a", True, False, False),
            ("c.pb", f"{root}/c.pb", False, True, False),
        ]
    assert files.listdir(f"{root}/a/") == ["b.pb", "d"]
    state = files.stat(f"{root}/a/b.pb")
    assert state.st_size == 3 and abs(state.st_mtime - time.time()) < 60
    assert files.isfile(f"{root}/c.pb") and not files.isdir(f"{root}/c.pb")
    assert files.isdir(f"{root}/a") and not files.isfile(f"{root}/a") and not files.isdir(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        files.stat(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        files.listdir(f"{root}/nothing")


def test_the_root_of_a_store() -> None:
    files = RemoteFiles("memory://")
    root = in_memory({"x/y.pb": b"1"})
    assert root.removeprefix("memory://") in files.listdir("memory://")
    assert files.listdir(files.join("memory://", root.removeprefix("memory://"))) == ["x"]


def test_names_that_lead_elsewhere_are_left_out(odd: type[OddStore]) -> None:
    odd.listings = {
        "root": [
            folder("root"), folder("root/.."), folder("root/."), folder(".."), folder(""), folder("root/"),
            file("root/a\0b.pb"), file("root/a\nb.pb"), file("root/" + "x" * 5000), file("root/good.pb"),
            {"name": "root/link", "type": "link", "size": 0}, {"name": "root/l2", "type": "file", "islink": True},
            {"name": "root/odd", "type": "other", "size": 0}, {"type": "file"}, "text", None,
            {"name": "root/none.pb", "type": "file", "size": None}, {"name": "root/neg.pb", "type": "file", "size": -4},
        ]
    }  # fmt: skip
    assert RemoteFiles("oddstore://root").listdir("oddstore://root") == ["good.pb", "neg.pb", "none.pb"]


def test_an_endless_tree_ends(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MAX_FOLDERS", 500)
    odd.endless = True
    files = RemoteFiles("oddstore://root")
    files.refresh("oddstore://root")
    assert files.is_cut("oddstore://root")
    assert len(odd.listed) == 500
    listed = len(odd.listed)
    stack = ["oddstore://root"]
    while stack:  # what was not listed is empty, and is not asked for one by one
        with files.scandir(stack.pop()) as entries:
            stack += [entry.path for entry in entries]
    assert len(odd.listed) == listed


def test_a_chain_of_folders_ends(odd: type[OddStore]) -> None:
    path = "root"
    for _ in range(looking.MAX_DEPTH + 10):
        odd.listings[path] = [folder(f"{path}/a")]
        path += "/a"
    files = RemoteFiles("oddstore://root")
    files.refresh("oddstore://root")
    assert len(odd.listed) == looking.MAX_DEPTH + 1


def test_a_huge_folder_is_cut(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MAX_ENTRIES", 1000)
    odd.listings = {"root": [file(f"root/{index}.pb") for index in range(5000)]}
    files = RemoteFiles("oddstore://root")
    files.refresh("oddstore://root")
    assert files.is_cut("oddstore://root") and len(files.listdir("oddstore://root")) == 1000


@pytest.mark.slow
def test_a_slow_server_is_given_up(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "MAX_SECONDS", 0.3)
    odd.endless, odd.wait_s = True, 0.1
    files = RemoteFiles("oddstore://root")
    began = time.monotonic()
    files.refresh("oddstore://root")
    assert time.monotonic() - began < 3
    assert files.is_cut("oddstore://root")
    odd.wait_s = 2.0
    files = RemoteFiles("oddstore://other")
    files.refresh("oddstore://other")
    with pytest.raises(RemoteError) as raised:
        files.scandir("oddstore://other")
    assert raised.value.code == "remote_timeout"


def test_folders_are_listed_at_the_same_time_and_once(odd: type[OddStore]) -> None:
    odd.listings = {"store": [folder(f"store/{index}") for index in range(64)]}
    odd.listings |= {f"store/{index}": [file(f"store/{index}/a.pb")] for index in range(64)}
    odd.wait_s = 0.05
    files = RemoteFiles("oddstore://store")
    began = time.monotonic()
    files.refresh("oddstore://store")
    assert time.monotonic() - began < 65 * odd.wait_s / 2
    assert len(odd.listed) == 65
    assert all(files.isfile(f"oddstore://store/{index}/a.pb") for index in range(64))
    assert not files.isfile("oddstore://store/3/b.pb")
    files.refresh("oddstore://store", 60)
    files.refresh("oddstore://store/5", 60)
    assert len(odd.listed) == 65
    files.refresh("oddstore://store/5")
    assert len(odd.listed) == 66


@pytest.mark.slow
def test_a_long_look_is_good_when_it_ends(odd: type[OddStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LISTING_AGE_S", 0.4)
    odd.listings = {"root/" + "/".join("a" * depth) if depth else "root": [] for depth in range(6)}
    for path in list(odd.listings)[:-1]:
        odd.listings[path] = [folder(f"{path}/a")]
    odd.wait_s = 0.15
    files = RemoteFiles("oddstore://root")
    files.refresh("oddstore://root")
    path = "oddstore://root"
    for _ in range(5):
        assert files.listdir(path) == ["a"]
        path += "/a"
    assert len(odd.listed) == 6


def test_only_what_can_hold_profiles_is_listed(odd: type[OddStore]) -> None:
    odd.listings = {
        "root": [folder("root/plugins"), folder("root/run")],
        "root/plugins": [folder("root/plugins/other"), folder("root/plugins/profile")],
        "root/plugins/other": [],
        "root/plugins/profile": [folder("root/plugins/profile/s")],
        "root/plugins/profile/s": [folder("root/plugins/profile/s/deep")],
        "root/run": [],
    }
    RemoteFiles("oddstore://root").refresh("oddstore://root")
    assert set(odd.listed) == {"root", "root/run", "root/plugins", "root/plugins/profile", "root/plugins/profile/s"}


def test_changes_are_seen() -> None:
    root = in_memory({"run/a.pb": b"1"})
    files = remote.remote_at(root)
    files.refresh(root)
    before = files.version(files.stat(f"{root}/run/a.pb"))
    time.sleep(0.01)
    store = fsspec.filesystem("memory")
    store.pipe_file(files.connection.inner(f"{root}/run/a.pb"), b"2")
    store.pipe_file(files.connection.inner(f"{root}/run/b.pb"), b"2")
    assert files.listdir(f"{root}/run") == ["a.pb"]  # within the time that a listing is good for
    files.refresh(root)
    assert files.listdir(f"{root}/run") == ["a.pb", "b.pb"]
    assert files.version(files.stat(f"{root}/run/a.pb")) != before


def test_a_failure_is_not_asked_for_again_at_once(odd: type[OddStore]) -> None:
    odd.error = PermissionError("no")
    files = RemoteFiles("oddstore://root")
    for _ in range(3):
        with pytest.raises(RemoteError) as raised:
            files.listdir("oddstore://root")
        assert raised.value.code == "remote_denied"
    assert len(odd.listed) == 1
    odd.error = None
    odd.listings = {"root": []}
    files.refresh("oddstore://root")
    assert files.listdir("oddstore://root") == []


def test_credentials_open_and_are_not_shown() -> None:
    files = remote.remote_at("sftp://me:pass@host/logs?x=1")
    assert files is remote.remote_at("sftp://host/other")
    assert files.address("sftp://host/logs/run") == "sftp://me:pass@host/logs/run"
    signed = remote.remote_at("https://host/a.pb?sig=1")
    assert remote.remote_at("https://host/b.pb?sig=2") is signed
    assert signed.address("https://host/a.pb") == "https://host/a.pb?sig=1"
    assert signed.address("https://host/b.pb") == "https://host/b.pb?sig=2"
    assert signed.address("https://host/c.pb") == "https://host/c.pb"
