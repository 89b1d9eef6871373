"""Rules are found where they stand, and each declares itself whole."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import tb_gpu_doctor.diagnosis.rules as package
from tb_gpu_doctor.diagnosis.rule import About, Cost, Distortion, Fact, Rule, kinds, rule_of, rules
from tb_gpu_doctor.diagnosis.thresholds import Thresholds


def test_every_file_of_the_package_is_a_rule_named_after_its_kind() -> None:
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == kinds()
    for rule in rules():
        assert sys.modules[rule.check.__module__].__name__ == f"{package.__name__}.{rule.kind}"


def test_the_order_is_declared_and_without_ties() -> None:
    orders = [rule.order for rule in rules()]
    assert all(first < second for first, second in itertools.pairwise(orders))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.kind)
def test_a_rule_declares_itself_whole(rule: Rule) -> None:
    assert rule_of(rule.kind) is rule
    assert rule.about in get_args(About) and rule.cost in get_args(Cost) and rule.distorts in get_args(Distortion)
    assert rule.reads and set(rule.reads) <= set(get_args(Fact))
    assert set(rule.needs) <= set(rule.reads), "what it needs it reads"
    costs = rule.about == "run" or rule.proves_no_health
    assert rule.cost == "none" or costs, "only what a run does costs time, and what nobody can explain"
    assert rule.beside_profile or rule.about == "telemetry"
    if rule.thresholds is not None:
        assert dataclasses.is_dataclass(rule.thresholds) and dataclasses.fields(rule.thresholds)
        with pytest.raises(dataclasses.FrozenInstanceError):
            rule.thresholds.warning = 1.0  # type: ignore[attr-defined]


def test_every_fact_is_read() -> None:
    assert {fact for rule in rules() for fact in rule.reads} == set(get_args(Fact))


def test_thresholds_are_the_rules_own_unless_changed() -> None:
    for rule in rules():
        assert Thresholds().of(rule.kind) is rule.thresholds
    own = object()
    assert Thresholds({"input_bound": own}).of("input_bound") is own
    with pytest.raises(KeyError):
        Thresholds().of("no_such_kind")


def test_kinds_are_told_apart_by_what_they_are_about() -> None:
    assert kinds() == kinds("run") | kinds("profile") | kinds("telemetry")
    assert len(kinds()) == len(kinds("run")) + len(kinds("profile")) + len(kinds("telemetry"))
    with pytest.raises(KeyError):
        rule_of("no_such_kind")


def test_no_rule_is_loaded_before_one_is_asked_for() -> None:
    code = """
import sys
import tb_gpu_doctor.diagnosis.rule
loaded = [name for name in sys.modules if name.startswith("tb_gpu_doctor.diagnosis.rules.")]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
