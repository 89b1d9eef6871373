"""What a monitor recorded in codes, as sentences: why a profile was taken, what is wrong with the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tb_gpu_doctor.metrics import THROTTLE_BITS
from tb_gpu_doctor.texts import text


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
