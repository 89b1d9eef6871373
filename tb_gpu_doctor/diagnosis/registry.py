"""All rules there are, found in the package of rules: a file dropped into it is a rule, a file taken away is none."""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module

import tb_gpu_doctor.diagnosis.rules as package
from tb_gpu_doctor.diagnosis.rule import About, Rule


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """The rules in their declared order, that of their names where two declare the same place."""
    modules = [import_module(f"{package.__name__}.{entry.name}") for entry in pkgutil.iter_modules(package.__path__)]
    found: list[Rule] = [module.RULE for module in modules]
    return tuple(sorted(found, key=lambda rule: (rule.order, rule.kind)))


@lru_cache(maxsize=1)
def _by_kind() -> dict[str, Rule]:
    return {rule.kind: rule for rule in rules()}


def rule_of(kind: str) -> Rule:
    """The rule that finds a kind; KeyError where there is none."""
    return _by_kind()[kind]


@lru_cache
def kinds(about: About | None = None) -> frozenset[str]:
    """Every kind of finding, or those about the run, the profile or the telemetry alone."""
    return frozenset(rule.kind for rule in rules() if about in (None, rule.about))
