"""Which Python takes which TensorFlow, NumPy and protobuf beside GPU Doctor? Asks pip, and keeps its answers.

    python -m scripts.python_matrix             # asks the registry: some minutes, nothing is installed

Each cell is what ``pip install --dry-run`` resolves for that Python on Linux x86-64, whichever Python asks. The table
goes into docs/installing.md, between the marks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from scripts.install_beside import PAGE, build

BEGIN, END = "<!-- pythons: begin -->", "<!-- pythons: end -->"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# Shown of each answer.
TOLD = ("tensorboard", "numpy", "protobuf")
ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("GPU Doctor alone", "", ()),
    ("with `[profiler]`", "[profiler]", ()),
    *((f"TensorFlow 2.{minor}", "", (f"tensorflow=={version}",)) for minor, version in (
        (16, "2.16.2"), (17, "2.17.1"), (18, "2.18.1"), (19, "2.19.1"), (20, "2.20.0"), (21, "2.21.0"))),
    ("NumPy 1.26", "", ("numpy==1.26.4",)),
    *((f"protobuf {major}", "", (f"protobuf=={major}.*",)) for major in (4, 5, 6)),
)  # fmt: skip


def answer(wheel: Path, extra: str, beside: tuple[str, ...], python: str, folder: Path) -> str:
    """What pip resolves for a Python, or why it does not."""
    report = folder / f"{python}.json"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--python-version", python]
    command += ["--target", str(folder / "target"), "--report", str(report), f"{wheel}{extra}", *beside]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "not there for it" if "No matching distribution found for" in done.stderr else "no solution"
    items = [item["metadata"] for item in json.loads(report.read_text(encoding="utf-8"))["install"]]
    found = {item["name"].lower(): item["version"] for item in items}
    return ", ".join(f"{name} {found[name]}" for name in TOLD if name in found)


def main() -> int:
    """Ask for every pair, print the table and keep it; 1 where something that exists has no solution."""
    lines, bad = [], 0
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        for title, extra, beside in ROWS:
            cells = [answer(wheel, extra, beside, python, Path(name)) for python in PYTHONS]
            bad += cells.count("no solution")
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    titles = "| beside | " + " | ".join(f"Python {python}" for python in PYTHONS) + " |"
    table = [titles, "|---" * (1 + len(PYTHONS)) + "|", *lines, "", f"Asked on {date.today().isoformat()}."]
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(table) + f"\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
