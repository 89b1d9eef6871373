"""What the machine's files tell: container, cgroup limits, WSL, CUPTI's permission, libraries, other vendors.

Each function takes the root of the file system, so that tests can lay out a machine of their own, and
gives None for what cannot be told.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from glob import glob
from typing import Any

# Without a limit, cgroup v1 shows a number near 2^63.
_NO_LIMIT = 1 << 60
_LIBRARY_FOLDERS = (
    "usr/local/cuda/lib64", "usr/local/cuda/extras/CUPTI/lib64", "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/wsl/lib", "opt/conda/lib",
)  # fmt: skip
# Name of the file without version, of the Python package that brings it.
LIBRARIES = {
    "cudart": ("libcudart.so", "nvidia-cuda-runtime"),
    "cudnn": ("libcudnn.so", "nvidia-cudnn"),
    "nccl": ("libnccl.so", "nvidia-nccl"),
    "cupti": ("libcupti.so", "nvidia-cuda-cupti"),
}
_PACKAGE = re.compile(r"^(nvidia-(?:cuda-runtime|cudnn|nccl|cuda-cupti))(?:-cu(\d+))?$")


def _read(root: str, path: str) -> str | None:
    try:
        with open(os.path.join(root, path.lstrip("/")), encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except (OSError, ValueError):
        return None


def _exists(root: str, path: str) -> bool:
    return os.path.exists(os.path.join(root, path.lstrip("/")))


def container(root: str, environ: Mapping[str, str]) -> str | None:
    """``docker``, ``podman``, ``kubernetes``, ``apptainer`` or ``container``; None outside of one."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER") or _exists(root, "/.singularity.d"):
        return "apptainer"
    if _exists(root, "/run/.containerenv"):
        return "podman"
    if _exists(root, "/.dockerenv"):
        return "docker"
    first = _read(root, "/proc/1/cgroup") or ""
    for name in ("kubepods", "docker", "podman", "containerd", "lxc"):
        if name in first:
            return {"kubepods": "kubernetes", "containerd": "container", "lxc": "container"}.get(name, name)
    return None


def is_wsl(root: str) -> bool:
    """Whether this is Linux below Windows."""
    version = (_read(root, "/proc/version") or "").lower()
    return "microsoft" in version or _exists(root, "/dev/dxg")


def profiling_restricted(root: str) -> bool | None:
    """The driver's ``RmProfilingAdminOnly``: whether only administrators may use hardware counters."""
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", _read(root, "/proc/driver/nvidia/params") or "", re.MULTILINE)
    return None if match is None else match[1] != "0"


def may_profile(root: str) -> bool | None:
    """Whether this process has CAP_SYS_ADMIN or, on newer kernels, CAP_PERFMON, which lift the restriction."""
    match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", _read(root, "/proc/self/status") or "", re.MULTILINE)
    if match is None:
        return None
    return bool(int(match[1], 16) & (1 << 21 | 1 << 38))


def kernel_driver(root: str) -> str | None:
    """Version of NVIDIA's kernel module, which is loaded even where the library is missing."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", _read(root, "/proc/driver/nvidia/version") or "")
    return None if match is None else match[1]


def amd_gpus(root: str) -> int:
    """Number of AMD's GPUs that compute: nodes of the kernel's driver with units of their own."""
    nodes = glob(os.path.join(root, "sys/class/kfd/kfd/topology/nodes/*/properties"))
    found = 0
    for path in nodes:
        match = re.search(r"^simd_count (\d+)", _read("/", path) or "", re.MULTILINE)
        found += match is not None and int(match[1]) > 0
    return found or int(_exists(root, "/dev/kfd"))


def nvidia_hardware(root: str) -> int:
    """Number of NVIDIA's GPUs on the PCI bus, whatever driver they have."""
    found = 0
    for path in glob(os.path.join(root, "sys/bus/pci/devices/*/vendor")):
        if (_read("/", path) or "").strip() == "0x10de":
            kind = (_read("/", os.path.join(os.path.dirname(path), "class")) or "").strip()
            found += kind.startswith(("0x0300", "0x0302"))
    return found


def _cgroup_files(root: str, v2: str, v1: str) -> Iterator[str]:
    """Contents of a cgroup file from this process's group up to the root's: the tightest limit counts."""
    own = _read(root, "/proc/self/cgroup") or ""
    for line in own.splitlines():
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        base = "/sys/fs/cgroup" if not controllers else f"/sys/fs/cgroup/{v1.split('.')[0]}"
        name = v2 if not controllers else v1
        if controllers and v1.split(".")[0] not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for length in range(len(parts), -1, -1):
            content = _read(root, "/".join([base, *parts[:length], name]))
            if content is not None:
                yield content
    for base in ("/sys/fs/cgroup/", "/sys/fs/cgroup/memory/", "/sys/fs/cgroup/cpu/"):
        for name in (v2, v1):
            content = _read(root, base + name)
            if content is not None:
                yield content


