"""In which language the monitor speaks: that of the process's locale, as the command does."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tb_gpu_doctor.monitor.recorder import Recorder


def spoken() -> str:
    """Language tag by the environment."""
    from tb_gpu_doctor.texts import pick_language

    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if os.environ.get(variable):
            return pick_language(os.environ[variable])
    return pick_language(None)


def tell(recorder: Recorder, key: str, **params: Any) -> None:
    """Note the text ``monitor.<key>``; a recorder that keeps keys can show it in any language later."""
    by_key = getattr(recorder, "tell", None)
    if by_key is not None:
        by_key(key, **params)
        return
    from tb_gpu_doctor.texts import text

    recorder.note(text(f"monitor.{key}", spoken(), **params))


@lru_cache(maxsize=100)
def _complain_once(sentence: str) -> None:
    logging.getLogger("tb_gpu_doctor").warning("GPU Doctor: %s", sentence)


def complain(key: str, **params: Any) -> None:
    """Log the text ``monitor.<key>`` once, where there is no recorder yet."""
    from tb_gpu_doctor.texts import text

    _complain_once(text(f"monitor.{key}", spoken(), **params))
