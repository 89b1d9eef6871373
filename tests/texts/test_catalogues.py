"""Both languages say everything, with the same facts, and nothing is said that nobody asks for."""

from __future__ import annotations

import ast
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import tb_gpu_doctor
from tb_gpu_doctor import texts
from tb_gpu_doctor.analysis.results import CATEGORY_IDS, CAUSE_IDS
from tb_gpu_doctor.diagnosis.model import SEVERITIES, Verdict
from tb_gpu_doctor.diagnosis.rule import rules
from tb_gpu_doctor.texts import UnknownText, all_keys, has_text, languages, pick_language, text
from tb_gpu_doctor.texts.numbers import LocaleFormatter
from tb_gpu_doctor.traces.sessions import UNREADABLE_SUFFIXES

PACKAGE = Path(tb_gpu_doctor.__file__).parent
ENGLISH, SPANISH = all_keys("en"), all_keys("es")


def placeholders(template: str) -> set[tuple[str, str]]:
    """(name, kind) of all placeholders; a plural's choices are the translator's."""
    return {
        (name, (spec or "").split("|")[0].lower())
        for _, name, spec, _ in string.Formatter().parse(template)
        if name is not None
    }


def code_of(template: str) -> list[str]:
    """Code without comments and messages, which are translated."""
    code = re.findall(r"```[a-z]+\n(.*?)```", template, re.DOTALL)
    return [re.sub(r"(?m) *#.*$|'[^'\n]*por segundo'|'[^'\n]*per second'", "", block) for block in code]


def test_there_are_two_languages() -> None:
    assert languages() == ("en", "es")


def test_both_languages_hold_the_same_keys() -> None:
    assert set(ENGLISH) == set(SPANISH)


def differing(english: str, spanish: str) -> list[str]:
    """What two translations of one text do not have in common."""
    # A plural may be needed in one language only; what it counts must be known in both.
    values = [{pair for pair in placeholders(t) if pair[1] != "plural"} for t in (english, spanish)]
    counted = {name for t in (english, spanish) for name, kind in placeholders(t) if kind == "plural"}
    faults = {
        "empty": not english.strip() or not spanish.strip(),
        "placeholders": values[0] != values[1],
        "plurals": not counted <= {name for name, _ in placeholders(english)},
        "code": code_of(english) != code_of(spanish),
    }
    return [name for name, is_there in faults.items() if is_there]


def test_both_languages_state_the_same_facts() -> None:
    faulty = {key: faults for key in sorted(ENGLISH) if (faults := differing(ENGLISH[key], SPANISH[key]))}
    assert not faulty


def test_a_translation_that_says_something_else_is_seen() -> None:
    assert differing("{n:plural|step|steps}", "pasos") == []
    assert differing("{n:plural|step|steps}", "{m:plural|paso|pasos}") == ["plurals"]
    assert differing("{n} steps", "{m} pasos") == ["placeholders"]
    assert differing("steps", " ") == ["empty"]
    assert differing("```python\nx = 1\n```", "```python\nx = 2\n```") == ["code"]


@pytest.mark.parametrize("lang", ["en", "es"])
def test_placeholders_are_well_formed(lang: str) -> None:
    for key, template in all_keys(lang).items():
        for _, name, spec, conversion in string.Formatter().parse(template):
            if name is None:
                continue
            kind, *choices = (spec or "").split("|")
            assert name.isidentifier() and conversion is None, key
            assert kind in LocaleFormatter.KINDS, key
            assert len(choices) == (2 if kind == "plural" else 0), key


@pytest.mark.parametrize("lang", ["en", "es"])
def test_python_in_advice_is_python(lang: str) -> None:
    blocks = 0
    for key, template in all_keys(lang).items():
        for block in re.findall(r"```python\n(.*?)```", template, re.DOTALL):
            compile(block, key, "exec")
            blocks += 1
        assert template.count("```") in (0, 2), key
    assert blocks > 10


@cache
def literals() -> tuple[tuple[Path, str], ...]:
    """Every string literal of the package as a pattern; parts filled in at run time match anything."""
    return tuple(_literals())


