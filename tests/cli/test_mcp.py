"""The tools for coding agents: what they answer, that they stay below the logdir, and what the SDK's client sees."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_gpu_doctor.agent_tools import MOST_CHARS, MOST_ROWS, AgentTools, bounded
from tb_gpu_doctor.cli.main import main
from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.public import diagnose

Tools = AgentTools


@pytest.fixture(scope="module")
def tools(demo_logs: Path) -> AgentTools:
    return AgentTools(str(demo_logs))


def test_sessions_are_listed_newest_first(tools: Tools) -> None:
    rows = tools.sessions()["sessions"]
    times = [row["recorded_unix_s"] for row in rows if row["format"] != "telemetry"]
    assert times == sorted(times, reverse=True)
    assert {"input_bound", "healthy", "pytorch_ddp"} <= {row["run"] for row in rows}
    assert len(tools.sessions(limit=2)["sessions"]) == 2 and len(tools.sessions(limit=-5)["sessions"]) == 1


def test_a_diagnosis_is_that_of_the_command(tools: Tools, demo_logs: Path) -> None:
    found, own = tools.diagnosis(run="input_bound"), diagnose(demo_logs, run="input_bound").to_dict()
    assert (found["verdict"], found["steps"], found["devices"]) == (own["verdict"], own["steps"], own["devices"])
    for told, whole in zip(found["findings"], own["findings"], strict=True):
        assert told["title"] == whole["title"] and told["evidence_count"] == len(whole["evidence"])
    (finding,) = tools.finding("input_bound", run="input_bound")["findings"]
    assert finding["evidence"] == own["findings"][0]["evidence"]
    assert tools.finding("nonsense", run="input_bound")["findings"] == []


@pytest.mark.slow
def test_gaps_of_a_stretch_are_those_of_the_table(tools: Tools, demo_logs: Path) -> None:
    table = diagnose(demo_logs, run="input_bound").gaps
    whole = tools.gaps(run="input_bound", limit=5)
    assert whole["total"] == len(table) and whole["idle_ms"] == pytest.approx(float(table["duration_ms"].sum()))
    assert [row["duration_ms"] for row in whole["gaps"]] == sorted(table["duration_ms"].tolist(), reverse=True)[:5]
    first = whole["gaps"][0]
    some = tools.gaps(run="input_bound", start_ms=first["start_ms"], end_ms=first["end_ms"], gpu=first["gpu"])
    assert some["gaps"] == [first] and some["total"] == 1
    parts = sum(value for name, value in first.items() if name.startswith("idle_"))
    assert parts == pytest.approx(first["duration_ms"])


def test_kernels_comparison_and_telemetry(tools: Tools) -> None:
    found = tools.kernels(run="healthy", top=3)
    assert len(found["kernels"]) == 3 < found["total"]
    assert tools.compare("input_bound", "healthy")["outcome"] == "faster"
    assert tools.telemetry(run="slow_gpu")["telemetry"] and tools.telemetry(run="healthy")["telemetry"] is None


@pytest.mark.parametrize("name", ["../demo_logs", "/etc", "..", "input_bound/..", "nothing", "input_bound\0"])
def test_no_name_leads_out_of_the_logdir(tools: Tools, name: str) -> None:
    for ask in (tools.diagnosis, tools.kernels, tools.gaps, tools.telemetry):
        for arguments in ({"run": name}, {"session": name}):
            with pytest.raises(ProfileError) as caught:
                ask(**arguments)
            assert caught.value.code == "no_such_session"


def test_answers_are_bounded_and_plain() -> None:
    value = {"a": ["x"] * 10_000, "b": "y" * 10**6, "c": float("nan"), "d": "\x1b[31mred", "e": (1, {"f": None})}
    found = bounded(value)
    assert len(found["a"]) == MOST_ROWS and len(found["b"]) <= MOST_CHARS and found["c"] is None
    assert "\x1b" not in found["d"] and found["e"] == [1, {"f": None}]
    json.dumps(found, allow_nan=False)


def test_without_the_sdk_it_says_what_to_install(
    demo_logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mcp", "mcp.server", "mcp.server.mcpserver", "mcp.server.fastmcp"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["mcp", str(demo_logs), "--lang", "en"]) == 2
    assert "pip install 'tb-gpu-doctor[mcp]'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_client_of_the_sdk_is_answered(demo_logs: Path) -> None:
    mcp = pytest.importorskip("mcp")
    import anyio

    async def talk() -> tuple[dict[str, Any], Any, Any]:
        asked = ["-m", "tb_gpu_doctor.cli.main", "--lang", "en", "mcp", str(demo_logs)]
        command = mcp.StdioServerParameters(command=sys.executable, args=asked, env=dict(os.environ))
        async with mcp.stdio_client(command) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            good = await session.call_tool("diagnosis", {"run": "input_bound"})
            bad = await session.call_tool("diagnosis", {"run": "../x"})
            return listed, good, bad

    listed, good, bad = anyio.run(talk)
    assert set(listed) == {"sessions", "diagnosis", "finding", "kernels", "gaps", "compare", "telemetry"}
    assert all(tool.description for tool in listed.values())
    plain = good.model_dump(by_alias=True)
    assert not plain["isError"] and json.loads(plain["content"][0]["text"])["verdict"] == "critical"
    failed = bad.model_dump(by_alias=True)
    assert failed["isError"] and "../x" in failed["content"][0]["text"]
