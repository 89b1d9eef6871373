"""A slim pack shows the same in every view of the tab, byte for byte, and compares as the run that it was made of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_gpu_doctor.cli.pack import chosen_sessions
from tb_gpu_doctor.comparing import summary_of_path
from tb_gpu_doctor.comparison.compare import compare
from tb_gpu_doctor.packing.archive import unpack_archive
from tb_gpu_doctor.packing.pack import pack_sessions
from tb_gpu_doctor.plugin.session_view import analyse
from tb_gpu_doctor.traces.sessions import Session, find_sessions

ANSWERS: dict[str, Callable[[Any, int, int], object]] = {
    "diagnosis": lambda view, low, high: view.diagnosis_json("en"),
    "meta": lambda view, low, high: view.meta_json,
    "steps": lambda view, low, high: view.steps_json,
    "collectives": lambda view, low, high: view.collectives_json,
    "bins": lambda view, low, high: view.timeline.bins(low, high, 300),
    "events": lambda view, low, high: view.timeline.events(low, high, 10_000),
    "moment": lambda view, low, high: view.timeline.at(0, (low + high) // 2),
    "kernels": lambda view, low, high: view.kernels.table_json("gpu"),
    "gaps": lambda view, low, high: view.gaps.answer(50, None, None),
    "accounting": lambda view, low, high: view.ranges.accounting(low, high),
    "telemetry": lambda view, low, high: view.telemetry.answer("en"),
    "streams": lambda view, low, high: view.ranges.streams(0, low, high, 100),
}


def answers(session: Session) -> dict[str, str]:
    view = analyse(session, lambda _stage, _done: None, os.path.basename)
    meta = view.timeline.meta()
    return {name: repr(ask(view, meta["start_ps"], meta["end_ps"])) for name, ask in ANSWERS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["healthy", "input_bound", "pytorch_ddp", "slow_gpu"])
def test_every_view_of_a_slim_pack_is_that_of_the_run(name: str, demo_logs: Path, tmp_path: Path) -> None:
    session = chosen_sessions(find_sessions(str(demo_logs / name)), None, None)[0]
    pack_sessions([session], str(tmp_path / "p.zip"), slim=True)
    (tmp_path / "open").mkdir()
    unpack_archive(str(tmp_path / "p.zip"), str(tmp_path / "open"))
    slim = next(found for found in find_sessions(str(tmp_path / "open")).sessions if not found.is_telemetry)
    before, after = answers(session), answers(slim)
    assert [key for key in before if before[key] != after[key]] == []
    old, new = summary_of_path(demo_logs / name), summary_of_path(tmp_path / "open")
    for field in dataclasses.fields(old):
        if field.name not in ("label", "format"):
            np.testing.assert_equal(getattr(new, field.name), getattr(old, field.name), err_msg=field.name)
    assert all(entry.change == "unchanged" for entry in compare(old, new).findings)
