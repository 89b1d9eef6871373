"""Whether what a pack holds leads to the same diagnosis, and whether it tells a host's name after all."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable
from typing import Any

from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport

# Names, and sentences with names in them; everything else of a diagnosis must be equal.
_WORDS = frozenset({
    "run", "session", "host", "hosts", "title", "explanation", "advice", "check", "warnings", "name", "thread", "notes",
    "label", "language", "what", "recordings",
})  # fmt: skip
_PIECE = 1 << 22
# Shorter names are found everywhere.
_SHORTEST = 4


def same_findings(before: DiagnosisReport, after: DiagnosisReport) -> list[str]:
    """Where two diagnoses differ in anything but names: places in their JSON, none when they are the same."""
    found: list[str] = []
    _compare(before.to_dict("en"), after.to_dict("en"), "", found)
    return found


def _compare(before: Any, after: Any, place: str, found: list[str]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            if key not in before or key not in after:
                found.append(f"{place}.{key}")
            elif key not in _WORDS:
                _compare(before[key], after[key], f"{place}.{key}", found)
            elif isinstance(before[key], list) and len(before[key]) != len(after[key] or ()):
                found.append(f"{place}.{key}[]")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            found.append(f"{place}[]")
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            _compare(one, other, f"{place}[{index}]", found)
    elif before != after:
        found.append(place)


def told_names(folder: str, files: Iterable[str], names: Iterable[str]) -> list[tuple[str, str]]:
    """(file, name) for the first of ``names`` in each file's path or bytes, unpacked, whatever the case of letters."""
    wanted = sorted({name for name in names if len(name) >= _SHORTEST}, key=len, reverse=True)
    if not wanted:
        return []
    inside = b"|".join(re.escape(name.encode("utf-8", "replace")) for name in wanted)
    pattern = re.compile(b"(?<![A-Za-z0-9])(?:" + inside + b")(?![A-Za-z0-9])", re.IGNORECASE)
    longest = max(len(name.encode("utf-8", "replace")) for name in wanted)
    found = []
    for name in files:
        match = pattern.search(name.encode()) or _in_file(os.path.join(folder, *name.split("/")), pattern, longest)
        if match is not None:
            found.append((name, match.group().decode("utf-8", "replace")))
    return found


def _in_file(path: str, pattern: re.Pattern[bytes], longest: int) -> re.Match[bytes] | None:
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        kept = b""
        while piece := file.read(_PIECE):
            match = pattern.search(kept + piece)
            if match is not None:
                return match
            kept = (kept + piece)[-longest:]
    return None
