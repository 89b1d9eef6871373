"""``gpu-doctor env``: what training runs under here, and what is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.cli.arguments import Parser, add_command
from tb_gpu_doctor.cli.output import console
from tb_gpu_doctor.report.sentences import problem_words
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean

if TYPE_CHECKING:
    from rich.console import Console

_FRAMEWORKS = ("tensorflow", "jax", "torch", "none")


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "env", execute, lang, "env.command")
    parser.add_argument("--json", action="store_true", help=text("env.command.json", lang))
    parser.add_argument("--framework", choices=_FRAMEWORKS, help=text("env.command.framework", lang))
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Collect and print."""
    from tb_gpu_doctor.monitor.environment import collect

    report = collect(arguments.framework)
    if arguments.json:
        for problem in report["problems"]:
            problem["text"], problem["fix"] = problem_words(problem, lang)
        from tb_gpu_doctor.documents import to_json

        print(to_json(report))
        return 0
    print_environment(report, console(no_color=False), lang)
    return 0


def print_environment(report: Mapping[str, Any], target: Console, lang: str) -> None:
    """Print the report: a table of what there is, then what is wrong with it."""
    from rich.text import Text

    from tb_gpu_doctor.report.terminal import Column, print_hanging, print_table

    def tell(line: str) -> None:
        print_hanging(Text(clean(line)), target)

    tell(text("env.report.title", lang))
    rows = [
        (clean(name) if first else "", clean(value))
        for name, values in _rows(report, lang)
        for first, value in zip((True, *[False] * len(values)), values, strict=False)
    ]
    print_table([Column(""), Column("")], rows, target, indent=2, wraps=True)
    tell("")
    if not report["problems"]:
        tell(text("env.report.no_problems", lang))
        return
    tell(text("env.report.problems", lang))
    for number, problem in enumerate(report["problems"], 1):
        sentence, fix = problem_words(problem, lang)
        tell(f"{number}. {text('env.report.severities.' + problem['severity'], lang)}  {sentence}")
        for line in fix:
            # a command to paste is never broken
            target.print(Text(f"     {clean(line)}"), soft_wrap=True)


def _rows(report: Mapping[str, Any], lang: str) -> Iterator[tuple[str, list[str]]]:
    def say(key: str, **params: Any) -> str:
        return text(f"env.report.{key}", lang, **params)

    def yes(value: Any) -> str:
        return say("unknown") if value is None else say("yes" if value else "no")

    yield say("python"), [report["python"]]
    yield say("system"), [report["system"]]
    if report["container"]:
        yield say("container"), [report["container"]]
    if report["wsl"]:
        yield say("wsl"), [say("yes")]
    driver = report["driver"]
    if "error" in driver:
        yield say("driver"), [say("no_driver", reason=driver["error"])]
    else:
        yield say("driver"), [say("driver_value", version=driver["version"], cuda=driver["cuda_version"])]
        for gpu in driver["gpus"]:
            values = [
                say("gpu_value", name=gpu["name"], memory=gpu["memory_total_bytes"], used=gpu["memory_used_bytes"])
            ]
            if gpu["index"] not in driver["visible"]:
                values.append(say("hidden"))
            yield say("gpu", index=gpu["index"]), values
    for name, facts in report["frameworks"].items():
        yield (
            {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}.get(name, name),
            _framework(facts, say, yes),
        )
    found = [
        f"{name} {entry['version'] or ''} ({entry.get('package') or entry.get('path')})"
        for name, entries in report["libraries"].items()
        for entry in entries[:2]
    ]
    yield say("libraries"), found or [say("none")]
    restricted, privileged = report["cupti"]["restricted"], report["cupti"]["privileged"]
    yield say("cupti"), [yes(None if restricted is None else not restricted or privileged)]
    memory = report["memory"]
    values = [say("memory_value", total=memory["total_bytes"], available=memory["available_bytes"])]
    if memory["cgroup_limit_bytes"]:
        values.append(say("memory_cgroup", limit=memory["cgroup_limit_bytes"], used=memory["cgroup_used_bytes"]))
    yield say("memory"), values
    processors = report["processors"]
    words = say("processors_value", usable=processors["usable"], count=processors["count"])
    if processors["quota"]:
        words += ", " + say("processors_quota", quota=processors["quota"])
    yield say("processors"), [words]
    if report["settings"]:
        yield say("settings"), [f"{name}={value}" for name, value in report["settings"].items()]


def _framework(facts: Mapping[str, Any], say: Any, yes: Any) -> list[str]:
    if "error" in facts:
        return [say("broken", reason=facts["error"])]
    build = "build_cpu"
    if facts.get("cuda_build"):
        build = "build_cuda"
    elif facts.get("rocm_build"):
        build = "build_rocm"
    wanted = {"cuda": facts.get("cuda_wanted"), "cudnn": facts.get("cudnn_wanted") or facts.get("cudnn")}
    values = [say("framework_value", version=facts["version"], build=say(build, **wanted))]
    if facts.get("gpus") is not None:
        values.append(say("sees", count=len(facts["gpus"])))
    if facts.get("memory_growth") is not None:
        values.append(say("memory_growth", value=yes(facts["memory_growth"])))
    if facts.get("intra_op_threads") is not None:
        values.append(say("threads", intra=facts["intra_op_threads"], inter=facts.get("inter_op_threads")))
    if facts.get("strategy"):
        values.append(say("strategy", value=facts["strategy"]))
    return values
