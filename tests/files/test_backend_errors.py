"""What backends raise becomes one of a few things, and none of them holds a secret."""

from __future__ import annotations

import pickle
from ftplib import error_perm, error_temp

import pytest

from tb_gpu_doctor.errors import ProfileError, RemoteError
from tb_gpu_doctor.files.backend_errors import translated
from tb_gpu_doctor.report.sentences import error_sentence
from tb_gpu_doctor.texts import languages


class NoCredentialsError(Exception):
    pass


class DefaultCredentialsError(Exception):
    pass


class HttpError(Exception):
    def __init__(self, code: int, message: str = "") -> None:
        self.code = code
        super().__init__(message)


class SSHException(Exception):
    pass


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
        (OSError("Unable to load libjvm dlopen(...) failed"), "remote_hdfs"),
        (OSError("Unable to load libhdfs dlopen(libhdfs.so) failed"), "remote_hdfs"),
        (error_perm("530 Login incorrect."), "remote_denied"),
        (error_perm("550 Permission denied."), "remote_denied"),
        (
            ValueError("Bucket is requester pays. Set `requester_pays=True` when creating the GCSFileSystem."),
            "remote_pays",
        ),
        (error_temp("426 Connection closed; transfer aborted."), "remote_unreachable"),
        (SSHException("No authentication methods available"), "remote_credentials"),
        (SSHException("Error reading SSH protocol banner"), "remote_unreachable"),
        (EOFError(), "remote_unreachable"),
    ],
)
def test_what_it_means(error: Exception, code: str) -> None:
    found = translated(error, "gs")
    assert isinstance(found, RemoteError) and found.code == code
    assert "SECRET" not in str(found)
    for lang in languages():
        sentence = error_sentence(ProfileError(found.code, "gs://bucket/logs", **found.params), lang)
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


def test_an_answer_that_does_not_come_says_how_long_it_was_waited_for() -> None:
    for error in (TimeoutError(), TimeoutError("timed out"), FSTimeoutError()):
        found = translated(error, "gs", seconds=10)
        assert isinstance(found, RemoteError) and (found.code, found.params) == ("remote_timeout", {"seconds": 10})
    found = translated(TimeoutError("[Errno 110] Connection timed out"), "gs", seconds=10)
    assert isinstance(found, RemoteError) and found.code == "remote_unreachable"


def test_ftp_says_missing_in_its_own_way() -> None:
    assert isinstance(translated(error_perm("550 /a is not retrievable."), "ftp"), FileNotFoundError)
