"""Addresses: which are remote, and that no secret of one is ever shown."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.files.addresses import is_chained, is_remote, local_path, scrubbed, shown, split_address

SIGNED = "X-Amz-Signature=0123abcd&X-Amz-Credential=AKIA"


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("gs://bucket/logs", True),
        ("S3://bucket", True),
        ("memory://logs", True),
        ("webhdfs+https://h/x", True),
        ("hdfs:///logs", True),
        ("file:///logs", False),
        ("/logs", False),
        ("", False),
        ("C:\\logs", False),
        ("C:/logs", False),
        ("c://logs", False),
        ("logs/gs://bucket", False),
        ("./s3://bucket", False),
        ("gs:/bucket", False),
        ("simplecache::gs://bucket", True),
        ("run::1/logs", False),
    ],
)
def test_what_is_remote(path: str, remote: bool) -> None:
    assert is_remote(path) == remote


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("gs://bucket/logs", "gs://bucket/logs"),
        ("s3://key:secret@bucket/a@b/c", "s3://bucket/a@b/c"),
        ("s3://KEY:se/cr/et@bucket/logs", "s3://bucket/logs"),
        ("hdfs://me@node:8020/logs", "hdfs://node:8020/logs"),
        ("https://me:pass@host:8443/logs/a.xplane.pb", "https://host:8443/logs/a.xplane.pb"),
        (f"https://host/a.xplane.pb?{SIGNED}#x", "https://host/a.xplane.pb"),
        (f"s3://bucket/a.xplane.pb?{SIGNED}", "s3://bucket/a.xplane.pb"),
        ("gs://bucket/what?/logs", "gs://bucket/what?/logs"),
        ("abfs://container@account.dfs.core.windows.net/logs", "abfs://container@account.dfs.core.windows.net/logs"),
        ("/logs/me:pass@host?sig=1", "/logs/me:pass@host?sig=1"),
        ("sftp://me:p%40ss@host:22/a b#1", "sftp://host:22/a b#1"),
        ("zip://a::s3://me:pass@bucket/p.zip", "zip://a::s3://bucket/p.zip"),
        ("filecache::s3://me:pass@bucket/x", "filecache::s3://bucket/x"),
        ("http://[::1]:8080/logs?sig=1", "http://[::1]:8080/logs"),
        ("gs://bucket/run::1/logs", "gs://bucket/run::1/logs"),
        ("webhdfs://host:9870/a?b", "webhdfs://host:9870/a?b"),
        ("webhdfs://host:9870/a?delegation=TOKEN", "webhdfs://host:9870/a"),
    ],
)
def test_what_is_shown(address: str, public: str) -> None:
    assert shown(address) == public
    assert shown(public) == public


WORDS = st.text(string.ascii_letters + string.digits + "+=%._-", min_size=1, max_size=12)


@given(
    st.sampled_from(["s3", "https", "hdfs", "sftp", "gs"]), WORDS, st.text(string.ascii_letters + "/+=", min_size=8),
    st.lists(WORDS, max_size=3), st.booleans(),
)  # fmt: skip
def test_no_password_and_no_signature_is_shown(
    scheme: str, user: str, secret: str, parts: list[str], signed: bool
) -> None:
    query = "?sig=SIGNATURE!" if signed else ""
    address = f"{scheme}://{user}:PASS!{secret}@host/" + "/".join(parts) + query
    for said in (shown(address), scrubbed(f"cannot open '{address}' now"), scrubbed(f"HEAD {address}: 403")):
        assert "PASS!" not in said and "SIGNATURE!" not in said
        assert f"{scheme}://host/" in said
    prefix, user_part, place, tail = split_address(address)
    assert prefix + user_part + place + tail == address


def test_a_reason_is_one_short_line() -> None:
    assert scrubbed("a\nb\t c") == "a b c"
    assert len(scrubbed("x" * 10_000)) <= 300
    assert scrubbed("bucket name KEY:abc is invalid", ("KEY:abc",)) == "bucket name is invalid"


def test_file_addresses_are_paths(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "c%20d").mkdir()
    assert local_path(f"file://{tmp_path}/a%20b") == f"{tmp_path}/a b"
    assert local_path(f"file://localhost{tmp_path}/c%20d") == f"{tmp_path}/c%20d"
    assert local_path("/x/y") == "/x/y" and local_path("gs://b") == "gs://b"


@pytest.mark.parametrize(
    ("path", "chained"),
    [
        ("zip://a::s3://b", True),
        ("simplecache::gs://b/x", True),
        ("simplecache::zip://*::gs://b/x", True),
        ("zip:///a.zip", True),
        ("http://[::1]:80/logs", False),
        ("gs://b/run::1", False),
        ("https://h/x?u=a::s3://b", False),
        ("run::1", False),
        ("gs://b/logs", False),
    ],
)
def test_chains(path: str, chained: bool) -> None:
    assert is_chained(path) is chained
