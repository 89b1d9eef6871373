"""An argument parser whose every word comes from the catalogues."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from tb_gpu_doctor.texts import languages, pick_language, text

# argparse words its complaints in English; these are the ones it can have about our arguments.
_COMPLAINTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("unrecognized", re.compile(r"unrecognized arguments: (?P<what>.*)", re.DOTALL)),
    ("required", re.compile(r"the following arguments are required: (?P<what>.*)", re.DOTALL)),
    (
        "choice",
        re.compile(r"argument (?P<what>.*?): invalid choice: (?P<value>.*) \(choose from (?P<choices>.*)\)", re.DOTALL),
    ),
    ("value", re.compile(r"argument (?P<what>.*?): expected .*argument.*", re.DOTALL)),
    ("positive", re.compile(r"argument (?P<what>.*?): invalid positive value: (?P<value>.*)", re.DOTALL)),
    ("no_value", re.compile(r"argument (?P<what>.*?): ignored explicit argument (?P<value>.*)", re.DOTALL)),
    ("ambiguous", re.compile(r"ambiguous option: (?P<what>.*?) could match .*", re.DOTALL)),
)


class UsageError(Exception):
    """Arguments that make no sense; the message is in the user's language."""


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of leaving the process, and speaks ``lang``."""

    def __init__(self, *args: Any, lang: str = "en", **kwargs: Any) -> None:
        self.lang = lang
        super().__init__(*args, add_help=False, allow_abbrev=False, formatter_class=_formatter(lang), **kwargs)  # type: ignore[misc]
        self._positionals.title = text("cli.headings.arguments", lang)
        self._optionals.title = text("cli.headings.options", lang)
        self.add_argument("-h", "--help", action="help", help=text("cli.help.help", lang))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complain of unknown arguments where they stand: argparse leaves a subcommand's to the command above."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Raise the complaint in the user's language."""
        key, found = "other", {"what": message}
        for name, pattern in _COMPLAINTS:
            match = pattern.fullmatch(message)
            if match:
                key, found = name, match.groupdict()
                break
        complaint = text(f"cli.complaints.{key}", self.lang, **found)
        raise UsageError(f"{complaint} {text('cli.complaints.see_help', self.lang, command=self.prog)}")


def _formatter(lang: str) -> type[argparse.HelpFormatter]:
    class Formatter(argparse.RawDescriptionHelpFormatter):
        def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
            super().add_usage(
                usage, actions, groups, text("cli.headings.usage", lang) + " " if prefix is None else prefix
            )

    return Formatter


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


def add_language(parser: argparse.ArgumentParser, lang: str) -> None:
    """The option that every subcommand has."""
    parser.add_argument("--lang", choices=languages(), help=text("cli.help.lang", lang))


def add_session(parser: argparse.ArgumentParser, lang: str, words: str = "diagnose") -> None:
    """``--run`` and ``--session``: which sessions are meant; ``words`` names the command whose help it is."""
    parser.add_argument("--run", metavar="RUN", help=text(f"cli.{words}.run", lang))
    parser.add_argument(
        "--session",
        action="append",
        metavar=text("cli.metavars.session", lang),
        help=text(f"cli.{words}.session", lang),
    )


def add_output(parser: argparse.ArgumentParser, lang: str, words: str, default: str | None = None) -> None:
    """``-o``: the file to write."""
    parser.add_argument(
        "-o",
        "--output",
        metavar=text("cli.metavars.file", lang),
        default=default,
        help=text(f"cli.{words}.output", lang, **({} if default is None else {"path": default})),
    )


def add_cluster(parser: argparse.ArgumentParser, lang: str) -> None:
    """The option of the subcommands that read whole sessions: where to do so, see `working_place`."""
    parser.add_argument("--dask", metavar="tcp://HOST:PORT", help=text("cli.help.dask", lang))


@contextmanager
def working_place(arguments: argparse.Namespace) -> Iterator[None]:
    """Read sessions on the cluster that the arguments name, if they name one.

    Raises:
        ProfileError: it cannot be reached, or Dask is not installed.
    """
    address = getattr(arguments, "dask", None)
    if address is None:
        yield
        return
    # Here, so that others need not wait for Dask.
    from tb_gpu_doctor.parallel.cluster import dask_cluster
    from tb_gpu_doctor.parallel.many_files import working_on

    with dask_cluster(address) as cluster, working_on(cluster):
        yield


def positive(value: str) -> int:
    """A whole number above zero; as a ``type`` of arguments, its name is part of argparse's complaint."""
    number = int(value)
    if number <= 0:
        raise ValueError(value)
    return number
