"""``gpu-doctor cache``: what is remembered of analysed sessions, and how to forget it."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_language
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "cache", lang=lang, help=text("cli.cache.short", lang), description=text("cli.cache.description", lang)
    )
    parser.add_argument("--clear", action="store_true", help=text("cli.cache.clear", lang))
    add_language(parser, lang)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Show or clear."""
    from tb_gpu_doctor.cache.store import default_store

    store = default_store()
    if not store.is_usable:
        print(text("cli.cache.off", lang))
        return 0
    if arguments.clear:
        print(text("cli.cache.cleared", lang, count=store.clear()))
        return 0
    usage = store.usage()
    print(
        text(
            "cli.cache.holds",
            lang,
            path=str(usage.folder),
            count=usage.entries,
            size=usage.size_bytes,
            most=usage.max_bytes,
        )
    )
    return 0
