"""Takes secrets out of what is shown, recorded or passed on: by what a value looks like, not by its name alone."""

from __future__ import annotations

import json
import re
from typing import Any

from tb_gpu_doctor.files.addresses import shown

HIDDEN = "***"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://[^\s'\"<>\])]+")
# Keys of services that begin alike, and tokens in three parts with dots.
_KNOWN = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\b(?:gh[pousr]|glpat|hf|xox[abprs]|sk|pk|rk)[-_][A-Za-z0-9_-]{10,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}|\bya29\.[A-Za-z0-9._-]+|\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)
# name=value, "name": "value", --name value and an Authorization header, where the name says what it is.
_NAMED = re.compile(
    r"((?:\b|_)(?:api[_-]?key|access[_-]?key(?:_id)?|secret\w*|\w*token|passw\w*|pwd|credentials?|authorization)"
    r"[\"']?\s*[:=]\s*(?:(?:bearer|basic)\s+)?|--(?:api-key|token|password|secret)\s+|\bbearer\s+)"
    r"(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)",
    re.IGNORECASE,
)
# Long and of mixed letters and digits, as random text is; hashes and UUIDs have one case only.
_RANDOM_RUN = 20
_RANDOM = re.compile(r"(?<![\w/+.-])[A-Za-z0-9+/_-]{32,}={0,2}(?![\w/+-])")
_HOME = re.compile(
    r"((?:^|(?<=[\s:=\"',;(\[]))/(?:home|Users|users|scratch|gpfs/home)/|[A-Za-z]:\\Users\\)([^/\\\s:\"',;]+)"
)


def without_secrets(value: str) -> str:
    """``value`` without credentials of addresses, keys, tokens, passwords, and users' names in paths of homes."""
    value = _ADDRESS.sub(lambda match: shown(match.group()), value)
    value = _KNOWN.sub(HIDDEN, value)
    value = _NAMED.sub(lambda match: match[1] + HIDDEN, value)
    value = _RANDOM.sub(lambda match: HIDDEN if _is_random(match.group()) else match.group(), value)
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
