"""``gpu-doctor watch LOGDIR``: a running training in the terminal, from what its monitors write."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_command, add_json, add_no_color, add_path
from tb_gpu_doctor.cli.output import console
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean

if TYPE_CHECKING:
    from tb_gpu_doctor.report.live_report import LiveReport
    from tb_gpu_doctor.telemetry.recordings import TelemetryReader

SHORTEST_INTERVAL_S = 0.2


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "watch", execute, lang)
    add_path(parser, lang, "cli.watch.path")
    parser.add_argument("--once", action="store_true", help=text("cli.watch.once", lang))
    add_json(parser, lang, "docs/monitor.md")
    seconds = text("cli.metavars.seconds", lang)
    parser.add_argument("--interval", type=float, default=2.0, metavar=seconds, help=text("cli.watch.interval", lang))
    add_no_color(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Show the state, again and again until Ctrl-C, or once."""
    from tb_gpu_doctor.telemetry.recordings import TelemetryReader

    if not arguments.interval >= SHORTEST_INTERVAL_S:
        raise UsageError(text("cli.watch.bad_interval", lang, least=SHORTEST_INTERVAL_S))
    reader = TelemetryReader()
    first = state_of(reader, arguments.path, lang)
    if arguments.once:
        if not first.processes:
            raise UsageError(text("cli.watch.no_recording", lang, path=clean(arguments.path)))
        _print(first, arguments, lang)
        return 0
    try:
        if arguments.json:
            while True:
                _print(first, arguments, lang)
                time.sleep(arguments.interval)
                first = state_of(reader, arguments.path, lang)
        _follow(first, reader, arguments, lang)
    except KeyboardInterrupt:
        pass  # the way to end it
    return 0


def state_of(reader: TelemetryReader, path: str, lang: str) -> LiveReport:
    """Read what is new, and judge the newest recordings."""
    from tb_gpu_doctor.diagnosis.telemetry_engine import diagnose_telemetry
    from tb_gpu_doctor.report.live_report import LiveReport
    from tb_gpu_doctor.telemetry.joining import newest
    from tb_gpu_doctor.telemetry.live import gpu_now, process_now

    telemetry = reader.read(path, lang)
    joined = newest(telemetry)
    now = time.time_ns()
    return LiveReport(
        unix_ms=now // 1_000_000,
        gpus=tuple(gpu_now(gpu, now) for gpu in joined.gpus),
        processes=tuple(process_now(recording, now) for recording in joined.recordings),
        diagnosis=diagnose_telemetry(joined),
        problems=telemetry.problems,
    )


def _print(state: LiveReport, arguments: argparse.Namespace, lang: str) -> None:
    if arguments.json:
        print(json.dumps(state.to_dict(lang), ensure_ascii=False), flush=True)
    else:
        console(arguments.no_color).print(state.screen(lang))


def _follow(state: LiveReport, reader: TelemetryReader, arguments: argparse.Namespace, lang: str) -> None:
    from rich.live import Live

    with Live(console=console(arguments.no_color), auto_refresh=False, screen=False) as live:
        while True:
            live.update(state.screen(lang), refresh=True)
            time.sleep(arguments.interval)
            state = state_of(reader, arguments.path, lang)
