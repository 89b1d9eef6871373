"""The written lists of the rules are those of the rules."""

from __future__ import annotations

import pytest

from scripts.rules_table import ROOT, contents, main, with_kinds


@pytest.mark.parametrize("path", contents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_list_is_stale(path) -> None:  # type: ignore[no-untyped-def]
    assert path.read_text(encoding="utf-8") == contents()[path], "stale: make rules-table"


def test_a_stale_list_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "docs" / "rules.md"
    monkeypatch.setattr("scripts.rules_table.contents", lambda: {path: "other"})
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "docs/rules.md is stale: make rules-table\n"


def test_the_schema_must_say_once_which_kinds_there_are() -> None:
    with pytest.raises(ValueError, match="once"):
        with_kinds("{}")
