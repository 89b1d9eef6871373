"""A diagnosis in Markdown says what the terminal says, and nothing from a profile is Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tb_gpu_doctor.analysis.results import Cause
from tb_gpu_doctor.api import answer_session, choose_session
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.report.markdown import diagnosis_markdown, escaped
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.traces.sessions import find_sessions
from tests.diagnosis.build import kernel, profile
from tests.report.test_diagnosis_report import SCENARIOS, diagnosed, report

EVIL = "</details><img src=x onerror=y> [a](http://b) ![c](d) @all `x` ``` | #1 https://e.f www.g.h"


@pytest.mark.parametrize("lang", ["en", "es"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_it_says_every_finding_and_closes_what_it_opens(name: str, lang: str) -> None:
    diagnosis = report(name)
    words = diagnosis_markdown(diagnosis, lang)
    assert words.startswith("## ") and words.endswith("\n") and words.count("<details>") == words.count("</details>")
    assert words.count("```") % 2 == 0
    for index, finding in enumerate(diagnosis.findings, 1):
        assert f"{index}. **" in words and escaped(say(finding.title, lang)) in words
    for rows in re.findall(r"(?:^\|.*\n)+", words, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1


def test_nothing_recorded_is_markdown() -> None:
    made = profile(1, kernels=[kernel(EVIL, occupancy=0.1)], idle={Cause.INPUT: 0.4}, host_event=EVIL, label=EVIL,
                   errors=[EVIL], warnings=[EVIL], thread=EVIL)  # fmt: skip
    words = diagnosis_markdown(diagnosed([made], run=EVIL, session=EVIL))
    plain = re.sub(r"\\[^\w\s]", "", words)  # what is escaped stands for itself
    outside = re.sub(r"`[^`\n]*`", "", re.sub(r"```.*?```", "", plain, flags=re.DOTALL))
    assert not re.search(r"<img|@all|\]\(|https?://|www\.", outside)
    assert outside.count("</details>") == outside.count("<details>") > 0 and "```" not in outside


def test_the_command_prints_or_writes_it(
    demo_logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, target = str(demo_logs / "input_bound"), tmp_path / "finding.md"
    assert main(["report", path, "--markdown", "--lang", "en"]) == 0
    words = capsys.readouterr().out
    answer = answer_session(choose_session(find_sessions(path)))
    assert words == diagnosis_markdown(answer.diagnosis) and not list(tmp_path.iterdir())
    assert main(["report", path, "--markdown", "-o", str(target), "--lang", "en"]) == 0
    assert target.read_text(encoding="utf-8") == words and not capsys.readouterr().out
