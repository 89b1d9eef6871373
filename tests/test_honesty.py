"""No answer to a demo run or a real profile says more than the profile shows, or less than it lost."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.honesty import dishonesties


def answer(path: Path) -> dict | None:
    """The JSON of a diagnosis; None where the path holds none."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main(["--lang", "en", "diagnose", "--json", str(path)])
    return json.loads(out.getvalue()) if out.getvalue() else None


def judged(folder: Path) -> tuple[int, list[str]]:
    """How many answers there are, and what is wrong with them."""
    answers = {path.name: found for path in sorted(folder.iterdir()) if (found := answer(path)) is not None}
    return len(answers), [f"{name}: {text}" for name, found in answers.items() for text in dishonesties(found)]


def test_demo_runs(demo_logs: Path) -> None:
    count, wrong = judged(demo_logs)
    assert count >= 6 and wrong == []


@pytest.mark.slow
def test_real_profiles(shared_traces: Path) -> None:
    count, wrong = judged(shared_traces)
    assert count >= 20 and wrong == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"verdict": "ok"}, "ok beside"),
        ({"verdict": "ok", "findings": []}, "ok over"),
        ({"verdict": "warning", "findings": []}, "without a finding"),
        ({"steps": {"count": 9, "median_ms": 1.0}}, "of a step of"),
    ],
)
def test_what_is_dishonest_is_found(demo_logs: Path, change: dict, told: str) -> None:
    found = answer(demo_logs / "input_bound")
    assert found is not None and dishonesties(found) == []
    assert any(told in text for text in dishonesties(found | change))
