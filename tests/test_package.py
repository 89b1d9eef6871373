"""The package as users get it: what importing costs, what the wheel holds, what the repository must not hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "tb_gpu_doctor"
HEAVY = ("numpy", "tensorflow", "xprof", "pandas", "rich", "jax", "google.protobuf", "pynvml")


def modules_after(statement: str) -> set[str]:
    """Names of all modules that a fresh interpreter holds after one statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing_else() -> None:
    added = modules_after("import tb_gpu_doctor") - modules_after("import typing")
    assert {name for name in added if name.startswith("tb_gpu_doctor")} == {"tb_gpu_doctor"}
    assert not added & set(HEAVY)


def test_the_loader_adds_nothing_heavy_to_what_tensorboard_loads_anyway() -> None:
    """TensorBoard imports the loader at its start, without a guard: this is everybody's start-up time."""
    added = modules_after("import tb_gpu_doctor.plugin.loader") - modules_after(
        "import logging; from tensorboard.plugins import base_plugin"
    )
    assert not added & set(HEAVY)
    ours = {"tb_gpu_doctor", "tb_gpu_doctor.plugin", "tb_gpu_doctor.plugin.loader"}
    beyond = {name for name in added - ours if name.split(".")[0] not in sys.stdlib_module_names}
    assert not beyond, f"unexpected imports: {sorted(beyond)}"


def test_the_entry_points_lead_somewhere() -> None:
    points = {point.group: point for point in distribution("tb-gpu-doctor").entry_points}
    plugin, command = points["tensorboard_plugins"], points["console_scripts"]
    assert (plugin.name, command.name) == ("gpu_doctor", "gpu-doctor")
    for point in (plugin, command):
        assert callable(point.load())


