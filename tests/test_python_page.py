"""The lines that ``docs/python.md`` tells people to paste: run in order on the demo runs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
NEEDS = {"to_pandas": "pandas", "to_polars": "polars", "to_arrow": "pyarrow"}


def blocks(page: str) -> list[str]:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


PAGE = blocks("docs/python.md")


def missing(block: str) -> list[str]:
    wanted = [library for method, library in NEEDS.items() if method in block]
    return [library for library in wanted if importlib.util.find_spec(library) is None]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory, demo_logs: Path) -> dict[str, Any]:
    (tmp_path_factory.getbasetemp() / "python_page").mkdir()
    (tmp_path_factory.getbasetemp() / "python_page" / "logs").symlink_to(demo_logs)
    scope: dict[str, Any] = {"folder": tmp_path_factory.getbasetemp() / "python_page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(scope["folder"])
        exec(PAGE[0], scope)
    return scope


def test_the_page_shows_every_way_out() -> None:
    assert all(any(method in block for block in PAGE) for method in NEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, len(PAGE)))
def test_each_example_runs(number: int, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    block = PAGE[number]
    if absent := missing(block):
        pytest.skip(f"not installed: {', '.join(absent)}")
    monkeypatch.chdir(names["folder"])
    exec(compile(block, f"docs/python.md, example {number}", "exec"), names)


def test_what_the_comments_promise(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(names["folder"])
    exec(PAGE[-1], names)
    assert capsys.readouterr().out == "no_such_run logs\n"


def test_both_languages_show_the_same_code() -> None:
    def code(page: str) -> list[str]:
        return [re.sub(r" *#.*", "", block) for block in blocks(page)]

    assert code("docs/python.md") == code("docs/es/python.md")


def test_the_readme_leads_there_and_its_example_runs(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = [block for block in blocks("README.md") if "diagnosis.gaps" in block]
    assert "docs/python.md" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(names["folder"])
    exec(example, {})
