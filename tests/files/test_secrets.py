"""Secrets are taken out of whatever is shown; what helps stays."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.files.secrets import (
    HIDDEN,
    all_without_secrets,
    names_without_secrets,
    outline_of_cluster,
    without_secrets,
)

PLANTED = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"ftp://user:{PLANTED}@host/logs",
        f"cannot write to s3://key:{PLANTED}@bucket/logs: no route",
        f"https://host/x?X-Amz-Signature={PLANTED}&a=1",
        f"--xla_dump_to=https://u:{PLANTED}@h/d",
        f"password={PLANTED}",
        f'{{"api_key": "{PLANTED}"}}',
        f"WANDB_TOKEN={PLANTED}",
        f"Authorization: Bearer {PLANTED}",
        f"run --token {PLANTED} now",
        f"/home/{PLANTED}/dump",
        f"a:/Users/{PLANTED}/x",
        f"C:\\Users\\{PLANTED}\\x",
        f"ghp_{PLANTED}0123456789abcdefABCD",
        f"hf_{PLANTED}abcdefghijk",
    ],
)
def test_what_is_secret_goes(text: str) -> None:
    assert PLANTED not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI4K7MDENGbPxRfiCYEXAMPLEKEY1",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    ],
)
def test_keys_are_known_by_their_looks(text: str) -> None:
    assert without_secrets(f"see {text} there") == f"see {HIDDEN} there"


@pytest.mark.parametrize(
    "text",
    [
        "Linux-6.1.0-13-cloud-amd64-x86_64-with-glibc2.36",
        "/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127",
        "GPU-4f1a2b3c-0000-1111-2222-0123456789ab",
        "MIG-4f1a2b3c-0000-1111-2222-0123456789ab",
        "550.54.15 (simulated)",
        "--xla_gpu_enable_latency_hiding_scheduler=true --xla_dump_to=/tmp/x",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "c2fe0c2b1c2d4f5e8a9b0c1d2e3f4a5b6c7d8e9f",
        "3,1,GPU-4f1a2b3c",
        "gs://bucket/logs",
        "max_split_size_mb:128,expandable_segments:True",
        "RM has detected an NVML/RM version mismatch.",
        "tokens per second",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_lists_and_dictionaries_all_the_way_down() -> None:
    given = {"a": [f"/home/{PLANTED}/x", 3, None], "b": {"c": f"token={PLANTED}"}, "d": 1.5}
    assert all_without_secrets(given) == {"a": ["/home/~/x", 3, None], "b": {"c": f"token={HIDDEN}"}, "d": 1.5}


def test_a_cluster_is_told_by_its_size() -> None:
    config = {"cluster": {"worker": ["a.internal:1", "b.internal:2"]}, "task": {"type": "worker", "index": 1}}
    told = outline_of_cluster(json.dumps(config))
    assert json.loads(told) == {"tasks": {"worker": 2}, "task": {"type": "worker", "index": 1}}
    assert outline_of_cluster("oops") == outline_of_cluster("[1]") == HIDDEN


HOME = "/home"  # no path of anybody's home stands in the repository
NAMES = st.lists(
    st.sampled_from(
        [f"{HOME}/ann/train.py(8): fit", "aten::mm", "s3://k:hunter2@b/x", "token=", "abc", "password: x",
         "é/Users/bo/x", "hf_0123456789abcdef", "tokenizer", "attention/key/kernel", "my_api_key", "= hunter2",
         "ftp://", "a@b"]
    ) | st.text(max_size=12)
)  # fmt: skip


@given(NAMES)
def test_names_of_a_trace_are_shown_as_each_alone_would_be(names: list[str]) -> None:
    raw = [name.encode("utf-8", "replace") for name in names]
    offsets = [0, *itertools.accumulate(map(len, raw))]
    found = names_without_secrets(b"".join(raw), offsets)
    for index, name in enumerate(raw):
        text = name.decode("utf-8", "replace")
        alone = names_without_secrets(name, [0, len(name)]).get(0, text)
        assert found.get(index, text) == alone
        if len(text) < 32:  # no random text in it
            assert alone == without_secrets(text)


@pytest.mark.parametrize(
    "part",
    ["a", "A1", "_", "_token", "_secret", "eyJ-", "x.", "key ", "://", "a://", "password", "-----BEGIN ", "/home/"],
)
def test_long_and_hostile_text_is_looked_at_once(part: str) -> None:
    """Patterns that begin anew at every letter would take minutes for this."""
    text = part * (200_000 // len(part))
    assert len(without_secrets(text)) <= len(text)
    assert names_without_secrets(text.encode(), [0, len(text)]).get(0, text)