def test_the_version_is_the_same_everywhere() -> None:
    import tb_gpu_doctor

    assert distribution("tb-gpu-doctor").version == tb_gpu_doctor.__version__
    assert f"[{tb_gpu_doctor.__version__}]" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def build_wheel(folder: Path, compiler: str | None = None) -> zipfile.ZipFile:
    """Build a wheel from a copy of the repository, without network; ``compiler`` stands in for CC."""
    source = folder / "source"
    tracked = ["setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "docs", "tb_gpu_doctor"]
    source.mkdir()
    subprocess.run(["cp", "-r", *(str(REPOSITORY / name) for name in tracked), str(source)], check=True)
    for built in source.rglob("*.so"):
        built.unlink()
    command = [sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--no-deps", "--no-build-isolation", "-w", "out"]
    environment = {**os.environ, **({"CC": compiler} if compiler else {})}
    subprocess.run(command, check=True, cwd=source, env=environment, capture_output=True)
    (wheel,) = (source / "out").glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths inside a wheel built where no compiler works: the install must succeed there too."""
    return set(build_wheel(tmp_path_factory.mktemp("wheel"), compiler="/bin/false").namelist())


@pytest.mark.slow
def test_without_a_compiler_the_wheel_still_builds(wheel_names: set[str]) -> None:
    assert "tb_gpu_doctor/traces/wire_numpy.py" in wheel_names
    assert not [name for name in wheel_names if name.endswith(".so")]


@pytest.mark.slow
def test_the_wheel_holds_every_file_that_the_package_reads(wheel_names: set[str]) -> None:
    data = [path for path in PACKAGE.rglob("*") if path.suffix in (".json", ".js", ".css", ".svg", ".typed")]
    expected = {str(path.relative_to(REPOSITORY)) for path in data}
    expected |= {str(path.relative_to(REPOSITORY)) for path in PACKAGE.rglob("*.py")}
    pages = (REPOSITORY / "docs" / "findings").rglob("*.md")
    expected |= {f"tb_gpu_doctor/docs/{path.relative_to(REPOSITORY / 'docs')}" for path in pages}
    assert expected <= wheel_names
    assert "tb_gpu_doctor/plugin/static/index.js" in wheel_names


def test_the_wheel_holds_nothing_else(wheel_names: set[str]) -> None:
    suffixes = {Path(name).suffix for name in wheel_names if name.startswith("tb_gpu_doctor/")}
    assert suffixes <= {".py", ".json", ".md", ".js", ".css", ".svg", ".typed", ".txt"}
    texts = [name for name in wheel_names if name.startswith("tb_gpu_doctor/") and name.endswith(".txt")]
    assert texts == ["tb_gpu_doctor/plugin/static/licenses.txt"]


def test_what_is_bundled_is_passed_on_with_its_licences(wheel_names: set[str]) -> None:
    module = (PACKAGE / "plugin" / "static" / "index.js").read_text(encoding="utf-8")
    licences = (PACKAGE / "plugin" / "static" / "licenses.txt").read_text(encoding="utf-8")
    for text in (module[: module.index("*/")], licences):
        assert "preact " in text and "@preact/signals " in text
        assert text.count("Copyright (c)") >= 2 and "The above copyright notice and this permission notice" in text
    assert any(".dist-info" in name and name.endswith("licenses.txt") for name in wheel_names)


def tracked_texts() -> list[Path]:
    """The text files of the repository, as git lists them; without git, none."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False)
    names = listing.stdout.decode().split("\0") if listing.returncode == 0 else []
    binary = (".pb", ".gz", ".png", ".xplane", ".bin")
    paths = [REPOSITORY / name for name in names if name and not name.endswith(binary) and "static/" not in name]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def test_the_repository_names_no_machine_and_no_registry() -> None:
    paths = tracked_texts()
    if not paths:
        pytest.skip("not a git checkout")
    forbidden = re.compile(rb"/work/|/root/|/home/\w+/|files\.pythonhosted|registry\.npmjs|\"resolved\": \"http")
    found = []
    for path in paths:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if forbidden.search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}")
    assert not found


# Two halves of one thing each; the second is imported by a function of the first, when it is needed.
HALVES = ({"texts", "texts.numbers"}, {"files.remote", "files.system"}, {"traces.wire", "traces.wire_numpy"})


def test_no_modules_import_each_other_in_a_circle() -> None:
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("tb_gpu_doctor", exclude_type_checking_imports=True)
    # the package's own names lead to the whole pipeline, lazily
    modules = graph.modules - {"tb_gpu_doctor"}
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in modules}
    assert len(left) > 100
    for pair in ({f"tb_gpu_doctor.{name}" for name in names} for names in HALVES):
        for module in pair:
            left[module] -= pair
    # whatever imports nothing that is left is in no circle
    while free := {module for module, imports in left.items() if not imports & left.keys()}:
        left = {module: imports for module, imports in left.items() if module not in free}
    assert not left, f"in circles, or leading to some: {sorted(left)}"


def test_what_pip_said_of_installing_beside_training_is_recorded_for_every_environment() -> None:
    """The script asks the registry, so it is run by hand (``python -m scripts.install_beside``); this is its answer."""
    from scripts.install_beside import BEGIN, END, ENVIRONMENTS

    page = (REPOSITORY / "docs" / "installing.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.split(BEGIN)[1].split(END)[0].splitlines() if line.startswith("| ")][1:]
    assert [row[0].removeprefix("| ") for row in rows] == [environment.name for environment in ENVIRONMENTS]
    assert {row[2] for row in rows} == {"none"}


def test_what_everybody_installs_demands_no_protobuf_and_no_profiler() -> None:
    needed = {
        re.split(r"[^\w-]", text)[0] for text in distribution("tb-gpu-doctor").requires or [] if "extra ==" not in text
    }
    assert {"numpy", "tensorboard", "nvidia-ml-py"} <= needed
    assert not needed & {"protobuf", "tensorboard-plugin-profile", "xprof", "tensorflow"}
