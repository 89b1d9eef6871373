"""Keep what the doctor answers about every profile below some folders, and compare two such collections.

    python -m scripts.answers write FOLDER LOGDIR...     write the answers to FOLDER
    python -m scripts.answers compare BEFORE AFTER       exit 1 where an answer differs

For changes that must not change an answer, and to see what a change of a rule does elsewhere. The profiles are found
by their names alone, not by the doctor, so that both collections hold the same ones whatever a version can read: a
refusal is an answer too. ``--command`` names another version's ``gpu-doctor``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RANKS = (".pt.trace.json", ".pt.trace.json.gz")  # many files, one job
RECORDINGS = (*RANKS, ".json", ".json.gz", ".xplane.pb", ".sqlite", ".nsys-rep", ".csv", ".log", ".txt", ".prom")
MISSING = "(nothing)"
DEADLINE_S = 300


def targets(root: Path) -> Iterator[tuple[str, ...]]:
    """The arguments of one ``diagnose`` for each run, session and lone file below a folder, from within it."""
    for path, folders, files in os.walk(root):
        here = Path(path)
        name = here.relative_to(root).as_posix()
        sessions = sorted(p.name for p in (here / "plugins" / "profile").glob("*") if p.is_dir())
        recordings = sorted(f for f in files if f.endswith(RECORDINGS))
        if sessions or "gpu_doctor" in folders or recordings:
            yield (name,)  # the newest session
        yield from ((name, "--session", session) for session in sessions[:-1])
        if len(recordings) > 1:
            yield from ((f"{name}/{f}",) for f in recordings if not f.endswith(RANKS))
        folders[:] = sorted(f for f in folders if f not in ("plugins", "gpu_doctor") and not f.startswith("."))


def answer(command: list[str], root: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    """What the command says of one target, as JSON; a refusal as its exit code and sentence."""
    environment = {**os.environ, "GPU_DOCTOR_CACHE_DIR": "", "NO_COLOR": "1", "COLUMNS": "200"}
    try:
        done = subprocess.run(
            [*command, "--lang", "en", "diagnose", "--json", *arguments],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return {"exit": "none within the deadline"}
    if done.returncode == 0:
        return json.loads(done.stdout)
    return {"exit": done.returncode, "says": done.stderr.strip().replace(str(root), "").splitlines()}


def write(command: list[str], folder: Path, logdirs: list[Path], jobs: int) -> None:
    """Write one JSON file for each target of each logdir."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(root, arguments) for root in logdirs for arguments in targets(root)]

    def keep(task: tuple[Path, tuple[str, ...]]) -> None:
        root, arguments = task
        name = re.sub(r"[^\w.-]+", "_", "__".join((root.name, *(arguments[0].split("/")), *arguments[2:])))
        content = {"target": f"{root.name}: {' '.join(arguments)}", "answer": answer(command, root, arguments)}
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(keep, tasks))
    print(f"{len(tasks)} answers in {folder}")


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves by their path. Entries that say what they are (findings by kind, GPUs by number) are called by it."""
    if isinstance(value, dict) and value:
        return {k: v for key, part in value.items() for k, v in flat(part, f"{path}.{key}" if path else key).items()}
    if isinstance(value, list) and value:
        seen: Counter[str] = Counter()
        leaves = {}
        for number, part in enumerate(value):
            name = _own_name(part) or str(number)
            seen[name] += 1
            leaves.update(flat(part, f"{path}[{name if seen[name] == 1 else f'{name} {seen[name]}'}]"))
        return leaves
    return {path: value}


def _own_name(part: Any) -> str | None:
    if isinstance(part, dict):
        if isinstance(part.get("kind"), str):
            return str(part["kind"])
        if "host" in part and "id" in part:
            return f"{part['host']}:{part['id']}"
    return None


def same(before: Any, after: Any, tolerance: float) -> bool:
    """Equal, or numbers that differ relatively by no more than the tolerance."""
    if isinstance(before, float) and isinstance(after, float | int):
        return math.isclose(before, after, rel_tol=tolerance, abs_tol=tolerance)
    return bool(before == after)


def compare(before: Path, after: Path, tolerance: float, most: int) -> int:
    """Print what differs: first what was decided, then fields by how often, then each answer. Returns how many do."""
    names = sorted({p.name for folder in (before, after) for p in folder.glob("*.json")})
    fields: dict[str, list[str]] = defaultdict(list)
    details: list[str] = []
    decisions: list[str] = []
    for name in names:
        old, new = (_read(folder / name) for folder in (before, after))
        target = (new or old)["target"]
        left, right = (flat(side["answer"]) if side else {} for side in (old, new))
        changed = [
            (path, left.get(path, MISSING), right.get(path, MISSING))
            for path in dict.fromkeys((*left, *right))
            if path not in left or path not in right or not same(left[path], right[path], tolerance)
        ]
        if not changed:
            continue
        if (told := (_decided(old), _decided(new)))[0] != told[1]:
            decisions.append(f"{target}\n  before: {told[0]}\n  after:  {told[1]}")
        for path, *_ in changed:
            fields[re.sub(r"\[[^\]]*\]", "[]", path)].append(target)
        details.append(f"{target}: {len(changed)} fields")
        details += [
            f"  {path}: {_short(old_value)} -> {_short(new_value)}" for path, old_value, new_value in changed[:most]
        ]
        details += [f"  ... and {len(changed) - most} more"] if len(changed) > most else []
    differing = sum(not line.startswith(" ") for line in details)
    print(f"{differing} of {len(names)} answers differ, {len(decisions)} in verdict, findings or refusal\n")
    if decisions:
        print("Verdict and findings\n", *decisions, "", sep="\n")
    if fields:
        print("Fields\n")
        for path, where in sorted(fields.items(), key=lambda item: -len(set(item[1]))):
            print(f"{len(set(where)):5} answers  {path}")
        print("\nEach answer\n", *details, sep="\n")
    return differing


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def _decided(side: dict[str, Any] | None) -> str:
    if side is None:
        return MISSING
    said = side["answer"]
    if "verdict" not in said:
        return f"exit {said.get('exit')}: {' '.join(said.get('says', []))[:200]}"
    findings = (f"{f['kind']} {f['severity']} {f.get('share') or 0:.0%}" for f in said["findings"])
    return f"{said['verdict']}: {', '.join(findings) or 'no findings'}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}..."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write", help="write the answers about all profiles below some folders")
    writing.add_argument("--command", default=str(Path(sys.executable).parent / "gpu-doctor"))
    writing.add_argument("--jobs", type=int, default=2)
    writing.add_argument("folder", type=Path)
    writing.add_argument("logdirs", type=Path, nargs="+", metavar="LOGDIR")
    comparing = actions.add_parser("compare", help="what differs between two folders of answers")
    comparing.add_argument("--tolerance", type=float, default=0.0, help="relative, for numbers")
    comparing.add_argument("--most", type=int, default=12, help="fields shown of one answer")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    if given.action == "write":
        write(shlex.split(given.command), given.folder, [p.resolve() for p in given.logdirs], given.jobs)
        return 0
    return int(bool(compare(given.before, given.after, given.tolerance, given.most)))


if __name__ == "__main__":
    sys.exit(main())
