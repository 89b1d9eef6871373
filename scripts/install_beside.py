"""Does installing GPU Doctor beside training change a version? Asks pip, and keeps its answers as a table.

    python -m scripts.install_beside            # asks the registry: some minutes, nothing is installed
    python -m scripts.install_beside torch      # only the environments whose name holds the word

An environment is a framework as pip resolves it on the day, or pinned to the oldest versions that it takes. Each is
resolved by ``pip install --dry-run --report``, then once more together with GPU Doctor and every pin: where pip finds a
solution, it would leave each version alone, since pip changes what is installed only where it must. The table goes
into docs/installing.md, between the marks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "installing.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"

# What people keep pinned beside training, as old as the frameworks allow it.
OLD = ["numpy==1.23.5", "protobuf==3.20.3", "werkzeug==2.0.3", "rich==12.6.0", "platformdirs==2.6.2"]
OLD_PYTHON_BINDINGS = ["nvidia-ml-py==11.495.46", "msgspec==0.18.5"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What is installed already: requirements, to be resolved to pins."""

    name: str
    requirements: tuple[str, ...]


ENVIRONMENTS = (
    Environment("TensorFlow 2.15, oldest", ("tensorflow==2.15.0", "tensorboard==2.15.0", *OLD, *OLD_PYTHON_BINDINGS)),
    Environment("TensorFlow 2.15", ("tensorflow==2.15.1",)),
    Environment("TensorFlow 2.16", ("tensorflow==2.16.2",)),
    Environment("TensorFlow 2.17", ("tensorflow==2.17.1",)),
    Environment("TensorFlow 2.18", ("tensorflow==2.18.1",)),
    Environment("TensorFlow 2.19", ("tensorflow==2.19.1",)),
    Environment("TensorFlow 2.20", ("tensorflow==2.20.0",)),
    Environment("TensorFlow 2.21", ("tensorflow==2.21.0",)),
    Environment("JAX 0.4.30, oldest", ("jax==0.4.30", "jaxlib==0.4.30", "flax", "protobuf==3.20.3", "numpy==1.23.5")),
    Environment("JAX", ("jax", "flax")),
    Environment("PyTorch, oldest", ("torch==2.1.0", "tensorboard==2.15.0", *OLD, *OLD_PYTHON_BINDINGS)),
    Environment("PyTorch, TensorBoard 2.11", ("torch==2.1.0", "tensorboard==2.11.2", *OLD, *OLD_PYTHON_BINDINGS)),
    Environment("PyTorch", ("torch", "torchvision")),
    Environment("PyTorch Lightning", ("torch", "lightning")),
    Environment("Hugging Face", ("torch", "transformers", "accelerate", "datasets")),
)


def resolve(requirements: list[str], folder: Path) -> dict[str, str]:
    """Return the versions that pip would install, by name.

    Raises:
        RuntimeError: pip finds no solution; the message is its last lines.
    """
    report = folder / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["--report", str(report), "--disable-pip-version-check"]
    command += ["--only-binary=:all:", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(" ".join(line for line in done.stderr.splitlines() if line.startswith("ERROR"))[-400:])
    installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in installed}


def changes(environment: Environment, wheel: Path, folder: Path) -> tuple[int, list[str], str]:
    """Resolve one environment without and with GPU Doctor.

    Returns:
        How many packages it holds; what comes in addition; why no version could stay, empty where all stay.
    """
    before = resolve(list(environment.requirements), folder)
    pins = [f"{name}=={version}" for name, version in before.items()]
    try:
        after = resolve([*pins, str(wheel)], folder)
    except RuntimeError as problem:
        return len(before), [], str(problem)
    changed = [f"{name} {before[name]} -> {after.get(name)}" for name in before if after.get(name) != before[name]]
    return len(before), sorted(after.keys() - before.keys() - {"tb-gpu-doctor"}), ", ".join(changed)


def build(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(REPOSITORY)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> int:
    """Ask for every environment, print the table and keep it; 1 where a version would change."""
    wanted = [
        environment
        for environment in ENVIRONMENTS
        if not sys.argv[1:] or sys.argv[1].lower() in environment.name.lower()
    ]
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        for environment in wanted:
            try:
                count, added, changed = changes(environment, wheel, Path(name))
            except RuntimeError as problem:
                print(f"{environment.name}: the environment itself cannot be had: {problem}", file=sys.stderr)
                bad += 1
                continue
            bad += bool(changed)
            rows.append(f"| {environment.name} | {count} | {changed or 'none'} | {', '.join(added)} |")
            print(rows[-1], flush=True)
    if len(wanted) == len(ENVIRONMENTS) and PAGE.exists():
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        table = [
            "| environment | packages in it | versions changed | comes in addition |",
            "|---|---|---|---|",
            *rows,
        ]
        asked = f"Asked on {date.today().isoformat()}, Python {sys.version_info.major}.{sys.version_info.minor}."
        PAGE.write_text(
            f"{head}{BEGIN}\n" + "\n".join([*table, "", asked]) + f"\n{END}{rest.split(END)[1]}", encoding="utf-8"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
