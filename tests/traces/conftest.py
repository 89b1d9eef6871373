"""What the tests of the plane decoders share: the compiled one, built from this source tree."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The compiled decoder, built from the sources beside these tests: an installed one may be older."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        if os.environ.get("CI"):
            pytest.fail("no C compiler: the compiled decoder would go untested")
        pytest.skip("no C compiler: the compiled decoder cannot be built")
    folder = tmp_path_factory.mktemp("wire")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={folder}", f"--build-temp={folder}/temp"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=300,
    )
    libraries = [path for path in folder.rglob("_wire*") if path.suffix in (".so", ".pyd")]
    assert len(libraries) == 1, "setup.py built no compiled decoder"
    spec = importlib.util.spec_from_file_location("_wire", libraries[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
