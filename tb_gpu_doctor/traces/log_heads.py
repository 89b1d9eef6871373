"""Whether a file is a log of GPUs, by a bounded look at its beginning; and of what looks like one, why it is refused.

`telemetry.logs` reads them; here are the first lines by which the formats are told apart.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.files.opening import open_regular

HEAD_BYTES = 1 << 16
# Names that a log in a logdir may have; others are never opened there.
LOG_SUFFIXES = (".csv", ".log", ".txt", ".prom", ".json")
_LOG_NAME = re.compile(r"smi|dcgm|dmon|nvidia|gpu|prom(?:etheus)?\b|telemetry", re.IGNORECASE)
MOST_LOGS = 64
# Shells write the date and the command's name before the first line.
_FIRST_LINES = 100
_ROW = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{3})?\s*,")
_SCREEN = re.compile(r"\|\s*NVIDIA-SMI \d|=+NVSMI LOG=+|<nvidia_smi_log>")
_PMON = re.compile(r"#\s*gpu\s+pid\s+type\b")
_EXPORTER = re.compile(r"(?:# (?:HELP|TYPE) )?(?:DCGM_FI_|dcgm_)\w+[ {]")
_ANSWER = re.compile(r'\s*\[?\s*\{\s*"status"\s*:\s*"(?:success|error)"')
_MATRIX = re.compile(r'"resultType"\s*:')
_TABLE_OF_SCRIPT = re.compile(
    r"(?=.*(?:memory\.|utilization|power\.draw|temperature\.gpu))[\w.]+(?:\s*\[[^\]]*\])?(?:,\s*[^,]+){2,}"
)


_COLUMN = re.compile(r"\s*([a-z][\w.]*)\s*(?:\[([^\]]{1,16})\])?\s*")
# Fields that nvidia-smi knows without a dot in their name; those with one are taken for its own as they come.
_BARE = re.compile(
    r"timestamp|index|count|name|uuid|serial|pstate|driver_version|vbios_version|compute_mode|compute_cap|display_\w+"
    r"|persistence_mode|accounting\.\w+|gpu_(?:name|uuid|serial|bus_id)|total_energy_consumption|vgpu_\w+|addressing_mode"
)
_DOTTED = re.compile(
    r"(?:utilization|memory|power|enforced|temperature|clocks\w*|ecc|fan|pci|pcie|mig|encoder|decoder|inforom|gom"
    r"|driver_model|retired_pages|remapped_rows|fabric|gsp|c2c|accounting|protected_memory|platform|module|hostname"
    r"|dram_encryption|nvlink|edpp\w*)(?:\.[\w.]+)"
)
_DMON = {"pwr", "gtemp", "temp", "mtemp", "sm", "mem", "mclk", "pclk", "fb", "sbecc", "rxpci", "txpci", "pviol"}


def encoding_of(raw: bytes) -> str:
    """The encoding of a text by its first bytes."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if raw.startswith(mark):
            return name
    if len(raw) >= 4 and raw[1:64:2].count(0) == len(raw[1:64:2]) and 0 not in raw[0:64:2]:
        return "utf-16-le"
    return "utf-8"


def head_text(raw: bytes) -> str:
    """The beginning of a file as text; its last character may be cut."""
    return codecs.getincrementaldecoder(encoding_of(raw))("replace").decode(raw).replace("\r\n", "\n")


@dataclass(frozen=True)
class CsvHeader:
    """The columns of a table: names without units, and units, None where a column has none."""

    names: tuple[str, ...]
    units: tuple[str | None, ...]


def csv_header(line: str) -> CsvHeader | None:
    """The header that a line is; None for any other line."""
    if line[:1].isdigit() or "," not in line or len(line) > 16_384:
        return None
    found = [_COLUMN.fullmatch(part) for part in line.split(",")]
    if not all(found):
        return None
    names = tuple(match[1] for match in found if match)
    if not any(_DOTTED.fullmatch(name) for name in names):
        return None
    return CsvHeader(names, tuple(match[2] for match in found if match))


