"""The argument parser, which speaks the user's language, and the options that several commands share."""

from __future__ import annotations

import argparse
import difflib
import gettext
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tb_gpu_doctor.texts import languages, pick_language, template, text

# What argparse asks gettext for, as far as it can come up with our arguments, and the key of our text for it.
_MESSAGES = {
    "usage: ": "usage",
    "positional arguments": "arguments",
    "options": "options",
    "show this help message and exit": "help",
    "argument %(argument_name)s: %(message)s": "about",
    "unrecognized arguments: %s": "unrecognized",
    "the following arguments are required: %s": "required",
    "invalid choice: %(value)r (choose from %(choices)s)": "choice",
    "invalid choice: %(value)r, maybe you meant %(closest)r? (choose from %(choices)s)": "choice",
    "invalid %(type)s value: %(value)r": "value",
    "expected one argument": "one",
    "expected at most one argument": "one",
    "expected at least one argument": "one",
    "expected %s argument": "several",
    "expected %s arguments": "several",
    "ignored explicit argument %r": "none",
    "not allowed with argument %s": "excluded",
    "ambiguous option: %(option)s could match %(matches)s": "ambiguous",
}


class UsageError(Exception):
    """Arguments that make no sense; the message is in the user's language."""


class _Catalogue(gettext.NullTranslations):
    """Translations of argparse's texts, from our catalogues."""

    def __init__(self, lang: str) -> None:
        super().__init__()
        self._lang = lang

    def gettext(self, message: str) -> str:
        """The text in the user's language; argparse's own where there is none."""
        key = _MESSAGES.get(message)
        return message if key is None else template(f"cli.argparse.{key}", self._lang) or message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        """The same for texts with a number."""
        return self.gettext(msgid1 if n == 1 else msgid2)


@contextmanager
def argparse_in(lang: str) -> Iterator[None]:
    """Let argparse speak a language: its gettext functions are ours meanwhile."""
    ours, module = _Catalogue(lang), vars(argparse)
    theirs = {name: module[name] for name in ("_", "ngettext")}
    module.update({"_": ours.gettext, "ngettext": ours.ngettext})
    try:
        yield
    finally:
        module.update(theirs)


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of leaving the process; to be made and used within `argparse_in`."""

    def __init__(self, *args: Any, lang: str = "en", **kwargs: Any) -> None:
        self.lang = lang
        style = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": style, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complain of unknown arguments where they stand: argparse leaves a subcommand's to the command above."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            complaint = template("cli.argparse.unrecognized", self.lang) or "%s"
            self.error(complaint % " ".join(unknown), suggestion(unknown[0].split("=")[0], options, self.lang))
        return known, unknown

    def error(self, message: str, more: str = "") -> NoReturn:
        """Raise the complaint, with where to find help."""
        see = text("cli.see_help", self.lang, command=self.prog)
        raise UsageError(" ".join(part for part in (f"{message.rstrip('.')}.", more, see) if part))


def suggestion(given: str, known: Sequence[str], lang: str) -> str:
    """Which of the known words may have been meant; nothing where none is alike."""
    close = difflib.get_close_matches(given, known, 1)
    return text("cli.did_you_mean", lang, word=close[0]) if close else ""


def language_of(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The language to speak before anything is parsed: ``--lang``, else the locale."""
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        wanted = None
        if argument.startswith("--lang="):
            wanted = argument.partition("=")[2]
        elif argument == "--lang" and index + 1 < len(arguments):
            wanted = arguments[index + 1]
        if wanted in languages():
            return wanted
    for variable in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(variable):
            return pick_language(environment[variable])
    return pick_language(None)


def add_command(
    subparsers: argparse._SubParsersAction[Parser], name: str, execute: Callable[..., int], lang: str, words: str = ""
) -> Parser:
    """The parser of a subcommand.

    Args:
        subparsers: of the command.
        name: of the subcommand.
        execute: what does the work, from the parsed arguments and the language; gives the exit status.
        lang: of the help.
        words: where the texts stand in the catalogues, by default ``cli.NAME``.
    """
    words = words or f"cli.{name}"
    parser = subparsers.add_parser(
        name, lang=lang, help=text(f"{words}.short", lang), description=text(f"{words}.description", lang)
    )
    parser.set_defaults(execute=execute)
    return parser


def add_language(parser: argparse.ArgumentParser, lang: str) -> None:
    """``--lang``."""
    parser.add_argument("--lang", choices=languages(), help=text("cli.help.lang", lang))


def add_path(parser: argparse.ArgumentParser, lang: str, words: str = "cli.help.path") -> None:
    """Which run to read: anything that `inputs.opened` takes."""
    parser.add_argument("path", metavar=text("cli.metavars.path", lang), help=text(words, lang))


def add_session(parser: argparse.ArgumentParser, lang: str, words: str = "cli.help") -> None:
    """``--run`` and ``--session``: which sessions of the path are meant; ``words`` say what is done with them."""
    parser.add_argument("--run", metavar="RUN", help=text(f"{words}.run", lang))
    parser.add_argument(
        "--session", action="append", metavar=text("cli.metavars.session", lang), help=text(f"{words}.session", lang)
    )


def add_output(parser: argparse.ArgumentParser, lang: str, default: str | None = None) -> None:
    """``-o``: the file to write, by default ``default``, or standard output."""
    parser.add_argument(
        "-o",
        "--output",
        metavar=text("cli.metavars.file", lang),
        default=default,
        help=text("cli.help.output" if default else "cli.help.output_or_stdout", lang, path=default),
    )


def add_json(parser: argparse.ArgumentParser, lang: str, page: str) -> None:
    """``--json``, described on a page of the documentation."""
    parser.add_argument("--json", action="store_true", help=text("cli.help.json", lang, page=page))


def add_no_color(parser: argparse.ArgumentParser, lang: str) -> None:
    """``--no-color``."""
    parser.add_argument("--no-color", action="store_true", help=text("cli.help.no_color", lang))


def add_cluster(parser: argparse.ArgumentParser, lang: str) -> None:
    """``--dask``: where to read sessions, see `inputs.working_place`."""
    parser.add_argument("--dask", metavar="tcp://HOST:PORT", help=text("cli.help.dask", lang))


_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d?)(?::?(\d\d))?")
_LARGEST_OFFSET_S = 14 * 3600


def add_zone(parser: argparse.ArgumentParser, lang: str) -> None:
    """``--log-zone``: the zone of a log's clock, as seconds that it is ahead of UTC."""

    def offset(value: str) -> int:
        match = _OFFSET.fullmatch(value)
        minutes = int(match[3] or 0) if match else 0
        seconds = (int(match[2]) * 60 + minutes) * 60 if match else 0
        if value in ("Z", "UTC"):
            return 0
        if match is None or minutes > 59 or seconds > _LARGEST_OFFSET_S:
            raise argparse.ArgumentTypeError(text("cli.bad_zone", lang, value=value))
        return -seconds if match[1] == "-" else seconds

    parser.add_argument("--log-zone", type=offset, metavar="+HH:MM", help=text("cli.help.log_zone", lang))


def add_number(parser: argparse.ArgumentParser, lang: str, option: str, words: str, default: int | None = None) -> None:
    """An option that takes a whole number above zero."""

    def positive(value: str) -> int:
        if not (value.isascii() and value.isdigit() and 0 < int(value[:10]) < 1 << 31):
            raise argparse.ArgumentTypeError(text("cli.not_positive", lang, value=value))
        return int(value[:10])

    parser.add_argument(
        option, type=positive, default=default, metavar=text("cli.metavars.number", lang), help=text(words, lang)
    )
