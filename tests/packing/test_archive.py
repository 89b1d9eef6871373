"""Packs are written alike every time, and opened with distrust."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from tb_gpu_doctor.errors import PackError
from tb_gpu_doctor.packing import archive
from tb_gpu_doctor.packing.archive import safe_path, unpack_archive, write_archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "one.xplane.pb").write_bytes(b"x" * 5000)
    (source / "two.json.gz").write_bytes(os.urandom(100))
    return source


def refused(path: Path, code: str, **bounds: int) -> None:
    target = path.parent / "unpacked"
    target.mkdir(exist_ok=True)
    with pytest.raises(PackError) as caught:
        unpack_archive(str(path), str(target), **bounds)
    assert caught.value.code == code
    outside = {entry.name for entry in path.parent.iterdir()} - {"unpacked", "source", path.name, "pack.zip"}
    assert not outside


def test_there_and_back(folder: Path, tmp_path: Path) -> None:
    files = ["two.json.gz", "a/b/one.xplane.pb"]
    pack, target = tmp_path / "pack.zip", tmp_path / "target"
    size = write_archive(str(pack), str(folder), files)
    assert size == pack.stat().st_size < 3000
    target.mkdir()
    assert sorted(unpack_archive(str(pack), str(target))) == sorted(files)
    for name in files:
        assert (target / name).read_bytes() == (folder / name).read_bytes()


def test_same_files_same_bytes(folder: Path, tmp_path: Path) -> None:
    files = ["a/b/one.xplane.pb", "two.json.gz"]
    write_archive(str(tmp_path / "1.zip"), str(folder), files)
    os.utime(folder / "two.json.gz", (1, 1))
    os.chmod(folder / "two.json.gz", 0o600)
    write_archive(str(tmp_path / "2.zip"), str(folder), reversed(files))
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


def test_a_pack_appears_whole_or_not_at_all(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError) as caught:
        write_archive(str(tmp_path / "no" / "such" / "pack.zip"), str(folder), ["two.json.gz"])
    assert caught.value.code == "cannot_write"
    (tmp_path / "is_a_folder").mkdir()
    with pytest.raises(PackError):
        write_archive(str(tmp_path / "is_a_folder"), str(folder), ["two.json.gz"])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["is_a_folder", "source"]


def test_links_and_devices_are_written_through_and_not_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link.zip").symlink_to(tmp_path / "real.zip")
    size = write_archive(str(tmp_path / "link.zip"), str(folder), ["two.json.gz"])
    assert (tmp_path / "link.zip").is_symlink() and (tmp_path / "real.zip").stat().st_size == size
    (tmp_path / "null").symlink_to("/dev/null")
    write_archive(str(tmp_path / "null"), str(folder), ["two.json.gz"])
    assert Path("/dev/null").is_char_device() and (tmp_path / "null").is_symlink()


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "C:/evil", "a\\..\\evil", "a//b", "./a", "a/\x00b", "", "x" * 300]
)
def test_paths_that_lead_out_are_refused(name: str) -> None:
    with pytest.raises(PackError) as caught:
        safe_path(name)
    assert caught.value.code == "unsafe_path"


def test_a_zip_that_would_write_elsewhere_writes_nothing(tmp_path: Path) -> None:
    for name in ("../evil.txt", "/tmp/evil_of_a_zip.txt", "a/../../evil.txt"):
        path = tmp_path / "evil.zip"
        with zipfile.ZipFile(path, "w") as pack:
            pack.writestr("good.txt", "good")
            pack.writestr(name, "evil")
        refused(path, "unsafe_path")
        assert not list((tmp_path / "unpacked").iterdir())


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "link.zip"
    with zipfile.ZipFile(path, "w") as pack:
        info = zipfile.ZipInfo("plugins")
        info.create_system = 3
        info.external_attr = (kind | 0o777) << 16
        pack.writestr(info, "/etc")
    refused(path, "link")


def test_bombs_are_refused_by_what_they_claim_and_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("zeros", b"\0" * (8 << 20))
    refused(path, "bomb")
    refused(path, "too_large", max_bytes=1 << 20)
    data = path.read_bytes()
    # both heads claim ten bytes
    real = (8 << 20).to_bytes(4, "little")
    path.write_bytes(data.replace(real, (10).to_bytes(4, "little")))
    target = tmp_path / "unpacked"
    with pytest.raises(PackError) as caught:
        unpack_archive(str(path), str(target))
    assert caught.value.code in ("cut_off", "bomb")
    assert sum(file.stat().st_size for file in target.iterdir()) <= 10


def test_many_small_bombs_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 20)
    path = tmp_path / "bombs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as pack:
        for number in range(40):
            pack.writestr(f"zeros{number}", b"\0" * (1 << 19))
    refused(path, "bomb")
    assert not list((tmp_path / "unpacked").iterdir())


def test_entries_that_share_their_bytes_are_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_BYTES", 1 << 20)
    path = tmp_path / "shared.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("a" * 6, os.urandom(2000) * 500)
        (one,) = pack.infolist()
        for number in range(400):  # each entry of the directory leads to the same bytes
            other = zipfile.ZipInfo(f"{number:06}", one.date_time)
            for field in ("compress_type", "CRC", "compress_size", "file_size", "header_offset", "external_attr"):
                setattr(other, field, getattr(one, field))
            pack.filelist.append(other)
            pack.NameToInfo[other.filename] = other
    assert path.stat().st_size < 100_000
    refused(path, "bomb")


def test_folders_are_bounded_before_any_is_made(tmp_path: Path) -> None:
    path, target = tmp_path / "p.zip", tmp_path / "open"
    target.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(900):
            archive.writestr("/".join(f"{number}_{depth}" for depth in range(25)) + "/x", b"")
    with pytest.raises(PackError) as error:
        unpack_archive(str(path), str(target))
    assert error.value.code == "too_many_folders" and error.value.params["count"] == 900 * 25
    assert list(target.iterdir()) == []


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as pack:
        for number in range(5):
            pack.writestr(str(number), "x")
    refused(path, "too_many_files")


def test_two_files_of_one_path_and_files_in_files_are_refused(tmp_path: Path) -> None:
    for names in (("a", "a"), ("a", "a/b")):
        path = tmp_path / "twice.zip"
        with zipfile.ZipFile(path, "w") as pack, pytest.warns(UserWarning) if names[0] == names[1] else nothing():
            for name in names:
                pack.writestr(name, "x")
        refused(path, "twice")
        for entry in (tmp_path / "unpacked").iterdir():
            entry.unlink()


class nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_encrypted_damaged_and_other_files_get_one_clear_reason(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.zip"
    write_archive(str(path), str(folder), ["a/b/one.xplane.pb", "two.json.gz"])
    data = path.read_bytes()
    refused(tmp_path / "none.zip", "missing")
    path.write_bytes(data[: len(data) // 2])
    refused(path, "cut_off")
    path.write_bytes(b"")
    refused(path, "not_a_zip")
    path.write_bytes(b"no zip at all" * 50)
    refused(path, "not_a_zip")
    encrypted = bytearray(data)
    for at in (at for at in range(len(data) - 4) if data[at : at + 4] in (b"PK\x01\x02", b"PK\x03\x04")):
        encrypted[at + (8 if data[at + 2] == 1 else 6)] |= 1
    path.write_bytes(bytes(encrypted))
    refused(path, "encrypted")
    unknown = bytearray(data)
    for at in (at for at in range(len(data) - 4) if data[at : at + 4] in (b"PK\x01\x02", b"PK\x03\x04")):
        unknown[at + (10 if data[at + 2] == 1 else 8)] = 98
    path.write_bytes(bytes(unknown))
    refused(path, "unknown_method")
    flipped = bytearray(data)
    flipped[120] ^= 0xFF
    path.write_bytes(bytes(flipped))
    refused(path, "cut_off")


def test_any_damage_is_refused_or_harmless(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.zip"
    write_archive(str(path), str(folder), ["a/b/one.xplane.pb", "two.json.gz"])
    data = path.read_bytes()
    for at in range(0, len(data), 3):
        broken = bytearray(data)
        broken[at] ^= 0x55
        path.write_bytes(bytes(broken))
        target = tmp_path / f"t{at}"
        target.mkdir()
        try:
            unpack_archive(str(path), str(target))
        except PackError:
            continue
    assert not [entry for entry in tmp_path.iterdir() if not entry.name.startswith(("t", "pack", "source"))]


def test_folders_in_a_zip_are_no_files(tmp_path: Path) -> None:
    path, target = tmp_path / "pack.zip", tmp_path / "target"
    target.mkdir()
    with zipfile.ZipFile(path, "w") as pack:
        pack.writestr("empty/", "")
        pack.writestr("full/file", "x")
    assert unpack_archive(str(path), str(target)) == ["full/file"]
