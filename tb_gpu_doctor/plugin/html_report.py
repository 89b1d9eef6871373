"""The tab as one file: its module and a snapshot of its answers in a page that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tb_gpu_doctor import __version__
from tb_gpu_doctor.plugin.snapshot import take_snapshot
from tb_gpu_doctor.texts import pick_language, text
from tb_gpu_doctor.texts.numbers import clean

if TYPE_CHECKING:
    from tb_gpu_doctor.plugin.session_view import SessionView
    from tb_gpu_doctor.traces.sessions import Session

_MODULE = Path(__file__).parent / "static" / "index.js"
SNAPSHOT_ID = "gpu-doctor-snapshot"
MAX_TITLE = 200

# Nothing is loaded, sent or framed; only the module of this very page runs.
_POLICY = (
    "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_PAGE = """<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="GPU Doctor {version}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
</head>
<body>
<noscript>
<h1>{title}</h1>
<p>{no_script}</p>
<ul>
{findings}
</ul>
</noscript>
<script type="text/plain" id="{snapshot_id}">{snapshot}</script>
<script type="module">{module}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class HtmlReport:
    """The page, and the parts that were too much for it (`Snapshot.left_out`)."""

    page: str
    left_out: tuple[str, ...]


def html_report(session: Session, view: SessionView, lang: str | None = None) -> HtmlReport:
    """The report of one session as a page for any browser, without a server.

    Args:
        session: what the view was made of.
        view: of the session.
        lang: the language that it opens in; None: the reader's own. It speaks all of them.
    """
    snapshot = take_snapshot(session, view, page_html)
    words = pick_language(lang)
    diagnosis = json.loads(view.diagnosis_json(words))
    name = clean("/".join(part for part in (session.run, session.session) if part), MAX_TITLE)
    findings = [clean(f"{finding['title']} {finding['explanation']}") for finding in diagnosis["findings"]]
    module = inline_module(_MODULE.read_text(encoding="utf-8"))
    page = _PAGE.format(
        lang=words,
        policy=html.escape(_POLICY.format(digest=_digest(module))),
        version=html.escape(__version__),
        title=html.escape(f"{name} · GPU Doctor"),
        no_script=html.escape(text("cli.report.no_script", words)),
        findings="\n".join(f"<li>{html.escape(finding)}</li>" for finding in findings),
        snapshot_id=SNAPSHOT_ID,
        snapshot=snapshot.encoded(lang),
        module=module,
    )
    return HtmlReport(page, snapshot.left_out)


def page_html(page: str, lang: str) -> str | None:
    """A documentation page as safe HTML; None where there is none."""
    from tensorboard import plugin_util

    from tb_gpu_doctor.docs_pages import read_page

    try:
        return str(plugin_util.markdown_to_safe_html(read_page(page, lang)))
    except (KeyError, OSError):
        return None


def inline_module(source: str) -> str:
    """JavaScript that can stand between script tags.

    What would end the element, or begin a comment in it, can only stand in strings and regular expressions of the
    module, where an escaped slash or exclamation mark means the same.
    """
    return source.replace("</script", "<\\/script").replace("</SCRIPT", "<\\/SCRIPT").replace("<!--", "<\\!--")


def _digest(module: str) -> str:
    return base64.b64encode(hashlib.sha256(module.encode("utf-8")).digest()).decode("ascii")