def odd_names(header: CsvHeader) -> list[str]:
    """Names of a header that are none of nvidia-smi's: a script's own table."""
    return [name for name in header.names if not is_csv_name(name)]


def is_csv_name(name: str) -> bool:
    """Whether nvidia-smi may have written this name, without its unit, over a column."""
    return _BARE.fullmatch(name) is not None or _DOTTED.fullmatch(name) is not None


def dmon_names(line: str) -> list[str]:
    """The names, or the units, in a line of the header; nothing in other lines."""
    line = line.strip()
    if not line.startswith("#"):
        return []
    parts = line[1:].split(",") if "," in line else line[1:].split()
    return [part.strip() for part in parts]


def is_dmon_header(line: str) -> bool:
    """Whether a line names the columns of dmon."""
    names = [name.lower() for name in dmon_names(line)]
    return "gpu" in names and "pid" not in names and any(name in _DMON for name in names)


def is_dcgmi_header(line: str) -> bool:
    """Whether a line names the columns of `dcgmi dmon`."""
    return re.match(r"#\s*Entity\s+\S", line) is not None


@dataclass(frozen=True)
class LogFile:
    """A log that may belong to a profile.

    Attributes:
        run: of the logdir, in whose folder it lies.
        given: whether the user has named it.
        zone_s: how far its clock is ahead of UTC, where the user has said so.
    """

    path: str
    run: str = ""
    given: bool = False
    zone_s: int | None = None


@dataclass(frozen=True)
class LogKind:
    """What a file is.

    Attributes:
        format: as of `Log`; "" for what is refused.
        error: why it is.
    """

    format: str
    error: ProfileError | None = None


def is_log_name(name: str) -> bool:
    """Whether a file's name sounds like a log of GPUs."""
    return _LOG_NAME.search(name) is not None


def log_kind(path: str) -> LogKind | None:
    """What log a local file is; None for what is none, no regular file, or cannot be opened."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(state.st_mode) or not state.st_size:
        return None
    return _known_kind(path, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=1 << 12)
def _known_kind(path: str, _size: int, _modified: int, _inode: int) -> LogKind | None:
    try:
        with open_regular(path) as file:
            raw = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return None
    return kind_of(head_text(raw), path)


def kind_of(text: str, path: str) -> LogKind | None:
    """What the beginning of a text promises."""
    if _ANSWER.match(text):
        return LogKind("prometheus") if _MATRIX.search(text) or '"error"' in text[:100] else None
    refused: LogKind | None = None
    for line in text.split("\n", _FIRST_LINES)[:_FIRST_LINES]:
        line = line.rstrip("\r")
        if not line.strip():
            continue
        if is_dmon_header(line):
            return LogKind("dmon")
        if is_dcgmi_header(line):
            return LogKind("dcgmi_dmon")
        if _EXPORTER.match(line):
            return LogKind("dcgm_exporter")
        header = csv_header(line)
        if header is not None:
            odd = odd_names(header)
            return _refused("log_names", path, names=odd[:5]) if odd else LogKind("query_csv")
        refused = refused or _look_alike(line, path)
    return refused


def _look_alike(line: str, path: str) -> LogKind | None:
    if _PMON.match(line):
        return _refused("log_pmon", path)
    if _SCREEN.search(line):
        return _refused("log_screen", path)
    if _ROW.match(line):
        return _refused("log_no_header", path)
    if ";" in line and csv_header(line.replace(";", ",")) is not None:
        return _refused("log_semicolons", path)
    if _TABLE_OF_SCRIPT.fullmatch(line[:1000]):
        return _refused("log_names", path, names=[part.strip() for part in line[:1000].split(",")][:5])
    return None


def _refused(code: str, path: str, **params: object) -> LogKind:
    return LogKind("", ProfileError(code, path, **params))
