"""``gpu-doctor diagnose PATH``: what is wrong with a profiled run, what it costs, what to change."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from typing import TYPE_CHECKING

from tb_gpu_doctor.cli.arguments import (
    Parser,
    add_cluster,
    add_command,
    add_json,
    add_no_color,
    add_path,
    add_session,
    add_zone,
)
from tb_gpu_doctor.cli.inputs import opened
from tb_gpu_doctor.cli.output import console, progress_bar
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean

if TYPE_CHECKING:
    from tb_gpu_doctor.traces.sessions import Session, SessionScan

_MAX_LISTED = 10
# A command to copy is of no use if it is cut; this is for names of absurd length.
_MAX_COMMAND = 20_000


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "diagnose", execute, lang)
    add_path(parser, lang)
    parser.add_argument("--brief", action="store_true", help=text("cli.diagnose.brief", lang))
    add_json(parser, lang, "docs/json.md")
    add_session(parser, lang)
    log = text("cli.diagnose.telemetry", lang)
    parser.add_argument("--telemetry", action="append", metavar="LOG", default=[], help=log)
    add_zone(parser, lang)
    add_no_color(parser, lang)
    add_cluster(parser, lang)
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Diagnose and print; the exit status says whether it could, not what it found."""
    # Here, so that `--help` needs neither numpy nor the decoder.
    from tb_gpu_doctor.api import answer_session, choose_session, with_logs
    from tb_gpu_doctor.traces.sessions import find_sessions

    with opened(arguments.path) as source:
        scan = find_sessions(source.path)
        session = choose_session(scan, arguments.run, arguments.session)
        _mention_others(scan, session, arguments, lang)
        _offer_related(scan, session, arguments, lang)
        session = with_logs(session, arguments.telemetry, arguments.log_zone)
        with progress_bar(lang, arguments.no_color) as report:
            diagnosis = answer_session(session, report).diagnosis
        if session.misplaced not in (None, scan.root):
            print(text("cli.diagnose.misplaced", lang, path=session.misplaced), file=sys.stderr)
    if arguments.json:
        print(diagnosis.to_json(lang))
        return 0
    from tb_gpu_doctor.report.diagnosis_text import print_report

    print_report(diagnosis, console(arguments.no_color), lang, arguments.brief)
    return 0


def _mention_others(scan: SessionScan, chosen: Session, arguments: argparse.Namespace, lang: str) -> None:
    """Tell on stderr which sessions were left out, and which folders could not be searched."""
    from tb_gpu_doctor.report.sentences import error_sentence, say

    for error in scan.problems[:_MAX_LISTED]:
        print(error_sentence(error, lang), file=sys.stderr)
    # What was recorded beside the chosen profile is part of its diagnosis already.
    told = set() if chosen.is_telemetry else set(chosen.homes)
    others = [
        session
        for session in scan.sessions
        if session != chosen and not (session.is_telemetry and set(session.homes) <= told)
    ]
    if arguments.run is not None:
        others = [session for session in others if session.run == chosen.run]
    if not others or arguments.session is not None:
        return
    print(text("cli.diagnose.chosen", lang, session=_name(chosen)), file=sys.stderr)
    print(text("cli.diagnose.others", lang, count=len(others)), file=sys.stderr)
    for session in others[:_MAX_LISTED]:
        problem = f"  ({say(session.problem, lang)})" if session.problem is not None else ""
        print(f"  --run {clean(session.run) or '.'} --session {clean(session.session)}{problem}", file=sys.stderr)
    if len(others) > _MAX_LISTED:
        print(text("cli.diagnose.more", lang, count=len(others) - _MAX_LISTED), file=sys.stderr)


def _offer_related(scan: SessionScan, chosen: Session, arguments: argparse.Namespace, lang: str) -> None:
    """Tell on stderr which other sessions may be the same job, and how to read them as one."""
    from tb_gpu_doctor.traces.related import Offers

    offer = Offers(scan.sessions).of(chosen)
    if offer is None:
        return
    apart_s = max(1, math.ceil(offer.apart_s))  # names tell whole seconds
    print(text("cli.diagnose.related", lang, count=offer.others, apart=apart_s), file=sys.stderr)
    run = f" --run {shlex.quote(chosen.run or '.')}" if arguments.run is not None or chosen.run else ""
    command = f"gpu-doctor diagnose {shlex.quote(arguments.path)}{run} --session {shlex.quote(offer.name)}"
    print(f"  {clean(command, _MAX_COMMAND)}", file=sys.stderr)


def _name(session: Session) -> str:
    return "/".join(part for part in (session.run, session.session) if part)
