"""Start Python so that nothing in the current folder runs.

A folder may hold what somebody downloaded: a ``socket.py`` or ``tensorboard.py`` beside a pack would run instead of
the real one, since ``python -m`` looks into the current folder first. So children are started isolated (``-I``) and
told where this process finds its modules, without the current folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# The path comes as one argument; what follows is the module's own command line.
_BOOT = (
    "import os, sys; sys.path[:] = sys.argv.pop(1).split(os.pathsep);"
    " import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def safe_path() -> list[str]:
    """Where this process finds modules, without the current folder, which would come first in a child.

    The folder that holds this package comes last: in a checkout it may be the current one.
    """
    here = os.path.realpath(os.curdir)
    known = [entry for entry in sys.path if entry and os.path.realpath(entry) != here]
    return list(dict.fromkeys([*known, _PACKAGE_PARENT]))


def isolated(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module as a program, as ``python -m`` does, with nothing of the current folder.

    Environment variables that change how Python finds modules do not count in it either.
    """
    flags = ["-I", *(["-X", "utf8"] if sys.flags.utf8_mode else [])]
    return [sys.executable, *flags, "-c", _BOOT, os.pathsep.join(safe_path()), module, *arguments]
