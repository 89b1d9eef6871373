"""``gpu-doctor view PACK``: open a pack or a folder in TensorBoard."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_command, add_path
from tb_gpu_doctor.cli.inputs import is_zip
from tb_gpu_doctor.texts import text

_MAX_PORT = 65_535


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "view", execute, lang)
    add_path(parser, lang)
    parser.add_argument("--port", metavar=text("cli.metavars.number", lang), help=text("cli.view.port", lang))
    parser.add_argument("--host", metavar="HOST", default="localhost", help=text("cli.view.host", lang))
    parser.add_argument("--no-open", action="store_true", help=text("cli.view.no_open", lang))
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Show it until Ctrl+C, which is the usual end."""
    from tb_gpu_doctor.packing.view import ended_by_sigterm, manifest, serve

    port = _port(arguments.port, lang)

    def ready(address: str) -> None:
        print(text("pack.view.at", lang, address=address), flush=True)
        print(text("pack.view.ends", lang), file=sys.stderr, flush=True)
        if not arguments.no_open:
            import webbrowser

            webbrowser.open(address)

    try:
        with ended_by_sigterm(), _folder(arguments.path) as folder:
            told = manifest(folder)
            for key in ("redacted", "slim"):
                if told.get(key) is True:
                    print(text(f"pack.view.{key}", lang), file=sys.stderr)
            print(text("pack.view.starting", lang), file=sys.stderr, flush=True)
            serve(folder, arguments.host, port, ready)
    except KeyboardInterrupt:
        print(text("pack.view.ended", lang), file=sys.stderr)
    return 0


@contextmanager
def _folder(path: str) -> Iterator[str]:
    """A logdir with what the path stands for: a folder is one already, a pack becomes one, a profile file gets one."""
    from tb_gpu_doctor.packing.view import opened

    if os.path.isfile(path) and not is_zip(path) and not path.endswith(".zip"):
        from tb_gpu_doctor.api import choose_session
        from tb_gpu_doctor.packing.pack import pack_sessions
        from tb_gpu_doctor.traces.sessions import find_sessions

        with tempfile.TemporaryDirectory(prefix="gpu-doctor-view-") as beside:
            pack = os.path.join(beside, "file.zip")
            pack_sessions([choose_session(find_sessions(path))], pack)
            with opened(pack) as folder:
                yield folder
        return
    with opened(path) as folder:
        yield folder


def _port(given: str | None, lang: str) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 5 and int(given) <= _MAX_PORT):
        raise UsageError(text("pack.errors.port", lang, value=given, most=_MAX_PORT))
    return int(given)