def _cgroup_limit(root: str) -> int | None:
    limits = []
    for content in _cgroup_files(root, "memory.max", "memory.limit_in_bytes"):
        word = content.strip()
        if word.isdigit() and 0 < int(word) < _NO_LIMIT:
            limits.append(int(word))
    return min(limits, default=None)


def _meminfo(root: str, name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d+) kB", _read(root, "/proc/meminfo") or "", re.MULTILINE)
    return None if match is None else int(match[1]) * 1024


def memory_limit(root: str = "/") -> int | None:
    """Bytes that this process may use: the cgroup's limit, else the machine's memory."""
    known = [size for size in (_cgroup_limit(root), _meminfo(root, "MemTotal")) if size is not None]
    return min(known, default=None)


def memory(root: str) -> dict[str, int | None]:
    """Limit, use and past ends of this cgroup by its memory, and the machine's own memory; bytes."""
    used = next(iter(_cgroup_files(root, "memory.current", "memory.usage_in_bytes")), None)
    events = next(iter(_cgroup_files(root, "memory.events", "memory.oom_control")), "") or ""
    match = re.search(r"^oom_kill (\d+)", events, re.MULTILINE)
    shared = None
    path = os.path.join(root, "dev/shm")
    if os.path.isdir(path):
        try:
            shared = shutil.disk_usage(path).total
        except OSError:
            shared = None
    return {
        "total_bytes": _meminfo(root, "MemTotal"),
        "available_bytes": _meminfo(root, "MemAvailable"),
        "cgroup_limit_bytes": _cgroup_limit(root),
        "cgroup_used_bytes": int(used) if used is not None and used.strip().isdigit() else None,
        "cgroup_oom_kills": None if match is None else int(match[1]),
        "shared_memory_bytes": shared,
    }


def processors(root: str) -> dict[str, float | int | str | None]:
    """Processors that the machine has, that this process may use, its quota, and the frequency's governor."""
    quota: float | None = None
    for content in _cgroup_files(root, "cpu.max", "cpu.cfs_quota_us"):
        words = content.split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            value = int(words[0]) / int(words[1])
            quota = value if quota is None else min(quota, value)
        elif len(words) == 1 and words[0].isdigit() and int(words[0]):
            quota = int(words[0]) / 100_000 if quota is None else min(quota, int(words[0]) / 100_000)
    governor = _read(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "count": os.cpu_count(),
        "usable": len(affinity(0)) if affinity is not None else os.cpu_count(),
        "quota": quota,
        "governor": None if governor is None else governor.strip() or None,
    }


def libraries(root: str, environ: Mapping[str, str], with_packages: bool = True) -> dict[str, list[dict[str, Any]]]:
    """CUDA's libraries by `LIBRARIES` name: each ``{"version", "path" or "package"}``, those of packages first.

    A TensorFlow from PyPI takes those of the ``nvidia-*`` packages.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in LIBRARIES}
    if with_packages:
        for name, version in _packages():
            for library, (_, package) in LIBRARIES.items():
                if package == name.partition("-cu1")[0]:
                    found[library].append({"version": version, "package": name})
    folders = [os.path.join(root, folder) for folder in _LIBRARY_FOLDERS]
    folders += [os.path.join(root, folder.lstrip("/")) for folder in glob_cuda(root)]
    folders += [
        os.path.join(root, entry.lstrip("/")) for entry in environ.get("LD_LIBRARY_PATH", "").split(":") if entry
    ]
    for folder in dict.fromkeys(os.path.normpath(folder) for folder in folders):
        for library, (stem, _) in LIBRARIES.items():
            versions: dict[str, str] = {}
            for path in glob(os.path.join(glob_escape(folder), stem + "*")):
                version = os.path.basename(path)[len(stem) :].lstrip(".")
                versions[version] = path
            if versions:
                best = max(versions, key=lambda version: (version.count("."), version))
                shown = "/" + os.path.relpath(versions[best], root).lstrip("/")
                found[library].append({"version": best or None, "path": shown})
    return found


def glob_cuda(root: str) -> list[str]:
    """Library folders of the toolkits below /usr/local."""
    made = []
    for folder in sorted(glob(os.path.join(glob_escape(root), "usr/local/cuda-*")), reverse=True):
        made += [f"/{os.path.relpath(folder, root)}/{part}" for part in ("lib64", "extras/CUPTI/lib64")]
    return made


def glob_escape(path: str) -> str:
    """A folder's name inside a pattern."""
    from glob import escape

    return escape(path)


def _packages() -> Iterator[tuple[str, str]]:
    """(name, version) of installed packages that bring CUDA's libraries."""
    from importlib.metadata import distributions

    seen = set()
    for distribution in distributions():
        try:
            name = str(distribution.metadata["Name"]).lower().replace("_", "-")
            version = str(distribution.version)
        except Exception:
            continue  # a package that was half removed
        if _PACKAGE.match(name) and name not in seen:
            seen.add(name)
            yield name, version


def platform_facts() -> dict[str, str]:
    """Python and operating system."""
    import platform

    return {"python": platform.python_version(), "system": platform.platform(), "executable": sys.executable}
