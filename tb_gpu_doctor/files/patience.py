"""How long a server may keep us waiting."""

from __future__ import annotations

import math
import os

VARIABLE = "GPU_DOCTOR_REMOTE_TIMEOUT_S"
# Opening a store and a question with a short answer: whoever mistyped an address is told soon.
ASK_TIMEOUT_S = 10.0
# Listing one folder, or one piece of a file.
CALL_TIMEOUT_S = 60.0
_MOST_S = 3600.0


def ask_timeout_s() -> float:
    """Seconds for a question with a short answer: what the variable says, at least one."""
    try:
        wanted = float(os.environ.get(VARIABLE) or ASK_TIMEOUT_S)
    except ValueError:
        return ASK_TIMEOUT_S
    return min(max(wanted, 1.0), _MOST_S) if math.isfinite(wanted) else ASK_TIMEOUT_S


def call_timeout_s() -> float:
    """Seconds for what takes long where there is much: never less than for a short question."""
    return max(CALL_TIMEOUT_S, ask_timeout_s())
