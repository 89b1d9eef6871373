"""``gpu-doctor view PACK``: open a pack or a folder in TensorBoard."""

from __future__ import annotations

import argparse
import sys

from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_language
from tb_gpu_doctor.texts import text

_MAX_PORT = 65_535


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "view", lang=lang, help=text("cli.view.short", lang), description=text("cli.view.description", lang)
    )
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text("cli.view.path", lang))
    parser.add_argument("--port", metavar=text("cli.metavars.number", lang), help=text("cli.view.port", lang))
    parser.add_argument("--host", metavar="HOST", default="localhost", help=text("cli.view.host", lang))
    parser.add_argument("--no-open", action="store_true", help=text("cli.view.no_open", lang))
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Show it until Ctrl+C, which is the usual end."""
    from tb_gpu_doctor.packing.view import ended_by_sigterm, manifest, opened, serve

    port = _port(arguments.port, lang)

    def ready(address: str) -> None:
        print(text("pack.view.at", lang, address=address), flush=True)
        print(text("pack.view.ends", lang), file=sys.stderr, flush=True)
        if not arguments.no_open:
            import webbrowser

            webbrowser.open(address)

    try:
        with ended_by_sigterm(), opened(arguments.path) as folder:
            told = manifest(folder)
            for key in ("redacted", "slim"):
                if told.get(key) is True:
                    print(text(f"pack.view.{key}", lang), file=sys.stderr)
            print(text("pack.view.starting", lang), file=sys.stderr, flush=True)
            serve(folder, arguments.host, port, ready)
    except KeyboardInterrupt:
        print(text("pack.view.ended", lang), file=sys.stderr)
    return 0


def _port(given: str | None, lang: str) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 5 and int(given) <= _MAX_PORT):
        raise UsageError(text("pack.errors.port", lang, value=given, most=_MAX_PORT))
    return int(given)
