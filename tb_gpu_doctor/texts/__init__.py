"""Every sentence that a user sees, in every language, as data.

The catalogues are JSON files below ``texts/<language>/``. The first part of a key
names the file (``errors.truncated`` is ``truncated`` in ``errors.json``), or the first
two do (``findings.input_bound.title`` is ``title`` in ``findings.input_bound.json``).
A value is a string, or a list of strings that are its lines.

Placeholders are ``{name}`` or ``{name:kind}``; the kinds are those of
`tb_gpu_doctor.texts.numbers` (``percent``, ``time``, ``gpus``, ...), so that the
catalogue decides how a number looks and the language decides how it is written.
Nothing is read before the first text is asked for.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

DEFAULT_LANGUAGE = "en"
_FOLDER = Path(__file__).parent


class UnknownText(KeyError):
    """A key that no catalogue holds."""


@lru_cache(maxsize=1)
def languages() -> tuple[str, ...]:
    """The languages that have a catalogue, the default first."""
    found = sorted(entry.name for entry in _FOLDER.iterdir() if (entry / "errors.json").is_file())
    return (DEFAULT_LANGUAGE, *(name for name in found if name != DEFAULT_LANGUAGE))


def pick_language(wanted: str | None) -> str:
    """The catalogue for a tag such as ``es``, ``es_MX.UTF-8`` or ``es-AR``; English when there is none."""
    tag = (wanted or "").replace("-", "_").split(".")[0].split("_")[0].lower()
    return tag if tag in languages() else DEFAULT_LANGUAGE


@lru_cache(maxsize=128)
def _load(language: str, stem: str) -> dict[str, Any] | None:
    path = _FOLDER / language / f"{stem}.json"
    if not path.is_file():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def template(key: str, lang: str) -> str | None:
    """The unformatted text, None when the catalogue does not hold it."""
    parts = key.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for depth in (1, 2):
        node: Any = _load(lang, ".".join(parts[:depth]))
        if node is not None:
            break
    for part in parts[depth:]:
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    if isinstance(node, list):
        return "\n".join(node)
    return node if isinstance(node, str) else None


def has_text(key: str) -> bool:
    """Whether the default catalogue holds a key."""
    return template(key, DEFAULT_LANGUAGE) is not None


def text(key: str, lang: str = DEFAULT_LANGUAGE, **params: Any) -> str:
    """The text of ``key`` in ``lang`` with its placeholders filled.

    Strings given as parameters come from files and paths of strangers: control
    characters in them are made visible and very long ones are shortened.

    Raises:
        UnknownText: no catalogue holds the key.
        KeyError: a placeholder has no parameter.
    """
    from tb_gpu_doctor.texts.numbers import LocaleFormatter

    lang = pick_language(lang)
    found = template(key, lang)
    if found is None:
        found = template(key, DEFAULT_LANGUAGE)
    if found is None:
        raise UnknownText(key)
    return LocaleFormatter(lang).format(found, **params)


def all_keys(lang: str) -> dict[str, str]:
    """Every key of a language with its unformatted text."""
    found: dict[str, str] = {}

    def walk(prefix: str, node: Any) -> None:
        if isinstance(node, dict):
            for name, child in node.items():
                walk(f"{prefix}.{name}", child)
        else:
            found[prefix] = "\n".join(node) if isinstance(node, list) else node

    for path in sorted((_FOLDER / lang).glob("*.json")):
        walk(path.stem, _load(lang, path.stem))
    return found
