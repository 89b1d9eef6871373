"""Packaging of GPU Doctor: metadata, entry points, package data and the optional compiled decoder."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent


def version() -> str:
    """Read the version from the source, so that building needs none of the run-time dependencies."""
    source = (HERE / "tb_gpu_doctor" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"', source, re.MULTILINE)
    if match is None:
        raise RuntimeError("tb_gpu_doctor/__init__.py holds no __version__ line")
    return match.group(1)


def limited_api() -> bool:
    """Tell whether one build may serve all CPython versions: not on PyPy, not on free-threaded builds."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def extensions() -> list[Extension]:
    """Describe the compiled decoder; optional, since its numpy twin gives the same events."""
    folder = Path("tb_gpu_doctor") / "traces"
    if not (HERE / folder / "_wire.c").exists():
        return []
    return [
        Extension(
            "tb_gpu_doctor.traces._wire",
            sources=sorted(str(path.relative_to(HERE)) for path in (HERE / folder).glob("*.c")),
            depends=sorted(str(path.relative_to(HERE)) for path in (HERE / folder).glob("*.h")),
            define_macros=[("Py_LIMITED_API", "0x030A0000")] if limited_api() else [],
            py_limited_api=limited_api(),
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-fvisibility=hidden"],
            optional=True,
        )
    ]


MCP = ["mcp>=1.9"]
DASK = ["distributed>=2024.8"]
# What only the viewer needs: the stock Profiler beside the tab, and the protobuf that it insists on.
PROFILER = ["tensorboard-plugin-profile>=2.19"]
OTLP = ["opentelemetry-exporter-otlp>=1.25", "opentelemetry-sdk>=1.25"]
PROMETHEUS = ["prometheus-client>=0.17"]
TEST = [
    *DASK,
    *MCP,
    *OTLP,
    *PROFILER,
    *PROMETHEUS,
    "build>=1.2",
    "flask-cors>=4",
    "flask>=3",
    "gcp-storage-emulator>=2026.7",
    "gcsfs>=2024.6",
    "hypothesis>=6.100",
    "import-linter>=2.1,<3",
    "jsonschema>=4.20",
    "moto[s3]>=5",
    "mypy>=2.4,<2.5",
    "pandas>=2.0",
    "paramiko>=3",
    "pillow>=10",
    "playwright>=1.50",
    "polars>=1.0",
    "protobuf>=6.31",
    "pyarrow>=14",
    "pyftpdlib>=2",
    "pytest>=8",
    "pytest-xdist>=3.6",
    "ruff>=0.17,<0.18",
    "s3fs>=2024.6",
    "setuptools>=64",
    "tensorflow-cpu>=2.20",
    "wheel>=0.43",
]

setup(
    name="tb-gpu-doctor",
    version=version(),
    description="TensorBoard plugin and command that say what is wrong with a GPU training run, and what to change",
    long_description=(HERE / "README.md").read_text(encoding="utf-8") if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # What is bundled into the tab is passed on with its own licences.
    license_files=["LICENSE", "tb_gpu_doctor/plugin/static/licenses.txt"],
    keywords="tensorboard profiler gpu tensorflow jax pytorch xplane kineto performance",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Environment :: GPU",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Debuggers",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    # The Markdown pages of docs/findings travel inside the wheel: the tab shows them beside each finding.
    packages=[*find_packages(include=["tb_gpu_doctor", "tb_gpu_doctor.*"]), "tb_gpu_doctor.docs"],
    package_dir={"tb_gpu_doctor.docs": "docs"},
    package_data={
        "tb_gpu_doctor": ["py.typed", "texts/**/*.json"],
        "tb_gpu_doctor.docs": ["findings/*.md", "findings/es/*.md"],
        "tb_gpu_doctor.packing": ["*.json"],
        "tb_gpu_doctor.plugin": ["static/*"],
        "tb_gpu_doctor.report": ["*.json"],
    },
    include_package_data=False,
    ext_modules=extensions(),
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if limited_api() else {},
    # Installed beside training: the bounds let every version stay that an environment with TensorFlow 2.15 or newer,
    # JAX or PyTorch has already (scripts/install_beside.py asks pip). Nothing here may demand a protobuf of its own.
    install_requires=[
        "msgspec>=0.18.5",
        "numpy>=1.23.5",
        "nvidia-ml-py>=11.495.46",
        "platformdirs>=2.6",
        "rich>=12.6",
        "tensorboard>=2.11",
        'tomli>=2; python_version < "3.11"',
        "werkzeug>=2.0.3",
    ],
    extras_require={
        "azure": ["adlfs>=2024.7"],
        "dask": DASK,
        "gcs": ["gcsfs>=2024.6"],
        "hdfs": ["fsspec>=2024.6", "pyarrow>=14"],
        "http": ["fsspec[http]>=2024.6"],
        "lightning": ["lightning>=2.2"],
        "mcp": MCP,
        "otlp": OTLP,
        "pandas": ["pandas>=2.0"],
        "profiler": PROFILER,
        "prometheus": PROMETHEUS,
        "remote": ["fsspec>=2024.6"],
        "s3": ["s3fs>=2024.6"],
        "sftp": ["fsspec>=2024.6", "paramiko>=3"],
        "tensorflow": ["tensorflow>=2.16"],
        "test": TEST,
        "transformers": ["transformers[torch]>=4.40"],
    },
    entry_points={
        "tensorboard_plugins": ["gpu_doctor = tb_gpu_doctor.plugin.loader:GpuDoctorLoader"],
        "console_scripts": ["gpu-doctor = tb_gpu_doctor.cli.main:main"],
    },
    zip_safe=False,
)
