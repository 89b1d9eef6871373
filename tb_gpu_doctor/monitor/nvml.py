"""NVML as the monitor sees it: what can fail, told apart by what has to happen then."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_LOCK = threading.Lock()


def _after_fork() -> None:
    """A lock that another thread held when this process was forked is never given back here."""
    global _LOCK
    _LOCK = threading.Lock()
    pynvml = sys.modules.get("pynvml")
    if hasattr(pynvml, "libLoadLock"):
        pynvml.libLoadLock = threading.Lock()  # type: ignore[union-attr]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class NvmlProblem(Exception):
    """NVML did not answer.

    Attributes:
        reason: NVML's own words, or the loader's.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unsupported(NvmlProblem):
    """This driver or GPU never gives this value."""


class NotInPackage(Unsupported):
    """The Python package that stands in front of the driver does not know the question; the driver may."""


class Forbidden(NvmlProblem):
    """This user never gets this value."""


class GpuLost(NvmlProblem):
    """The GPU has fallen off the bus or must be reset: it gives nothing any more."""


class DriverLost(NvmlProblem):
    """The driver as a whole does not answer: absent, being reloaded, or of another version than the library."""


class TryAgain(NvmlProblem):
    """No value this time."""


def _kinds(pynvml: Any) -> dict[int, type[NvmlProblem]]:
    by_kind: dict[type[NvmlProblem], tuple[str, ...]] = {
        Unsupported: (
            "NOT_SUPPORTED",
            "FUNCTION_NOT_FOUND",
            "ARGUMENT_VERSION_MISMATCH",
            "INVALID_ARGUMENT",
            "DEPRECATED",
            "NOT_FOUND",
        ),
        Forbidden: ("NO_PERMISSION",),
        GpuLost: ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND"),
        DriverLost: (
            "UNINITIALIZED",
            "DRIVER_NOT_LOADED",
            "LIBRARY_NOT_FOUND",
            "LIB_RM_VERSION_MISMATCH",
            "OPERATING_SYSTEM",
        ),
    }
    return {
        getattr(pynvml, f"NVML_ERROR_{name}"): kind
        for kind, names in by_kind.items()
        for name in names
        if hasattr(pynvml, f"NVML_ERROR_{name}")
    }


class Nvml:
    """pynvml with this module's exceptions; one a monitor.

    Attributes:
        module: pynvml, for its constants and functions; call these through `ask`.
    """

    def __init__(self) -> None:
        self.module: Any = None
        # The call that runs and when it began, so that another thread can tell that it does not return.
        self.call: tuple[str, float] | None = None
        self._started = False
        self._kind_of: dict[int, type[NvmlProblem]] = {}

    def start(self) -> None:
        """Load and initialise NVML.

        Raises:
            DriverLost: there is none, or it does not work.
        """
        try:
            import pynvml
        except ImportError as error:
            raise DriverLost(f"{error}; pip install nvidia-ml-py") from None
        if not hasattr(pynvml, "nvmlDeviceGetHandleByIndex"):
            raise DriverLost("another package is installed as pynvml; pip install --force-reinstall nvidia-ml-py")
        self.module = pynvml
        self._kind_of = _kinds(pynvml)
        try:
            # Another library in this process may use NVML too: its counter of users is shared.
            self.call = ("nvmlInit", time.monotonic())
            with _LOCK:
                pynvml.nvmlInit()
            self._started = True
        except pynvml.NVMLError as error:
            raise DriverLost(_words(error)) from None
        except Exception as error:  # a library that is damaged or of another kind
            raise DriverLost(f"{type(error).__name__}: {error}") from None
        finally:
            self.call = None

    def stop(self) -> None:
        """Give NVML back; never fails, and may be called again."""
        if self._started:
            self._started = False
            try:
                with _LOCK:
                    self.module.nvmlShutdown()
            except Exception:  # whatever is wrong with the driver has been told
                pass

    def ask(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call a function of NVML.

        Raises:
            NvmlProblem: of the kind that says what to do.
        """
        self.call = (getattr(call, "__name__", "NVML"), time.monotonic())
        try:
            return call(*arguments)
        except self.module.NVMLError as error:
            raise self.problem(getattr(error, "value", -1), _words(error)) from None
        except Exception as error:  # pynvml's own: for a driver that is older than it, arguments it does not know
            raise Unsupported(_words(error)) from None
        finally:
            self.call = None

    def problem(self, code: int, words: str = "") -> NvmlProblem:
        """The exception for one of NVML's return codes."""
        return self._kind_of.get(code, TryAgain)(words or f"NVML error {code}")

    def function(self, name: str) -> Callable[..., Any]:
        """A function of pynvml.

        Raises:
            NotInPackage: this pynvml has none of this name.
        """
        found: Callable[..., Any] | None = getattr(self.module, name, None)
        if found is None:
            raise NotInPackage(f"pynvml has no {name}")
        return found


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def text_of(value: Any) -> str:
    """A string of NVML; older versions of pynvml give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def other_package() -> str | None:
    """The version of the unmaintained package ``pynvml`` where its modules stand in front of nvidia-ml-py's.

    Both bring an ``import pynvml``: nvidia-ml-py as a module, the other one, up to version 11, as a folder, which
    Python finds first. Newer versions of it only need nvidia-ml-py. None where nothing is in its way.
    """
    try:
        import pynvml
    except Exception:
        return None
    if not hasattr(pynvml, "__path__"):
        return None
    return str(getattr(pynvml, "__version__", "") or "?")


def amd_present() -> bool:
    """Whether this machine has an AMD GPU for computing, which NVML does not know."""
    return os.path.exists("/dev/kfd")
