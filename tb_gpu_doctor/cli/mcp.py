"""``gpu-doctor mcp LOGDIR``: the same answers for coding agents, by the Model Context Protocol on standard streams."""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import typing
from collections.abc import Callable
from typing import Any

from tb_gpu_doctor.agent_tools import INSTRUCTIONS, AgentTools
from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_command, add_path
from tb_gpu_doctor.errors import DoctorError
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "mcp", execute, lang)
    add_path(parser, lang, "cli.mcp.path")
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Answer until the other side closes the stream."""
    server(AgentTools(arguments.path, lang), lang).run()
    return 0


def server(tools: AgentTools, lang: str) -> Any:
    """The SDK's server with all tools.

    Raises:
        UsageError: the SDK is not installed.
    """
    made, failed = _sdk(lang)
    made = made("gpu-doctor", instructions=INSTRUCTIONS)
    asked = (
        tools.sessions, tools.diagnosis, tools.finding, tools.kernels, tools.gaps, tools.compare, tools.telemetry
    )  # fmt: skip
    for tool in asked:
        made.tool()(_speaking(tool, failed, lang))
    return made


def _sdk(lang: str) -> tuple[Any, type[Exception]]:
    """The class of servers, and the error whose words reach the other side."""
    # Its name of today, and its first one.
    for module, name in (("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP")):
        try:
            exceptions = importlib.import_module(f"{module}.exceptions")
            return getattr(importlib.import_module(module), name), exceptions.ToolError
        except ModuleNotFoundError:
            continue
    raise UsageError(text("cli.mcp.no_sdk", lang))


def _speaking(tool: Callable[..., dict[str, Any]], failed: type[Exception], lang: str) -> Callable[..., dict[str, Any]]:
    """The tool, whose failures are sentences; its signature is what the protocol declares."""

    @functools.wraps(tool)
    def asked(*args: Any, **kwargs: Any) -> dict[str, Any]:
        from tb_gpu_doctor.report.sentences import error_sentence

        try:
            return tool(*args, **kwargs)
        except DoctorError as error:
            raise failed(error_sentence(error, lang)) from None

    hints = typing.get_type_hints(tool)
    own = inspect.signature(tool)
    declared = [each.replace(annotation=hints[name]) for name, each in own.parameters.items()]
    asked.__signature__ = own.replace(parameters=declared, return_annotation=dict[str, Any])  # type: ignore[attr-defined]
    asked.__annotations__ = hints
    return asked
