"""Entry point of ``gpu-doctor``: finds the subcommand, and turns every failure into one clear line."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence

from tb_gpu_doctor import __version__
from tb_gpu_doctor.cli import (
    baseline,
    batch,
    cache,
    check,
    compare,
    diagnose,
    env,
    history,
    import_log,
    kernels,
    mcp,
    pack,
    report,
    view,
    watch,
    whatif,
)
from tb_gpu_doctor.cli.arguments import Parser, UsageError, add_language, argparse_in, language_of, suggestion
from tb_gpu_doctor.cli.inputs import working_place
from tb_gpu_doctor.errors import DoctorError
from tb_gpu_doctor.texts import text
from tb_gpu_doctor.texts.numbers import clean

COMMANDS = (
    diagnose, kernels, whatif, compare, check, baseline, history, pack, view, report, watch, import_log, env, batch,
    cache, mcp,
)  # fmt: skip
FAILED = 2
# Options of the command itself and of ``diagnose`` whose value follows.
_WITH_VALUE = ("--lang", "--run", "--session", "--dask", "--telemetry", "--log-zone")
# What shells report for a process that Ctrl-C ended.
INTERRUPTED = 130
# No room for what is written, or the place failed.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it did its work, 2 with one line on stderr when it could not."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:
        # Closed by the caller (`>&-`), who wants no output but the exit status.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark, not a traceback.
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    lang = language_of(given)
    status: int = 0
    try:
        with argparse_in(lang):
            parsed = _parser(lang).parse_args(with_command(given, lang))
        with working_place(parsed):
            status = parsed.execute(parsed, lang)
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _fail(str(error), lang)
    except DoctorError as error:
        from tb_gpu_doctor.report.sentences import error_sentence

        return _fail(error_sentence(error, lang), lang)
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain once more when it flushes at exit.
        _print_nowhere()
        return status
    except KeyboardInterrupt:
        return _fail(text("cli.interrupted", lang), lang, INTERRUPTED)
    except MemoryError:
        return _fail(text("errors.out_of_memory", lang, path=""), lang)
    except OSError as error:
        if error.errno not in _FULL:
            return _internal(error, lang)
        _print_nowhere()
        return _fail(text("cli.cannot_print", lang, reason=error.strerror), lang)
    except Exception as error:
        return _internal(error, lang)


def command_names() -> list[str]:
    """What the subcommands are called: as their modules, but for `import`, which no module may be called."""
    return [getattr(command, "NAME", command.__name__.rpartition(".")[2]) for command in COMMANDS]


def with_command(arguments: Sequence[str], lang: str) -> list[str]:
    """The arguments with ``diagnose`` in front of a path that stands where a command should: `gpu-doctor LOGDIR`.

    Raises:
        UsageError: what stands there is neither a command nor a path.
    """
    given, names = list(arguments), command_names()
    is_value = False
    for argument in given:
        if is_value or argument.startswith("-"):
            is_value = argument in _WITH_VALUE
            continue
        if argument in names:
            return given
        if not _may_be_path(argument):
            complaint = text("cli.no_such_command", lang, given=argument)
            meant = suggestion(argument, names, lang)
            see = text("cli.see_help", lang, command="gpu-doctor")
            raise UsageError(" ".join(part for part in (complaint, meant, see) if part))
        return ["diagnose", *given]
    return given


def _may_be_path(argument: str) -> bool:
    return os.path.exists(argument) or any(sign in argument for sign in ("/", os.sep, ".", "~"))


def _print_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(error: Exception, lang: str) -> int:
    if os.environ.get("GPU_DOCTOR_DEBUG"):
        traceback.print_exception(error)
    return _fail(text("errors.internal", lang, reason=f"{type(error).__name__}: {error}"), lang)


def _fail(message: str, lang: str, status: int = FAILED) -> int:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        print(clean(f"gpu-doctor: {text('cli.error', lang)}: {message}"), file=sys.stderr)
    return status


def _parser(lang: str) -> Parser:
    parser = Parser(prog="gpu-doctor", description=text("cli.description", lang), lang=lang)
    parser.add_argument(
        "--version", action="version", version=f"gpu-doctor {__version__}", help=text("cli.help.version", lang)
    )
    add_language(parser, lang)
    subparsers = parser.add_subparsers(
        title=text("cli.commands", lang), metavar=text("cli.metavars.command", lang), required=True
    )
    for command in COMMANDS:
        add_language(command.add_to(subparsers, lang), lang)
    return parser


if __name__ == "__main__":
    sys.exit(main())
