"""Replaces names: the same one always by the same other one, within a pack, and no way back.

A name is taken apart into words. Words that everybody knows stay: ops of the frameworks, calls of the drivers, kernels
of the libraries (``public_names.json``). All others become ``n1``, ``n2``, ... in the order in which they are met,
which says nothing of them. Where an analysis would no longer understand the name, the pieces that it looks for
are kept (``my_data_loader`` becomes ``n7_data_loader``).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

from tb_gpu_doctor.packing.meaning import meaning, telling_words

_TABLE = Path(__file__).with_name("public_names.json")
_MAX_NAME = 65_536

# Driver and runtime calls; kernels of libraries, which name the architecture or the library first.
_PUBLIC_WORD = re.compile(
    r"^_*(?:(?:cu|cuda|hip|nccl|rccl|hsa)(?=[A-Z])(?:Launch|Memcpy|Memset|Graph|Event|Stream|Ctx|Func|Module|Occupancy|Device"
    r"|Malloc|Free|Host|Get|Set|Mem|Pointer|Peek|Init|Driver|Runtime|Kernel|Array|Lib|Link|Ext|Pop|Push|User|Tex|Thread|Choose"
    r"|Ipc|Profiler|Dev|All|Reduce|Broadcast|Send|Recv|Group|Comm|Work|Sum|Primary|Multi|External|Green|Tensor|Bfloat|Is"
    r"|Configure|Bind|Unbind|Create|Destroy|Register|Unregister)\w*"
    r"|(?:kepler|maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_[a-z0-9_]*(?:gemm|cudnn|mma|conv)\w*"
    r"|cutlass_\d+_\w+|cudnn_generated_\w+|nvjet_\w+|Cijk_\w+|fmhaSm\d+\w+|amd_rocclr_\w+|gemvNSP_\w+|gemv2T_\w+"
    r"|tf_data(?:_(?:iterator_get_next|iterator_resource|multi_device_iterator_resource|private_threadpool))?"
    r"|(?:gpu|rank|worker|process|thread|replica|task)_?\d+|GPU_\d+_bfc|gpu_async_\d+|gpu_host_bfc|python\d?|pt_autograd_\d+"
    r"|Buffered(?:Reader|Writer|Random|RWPair)|FileIO|TextIOWrapper|BytesIO|StringIO"
    r"|cuApplyLayerNorm|cuComputeGradInput|cuCompute(?:Part)?GradGammaBeta"  # Apex' kernels
    r"|[A-Z]\w*Backward\d+|bmm_[A-Z][A-Za-z]*\d\w+|triton__[\dcde]+|tf_[A-Z][A-Za-z_]+|tf_pjrt_thread_pool|tf_gpu_private_\d+)$"
)
_SERIAL = re.compile(r"(?:_\d+)+$")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"^(?:\d+|0x[0-9a-fA-F]+|\d+(?:e|x\d+)*|\d+(?:ul|u|l|f))$", re.ASCII)
# A name within namespaces; what stands in front of the first one belongs to it.
_QUALIFIED = re.compile(r"(?<!\w)[A-Za-z_]\w*(?:::~?\w+|::\(anonymous namespace\))+")
# PyTorch's single colon.
# No word is made of others, so that there is one way only to read any name.
_LIBRARY_COLON = re.compile(
    r"\b(?:nccl|gloo|ucc|mpi|xccl):(?:_?(?:all|reduce|gather|into|tensor|scatter|to|base|coalesced|send|recv|broadcast"
    r"|barrier|single|oop|sparse|start|end|isend|irecv|list|any|source|\d))+(?!\w)"
)
# A folder of that name in somebody's project is not the package: only those that are installed, or have no folder.
_TORCH_FRAME = re.compile(
    r"^(?:.*?(?:site-packages|dist-packages|lib/python[\d.]+)/)?"
    r"(?P<inside>(?P<package>\w+)(?:/[^()]*)?\.py\(\d+\): [\w<>]+)$"
)
_ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_MARK = "\ue000"
_MARKED = re.compile(f"{_MARK}(\\d+){_MARK}")
_PROCESS = re.compile(r"^(?P<host>.+)_(?P<pid>\d{2,9})$")
_NO_WORD = re.compile(r"[\d.-]")
_PLAIN_HOST = re.compile(r"^(?:rank|worker|process|localhost|report)[-_]?\d{0,6}$")


@lru_cache(maxsize=1)
def _table() -> dict[str, frozenset[str]]:
    content = json.loads(_TABLE.read_text(encoding="utf-8"))
    return {key: frozenset(words) for key, words in content.items()}


@lru_cache(maxsize=1 << 16)
def is_public_word(word: str) -> bool:
    """Whether a word is part of what everybody uses: a framework, a driver, a language, a library."""
    table = _table()
    if word in table["words"] or word in table["tf_ops"] or _NUMBER.match(word) or _PUBLIC_WORD.match(word):
        return True
    bare = _SERIAL.sub("", word)
    if bare in table["tf_ops"] or (bare in table["words"] and bare[:1].isupper()):
        return True
    # XLA's and Triton's kernels list what is fused into them: loop_add_fusion_3, triton_poi_fused_add_mul_0
    pieces = [piece for piece in word.split("_") if piece]
    return bool(pieces) and all(piece in table["parts"] or piece.isdigit() for piece in pieces)


class Names:
    """One mapping, for all files of a pack.

    Attributes:
        unsure: names whose replacement may mean something else to an analysis; nothing else of them is known.
        replaced: how many different words were replaced.
    """

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._names: dict[tuple[str, bool], str] = {}
        self._hosts: dict[str, str] = {}
        self._first_labels: dict[str, str] = {}
        self._in_pieces: dict[str, str] = {}
        self._hosts_by_case: dict[str, str] = {}
        self._pids: dict[int, int] = {}
        self._other: dict[tuple[str, str], str] = {}
        self._known_hosts: re.Pattern[str] | None = None
        self.unsure: list[str] = []

    @property
    def replaced(self) -> int:
        """How many different words were replaced."""
        return len(self._words) + len(self._hosts) + len(self._other)

    def secrets(self) -> set[str]:
        """Every word and host that was replaced; none of them may be found in the pack."""
        return set(self._words) | set(self._hosts) | {value for _, value in self._other}

    def host_names(self) -> list[str]:
        """Hosts' names that were replaced and that nothing else is called by: none of them may be found in the pack."""
        found = dict.fromkeys((*self._hosts, *self._first_labels))
        return [
            name for name in found if _is_distinct(name) or not (is_public_word(name) or telling_words().search(name))
        ]

    # -- names ----------------------------------------------------------------------------

    def name(self, text: str, kernel: bool = False) -> str:
        """The replacement of a name, a path, an op, a ``kernel``, a message: of whatever is made of words."""
        found = self._names.get((text, kernel))
        if found is None:
            found = self._names[text, kernel] = self._replaced(text[:_MAX_NAME], kernel)
        return found

    def raw(self, data: bytes, kernel: bool = False) -> bytes:
        """As `name`; bytes that are no text are one word."""
        try:
            return self.name(data.decode(), kernel).encode()
        except UnicodeDecodeError:
            return self._word(data.decode("latin-1")).encode()

    def _replaced(self, text: str, kernel: bool) -> str:
        known = meaning(text, kernel)
        if self._known_hosts is not None:
            text = self._known_hosts.sub(self._marked_host, _MARKED.sub("?", text))
        if text.isascii() and not _has_letters(text):
            return self._numbers(text)
        plain, public = self._whole(text)
        if public:
            return plain
        if meaning(plain, kernel) == known:
            return plain
        words = [m.span() for m in _WORD.finditer(text) if not self._is_kept(text, m)]
        for chosen in ({span} for span in words):
            attempt = self._with_words(text, chosen)
            if meaning(attempt, kernel) == known:
                return attempt
        attempt = self._with_words(text, set(words))
        if meaning(attempt, kernel) != known:
            self.unsure.append(text)
        return attempt

    def _whole(self, text: str) -> tuple[str, bool]:
        """The name with all private words replaced, and whether there was none."""
        found = self._with_words(text, set())
        return found, found == text

    def _with_words(self, text: str, telling: set[tuple[int, int]]) -> str:
        """The name without its private words; of those at ``telling`` the pieces that analyses look for stay."""
        text_out, at = [], 0
        kept = self._kept_spans(text)
        for match in _WORD.finditer(text):
            word = match.group()
            if any(low <= match.start() and match.end() <= high for low, high in kept) or is_public_word(word):
                continue
            text_out.append(text[at : match.start()])
            text_out.append(self._pieces(word) if match.span() in telling else self._word(word))
            at = match.end()
        return self._numbers("".join((*text_out, text[at:])))

    def _is_kept(self, text: str, match: re.Match[str]) -> bool:
        inside = any(low <= match.start() and match.end() <= high for low, high in self._kept_spans(text))
        return inside or is_public_word(match.group())

    def _kept_spans(self, text: str) -> list[tuple[int, int]]:
        return _public_spans(text)

    def _pieces(self, word: str) -> str:
        """A word with its telling pieces kept and what is between them replaced."""
        if (known := self._in_pieces.get(word)) is not None:
            return known
        out, at = [], 0
        for match in telling_words().finditer(word):
            out += [self._between(word[at : match.start()]), match.group()]
            at = match.end()
        out.append(self._between(word[at:]))
        found = self._in_pieces[word] = "".join(out)
        return found

    def _between(self, piece: str) -> str:
        """What lies between telling pieces: its letters are replaced, digits and lines stay."""
        # a line keeps the number of a replacement apart from the word's own digits
        parted = re.sub(r"([^\W\d_])(?=\d)", r"\1_", piece)
        return re.sub(r"[^\W\d_]+", lambda match: self._word(match.group()), parted)

    def _word(self, word: str) -> str:
        found = self._words.get(word)
        if found is None:
            bare = word.lstrip("_")
            letter = "N" if bare[:1].isupper() else "n"
            found = self._words[word] = f"{word[: len(word) - len(bare)][:2]}{letter}{len(self._words) + 1}"
        return found

    def _marked_host(self, match: re.Match[str]) -> str:
        """A host inside a name, marked so that its new name is not taken for a word to be replaced."""
        return f"{_MARK}{list(self._hosts_by_case).index(match.group().lower())}{_MARK}"

    def _numbers(self, text: str) -> str:
        """Addresses that are written in numbers, and the marked hosts."""
        if _MARK in text:
            labels = list(self._hosts_by_case.values())
            text = _MARKED.sub(lambda match: labels[int(match[1])], text)
        return _ADDRESS.sub(lambda match: self.host(match.group()), text) if "." in text else text

    # -- hosts, processes, hardware -----------------------------------------------------

    def learn_hosts(self, hosts: list[str]) -> None:
        """Name hosts in this order, so that lists by host keep theirs; and replace them inside other names, too."""
        for host in hosts:
            self.host(host)
        self._hosts_by_case = {
            host.lower(): new for host, new in (*self._hosts.items(), *self._first_labels.items()) if _is_distinct(host)
        }
        found = sorted(self._hosts_by_case, key=len, reverse=True)
        if found:
            inside = "|".join(map(re.escape, found))
            self._known_hosts = re.compile(rf"(?<![A-Za-z0-9])(?:{inside})(?![A-Za-z0-9])", re.IGNORECASE)

    def host(self, host: str) -> str:
        """A host's name: the same with its domain and without. ``NAME_PID`` and ``NAME:PORT`` keep their form."""
        if not host or _PLAIN_HOST.match(host):
            return host
        if host not in self._hosts:
            self._hosts[host] = self._new_host(host)
        return self._hosts[host]

    def _new_host(self, host: str) -> str:
        process = _PROCESS.match(host)
        if process is not None:
            return f"{self.host(process['host'])}_{self.pid(int(process['pid']))}"
        name, colon, port = host.rpartition(":")
        if colon and port.isdigit():
            return f"{self.host(name)}:{port}"
        if _ADDRESS.fullmatch(host):
            first, rest = host, ""
        else:
            first, _, rest = host.partition(".")
        if _PLAIN_HOST.match(first):
            label = first
        else:
            label = self._first_labels.setdefault(first.lower(), f"host{len(self._first_labels) + 1}")
        return f"{label}.{self.other('domain', rest)}" if rest else label

    def pid(self, pid: int) -> int:
        """A process number; small ones, which number GPUs as well, stay."""
        if pid < 1024:
            return pid
        return self._pids.setdefault(pid, 100_001 + len(self._pids))

    def learn_pids(self, pids: list[int]) -> None:
        """Number processes in this order."""
        for pid in pids:
            self.pid(pid)

    def other(self, kind: str, value: str) -> str:
        """Serial numbers and the like: ``KIND1``, ``KIND2``, ..."""
        if not value:
            return value
        key = (kind, value)
        if key not in self._other:
            self._other[key] = f"{kind}{sum(1 for known, _ in self._other if known == kind) + 1}"
        return self._other[key]


def _is_distinct(host: str) -> bool:
    """Whether a host's name can be told from words: a file called ``train.xplane.pb`` makes no host of each train."""
    return len(host) >= 4 and _NO_WORD.search(host) is not None and not is_public_word(host)


@lru_cache(maxsize=1 << 14)
def _public_spans(text: str) -> list[tuple[int, int]]:
    """Stretches of a name that stay whatever words they hold."""
    frame = _TORCH_FRAME.match(text)
    if frame is not None and frame["package"] in _table()["packages"]:
        return [frame.span("inside")]
    spans = [match.span() for match in _LIBRARY_COLON.finditer(text)]
    namespaces = _table()["namespaces"]
    for match in _QUALIFIED.finditer(text):
        first = match.group().partition("::")[0]
        if first in namespaces or re.match(r"^(?:PjRt|TfrtGpu|PJRT_|TFE_|Xla|Tfrt)", first):
            spans.append(match.span())
    return spans


def _has_letters(text: str) -> bool:
    return any(letter.isalpha() for letter in text)
