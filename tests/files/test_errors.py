"""What backends raise becomes one of a few things, and none of them holds a secret."""

from __future__ import annotations

import pickle

import pytest

from tb_gpu_doctor.files.errors import RemoteError, translated
from tb_gpu_doctor.report.words import error_sentence
from tb_gpu_doctor.texts import languages
from tb_gpu_doctor.traces.errors import TraceError


class NoCredentialsError(Exception):
    pass


class DefaultCredentialsError(Exception):
    pass


class HttpError(Exception):
    def __init__(self, code: int, message: str = "") -> None:
        self.code = code
        super().__init__(message)


class FSTimeoutError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NoCredentialsError("Unable to locate credentials"), "remote_credentials"),
        (DefaultCredentialsError("log in"), "remote_credentials"),
        (HttpError(401, "Anonymous caller does not have storage.objects.list access"), "remote_credentials"),
        (PermissionError("Access Denied"), "remote_denied"),
        (HttpError(403, "no"), "remote_denied"),
        (OSError("Forbidden: https://h/x?sig=SECRET"), "remote_denied"),
        (FSTimeoutError(), "remote_unreachable"),
        (ConnectionRefusedError("no"), "remote_unreachable"),
        (ValueError("odd"), "io_error"),
    ],
)
def test_what_it_means(error: Exception, code: str) -> None:
    found = translated(error, "gs")
    assert isinstance(found, RemoteError) and found.code == code
    assert "SECRET" not in str(found)
    for lang in languages():
        sentence = error_sentence(TraceError(found.code, "gs://bucket/logs", **found.params), lang)
        assert "gs://bucket/logs" in sentence and "\n" not in sentence and "{" not in sentence


def test_missing_stays_missing_and_its_cause_counts() -> None:
    assert isinstance(translated(FileNotFoundError("x"), "s3"), FileNotFoundError)
    missing = FileNotFoundError("https://h/x")
    missing.__cause__ = HttpError(403, "forbidden for KEY:very-secret")
    found = translated(missing, "https", ("KEY:very-secret",))
    assert isinstance(found, RemoteError) and found.code == "remote_denied" and "secret" not in str(found.params)


def test_it_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(RemoteError("remote_denied", scheme="s3", reason="no")))
    assert (error.code, error.params, error.strerror) == ("remote_denied", {"scheme": "s3", "reason": "no"}, "no")
