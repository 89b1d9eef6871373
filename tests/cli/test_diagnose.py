"""``gpu-doctor diagnose`` as its users call it: on the demos, on real profiles, in both languages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import tb_gpu_doctor
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.report.diagnosis_report import schema
from tests.cli.profiles import session_file, training, write

DEMOS = {
    "input_bound": ("critical", "input_bound", None),
    "slow_gpu": ("critical", "imbalance", [2]),
    "launch_bound": ("critical", "launch_bound", None),
    "low_occupancy": ("warning", "low_occupancy", None),
    "healthy": ("ok", None, None),
    "pytorch_ddp": ("critical", "imbalance", [2]),
}


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with no locale but the one given."""
    env = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE")}
    return subprocess.run(
        [sys.executable, "-m", "tb_gpu_doctor.cli.main", *map(str, arguments)],
        capture_output=True, text=True, encoding="utf-8", timeout=60,
        env={**env, "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write(training(), session_file(tmp_path))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", DEMOS)
def test_each_demo_shows_what_was_planted(demo_logs: Path, name: str) -> None:
    if not (demo_logs / name).is_dir():
        pytest.fail(f"demo_logs/{name} not present: run make demo-logs")
    verdict, kind, gpus = DEMOS[name]
    done = run("diagnose", demo_logs / name, "--json")
    assert done.returncode == 0 and done.stderr == ""
    data = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema()).validate(data)
    assert data["verdict"] == verdict
    serious = [finding for finding in data["findings"] if finding["severity"] != "info"]
    if kind is None:
        assert not serious
    else:
        assert data["findings"][0]["kind"] == kind == serious[0]["kind"]
    if gpus is not None:
        assert [gpu["id"] for gpu in data["findings"][0]["gpus"]] == gpus
    for device in data["devices"]:
        parts = sum(device[f"{part}_ms"] for part in ("compute", "communication", "transfer", "idle"))
        assert parts == pytest.approx(device["wall_ms"], abs=1e-6)
        assert sum(device["idle_by_cause_ms"].values()) == pytest.approx(device["idle_ms"], abs=1e-6)


def test_the_demo_input_cost_is_the_planted_one(demo_logs: Path) -> None:
    """The demo's own README states the share that was planted."""
    if not (demo_logs / "input_bound").is_dir():
        pytest.fail("demo_logs/input_bound not present: run make demo-logs")
    data = tb_gpu_doctor.diagnose(demo_logs / "input_bound").to_dict()
    assert data["findings"][0]["share"] == pytest.approx(0.43, abs=0.03)


@pytest.mark.slow
def test_the_summary_in_both_languages(logdir: Path) -> None:
    english, spanish = run("diagnose", logdir), run("diagnose", logdir, "--lang", "es")
    assert english.returncode == spanish.returncode == 0
    assert "HEALTHY" in english.stdout and "SANO" in spanish.stdout
    assert "\x1b" not in english.stdout, "plain when piped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "word"),
    [({"LANG": "es_ES.UTF-8"}, "SANO"), ({"LC_ALL": "C", "LANG": "es_ES.UTF-8"}, "HEALTHY"), ({}, "HEALTHY"),
     ({"LC_MESSAGES": "es_AR", "LANG": "en_US"}, "SANO"), ({"LANG": "de_DE"}, "HEALTHY"),
     ({"LC_ALL": "", "LANG": "es"}, "SANO")],
)  # fmt: skip
def test_the_language_follows_the_locale(logdir: Path, environment: dict[str, str], word: str) -> None:
    assert word in run("diagnose", logdir, **environment).stdout


def test_the_option_wins_over_the_locale(logdir: Path) -> None:
    assert "HEALTHY" in run("diagnose", logdir, "--lang=en", LANG="es_ES").stdout


def test_json_is_alone_on_stdout_and_plain_ascii(logdir: Path) -> None:
    done = run("diagnose", "--json", logdir, "--lang", "es")
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["language"] == "es"
    assert json.loads(done.stdout) == tb_gpu_doctor.diagnose(logdir).to_dict("es")


def test_a_terminal_without_unicode_gets_question_marks_not_a_traceback(logdir: Path) -> None:
    done = run("diagnose", logdir, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "Traceback" not in done.stderr and "HEALTHY" in done.stdout


# -- which session -------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    write(training(), session_file(tmp_path, session="2026_01_01_00_00_00"))
    write(training(), session_file(tmp_path, run="b/train", session="2026_03_03_00_00_00"))
    write(training(), session_file(tmp_path, run="a", session="2026_02_02_00_00_00"))
    write(training(), session_file(tmp_path, run="a", session="2026_01_05_00_00_00"))
    return tmp_path


def chosen(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str, str]:
    assert main(["diagnose", "--json", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    profile = json.loads(out)["profile"]
    return profile["run"], profile["session"], err


def test_the_newest_session_is_taken_and_the_others_listed(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_name, session, err = chosen(capsys, many)
    assert (run_name, session) == ("b/train", "2026_03_03_00_00_00")
    for other in ("--run . --session 2026_01_01_00_00_00", "--run a --session 2026_02_02_00_00_00"):
        assert other in err
    assert "2026_03_03" in err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("--run", "a"), ("a", "2026_02_02_00_00_00")), (("--run", "."), ("", "2026_01_01_00_00_00")),
     (("--session", "2026_01_05_00_00_00"), ("a", "2026_01_05_00_00_00")),
     (("--run", "b/train/"), ("b/train", "2026_03_03_00_00_00")),
     (("--run", "a", "--session", "2026_01_05_00_00_00"), ("a", "2026_01_05_00_00_00"))],
)  # fmt: skip
def test_run_and_session_choose(
    many: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: tuple[str, str]
) -> None:
    assert chosen(capsys, many, *arguments)[:2] == expected


def test_a_choice_that_is_not_there_names_what_is(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(many), "--run", "nope"]) == 2
    err = capsys.readouterr().err
    assert "nope" in err and "b/train" in err and err.count("\n") == 1
    assert main(["diagnose", str(many), "--run", "a", "--session", "nope"]) == 2
    err = capsys.readouterr().err
    assert "2026_01_05_00_00_00" in err and "2026_03_03" not in err


