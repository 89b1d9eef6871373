"""How numbers, times and names are written in a language, and the placeholders that use it."""

from __future__ import annotations

import math
import string
import unicodedata
from collections.abc import Mapping, Sequence, Sized
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tb_gpu_doctor.texts import DEFAULT_LANGUAGE

NBSP = "\N{NO-BREAK SPACE}"
MAX_NAME = 160
MAX_SENTENCE = 2_000
# Enough for any float: quantize() fails where the result has more digits than the context.
_PRECISE = Context(prec=400)
_SEPARATORS: dict[str, tuple[str, str]] = {"en": (",", "."), "es": (".", ",")}
_AND: dict[str, str] = {"en": "and", "es": "y"}
_ALL_GPUS: dict[str, str] = {"en": "all {} GPUs", "es": "las {} GPU"}
_BOTH_GPUS: dict[str, str] = {"en": "both GPUs", "es": "las dos GPU"}
_OTHER_GPUS: dict[str, str] = {"en": "the other {} GPUs", "es": "las otras {} GPU"}
# From how many on the others are only counted.
_MANY_OTHERS = 4
# GPUs of more hosts than this are summed up behind the first few.
_MANY_HOSTS = 4
_NAMED_HOSTS = 3
_AND_MORE: dict[str, str] = {"en": "and {} more on {} hosts", "es": "y {} más en {} hosts"}
_GPU: dict[str, tuple[str, str]] = {"en": ("GPU {}", "GPUs {}"), "es": ("GPU {}", "GPU {}")}
_RANK: dict[str, tuple[str, str]] = {"en": ("rank {}", "ranks {}"), "es": ("rango {}", "rangos {}")}
_UNKNOWN: dict[str, str] = {"en": "unknown", "es": "desconocido"}
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def clean(value: str, limit: int | None = None) -> str:
    """A stranger's string made safe for one line of a terminal.

    Control, format (bidirectional overrides) and line-breaking characters are
    written as escapes; with a limit the middle of a longer string is left out.
    """
    if limit is not None and len(value) > limit:
        head = (limit - 1) * 2 // 3
        value = value[:head] + "…" + value[len(value) - (limit - 1 - head) :]
    if value.isascii() and value.isprintable():
        return value
    return "".join(
        char.encode("unicode_escape").decode("ascii") if unicodedata.category(char) in _HIDDEN_CATEGORIES else char
        for char in value
    )


def number(value: float, lang: str = DEFAULT_LANGUAGE, decimals: int = 0) -> str:
    """A number with the language's separators: 1,234.5 or 1.234,5."""
    if not math.isfinite(value):
        return _UNKNOWN[lang]
    thousands, point = _SEPARATORS[lang]
    # A half is rounded up, as the tab does: 12.5 % is 13 % in both.
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP, _PRECISE)
    plain = f"{rounded:,.{decimals}f}"
    return plain.translate({ord(","): thousands, ord("."): point})


def percent(fraction: float, lang: str = DEFAULT_LANGUAGE) -> str:
    """A share: 41%, 4.2%, and never 100% or 0% for what only comes close."""
    if not math.isfinite(fraction):
        return _UNKNOWN[lang]
    value = fraction * 100
    decimals = 0 if 10 <= value <= 99 or value in (0.0, 100.0) else 1
    if 0 < value < 0.05:
        return "<" + percent(0.001, lang)
    if 99 < value < 100:
        value = min(value, 99.9)
    return number(value, lang, decimals) + (NBSP + "%" if lang == "es" else "%")


def signed_percent(fraction: float, lang: str = DEFAULT_LANGUAGE) -> str:
    """A change: +12%, −4.2%, ±0%; without bounds ±∞."""
    if math.isinf(fraction):
        return ("+" if fraction > 0 else "−") + "∞"
    if not math.isfinite(fraction):
        return _UNKNOWN[lang]
    value = number(abs(fraction) * 100, lang, 0 if abs(fraction) >= 0.1 else 1)
    sign = "±" if not any(digit in value for digit in "123456789") else "+" if fraction > 0 else "−"
    return f"{sign}{value}" + (NBSP + "%" if lang == "es" else "%")


def duration(picoseconds: float, lang: str = DEFAULT_LANGUAGE) -> str:
    """A time with the unit that suits it and three significant digits."""
    if not math.isfinite(picoseconds):
        return _UNKNOWN[lang]
    if picoseconds == 0:
        return f"0{NBSP}ms"
    for limit, unit, name in ((999.5e3, 1e3, "ns"), (999.5e6, 1e6, "µs"), (999.5e9, 1e9, "ms"), (math.inf, 1e12, "s")):
        if abs(picoseconds) < limit:
            value = picoseconds / unit
            decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
            return f"{number(value, lang, min(decimals, 2))}{NBSP}{name}"
    raise AssertionError("unreachable: the last limit is infinite")


def size(count: float, lang: str = DEFAULT_LANGUAGE) -> str:
    """A number of bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{number(count, lang, 0 if unit == 'B' else 1)}{NBSP}{unit}"
        count /= 1024
    raise AssertionError("unreachable: GiB always returns")


def listing(items: Sequence[str], lang: str = DEFAULT_LANGUAGE) -> str:
    """``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + f" {_AND[lang]} {items[-1]}"


