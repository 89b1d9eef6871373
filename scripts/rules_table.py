"""Write what lists the rules and cannot ask them: `docs/rules.md`, and the kinds in the schema of the JSON.

python -m scripts.rules_table            write them
python -m scripts.rules_table --check    exit 1 where one is stale
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tb_gpu_doctor.diagnosis.rule import About, Rule, rules
from tb_gpu_doctor.diagnosis.thresholds import Thresholds

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "rules.md"
SCHEMAS = (ROOT / "tb_gpu_doctor" / "report" / "diagnosis.schema.json", ROOT / "docs" / "diagnosis.schema.json")
_KINDS = re.compile(r'(?<="kind": \{"enum": )\[[^]]*\](?=\},\n\s*"severity": \{"enum": \["critical")')
_HEADINGS: dict[About, str] = {
    "run": "About the run",
    "telemetry": "About the GPUs, by telemetry",
    "profile": "About the profile",
}

_INTRODUCTION = """# Rules

<!-- Written by `make rules-table` from what the rules declare; a test fails where it is stale. -->

Every kind of finding, in the order in which findings of equal cost stand. `cost` says what the share of a finding is
([json.md](json.md#findings)). A profile without one of the facts in **bold** cannot show the finding, however the run
went (telemetry may tell of memory all the same). A threshold stands in its rule's file together with where it comes
from; shares are fractions."""


def table() -> str:
    """The page: all rules, as they declare themselves."""
    lines = [_INTRODUCTION]
    for about, heading in _HEADINGS.items():
        lines += [
            "",
            f"## {heading}",
            "",
            "| kind | finds | cost | reads | thresholds | tests |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_row(rule) for rule in rules() if rule.about == about]
    shared = [f"`{name}` {value:g}" for name, value in _numbers(Thresholds())]
    lines += [
        "",
        "## Shared thresholds",
        "",
        f"Of several rules, the verdict and merging ([thresholds.py](../tb_gpu_doctor/diagnosis/thresholds.py)): "
        f"{', '.join(shared)}.",
        "",
    ]
    return "\n".join(lines)


def _row(rule: Rule) -> str:
    source = f"../tb_gpu_doctor/diagnosis/rules/{rule.kind}.py"
    finds = (sys.modules[rule.check.__module__].__doc__ or "").split("\n\n")[0].replace("\n", " ").strip().rstrip(".")
    reads = ", ".join(f"**{fact}**" if fact in rule.needs else fact for fact in rule.reads)
    limits = "<br>".join(f"`{name}` {value:g}" for name, value in _numbers(rule.thresholds))
    tests = "<br>".join(f"[{path.stem}](../{path.relative_to(ROOT).as_posix()})" for path in _tests(rule.kind))
    kind = f"[{rule.kind}](findings/{rule.kind}.md) ([rule]({source}))"
    return f"| {kind} | {finds} | {rule.cost} | {reads} | {limits} | {tests} |"


def _numbers(limits: object) -> Iterator[tuple[str, float]]:
    if dataclasses.is_dataclass(limits):
        for field in dataclasses.fields(limits):
            value = getattr(limits, field.name)
            if isinstance(value, int | float):
                yield field.name, value


def _tests(kind: str) -> list[Path]:
    """The test modules of the diagnosis that name a kind."""
    found = sorted((ROOT / "tests" / "diagnosis").glob("test_*.py"))
    return [path for path in found if path.stem != "test_registry" and _names(path, kind)]


def _names(path: Path, kind: str) -> bool:
    return path.stem == f"test_{kind}" or f'"{kind}"' in path.read_text(encoding="utf-8")


def with_kinds(schema: str) -> str:
    """The text of the schema with the kinds that there are."""
    kinds = ", ".join(f'"{rule.kind}"' for rule in rules())
    written, count = _KINDS.subn(f"[{kinds}]", schema)
    if count != 1:
        raise ValueError("the schema does not say once which kinds of findings there are")
    return written


def contents() -> dict[Path, str]:
    """What each of the files should hold."""
    schema = with_kinds(SCHEMAS[0].read_text(encoding="utf-8"))
    return {TABLE: table(), **dict.fromkeys(SCHEMAS, schema)}


def main(arguments: list[str]) -> int:
    """Write the files; with ``--check`` name the stale ones instead, and return 1 if there are any."""
    stale = [
        path for path, content in contents().items() if not path.exists() or path.read_text(encoding="utf-8") != content
    ]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is stale: make rules-table")
        else:
            path.write_text(contents()[path], encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
