"""One tree of errors: each names what happened and where, has a sentence, and crosses the border between processes."""

from __future__ import annotations

import copy
import pickle

import pytest

import tb_gpu_doctor
from tb_gpu_doctor import errors
from tb_gpu_doctor.errors import (
    ClusterError,
    DoctorError,
    DocumentError,
    MissingLibraryError,
    PackError,
    ProfileError,
    RemoteError,
    RequestError,
)
from tb_gpu_doctor.report.sentences import error_sentence, say

EXAMPLES = [
    ProfileError("truncated", "/logs/a.xplane.pb", offset=12, missing_bytes=3),
    ClusterError("cluster_lost", address="tcp://head:8786"),
    RemoteError("remote_denied", "gs://bucket/logs", scheme="gs", reason="no"),
    DocumentError("bad_toml", "gpu-doctor.toml", reason="line 3"),
    PackError("told", "run.zip", file="a", count=2),
    MissingLibraryError("missing_library", library="polars"),
    RequestError(404, "unknown_lane", lane="7"),
    RequestError(400, "bad_parameter", "parameter_range", name="width", low="1", high="9"),
    RequestError.about(ProfileError("cut_off", "a.json")),
]


def test_the_face_offers_the_root_of_the_tree() -> None:
    assert tb_gpu_doctor.DoctorError is DoctorError and "DoctorError" in tb_gpu_doctor.__all__
    tree = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert tree == {DoctorError, *(type(error) for error in EXAMPLES)}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
@pytest.mark.parametrize("lang", ["en", "es"])
def test_each_has_a_sentence(error: DoctorError, lang: str) -> None:
    sentence = error_sentence(error, lang)
    assert sentence == say(error.phrase, lang) and len(sentence) > 20 and error.code not in sentence
    if not isinstance(error, RequestError) or error.path:
        assert error.path in sentence


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
@pytest.mark.parametrize("travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_they_cross_the_border_between_processes(error: DoctorError, travel) -> None:  # type: ignore[no-untyped-def]
    found = travel(error)
    assert type(found) is type(error) and str(found) == str(error)
    assert (found.code, found.path, found.params, found.phrase) == (error.code, error.path, error.params, error.phrase)
    assert getattr(found, "status", None) == getattr(error, "status", None)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_another_path_is_all_that_changes(error: DoctorError) -> None:
    moved = error.with_path("elsewhere")
    assert type(moved) is type(error) and moved.path == "elsewhere"
    assert (moved.code, moved.params) == (error.code, error.params)


def test_a_remote_error_is_one_of_the_system_too() -> None:
    error = RemoteError("remote_timeout", seconds=10)
    assert isinstance(error, OSError) and error.errno is None
    assert error.strerror == str(error) == "remote timeout"
    assert RemoteError("remote_backend", command="pip install gcsfs").strerror == "pip install gcsfs"


def test_a_code_that_no_catalogue_knows_is_told_all_the_same() -> None:
    sentence = error_sentence(ProfileError("brand_new", "/a", plane=3, nothing=None), "en")
    assert "brand_new" in sentence and "plane=3" in sentence and "/a" in sentence and "nothing" not in sentence
