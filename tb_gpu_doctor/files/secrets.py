"""Takes secrets out of what is shown, recorded or passed on: by what a value looks like, not by its name alone."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tb_gpu_doctor.files.addresses import shown

HIDDEN = "***"
# Names of a trace may be 100 KB long and hostile: nothing here looks further than some characters before it is sure.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{1,40}://[^\s'\"<>\])]+")
# Keys of services that begin alike, and tokens in three parts with dots.
_KNOWN = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\b(?:gh[pousr]|glpat|hf|xox[abprs]|sk|pk|rk)[-_][A-Za-z0-9_-]{10,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}|\bya29\.[A-Za-z0-9._-]+|\beyJ[A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)
# name=value, "name": "value", --name value and an Authorization header, where the name says what it is.
_NAMED = re.compile(
    r"((?:\b|_)(?:api[_-]?key|access[_-]?key(?:_id)?|secret\w{0,40}|\w{0,40}token|passw\w{0,40}|pwd|credentials?|authorization)"
    r"[\"']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?|--(?:api-key|token|password|secret)\s+|\bbearer\s+)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
    re.IGNORECASE | re.ASCII,
)
# Long and of mixed letters and digits, as random text is; hashes and UUIDs have one case only.
_RANDOM_RUN = 20
_RANDOM = re.compile(r"(?<![\w/+.-])[A-Za-z0-9+/_-]{32,}={0,2}(?![\w/+-])")
_HOME = re.compile(
    r"((?:^|(?<=[\s:=\"',;(\[]))/(?:home|Users|users|scratch|gpfs/home)/|[A-Za-z]:\\Users\\)([^/\\\s:\"',;]+)"
)


# Whatever holds a secret that is sure holds one of these, in lower case: a search for them is fast.
_MARKS = (
    b"://", b"akia", b"asia", b"ghp", b"gho", b"ghu", b"ghs", b"ghr", b"glpat", b"hf_", b"hf-", b"xox", b"sk-", b"sk_",
    b"pk-", b"pk_", b"rk-", b"rk_", b"aiza", b"ya29.", b"eyj", b"private key", b"key=", b"key:", b"key\"", b"key'",
    b"key ", b"key_id", b"secret", b"token", b"passw", b"pwd", b"credential", b"authorization", b"bearer", b"/home/",
    b"/users/", b"/scratch/", b":\\users\\",
)  # fmt: skip


def without_secrets(value: str) -> str:
    """``value`` without credentials of addresses, keys, tokens, passwords, and users' names in paths of homes."""
    return _RANDOM.sub(lambda match: HIDDEN if _is_random(match.group()) else match.group(), _without_sure(value))


def names_without_secrets(blob: bytes, offsets: Sequence[int]) -> dict[int, str]:
    """What is to be shown of those names of a trace that hold secrets, by their index.

    Random text stays: names of kernels look like it.

    Args:
        blob: all names in UTF-8, end to end.
        offsets: where each begins; and the end of the last.
    """
    found: dict[int, str] = {}
    lowered = blob.lower()
    looked_at: set[int] = set()
    for mark in _MARKS:
        at = lowered.find(mark)
        while at >= 0:
            index = bisect_right(offsets, at) - 1
            if index not in looked_at:
                looked_at.add(index)
                name = blob[offsets[index] : offsets[index + 1]].decode("utf-8", "replace")
                if (safe := _without_sure(name)) != name:
                    found[index] = safe
            at = lowered.find(mark, offsets[index + 1])
    return found


def _without_sure(value: str) -> str:
    value = _ADDRESS.sub(lambda match: shown(match.group()), value)
    value = _KNOWN.sub(HIDDEN, value)
    value = _NAMED.sub(lambda match: match[1] + HIDDEN, value)
    return _HOME.sub(lambda match: match[1] + "~", value)


def all_without_secrets(value: Any) -> Any:
    """The same for every string in lists and dictionaries; other values are passed through."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: all_without_secrets(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [all_without_secrets(part) for part in value]
    return value


def outline_of_cluster(config: str) -> str:
    """A ``TF_CONFIG`` that says how many tasks of which kind there are, and which of them this is: no addresses."""
    try:
        given = json.loads(config)
        cluster = {str(kind): len(tasks) for kind, tasks in (given.get("cluster") or {}).items()}
        task = given.get("task") or {}
        return json.dumps({"tasks": cluster, "task": {"type": str(task.get("type", "")), "index": task.get("index")}})
    except (ValueError, AttributeError, TypeError):
        return HIDDEN


def _is_random(text: str) -> bool:
    """Whether a long run of letters of both cases and digits is in it, as in keys and hardly in names or versions."""
    run = max(re.split(r"[^A-Za-z0-9]", text), key=len)
    mixed = all(any(test(letter) for letter in run) for test in (str.islower, str.isupper, str.isdigit))
    return len(run) >= _RANDOM_RUN and mixed
