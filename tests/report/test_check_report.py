"""Every format says the same, and nothing from a profile breaks out of it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tb_gpu_doctor.comparison.check import FAILURES, CheckResult, Limits, check
from tb_gpu_doctor.report.check_report import FORMATS, status_word
from tb_gpu_doctor.report.markdown import escaped
from tests.comparison.summaries import summary
from tests.comparison.test_compare import finding, noisy

EVIL = (
    "a\n::error::b,c:%0A | [x](http://y) <script>`\x00\x1b[31m ]]>##[error]\r\ufffe\uffff\udcff\u202e"
    "\u2028::set-env name=a::"
)


def result(label: str = "run") -> CheckResult:
    run = summary(noisy(120, seed=1), label=label, findings=(finding("input_bound", "critical"),))
    return check(run, Limits(occupancy=0.5), summary(noisy(100), label=label, models=("GPU X", "GPU X")))


@pytest.mark.parametrize("lang", ["en", "es"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_every_check_that_failed(name: str, lang: str) -> None:
    words = FORMATS[name](result(), lang)
    assert words.endswith("\n")
    for ident in ("step_time", "findings.input_bound", "occupancy"):
        assert ident in words


def test_json_and_junit_count_alike() -> None:
    data = json.loads(FORMATS["json"](result(), "en"))
    suite = ElementTree.fromstring(FORMATS["junit"](result(), "en")).find("testsuite")
    assert suite is not None
    assert (data["status"], data["exit_status"]) == ("regression", 1)
    found = [entry["status"] for entry in data["checks"]]
    assert int(suite.get("tests", "0")) == len(found) == len(suite.findall("testcase"))
    failed = sum(status in FAILURES for status in found)
    assert int(suite.get("failures", "0")) == failed == len(suite.findall("testcase/failure"))
    assert int(suite.get("errors", "0")) == found.count("cannot_tell") == len(suite.findall("testcase/error"))
    assert data["comparison"]["outcome"] == "slower"


def test_hostile_labels_stay_text() -> None:
    ElementTree.fromstring(FORMATS["junit"](result(EVIL), "en"))
    github = FORMATS["github"](result(EVIL), "en").splitlines()
    commands = tuple(f"::{name} title=GPU Doctor%3A " for name in ("error", "warning", "notice"))
    assert all(line.startswith(commands) for line in github)
    plain = FORMATS["text"](result(EVIL), "en")
    assert "\x1b" not in plain and "##[" not in plain
    assert not [line for line in plain.splitlines() if line.lstrip().startswith("::")]
    for name in FORMATS:
        FORMATS[name](result(EVIL), "en").encode("utf-8")
    markdown = FORMATS["markdown"](result(EVIL), "en")
    assert markdown.splitlines()[-1].count("`") == 4 and "\x00" not in markdown
    assert escaped("[x](y) <b> | @all") == "\\[x\\]\\(y\\) \\<b\\> \\| \\@all"


def test_github_escapes_as_its_toolkit_does() -> None:
    assert "%25" in FORMATS["github"](result(), "en") and "\n\n" not in FORMATS["github"](result(), "en")


@pytest.mark.parametrize("lang", ["en", "es"])
def test_what_cannot_be_told_passes_in_no_format(lang: str) -> None:
    unsure = check(summary(noisy(100, 3)), Limits(occupancy=0.5), summary(noisy(100)))
    assert (unsure.status, {item.status for item in unsure.items}) == ("cannot_tell", {"cannot_tell", "pass"})
    word = status_word("cannot_tell", lang)
    suite = ElementTree.fromstring(FORMATS["junit"](unsure, lang)).find("testsuite")
    assert suite is not None and suite.get("errors") == "2" and len(suite.findall("testcase/error")) == 2
    github = FORMATS["github"](unsure, lang).splitlines()
    assert github[0].startswith("::error") and word in github[0]
    assert sum(line.startswith("::warning") for line in github) == 2
    data = json.loads(FORMATS["json"](unsure, lang))
    assert (data["status"], data["exit_status"]) == ("cannot_tell", 2)
    for name in ("text", "markdown"):
        shown = FORMATS[name](unsure, lang)
        assert word in shown and f"{status_word('pass', lang)}  2" not in shown


def test_what_stands_between_the_runs_is_said_in_every_format() -> None:
    stranger = summary(noisy(100), batch=8, label="other")
    beside = check(summary(noisy(100)), Limits(), stranger)
    assert beside.status == "pass"
    for name, words in FORMATS.items():
        assert "batch size was not recorded" in words(beside, "en"), name
