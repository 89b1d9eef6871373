"""Phrases, notes, errors and codes that a monitor recorded, as sentences in a language."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tb_gpu_doctor.errors import DoctorError
from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.texts import DEFAULT_LANGUAGE, has_text, text
from tb_gpu_doctor.texts.numbers import MAX_SENTENCE, clean

# Sentences about a code: one that no catalogue knows yet is told all the same.
_CODED = ("errors", "notes")


def say(phrase: str | Phrase, lang: str) -> str:
    """The sentence of a phrase; what was recorded as words already is only made safe."""
    if isinstance(phrase, str):
        return clean(phrase, MAX_SENTENCE)
    if phrase.is_recorded:
        words = phrase.words
        return clean(words.get(lang) or words.get(DEFAULT_LANGUAGE) or next(iter(words.values()), ""), MAX_SENTENCE)
    params = {name: _param(value, lang) for name, value in phrase.params.items()}
    area = phrase.key.partition(".")[0]
    if area not in _CODED:
        return text(phrase.key, lang, **params)
    if has_text(phrase.key):
        try:
            return text(phrase.key, lang, **params)
        except KeyError:
            pass  # raised without a parameter that the sentence needs
    details = ", ".join(f"{name}={value}" for name, value in params.items() if name != "path" and value is not None)
    return text(f"{area}.unknown", lang, code=phrase.code, details=details, path=params.get("path", ""))


def _param(value: Any, lang: str) -> Any:
    """Sentences inside sentences."""
    if isinstance(value, DoctorError):
        # The session is known, so the file's name is enough, and no folder of the machine is shown to others.
        return error_sentence(value.with_path(os.path.basename(value.path)), lang)
    if isinstance(value, tuple):
        return tuple(_param(one, lang) for one in value)
    return say(value, lang) if isinstance(value, Phrase) else value


def error_sentence(error: DoctorError, lang: str) -> str:
    """What went wrong with which file and what to do."""
    return say(error.phrase, lang)


def problem_words(problem: Mapping[str, Any], lang: str) -> tuple[str, list[str]]:
    """(sentence, lines of the command that fixes it) of a problem of the report."""
    code, params = problem["code"], dict(problem["params"])
    if "effect" in params:
        params["effect_words"] = text(f"env.effects.{params['effect']}", lang)
    sentence = text(f"env.problems.{code}.text", lang, **params)
    return sentence, text(f"env.problems.{code}.fix", lang, **params).splitlines()


def capture_words(note: str, lang: str) -> str:
    """The note of a ``profile`` span as a sentence; what is not ours comes back as it is."""
    kind, *given = note.split(" ")
    names = {
        "steps": ("first", "last"),
        "every": ("every",),
        "step_time": ("rise", "before_ms", "now_ms"),
        "utilization": ("gpu", "percent", "samples"),
        "throttling": ("gpu", "reason"),
    }.get(kind)
    if names is None or len(names) != len(given):
        return note
    params: dict[str, object] = dict(zip(names, given, strict=True))
    for name in ("rise", "before_ms", "now_ms", "percent"):
        if name in params:
            params[name] = float(str(params[name]))
    if kind == "throttling":
        params["reason"] = text(f"monitor.throttling.{given[1]}", lang) if given[1] in THROTTLE_BITS else given[1]
    return text(f"monitor.why.{kind}", lang, **params)