def test_a_newer_session_that_cannot_be_read_is_passed_over(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = session_file(logdir, session="2026_09_09_00_00_00")
    newer.with_name("worker0.xplane.riegeli").write_bytes(b"\x83\xaf\x70\xd1" * 20)
    _, session, err = chosen(capsys, logdir)
    assert session == "2026_01_01_00_00_00"
    assert "2026_09_09_00_00_00" in err and "riegeli" in err


@pytest.mark.parametrize("part", ["", "plugins", "plugins/profile", "plugins/profile/2026_01_01_00_00_00",
                                  "plugins/profile/2026_01_01_00_00_00/worker0.xplane.pb"])  # fmt: skip
def test_any_path_on_the_way_works(logdir: Path, capsys: pytest.CaptureFixture[str], part: str) -> None:
    assert main(["diagnose", "--json", str(logdir / part)]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["hosts"] == ["worker0"]


# -- through Python ------------------------------------------------------------------------


def test_through_python(logdir: Path) -> None:
    stages: list[tuple[str, float]] = []
    diagnosis = tb_gpu_doctor.diagnose(str(logdir), progress=lambda stage, done: stages.append((stage, done)))
    assert diagnosis.verdict == "ok" and len(diagnosis.gpus) == 2
    assert diagnosis.step_count >= 3
    assert {stage for stage, _ in stages} == {"reading", "decoding", "analysing", "diagnosing"}
    fractions = [done for _, done in stages]
    assert fractions == sorted(fractions) and fractions[0] == 0 and fractions[-1] == 1


@pytest.mark.slow
def test_real_profiles_can_be_diagnosed(shared_traces: Path) -> None:
    expected = {
        "tf_bert_8gpu": "idle_gpus",
        "jax_gemm_1of8_mi300x": "idle_gpus",
        "jax_te_attention": "idle_gpus",
        "jax_conv_8xmi300x_older": "idle_gpus",
        "jax_conv_8xmi300x": "launch_bound",
        "xla_2xgtx1080ti": "short_profile",
    }
    for name, kind in expected.items():
        for lang in ("en", "es"):
            data = tb_gpu_doctor.diagnose(shared_traces / name).to_dict(lang)
            jsonschema.Draft202012Validator(schema()).validate(data)
        assert kind in [finding["kind"] for finding in data["findings"]], name
        assert data["verdict"] != "ok", name


def test_the_language_can_stand_before_the_subcommand(logdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lang", "es", "diagnose", str(logdir)]) == 0
    assert "SANO" in capsys.readouterr().out


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    """Three workers whose profilers named a folder each, and a later capture of the first."""
    for second, host in ((1, "node1"), (3, "node2"), (5, "node3")):
        write(training(gpus=1), session_file(tmp_path, host, session=f"2026_01_01_00_00_0{second}"))
    write(training(gpus=1), session_file(tmp_path, "node1", session="2026_01_01_00_30_00"))
    return tmp_path


def test_sessions_that_may_be_one_job_are_offered(workers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, session, err = chosen(capsys, workers, "--session", "2026_01_01_00_00_03")
    assert session == "2026_01_01_00_00_03", "offered, not forced"
    told, command = err.splitlines()
    assert told.startswith("2 other sessions of other hosts start within 4 s.")
    name = "2026_01_01_00_00_01,2026_01_01_00_00_03,2026_01_01_00_00_05"
    assert command == f"  gpu-doctor diagnose {workers} --session {name}"
    assert main(["diagnose", *command.split()[2:], "--json"]) == 0
    out, err = capsys.readouterr()
    assert [(device["host"], device["id"]) for device in json.loads(out)["devices"]] == [
        ("node1", 0), ("node2", 0), ("node3", 0)
    ]  # fmt: skip
    assert json.loads(out)["profile"]["session"] == name and "start within" not in err
    several = [f"--session=2026_01_01_00_00_0{second}" for second in (5, 1)]
    assert main(["diagnose", str(workers), "--json", *several]) == 0
    assert json.loads(capsys.readouterr().out)["profile"]["hosts"] == ["node1", "node3"]


def test_the_newest_session_alone_is_offered_nothing(workers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, session, err = chosen(capsys, workers)
    assert session == "2026_01_01_00_30_00" and "start within" not in err


def test_the_offer_in_spanish_and_with_names_for_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host, run_name in (("a", "it's/w0"), ("b", "it's/w1\x1b[31m")):
        write(training(gpus=1), session_file(tmp_path, host, run=run_name))
    assert main(["diagnose", str(tmp_path), "--lang", "es", "--run", "it's/w0"]) == 0
    err = capsys.readouterr().err
    assert "De otras máquinas hay 1 sesión más que empieza en un margen de 1 s" in err and "\x1b" not in err
    assert """--run 'it'"'"'s/w0'""" in err


def test_two_captures_of_one_host_are_refused_as_a_job(workers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(workers), "--session", "2026_01_01_00_00_01,2026_01_01_00_30_00"]) == 2
    err = capsys.readouterr().err
    assert "node1" in err and "no single job" in err and err.count("\n") == 1
    assert main(["diagnose", str(workers), "--session", "2026_01_01_00_00_01,nope"]) == 2
    assert "nope" in capsys.readouterr().err
