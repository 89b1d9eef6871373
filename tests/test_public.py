"""What Python programs get: every name, the examples, results that print as the terminal shows them."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tb_gpu_doctor
from tb_gpu_doctor import _HOMES, Diagnosis, DoctorError, ProfileError

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def input_bound(demo_logs: Path) -> Diagnosis:
    return tb_gpu_doctor.diagnose(demo_logs / "input_bound")


def test_every_name_is_there_and_says_what_it_is() -> None:
    lazy = {name for names in _HOMES.values() for name in names}
    assert set(tb_gpu_doctor.__all__) == lazy | {"__version__"}
    assert sorted(tb_gpu_doctor.__all__) == list(tb_gpu_doctor.__all__)
    assert set(dir(tb_gpu_doctor)) >= set(tb_gpu_doctor.__all__)
    for name in sorted(lazy - {"GpuDoctorCallback"}):  # that one needs Keras
        assert inspect.getdoc(getattr(tb_gpu_doctor, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tb_gpu_doctor.nothing


def test_all_errors_are_offered() -> None:
    errors = importlib.import_module("tb_gpu_doctor.errors")
    found = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, DoctorError)}
    assert found - set(tb_gpu_doctor.__all__) == {"RequestError"}, "which is the tab's own"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["public", "public_results", "tables"])
def test_the_examples_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    result = doctest.testmod(importlib.import_module(f"tb_gpu_doctor.{module}"))
    assert result.attempted and not result.failed


def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tb_gpu_doctor\n"
        "diagnosis: tb_gpu_doctor.Diagnosis = tb_gpu_doctor.diagnose('logs')\n"
        "title: str = diagnosis.findings[0].title\n"
        "rows: int = len(diagnosis.gaps)\n"
        "change = tb_gpu_doctor.compare('a', 'b').change\n"
        "value: float = change.value if change else 0.0\n"
        "wrong: int = diagnosis.findings[0].title\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(REPOSITORY / "pyproject.toml")]
    command += ["--cache-dir", str(REPOSITORY / ".mypy_cache"), str(program)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and "program.py:7:" in errors[0], done.stdout + done.stderr


@pytest.mark.slow
def test_it_prints_what_the_command_prints(demo_logs: Path, input_bound: Diagnosis) -> None:
    for lang in ("en", "es"):
        command = [sys.executable, "-m", "tb_gpu_doctor.cli.main", "diagnose", str(demo_logs / "input_bound")]
        done = subprocess.run([*command, "--lang", lang], capture_output=True, text=True, check=True, cwd=REPOSITORY)
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        assert str(input_bound.in_language(lang)).splitlines() == printed


def test_titles_are_plain_strings_in_the_chosen_language(demo_logs: Path, input_bound: Diagnosis) -> None:
    spanish = tb_gpu_doctor.diagnose(demo_logs / "input_bound", lang="es_ES.UTF-8")
    assert spanish.lang == "es"
    for diagnosis in (input_bound, spanish, input_bound.in_language("es")):
        data = diagnosis.to_dict()
        assert data["language"] == diagnosis.lang and json.loads(diagnosis.to_json()) == data
        for finding, told in zip(diagnosis.findings, data["findings"], strict=True):
            assert (finding.title, finding.explanation, list(finding.advice), finding.check) == (
                told["title"], told["explanation"], told["advice"], told["check"],
            )  # fmt: skip
            assert str(finding) == finding.title and type(finding.title) is str
            assert [place.what for place in finding.evidence] == [place["what"] for place in told["evidence"]]
            assert [gpu.id for gpu in finding.gpus] == [gpu["id"] for gpu in told["gpus"]]
    assert input_bound.findings[0].title != spanish.findings[0].title
    assert repr(input_bound).startswith("<Diagnosis of ") and "critical" in repr(input_bound)


def test_a_session_that_was_found_can_be_diagnosed(demo_logs: Path) -> None:
    scan = tb_gpu_doctor.find_sessions(demo_logs)
    session = next(session for session in scan.sessions if session.run == "slow_gpu")
    assert tb_gpu_doctor.diagnose(session).to_json() == tb_gpu_doctor.diagnose(demo_logs, run="slow_gpu").to_json()


def test_results_survive_a_journey(input_bound: Diagnosis) -> None:
    there = pickle.loads(pickle.dumps(input_bound))
    assert there.to_json() == input_bound.to_json() and str(there) == str(input_bound)


@pytest.mark.slow
def test_comparison_check_and_history_speak(demo_logs: Path, tmp_path: Path) -> None:
    comparison = tb_gpu_doctor.compare(demo_logs / "input_bound", demo_logs / "healthy", lang="es")
    assert comparison.change is not None and comparison.before_ms is not None and comparison.after_ms is not None
    assert comparison.change.value == pytest.approx(comparison.after_ms / comparison.before_ms - 1)
    assert comparison.reasons and "MÁS RÁPIDO" in str(comparison)
    assert comparison.to_dict()["outcome"] == comparison.outcome == "faster"

    result = tb_gpu_doctor.check(demo_logs / "input_bound")
    assert not result.passed and result.to_dict()["status"] == result.status == "finding"
    assert len(result.messages) == 1 and result.messages[0] in str(result)
    limits = tmp_path / "limits.toml"
    limits.write_text("[findings]\nseverities = []\n[limits]\nidle_share = 0.99\n")
    assert tb_gpu_doctor.check(demo_logs / "input_bound", limits=limits).passed

    history = tb_gpu_doctor.history(demo_logs)
    assert len(history.sessions) == len(history.to_dict()["sessions"]) == 6
    assert [row.step_ms for row in history.sessions] == [row["step_ms"] for row in history.to_dict()["sessions"]]
    for shown in (comparison, result, history):
        page = shown._repr_html_()
        assert page.startswith("<pre") and "<script" not in page and repr(shown).startswith("<")


def test_errors_say_what_and_where(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        tb_gpu_doctor.diagnose(tmp_path / "nowhere")
    assert caught.value.code == "missing_path" and caught.value.path.endswith("nowhere")


def test_tables_are_those_of_the_files_that_were_diagnosed(demo_logs: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(demo_logs / "input_bound", logs)
    diagnosis = tb_gpu_doctor.diagnose(logs)
    (session,) = logs.glob("**/plugins/profile/*")
    (other,) = (demo_logs / "healthy").glob("**/plugins/profile/*")
    for file in session.iterdir():
        file.unlink()
    for file in other.glob("*.xplane.pb"):
        shutil.copy(file, session)
    with pytest.raises(ProfileError) as caught:
        _ = diagnosis.gaps
    assert caught.value.code == "changed" or caught.value.code == "unreadable_file"