def _literals() -> Iterator[tuple[Path, str]]:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kind = re.search(r'^KIND = "(\w+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield path, re.escape(node.value)
            elif isinstance(node, ast.JoinedStr):
                pattern = ""
                for part in node.values:
                    if isinstance(part, ast.Constant):
                        pattern += re.escape(str(part.value))
                    elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "KIND" and kind:
                        pattern += kind.group(1)
                    else:
                        pattern += r"[\w.]+"
                yield path, pattern


AREAS = (
    "errors",
    "notes",
    "cli",
    "report",
    "findings",
    "plugin",
    "telemetry",
    "compare",
    "check",
    "history",
    "env",
    "batch",
)


@pytest.mark.slow
def test_every_key_in_the_source_has_a_text() -> None:
    areas = "|".join(AREAS)
    checked = 0
    for path, pattern in literals():
        if re.fullmatch(rf"({areas})(\\\.[\w\\.\[\]+]+)+", pattern) and not pattern.endswith(
            ("\\.", "\\.json", "\\.js")
        ):
            matcher = re.compile(rf"{pattern}(\..*)?")
            assert any(matcher.fullmatch(key) for key in ENGLISH), f"{path}: {pattern}"
            checked += 1
    assert checked > 40


def test_every_error_and_note_code_has_a_text() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    c_source = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "traces").glob("*.c"))
    raised = r'(?:Profile|Cluster|Remote|Document)Error\(\s*"(\w+)"'
    errors = set(re.findall(raised, source)) | set(re.findall(r'"\(sK\)", "(\w+)"', c_source))
    packs = set(re.findall(r'PackError\(\s*"(\w+)"', source))
    asked = set(re.findall(r'RequestError\(\s*\d+, "(\w+)"(?!, ")', source))
    notes = set(re.findall(r'Phrase\(\s*"notes\.(\w+)"', source))
    unreadable = {code for _, code in UNREADABLE_SUFFIXES} | {"unsupported_format"}
    assert {"truncated", "not_xplane", "empty_file", "cut_off"} <= errors and "riegeli" in unreadable
    for code in errors | unreadable | {"unreadable_file"}:
        assert has_text(f"errors.{code}"), code
    assert {"bomb", "told"} <= packs and "unknown_lane" in asked and "implausible_times" in notes
    for key in (*(f"pack.errors.{code}" for code in packs), *(f"plugin.{code}" for code in asked)):
        assert has_text(key), key
    for code in notes | unreadable:
        assert has_text(f"notes.{code}"), code


def test_every_id_has_a_name() -> None:
    for cause in CAUSE_IDS:
        assert has_text(f"report.causes.{cause}")
    for category in CATEGORY_IDS:
        assert has_text(f"report.parts.{category}")
    for severity in SEVERITIES:
        assert has_text(f"report.severities.{severity}")
    for verdict in get_args(Verdict):
        assert has_text(f"report.verdicts.{verdict}")
    for limiter in ("registers", "shared_memory", "block_size", "blocks"):
        assert has_text(f"report.limiters.{limiter}") and has_text(f"findings.low_occupancy.causes.{limiter}")
    for rule in rules():
        told = ["name", "title", "check"]
        told += ["doubt"] if rule.proves_no_health else []
        told += ["obstacle"] if rule.distorts != "nothing" else []
        assert [name for name in told if not has_text(f"findings.{rule.kind}.{name}")] == [], rule.kind


def test_every_advice_is_given_by_some_rule() -> None:
    used = {pattern.replace("\\", "") for _, pattern in literals()}
    for key in ENGLISH:
        match = re.fullmatch(r"findings\.\w+\.advice\.(\w+)", key)
        if match:
            name = match.group(1)
            base, _, framework = name.rpartition("_")
            given = {name, f"{base}@", f"{base}@{framework}"}
            given |= {base} if framework in ("pytorch", "nsys", "cuda") else set()
            assert given & used, key


# Sentences that stand alone get no facts, but for advice to which its rule gives them: the stage of a pipeline, and
# commands for a GPU that are built from what telemetry recorded.
_GIVEN = {
    "findings.input_bound.advice": {"stage", "at_once", "per_element", "used", "thread"},
    "findings.gpu_lost.advice": {"smi"},
    "findings.gpu_shared.advice": {"smi"},
    "findings.slow_rank.advice": {"smi"},
    "findings.thermal_throttle.advice": {"smi", "watts"},
    "findings.power_throttle.advice": {"smi", "watts"},
}


@pytest.mark.parametrize("lang", languages())
def test_what_stands_alone_needs_no_facts(lang: str) -> None:
    faulty = []
    for key, template in all_keys(lang).items():
        parts = key.split(".")
        if parts[0] == "findings" and len(parts) > 2 and parts[2] in ("advice", "check", "name", "doubt"):
            asked = {name for name, _ in placeholders(template)}
            if asked - _GIVEN.get(".".join(parts[:3]), set()):
                faulty.append(f"{key}: {sorted(asked)}")
    assert faulty == []


def test_an_unknown_key_and_a_missing_parameter_are_errors() -> None:
    for key in ("errors.nope", "nope", "errors", "errors.", "", "../en/errors.unknown", "errors.missing_path.deeper"):
        with pytest.raises(UnknownText):
            text(key)
    with pytest.raises(KeyError):
        text("errors.missing_path")


@pytest.mark.parametrize(
    ("tag", "lang"),
    [("es", "es"), ("es_MX.UTF-8", "es"), ("es-AR", "es"), ("ES", "es"), ("en_US.UTF-8", "en"), ("C", "en"),
     ("de_DE", "en"), ("", "en"), (None, "en"), ("../es", "en")],
)  # fmt: skip
def test_languages_are_picked_by_tag(tag: str | None, lang: str) -> None:
    assert pick_language(tag) == lang


def test_a_language_without_catalogue_speaks_english() -> None:
    assert text("report.verdicts.ok", "fr") == text("report.verdicts.ok", "en")


def test_importing_reads_nothing() -> None:
    code = (
        "import sys, tb_gpu_doctor.texts as t; "
        "assert t._load.cache_info().currsize == 0; assert 'numpy' not in sys.modules; print('fine')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fine"
    assert texts.DEFAULT_LANGUAGE == "en"