def gpu_names(gpus: Any, lang: str = DEFAULT_LANGUAGE) -> str:
    """GPUs in words: ``GPU 2``, ``GPUs 0, 1 and 4-7``, ``all 8 GPUs``, ``worker1: GPU 0``, ``rank 2 (node0, GPU 2)``.

    ``gpus`` has ``refs`` (objects with ``host`` and ``id``, maybe ``rank`` and ``machine``), ``total`` (how many the
    profile has), ``show_host`` and, where they are all but some named before, ``others``.
    """
    refs = list(gpus.refs)
    if len(refs) == gpus.total == 2:
        return _BOTH_GPUS[lang]
    if len(refs) == gpus.total and len(refs) > 1:
        return _ALL_GPUS[lang].format(number(len(refs), lang))
    if getattr(gpus, "others", False) and len(refs) >= _MANY_OTHERS:
        return _OTHER_GPUS[lang].format(number(len(refs), lang))
    if _by_rank(gpus):
        ranks = [ref.rank for ref in refs]
        words = _RANK[lang][len(ranks) > 1].format(listing(_ranges(ranks), lang))
        if len(refs) > 1:
            return words
        where = [clean(refs[0].machine, MAX_NAME)] if refs[0].machine else []
        return f"{words} ({', '.join([*where, _GPU[lang][0].format(refs[0].id)])})"
    by_host: dict[str, list[int]] = {}
    for ref in refs:
        by_host.setdefault(ref.host, []).append(ref.id)
    parts = []
    hosts = list(by_host.items())
    summed = gpus.show_host and len(hosts) > _MANY_HOSTS
    for host, ids in hosts[:_NAMED_HOSTS] if summed else hosts:
        words = _GPU[lang][len(ids) > 1].format(listing(_ranges(ids), lang))
        parts.append(f"{clean(host, MAX_NAME)}: {words}" if gpus.show_host else words)
    if summed:
        rest = hosts[_NAMED_HOSTS:]
        count = number(sum(len(ids) for _, ids in rest), lang)
        return f"{'; '.join(parts)} {_AND_MORE[lang].format(count, number(len(rest), lang))}"
    one_each = all(len(ids) == 1 for ids in by_host.values())
    return listing(parts, lang) if one_each else "; ".join(parts)


def _by_rank(gpus: Any) -> bool:
    """Whether the GPUs are called by their processes' ranks: of several files each has one of its own."""
    ranks = [getattr(ref, "rank", None) for ref in gpus.refs]
    return bool(ranks) and gpus.show_host and None not in ranks and len(ranks) == len(set(ranks))


def _ranges(ids: Sequence[int]) -> list[str]:
    """Three and more in a row as one range: ``["0", "2-5"]`` (with an en dash)."""
    rows: list[list[int]] = []
    for number_ in sorted(set(ids)):
        if rows and number_ == rows[-1][-1] + 1:
            rows[-1].append(number_)
        else:
            rows.append([number_])
    parts: list[str] = []
    for row in rows:
        parts.extend([f"{row[0]}–{row[-1]}"] if len(row) > 2 else map(str, row))
    return parts


class LocaleFormatter(string.Formatter):
    """Fills ``{name:kind}`` placeholders; only plain names, no attributes or indices."""

    KINDS = frozenset((
        "", "raw", "int", "n1", "n2", "percent", "signed_percent", "time", "size", "list", "gpus", "Gpus", "plural",
        "path", "long",
    ))  # fmt: skip

    def __init__(self, lang: str) -> None:
        self.lang = lang

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """The parameter of exactly that name."""
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """The parameter written the way the placeholder's kind asks for."""
        lang = self.lang
        kind, *choices = format_spec.split("|")
        if kind == "plural":
            count = len(value) if isinstance(value, Sized) else value
            return choices[0] if count == 1 else choices[1]
        if value is None:
            return _UNKNOWN[lang]
        if kind == "percent":
            return percent(float(value), lang)
        if kind == "signed_percent":
            return signed_percent(float(value), lang)
        if kind == "time":
            return duration(float(value), lang)
        if kind == "size":
            return size(float(value), lang)
        if kind in ("int", "n1", "n2"):
            return number(float(value), lang, {"int": 0, "n1": 1, "n2": 2}[kind])
        if kind == "gpus":
            return gpu_names(value, lang)
        if kind == "Gpus":  # at the head of a sentence; a host's name keeps its own letters
            words = gpu_names(value, lang)
            is_host = value.show_host and len(value.refs) != value.total and not _by_rank(value)
            return words if is_host else words[:1].upper() + words[1:]
        if kind == "list":
            return listing([clean(str(item), MAX_NAME) for item in value], lang)
        if kind == "long":
            return clean(str(value), MAX_SENTENCE)
        if kind == "path":
            return clean(str(value), 4096)
        if kind == "raw" or isinstance(value, str):
            return clean(str(value), MAX_NAME)
        if isinstance(value, int):
            return number(value, lang)
        if isinstance(value, float):
            return number(value, lang, 1)
        return clean(str(value), MAX_NAME)
