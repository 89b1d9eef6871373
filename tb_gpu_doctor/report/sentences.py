"""Phrases, notes, errors and codes that a monitor recorded, as sentences in a language."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tb_gpu_doctor.diagnosis.model import Phrase, Spoken
from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.texts import DEFAULT_LANGUAGE, has_text, text
from tb_gpu_doctor.texts.numbers import MAX_SENTENCE, clean
from tb_gpu_doctor.traces.errors import Note, TraceError


def say(phrase: str | Phrase | Spoken, lang: str) -> str:
    """The sentence of a phrase; what was recorded as words already is only made safe."""
    if isinstance(phrase, Spoken):
        words = phrase.by_language
        phrase = words.get(lang) or words.get(DEFAULT_LANGUAGE) or next(iter(words.values()), "")
    if isinstance(phrase, str):
        return clean(phrase, MAX_SENTENCE)
    params: dict[str, Any] = {}
    for name, value in phrase.params.items():
        params[name] = _param(value, lang)
    if phrase.key.startswith("notes."):
        return note_sentence(Note(phrase.key.removeprefix("notes."), dict(phrase.params)), lang)
    return text(phrase.key, lang, **params)


def _param(value: Any, lang: str) -> Any:
    """Sentences inside sentences."""
    if isinstance(value, TraceError):
        # The session is known, so the file's name is enough, and no folder of the machine is shown to others.
        return error_sentence(value.with_path(os.path.basename(value.path)), lang)
    return say(value, lang) if isinstance(value, Phrase) else value


def error_sentence(error: TraceError, lang: str) -> str:
    """What went wrong with which file and what to do."""
    return _coded("errors", error.code, {**error.params, "path": error.path}, lang)


def note_sentence(note: Note, lang: str) -> str:
    """What the decoder left out or repaired, or why a file cannot be read."""
    return _coded("notes", note.code, note.params, lang)


def _coded(area: str, code: str, params: dict[str, Any], lang: str) -> str:
    """A sentence for a code; one without a text still says its code and what it knows."""
    if has_text(f"{area}.{code}"):
        try:
            return text(f"{area}.{code}", lang, **params)
        except KeyError:
            pass  # raised without a parameter that the sentence needs
    details = ", ".join(f"{name}={value}" for name, value in params.items() if name != "path" and value is not None)
    return text(f"{area}.unknown", lang, code=code, details=details, path=params.get("path", ""))


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
