"""What all tests share: where real profiles lie, a browser, and quiet, repeatable tools."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports TensorFlow: no GPU needed, no start-up chatter.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# No test may find what another run of the tests remembered; those of the cache make a folder of their own.
os.environ["GPU_DOCTOR_CACHE_DIR"] = ""

# A shell lets what it starts in the background ignore Ctrl-C, and children inherit that; the tests' children must not.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED_TRACES = REPOSITORY.parent / "shared" / "traces"
SHARED_CASES = REPOSITORY.parent / "shared" / "cases"
DEMO_LOGS = REPOSITORY / "demo_logs"

# A slow machine is no failure, and CI draws the same examples each time: a red run can be repeated.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
# Fewer of them for `make check` (--hypothesis-profile=quick); `make test` draws all.
settings.register_profile("quick", parent=settings.get_profile("ci"), max_examples=15)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of real profiles recorded by others; they are not part of the repository."""
    if not SHARED_TRACES.is_dir():
        pytest.skip(f"real profiles not present ({SHARED_TRACES})")
    return SHARED_TRACES


@pytest.fixture(scope="session")
def demo_logs() -> Path:
    """The committed demo logdir."""
    if not DEMO_LOGS.is_dir():
        pytest.fail("demo_logs not present: run make demo-logs")
    return DEMO_LOGS


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the Chromium on the PATH. CI installs one, so there a missing browser is a failure."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    message = "no Chromium on the PATH: install it to run the browser tests (make chromium)"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What drives a browser is slow."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.slow)
