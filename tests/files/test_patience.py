"""How long is waited for a server, and that the user may say so."""

from __future__ import annotations

import pytest

from tb_gpu_doctor.files.patience import VARIABLE, ask_timeout_s, call_timeout_s


@pytest.mark.parametrize(
    ("value", "ask", "call"),
    [
        (None, 10, 60),
        ("", 10, 60),
        ("30", 30, 60),
        ("120", 120, 120),
        ("0", 1, 60),
        ("-5", 1, 60),
        ("1e9", 3600, 3600),
        ("nan", 10, 60),
        ("inf", 10, 60),
        ("soon", 10, 60),
    ],
)
def test_seconds(monkeypatch: pytest.MonkeyPatch, value: str | None, ask: float, call: float) -> None:
    if value is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, value)
    assert (ask_timeout_s(), call_timeout_s()) == (ask, call)
