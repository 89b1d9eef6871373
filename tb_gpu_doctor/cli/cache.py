"""``gpu-doctor cache``: what is remembered of analysed sessions, and how to forget it."""

from __future__ import annotations

import argparse

from tb_gpu_doctor.cli.arguments import Parser, add_command
from tb_gpu_doctor.texts import text


def add_to(subparsers: argparse._SubParsersAction[Parser], lang: str) -> Parser:
    """Declare the subcommand."""
    parser = add_command(subparsers, "cache", execute, lang)
    parser.add_argument("--clear", action="store_true", help=text("cli.cache.clear", lang))
    return parser


def execute(arguments: argparse.Namespace, lang: str) -> int:
    """Show or clear."""
    from tb_gpu_doctor.cache.store import default_store

    store = default_store()
    if not store.is_usable:
        print(text("cli.cache.off", lang))
    elif arguments.clear:
        print(text("cli.cache.cleared", lang, count=store.clear()))
    else:
        usage = store.usage()
        facts = {"count": usage.entries, "size": usage.size_bytes, "most": usage.max_bytes}
        print(text("cli.cache.holds", lang, path=str(usage.folder), **facts))
    return 0
