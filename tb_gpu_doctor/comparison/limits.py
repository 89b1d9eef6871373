"""What a check allows: defaults, and ``gpu-doctor.toml`` over them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tb_gpu_doctor.analysis.results import CAUSE_IDS
from tb_gpu_doctor.diagnosis.model import SEVERITIES
from tb_gpu_doctor.files.names import scheme_of
from tb_gpu_doctor.traces.errors import TraceError

DEFAULT_FILE = "gpu-doctor.toml"
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits of a check; None checks nothing.

    Attributes:
        step_time_ms: longest mean step.
        step_time_increase: largest relative increase of the mean step over the baseline, 0.05 is 5 %; above zero.
        idle_share: largest share of the window that GPUs may be idle, mean over them.
        idle_by_cause: the same by cause.
        waiting_share: largest share of the window that GPUs may wait for one another.
        occupancy: least occupancy, weighted by time.
        severities: findings of these fail.
        kinds: findings of these kinds fail whatever their severity.
        allowed: findings of these kinds never fail.
        new_findings: findings of these severities fail if the baseline lacks their kind at such a severity.
        baseline: file or logdir to compare with, as the file names it.
    """

    step_time_ms: float | None = None
    step_time_increase: float = 0.05
    idle_share: float | None = None
    idle_by_cause: Mapping[str, float] = field(default_factory=dict)
    waiting_share: float | None = None
    occupancy: float | None = None
    severities: tuple[str, ...] = ("critical",)
    kinds: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    new_findings: tuple[str, ...] = ("critical", "warning")
    baseline: str | None = None


def read_limits(path: str, known_kinds: frozenset[str]) -> Limits:
    """Read a TOML file; unknown names are errors, since a misspelt limit would check nothing.

    Raises:
        TraceError: ``unreadable_file``, ``bad_toml``, ``unknown_setting``, ``bad_setting`` or ``bad_share``.
    """
    content = _read(path)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in content.items():
        if name not in ("check", "limits", "findings") or not isinstance(value, dict):
            raise TraceError("unknown_setting", path, name=name, known=["[check]", "[limits]", "[findings]"])
        sections[name] = dict(value)
    check, limits, findings = (sections.get(name, {}) for name in ("check", "limits", "findings"))
    idle = limits.pop("idle", {})
    if not isinstance(idle, dict):
        raise TraceError("bad_setting", path, name="limits.idle", value=str(idle))
    _only(path, "check", check, ("baseline",))
    numbers = ("step_time_ms", "step_time_increase", "idle_share", "waiting_share", "occupancy")
    _only(path, "limits", limits, numbers, "idle")
    _only(path, "limits.idle", idle, CAUSE_IDS)
    _only(path, "findings", findings, ("severities", "kinds", "allowed", "new"))
    baseline = check.get("baseline")
    if baseline is not None:
        if not isinstance(baseline, str):
            raise TraceError("bad_setting", path, name="[check] baseline", value=str(baseline))
        if scheme_of(baseline) is None:
            baseline = os.path.join(os.path.dirname(os.path.abspath(path)), baseline)
    values: dict[str, Any] = {
        name: _number(path, f"limits.{name}", value, most=1e15 if name == "step_time_ms" else 1.0)
        for name, value in limits.items()
    }
    if values.get("step_time_increase") == 0:
        # No measurement shows that nothing changed at all: every check would end as "cannot tell".
        raise TraceError("bad_setting", path, name="limits.step_time_increase", value="0")
    for setting, name, allowed in (
        ("severities", "severities", frozenset(SEVERITIES)),
        ("kinds", "kinds", known_kinds),
        ("allowed", "allowed", known_kinds),
        ("new", "new_findings", frozenset(SEVERITIES)),
    ):
        if setting in findings:
            values[name] = _names(path, f"findings.{setting}", findings[setting], allowed)
    return Limits(
        baseline=baseline,
        idle_by_cause={cause: _number(path, f"limits.idle.{cause}", value, most=1.0) for cause, value in idle.items()},
        **values,
    )


def _read(path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise TraceError("unreadable_file", path, reason=error.strerror or str(error)) from error
    if len(content) > _MAX_BYTES:
        raise TraceError("bad_toml", path, reason=f"> {_MAX_BYTES} bytes")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin with a mark
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise TraceError("bad_toml", path, reason=str(error)) from error


def _only(path: str, section: str, found: Mapping[str, Any], known: tuple[str, ...], *tables: str) -> None:
    """Refuse other names than the ``known`` ones; ``tables`` have been taken out and are known as well."""
    for name in found:
        if name not in known:
            raise TraceError("unknown_setting", path, name=f"{section}.{name}", known=[*known, *tables])


def _number(path: str, name: str, value: Any, most: float) -> float:
    """A share above 1 is meant as percent, and would never be exceeded."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        is_percent = most == 1.0 and isinstance(value, int | float) and 1 < value <= 100
        raise TraceError("bad_share" if is_percent else "bad_setting", path, name=name, value=str(value))
    return float(value)


def _names(path: str, setting: str, value: Any, known: frozenset[str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TraceError("bad_setting", path, name=setting, value=str(value))
    for name in value:
        if not isinstance(name, str) or name not in known:
            raise TraceError("bad_setting", path, name=setting, value=str(name))
    return tuple(value)
