"""A stand-in for NVIDIA's driver library, built from C, under the real pynvml.

A scenario is text, one line an order; times are seconds since the first ``nvmlInit``:

    gpus 8                                how many there are
    driver 550.54.15 (simulated)          version; it must hold "simulated" unless a test says otherwise
    init DRIVER_NOT_LOADED                nvmlInit fails with this code
    gone 20 40 LIB_RM_VERSION_MISMATCH    every call fails from 20 s to 40 s; then NVML must be initialised anew
    hang 5 8                              questions from 5 s on are answered at 8 s
    delay_ms 20                           how long each question for the PCIe throughput takes
    gpu 3 temperature 0:45 60:83          a series of points, with straight lines between them
    gpu * utilization 97                  a constant, of all GPUs
    gpu 3 reasons 0:0 60:0x20             bits, links and limits hold until the next point
    gpu 3 fail temperature NO_PERMISSION 10 20   the question fails, always or from 10 s to 20 s
    gpu 3 lost 30                         it falls off the bus
    gpu 3 xid 79 30                       the driver reports an error with this number at 30 s
    gpu 0 mig 2                           it is cut into two instances
    gpu 0 process 4711 2e9 0 60           another process (or ``self``) holds 2 GB from 0 s to 60 s
    gpu 0 name NVIDIA A100-SXM4-80GB      likewise ``uuid``

`KEYS` lists the series. Without ``energy`` the energy is what the power comes to; without ``links`` there
is no NVLink, and without ``gpu * fan 50`` and a ``fail fan SUCCESS`` no fan, as in servers.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")
LIBRARY = "libnvidia-ml.so.1"
KEYS = tuple(re.findall(r'"(\w+)"', SOURCE.read_text(encoding="utf-8").split("KEY_NAMES[KEYS] = {")[1].split("};")[0]))


class NoCompiler(RuntimeError):
    """There is no C compiler to build the stand-in with."""


def build(folder: str | os.PathLike[str], old_driver: bool = False) -> Path:
    """Compile the library into a folder, for ``LD_LIBRARY_PATH``, and return its path.

    Args:
        folder: where to.
        old_driver: leave out the functions that drivers before 510 lacked.

    Raises:
        NoCompiler: neither cc, gcc nor clang is there.
    """
    compiler = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise NoCompiler("no C compiler found; install gcc or clang")
    path = Path(folder) / LIBRARY
    command = [
        *compiler.split(), "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}",
        *(["-DNVML_STUB_OLD"] if old_driver else []), "-o", str(path), str(SOURCE), "-lm", "-lpthread",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return path


class LoadedStub:
    """The library in this process, with a clock of its own: before pynvml is initialised, load it once.

    Args:
        path: of `build`.
        scenario: path of the text.
    """

    def __init__(self, path: Path, scenario: Path) -> None:
        os.environ["NVML_STUB_SCENARIO"] = str(scenario)
        # pynvml opens the library by its name, and the loader gives it the one that is loaded already.
        self._library = ctypes.CDLL(str(path))
        self._library.nvmlStubSetTime.argtypes = [ctypes.c_double]
        self._library.nvmlStubSetTime.restype = None
        self._library.nvmlStubCalls.restype = ctypes.c_ulonglong

    def set_time(self, seconds: float) -> None:
        """Set the scenario's time; negative lets it run by itself again."""
        self._library.nvmlStubSetTime(seconds)

    @property
    def calls(self) -> int:
        """How many questions were asked so far."""
        return int(self._library.nvmlStubCalls())
