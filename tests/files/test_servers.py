"""Real servers of every kind: the same answers as on this machine, and one clear reason for what goes wrong."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files import fetching
from tb_gpu_doctor.files.fetching import local_copy, read_head
from tb_gpu_doctor.files.remote import RemoteFiles, remote_at
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.remote_servers import ENCODED, PASSWORD, USER, Gcs, Sftp, ftp_server, gcs_server, sftp_server
from tests.remote_stores import S3, files_below, s3_server

pytestmark = pytest.mark.slow

# What addresses give a meaning to.
ODD_NAMES = ("a b#1", "a?b", "a%20b%", "año λ", "q&a=x+y", "run::[1]", "d?q#f", "at@sign:1")


class Place:
    """A folder of a server: ``address`` may hold a password, ``shown`` does not."""

    def __init__(self, address: str, shown: str, write: Callable[[str, bytes], None]) -> None:
        self.address, self.shown, self.write = address, shown, write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers of files serve."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def gcs() -> Iterator[Gcs]:
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def ftp(root: Path) -> Iterator[str]:
    with ftp_server(root) as place:
        yield place


@pytest.fixture(scope="module")
def sftp(root: Path) -> Iterator[Sftp]:
    with sftp_server(root) as server:
        yield server


@pytest.fixture(params=["gs", "s3", "ftp", "sftp"])
def place(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Place:
    """An empty folder of each kind of server."""
    name = tmp_path.name
    if request.param in ("gs", "s3"):
        store = request.getfixturevalue({"gs": "gcs", "s3": "s3"}[request.param])
        address = store.put({}, name)
        return Place(address, address, lambda path, content: store.put({path: content}, name) and None)
    server = request.getfixturevalue(request.param)
    host = server if isinstance(server, str) else server.place

    def write(path: str, content: bytes) -> None:
        file = root / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    return Place(f"{request.param}://{USER}:{ENCODED}@{host}/{name}", f"{request.param}://{host}/{name}", write)


def test_a_logdir_is_found_and_read(place: Place, demo_logs: Path) -> None:
    for path, content in files_below(demo_logs / "slow_gpu").items():
        place.write(f"job/{path}", content)
    here = find_sessions(str(demo_logs / "slow_gpu"))
    there = find_sessions(place.address)
    assert not there.problems and PASSWORD not in repr(there.root)
    assert [(s.session, s.size_bytes, len(s.files)) for s in there.sessions] == [
        (s.session, s.size_bytes, len(s.files)) for s in here.sessions
    ]
    assert all(session.path.startswith(place.shown + "/job") for session in there.sessions)
    for mine, other in zip(here.sessions, there.sessions, strict=True):
        for file, remote in zip(mine.files, other.files, strict=True):
            content = Path(file.path).read_bytes()
            with local_copy(remote.address or remote.path) as copy:
                assert Path(copy).read_bytes() == content
            assert read_head(remote.address or remote.path, 100) == content[:100]
            assert remote.version and abs(remote.modified_unix_s - time.time()) < 3600 * 24


def test_a_large_file_comes_whole_and_in_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PIECE_BYTES", 1 << 20)
    content = os.urandom((2 << 20) + 123)
    place.write("large.pb", content)
    shares: list[float] = []
    with local_copy(f"{place.address}/large.pb", shares.append) as copy:
        assert Path(copy).read_bytes() == content
    assert len(shares) == 3 and shares == sorted(shares)


def test_odd_names(place: Place) -> None:
    for name in ODD_NAMES:
        place.write(f"{name}/plugins/profile/s/h o#st?.xplane.pb", name.encode())
    scan = find_sessions(place.address)
    assert sorted(session.run for session in scan.sessions) == sorted(ODD_NAMES) and not scan.problems
    for session in scan.sessions:
        with local_copy(session.files[0].address or session.files[0].path) as copy:
            assert Path(copy).read_bytes() == session.run.encode()
        assert len(find_sessions(f"{place.address}/{session.run}/").sessions) == 1


def test_a_rewritten_file_of_the_same_size_is_noticed(place: Place) -> None:
    place.write("plugins/profile/s/h.xplane.pb", b"one")
    files, path = remote_at(place.address), f"{place.shown}/plugins/profile/s/h.xplane.pb"
    before = files.version(files.stat(path))
    time.sleep(1.1)  # what FTP and SFTP tell of times ends with the second
    place.write("plugins/profile/s/h.xplane.pb", b"two")
    files.refresh(place.shown)
    assert files.version(files.stat(path)) != before


def test_what_goes_between_listing_and_reading(place: Place) -> None:
    place.write("a/b.pb", b"1")
    for path in ("a/c.pb", "nothing/c.pb"):
        with pytest.raises(FileNotFoundError), local_copy(f"{place.address}/{path}"):
            pass
    with pytest.raises(ProfileError) as raised:
        find_sessions(f"{place.address}/nothing")
    assert raised.value.code == "missing_path" and raised.value.path == f"{place.shown}/nothing"


def test_many_threads_at_a_time(place: Place) -> None:
    contents = {f"run{index}/plugins/profile/s/h.xplane.pb": os.urandom(1000) for index in range(4)}
    for path, content in contents.items():
        place.write(path, content)
    files = remote_at(place.address)
    wrong: list[str] = []

    def work(path: str, content: bytes) -> None:
        for _ in range(2):
            with local_copy(f"{place.address}/{path}") as copy:
                if Path(copy).read_bytes() != content:
                    wrong.append(path)
            if files.ask(f"{place.shown}/{path}").st_size != len(content):
                wrong.append(path)
        if len(find_sessions(place.shown).sessions) != len(contents):
            wrong.append(place.shown)

    threads = [threading.Thread(target=work, args=item) for item in contents.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize("kind", ["ftp", "sftp"])
def test_a_wrong_password_is_told_and_not_shown(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    host = server if isinstance(server, str) else server.place
    for user in (f"{USER}:wrong-one", "nobody:wrong-one"):
        files = RemoteFiles(f"{kind}://{host}")
        files.learn(f"{user}@", f"{kind}://{host}/", "")
        with pytest.raises(RemoteError) as raised:
            files.ask(f"{kind}://{host}/logs")
        assert raised.value.code == "remote_denied" and "wrong-one" not in repr(raised.value.params)


def test_a_line_that_was_cut_is_opened_anew(sftp: Sftp, root: Path) -> None:
    (root / "idle").mkdir()
    (root / "idle" / "a.pb").write_bytes(b"1")
    files = RemoteFiles(f"sftp://{sftp.place}")
    files.learn(f"{USER}:{ENCODED}@", f"sftp://{sftp.place}/", "")
    path = f"sftp://{sftp.place}/idle"
    assert files.ask(f"{path}/a.pb").st_size == 1
    lines = sftp.lines
    for _ in range(2):
        sftp.cut_lines()
        assert files.ask(f"{path}/a.pb").st_size == 1
    assert sftp.lines == lines + 2


def test_a_server_that_goes_away(root: Path) -> None:
    (root / "gone").mkdir()
    with sftp_server(root) as server, gcs_server() as bucket:
        addresses = {
            f"sftp://{USER}:{ENCODED}@{server.place}/gone": "remote_unreachable",
            bucket.put({"a.pb": b"1"}): "remote_timeout",
        }
        for address in addresses:
            assert remote_at(address).isdir(address)
        emulator = os.environ["STORAGE_EMULATOR_HOST"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_DOCTOR_REMOTE_TIMEOUT_S", "1")  # Google's own library tries for half a minute
        patch.setenv("STORAGE_EMULATOR_HOST", emulator)
        for address, code in addresses.items():
            remote_at(address)._told = None
            began = time.monotonic()
            with pytest.raises(ProfileError) as raised:
                find_sessions(address)
            assert (raised.value.code, time.monotonic() - began < 5) == (code, True)


def test_ten_thousand_objects_are_listed_once(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import moto.backends
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    address = s3.put({"run/plugins/profile/s/h.xplane.pb": b"1"}, "many")
    backend = next(iter(moto.backends.get_backend("s3").values()))["aws"]
    for index in range(10_000):
        backend.put_object(s3.bucket, f"many/run/checkpoints/{index:05}.ckpt", b"")
    asked: list[str] = []
    answer = DomainDispatcherApplication.__call__

    def counted(self: DomainDispatcherApplication, environ: dict[str, str], start: object) -> object:
        asked.append(environ["REQUEST_METHOD"] + " " + environ["QUERY_STRING"])
        return answer(self, environ, start)

    monkeypatch.setattr(DomainDispatcherApplication, "__call__", counted)
    assert len(find_sessions(address).sessions) == 1
    # Whether it is a file or a folder: two; then a question a folder, and a thousand names an answer.
    folders = ["", "run", "run/checkpoints", "run/plugins", "run/plugins/profile", "run/plugins/profile/s"]
    assert len(asked) <= 2 + len(folders) + 10, asked
    files = remote_at(address)
    del asked[:]
    assert len(files.listdir(f"{address}/run/checkpoints")) == 10_000
    files.refresh(address, 30)
    assert asked == []


def test_keys_in_an_address_of_s3(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = s3.put({"plugins/profile/s/h.xplane.pb": b"1"}, "keys")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    files = RemoteFiles(f"s3://{s3.bucket}")
    with pytest.raises(RemoteError) as raised:
        files.ask(address)
    assert raised.value.code == "remote_credentials"
    for keys in ("AKIA:se/cr+et=", "AKIA:se%2Fcr%2Bet%3D"):
        files.learn(f"{keys}@", address, "")
        assert files.listdir(address) == ["plugins"]
        assert files.ask(f"{address}/plugins/profile/s/h.xplane.pb").st_size == 1


def test_a_server_with_another_key_than_known_gets_no_password(
    sftp: Sftp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import paramiko

    host, port = sftp.place.split(":")
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    place = f"sftp://{sftp.place}"
    for key, accepted in ((sftp.key, True), (paramiko.RSAKey.generate(2048), False)):
        known.write_text(f"[{host}]:{port} {key.get_name()} {key.get_base64()}\n")
        files = RemoteFiles(place)
        files.learn(f"{USER}:{ENCODED}@", place, "")
        if accepted:
            files.listdir(place)
        else:
            with pytest.raises(RemoteError, match="does not match"):
                files.listdir(place)


def test_an_ftp_server_of_the_old_kind(root: Path) -> None:
    """Many list only as `ls` does; then nothing tells when a file was written, and nothing is remembered of it."""
    folder = root / "old" / "a run" / "plugins" / "profile" / "s"
    folder.mkdir(parents=True)
    (folder / "h.xplane.pb").write_bytes(b"content")
    with ftp_server(root, lacks=("MLSD", "MLST", "SIZE")) as place:
        (session,) = find_sessions(f"ftp://{place}/old").sessions
        assert (session.run, session.size_bytes, session.files[0].version) == ("a run", 7, "")
        with local_copy(session.files[0].path) as copy:
            assert Path(copy).read_bytes() == b"content"


def test_a_transfer_by_ftp_that_breaks_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a size only the server's last word tells that a file is not whole."""
    handlers = pytest.importorskip("pyftpdlib.handlers")
    (root / "long.pb").write_bytes(bytes(4 << 20))
    send = handlers.DTPHandler.send

    def cut(self: Any, content: bytes) -> int:
        if self.get_transmitted_bytes() > 1 << 20:
            self.close()
            return 0
        return int(send(self, content))

    monkeypatch.setattr(handlers.DTPHandler, "send", cut)
    monkeypatch.setattr(handlers.DTPHandler, "use_sendfile", False)
    for lacks in ((), ("SIZE",)):
        with ftp_server(root, lacks) as place, pytest.raises(RemoteError) as raised:  # noqa: SIM117
            with local_copy(f"ftp://{place}/long.pb"):
                pass
        assert raised.value.code in ("remote_changed", "remote_unreachable")


def test_objects_that_stand_for_folders(s3: S3) -> None:
    """As the web console makes them; and a file that has the name of a folder hides nothing."""
    import moto.backends

    backend = next(iter(moto.backends.get_backend("s3").values()))["aws"]
    for name in ("", "run/", "run/plugins/", "run/plugins/profile/", "run/plugins/profile/s/", "empty/"):
        backend.put_object(s3.bucket, f"marked/{name}", b"")
    backend.put_object(s3.bucket, "marked/run/plugins/profile/s/h.xplane.pb", b"1")
    backend.put_object(s3.bucket, "marked/both", b"1")
    backend.put_object(s3.bucket, "marked/both/plugins/profile/s/h.xplane.pb", b"1")
    for address in (f"s3://{s3.bucket}/marked", f"s3://{s3.bucket}/marked/"):
        scan = find_sessions(address)
        assert sorted(session.run for session in scan.sessions) == ["both", "run"] and not scan.problems
        assert [[file.host for file in session.files] for session in scan.sessions] == [["h"], ["h"]]
        assert remote_at(address).listdir(address) == ["both", "empty", "run"]
    assert find_sessions(f"s3://{s3.bucket}/marked/empty").sessions == ()
