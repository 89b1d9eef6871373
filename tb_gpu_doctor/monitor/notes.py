"""What the monitor has to say, each sentence once, and `never_raises`, which keeps its failures out of training."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tb_gpu_doctor import texts
from tb_gpu_doctor.files.secrets import all_without_secrets, without_secrets

LOG = logging.getLogger("tb_gpu_doctor")
MOST_NOTES = 500


class Reports(Protocol):
    """Has methods that `never_raises` guards."""

    def failed(self, part: str, error: Exception) -> None:
        """Say once that ``part`` fails, and why."""


Guarded = TypeVar("Guarded", bound=Reports)
P = ParamSpec("P")


def never_raises(
    part: str,
) -> Callable[[Callable[Concatenate[Guarded, P], None]], Callable[Concatenate[Guarded, P], None]]:
    """Keep whatever a method raises out of training: its object's ``failed`` is told, and the call returns.

    ``KeyboardInterrupt`` and ``SystemExit`` pass.

    Args:
        part: what the method does, as the user reads it.
    """

    def guard(method: Callable[Concatenate[Guarded, P], None]) -> Callable[Concatenate[Guarded, P], None]:
        @wraps(method)
        def guarded(self: Guarded, /, *args: P.args, **kwargs: P.kwargs) -> None:
            try:
                method(self, *args, **kwargs)
            except Exception as error:
                with contextlib.suppress(Exception):  # at exit much of Python may be gone
                    self.failed(part, error)

        return guarded

    return guard


def describe_error(error: BaseException) -> str:
    """One line: the exception's type and its words."""
    return f"{type(error).__name__}: {error}"


class Recorder(Protocol):
    """Where a process's recording goes. No method raises, none waits for a disk."""

    def step(
        self, number: int, end_ns: int, duration_ns: int, samples: int | None = None, profiled: bool = False
    ) -> None:
        """A training step ended; times are Unix nanoseconds."""

    def span(self, kind: str, start_ns: int, end_ns: int, step: int, note: str = "") -> None:
        """Training did something beside stepping (`telemetry.series.Span`)."""

    def allocator(self, gpu: int, used_bytes: int, peak_bytes: int, limit_bytes: int | None) -> None:
        """The framework's own memory figures of one of its GPUs."""

    def facts(self, name: str, values: Mapping[str, Any]) -> None:
        """Something that is written once, such as ``environment``."""

    def note(self, sentence: str) -> None:
        """A sentence about what could not be recorded; each is kept and shown once."""


def process_language() -> str:
    """The language that this process's locale asks for."""
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(variable):
            return texts.pick_language(os.environ[variable])
    return texts.pick_language(None)


def tell(recorder: Recorder, key: str, **params: Any) -> None:
    """Note the text ``monitor.<key>``; a recorder that keeps keys can show it in any language later."""
    by_key = getattr(recorder, "tell", None)
    if by_key is not None:
        by_key(key, **params)
        return
    recorder.note(texts.text(f"monitor.{key}", process_language(), **params))


@lru_cache(maxsize=100)
def _complain_once(sentence: str) -> None:
    LOG.warning("GPU Doctor: %s", sentence)


def complain(key: str, **params: Any) -> None:
    """Log the text ``monitor.<key>`` once, where there is no recorder yet."""
    _complain_once(texts.text(f"monitor.{key}", process_language(), **params))


class Notes:
    """Collects sentences, drops repeated ones, and hands the new ones on. No method raises.

    Args:
        keep: takes a new note as the recording stores it.
    """

    def __init__(self, keep: Callable[[dict[str, Any]], None]) -> None:
        self._keep = keep
        self._known: set[str] = set()

    def tell(self, key: str, level: int = logging.WARNING, **params: Any) -> None:
        """Note the text ``recording.<key>`` or ``monitor.<key>``, its parameters strings or numbers."""
        params = all_without_secrets(params)
        note = {"key": _full(key), "params": params, "sentence": self.words(key, "en", **params)}
        self._add(note, level, lambda: self.words(key, **params))

    def words(self, key: str, language: str | None = None, **params: Any) -> str:
        """The text of such a key, by default in the language of this process."""
        try:
            return texts.text(_full(key), language or process_language(), **params)
        except Exception as error:  # a damaged installation: better raw words than none
            return f"{key} {params} ({error!r})"

    def sentence(self, sentence: str, level: int = logging.WARNING) -> None:
        """Note a sentence that is already written."""
        safe = without_secrets(sentence)
        self._add({"key": None, "params": {}, "sentence": safe}, level, lambda: safe)

    def _add(self, note: dict[str, Any], level: int, shown: Callable[[], str]) -> None:
        if note["sentence"] in self._known or len(self._known) >= MOST_NOTES:
            return
        self._known.add(note["sentence"])
        self._keep(note)
        LOG.log(level, "GPU Doctor: %s", shown())


def _full(key: str) -> str:
    return f"recording.{key}" if texts.has_text(f"recording.{key}") else f"monitor.{key}"
