"""The documentation pages that travel with the package: one per kind of finding, in English and Spanish.

In an installed package they lie in ``tb_gpu_doctor/docs``; in a checkout in ``docs`` beside the package.
"""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = re.compile(r"[a-z_]+(?:/[a-z_]+)*")
_FOLDER = "findings"


def docs_root() -> Path:
    """Return the folder that holds the pages.

    Raises:
        FileNotFoundError: the package was installed without its pages.
    """
    package = Path(__file__).resolve().parent
    for root in (package / "docs", package.parent / "docs"):
        if (root / _FOLDER).is_dir():
            return root
    raise FileNotFoundError(
        f"{package / 'docs' / _FOLDER}: the documentation pages are missing; install the package again"
    )


def list_pages() -> tuple[str, ...]:
    """Return the names of all pages, for example ``findings/input_bound``, sorted."""
    return tuple(sorted(f"{_FOLDER}/{path.stem}" for path in (docs_root() / _FOLDER).glob("*.md")))


def read_page(page: str, lang: str = "en") -> str:
    """Return one page as Markdown.

    Args:
        page: a name out of `list_pages`.
        lang: ``en`` or ``es``; a page that is not translated comes in English.

    Raises:
        KeyError: there is no such page. Names are looked up in the listing and never joined
            to a path as they came, so a request cannot reach other files.
    """
    if not _PAGE.fullmatch(page) or page not in list_pages():
        raise KeyError(page)
    english = docs_root() / f"{page}.md"
    translated = english.parent / lang / english.name
    path = translated if lang in _languages(english.parent) and translated.is_file() else english
    return path.read_text(encoding="utf-8")


def _languages(folder: Path) -> set[str]:
    """Names of the folders that hold translations."""
    return {entry.name for entry in folder.iterdir() if entry.is_dir()}
