"""The tab as one file: its module and a snapshot of its answers in a page that asks nobody for anything.

A snapshot holds all that the tab asks about one session, answered once and for all. It is one gzip stream of

    u32 length of the header (little endian), the header as JSON, then the answers one after another

    {"version": 1, "lang": "en" | null, "left_out": ["events"],
     "answers": {"diagnosis|lang=en": [0, 1234], "timeline/bins": [1234, 99]}}

Offsets count from the end of the header. An answer's name is its route and, sorted, those of its parameters that
tell answers apart; ``frontend/src/api/snapshot`` finds them again. What the tab asks for any range of time is kept
for the whole recording.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tb_gpu_doctor import __version__
from tb_gpu_doctor.plugin.lanes import FIRST_CAUSE
from tb_gpu_doctor.plugin.responses import to_json
from tb_gpu_doctor.texts import languages, pick_language, text
from tb_gpu_doctor.texts.numbers import clean

if TYPE_CHECKING:
    from tb_gpu_doctor.plugin.session_view import SessionView
    from tb_gpu_doctor.traces.sessions import Session


_MODULE = Path(__file__).parent / "static" / "report.js"
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


VERSION = 1
# Of the whole file; base64 makes four bytes of three.
MAX_FILE_BYTES = 10_000_000
# Kept free for the tab's own module and what stands around it.
MODULE_BYTES = 450_000
_MAX_PACKED = MAX_FILE_BYTES * 3 // 4 - MODULE_BYTES

MAX_INTERVALS = 1_000_000
MAX_WAITS = 100_000
MAX_GAPS = 1_000
# As many pixels as the tab asks for at most.
WIDEST_BINS = 4_096
MAX_BIN_CELLS = 32_000_000
MAX_STREAM_LANES = 64
MAX_STREAM_EVENTS = 20_000
MAX_TREES = 16
MAX_STAIRCASES = 300
SERIES_POINTS = 600
# Those that the tab draws under the timeline.
LANE_METRICS = (
    "sm_clock_mhz",
    "power_watts",
    "temperature_celsius",
    "utilization_percent",
    "memory_used_bytes",
)

Answers = dict[str, bytes]


@dataclass(frozen=True)
class Snapshot:
    """The answers, and what of them was too much.

    Attributes:
        answers: by name, as the routes give them.
        left_out: parts that are not in it: ``staircases``, ``trees``, ``events``, ``streams``.
    """

    answers: Answers
    left_out: tuple[str, ...]

    def packed(self, lang: str | None) -> bytes:
        """The snapshot as bytes, the same each time.

        Args:
            lang: the language that the report opens in; None: the reader's own.
        """
        places: dict[str, tuple[int, int]] = {}
        at = 0
        for name, answer in self.answers.items():
            places[name] = (at, len(answer))
            at += len(answer)
        header = {"version": VERSION, "lang": lang, "left_out": self.left_out, "answers": places}
        head = json.dumps(header, separators=(",", ":")).encode()
        return gzip.compress(struct.pack("<I", len(head)) + head + b"".join(self.answers.values()), 9, mtime=0)

    def encoded(self, lang: str | None) -> str:
        """The same as text that no HTML needs to escape."""
        return base64.b64encode(self.packed(lang)).decode("ascii")


def key(route: str, **params: str | int) -> str:
    """The name of an answer."""
    return "|".join([route, *(f"{name}={params[name]}" for name in sorted(params))])


def take_snapshot(session: Session, view: SessionView, page_html: Callable[[str, str], str | None]) -> Snapshot:
    """Ask a session's view all that the tab asks.

    Args:
        session: what the view was made of.
        view: answers.
        page_html: from the name of a documentation page and a language to its safe HTML, None where there is none.
    """
    answers = dict(_core(session, view, page_html))
    room = _MAX_PACKED - _packed_size(answers)
    left_out = []
    # In the order of what a reader would miss most.
    for name, make in (("events", _events), ("trees", _trees), ("staircases", _staircases), ("streams", _streams)):
        found = make(view)
        size = 0 if found is None else _packed_size(found)
        if found is None or size > room:
            left_out.append(name)
        else:
            answers |= found
            room -= size
    return Snapshot(answers, tuple(left_out))


def _packed_size(answers: Answers) -> int:
    return sum(len(zlib.compress(answer, 6)) for answer in answers.values())


def _core(
    session: Session, view: SessionView, page_html: Callable[[str, str], str | None]
) -> Iterator[tuple[str, bytes]]:
    yield "sessions", to_json(_sessions(session, view))
    for lang in languages():
        diagnosis = view.diagnosis_json(lang)
        yield key("diagnosis", lang=lang), diagnosis
        yield key("telemetry", lang=lang), to_json(view.telemetry.answer(lang))
        pages = {finding["docs"] for finding in json.loads(diagnosis)["findings"] if finding.get("docs")}
        for page in sorted(pages):
            html = page_html(page, lang)
            if html is not None:
                yield key("doc", lang=lang, page=page), to_json({"html": html})
    yield "timeline/meta", view.meta_json
    yield "steps", view.steps_json
    yield "collectives", view.collectives_json
    yield "input", view.input_json
    yield "gaps", to_json(view.gaps.answer(MAX_GAPS))
    yield key("kernels", by="gpu"), view.kernels.table_json("gpu")
    yield key("kernels", by="kernel"), view.kernels.table_json("kernel")
    yield "kernels/tree", view.kernels.tree_json(None)
    yield "kernels/filling", view.kernels.filling_json
    yield "kernels/fusion", view.kernels.fusion_json
    yield "batch_sweeps", to_json(view.telemetry.sweeps())
    yield from _series(view)
    width = max(1, min(WIDEST_BINS, MAX_BIN_CELLS // max(1, view.timeline.cell_count(1))))
    for name, (start, end), pixels in _blocks(view, width):
        yield f"timeline/bins{name}", view.timeline.bins(start, end, pixels)
        yield f"timeline/waits{name}", view.ranges.wait_bins(start, end, pixels)


def _sessions(session: Session, view: SessionView) -> dict[str, Any]:
    """The list of sessions as it would be were there only this one."""
    described = {
        "run": session.run,
        "session": session.session,
        "label": f"{session.run} · {session.session}" if session.run else session.session,
        "hosts": list(dict.fromkeys(file.host for file in session.files)),
        "format": session.files[0].format if session.files else "",
        "size_bytes": session.size_bytes,
        "modified_unix_s": session.modified_unix_s,
        "recorded_unix_s": session.recorded_unix_s,
        "verdict": view.summary.verdict,
        "problem": None,
        "related": None,
    }
    return {"scanning": False, "sessions": [described], "searched": [], "logdir": "", "problems": []}


def _extent(view: SessionView) -> tuple[int, int]:
    """From where to where the timeline goes, never empty, as the tab has it."""
    meta = json.loads(view.meta_json)
    start = int(meta["start_ps"])
    return start, max(int(meta["end_ps"]), start + 1)


def _blocks(view: SessionView, width: int) -> Iterator[tuple[str, tuple[int, int], int]]:
    """The stretches that bins are kept of: the whole; finer, the analysed window and what the tab loads beside it."""
    start, end = _extent(view)
    yield "", (start, end), width
    window = json.loads(view.meta_json)["window"]
    if window is None:
        return
    margin = (int(window["end_ps"]) - int(window["start_ps"])) // 2
    low, high = max(start, int(window["start_ps"]) - margin), min(end, int(window["end_ps"]) + margin)
    if 0 < high - low < (end - start) // 2:
        yield key("", end_ps=high, start_ps=low), (low, high), width


def _series(view: SessionView) -> Iterator[tuple[str, bytes]]:
    """What was recorded beside training, each metric over the whole of it."""
    metrics = [metric["id"] for metric in view.telemetry.answer("en")["metrics"]]
    for metric in metrics:
        yield key("telemetry/series", metric=metric), to_json(view.telemetry.series([metric], None, SERIES_POINTS))
    start, end = _extent(view)
    for lang in languages():
        lanes = view.telemetry.lanes(LANE_METRICS if metrics else (), start, end, SERIES_POINTS, lang)
        yield key("timeline/telemetry", lang=lang), to_json(lanes)


def _events(view: SessionView) -> Answers | None:
    start, end = _extent(view)
    count = sum(len(lane.start) for lane in view.timeline.lanes)
    waits = view.ranges.waits()
    if count > MAX_INTERVALS or len(waits["start_ps"]) > MAX_WAITS:
        return None
    return {
        "timeline/events": view.timeline.events(start, end, MAX_INTERVALS),
        "waits": to_json(waits),
        "interval_steps": to_json(_interval_steps(view)),
    }


def _interval_steps(view: SessionView) -> dict[str, Any]:
    """The step of each interval that is work, in the order of ``timeline/events``, and the steps of each lane.

    Steps are numbers, null for none; gaps lie in the step of their time, whose ends are timeline times.
    """
    numbers: list[int | None] = []
    lanes = []
    for lane, source in zip(view.timeline.lanes, view.timeline.sources, strict=True):
        steps, offset, device = view.timeline.parts[source.trace].steps, source.shift.offset, source.device.index
        # one more for "none", which is -1
        table = [*(int(number) for number in steps.number), None]
        rows = np.full(len(lane.start), -1, np.int64)
        busy = lane.category < FIRST_CAUSE
        rows[busy] = steps.event_step[lane.row[busy]]
        rows[(rows < 0) | (rows >= len(steps.number))] = -1
        numbers += [table[row] for row in rows.tolist()]
        known = np.flatnonzero(steps.end[:, device] >= 0) if device < steps.start.shape[1] else rows[:0]
        lanes.append(
            {
                "number": steps.number[known].tolist(),
                "start_ps": (steps.start[known, device] + offset).tolist() if len(known) else [],
                "end_ps": (steps.end[known, device] + offset).tolist() if len(known) else [],
            }
        )
    return {"step": numbers, "lanes": lanes}


def _trees(view: SessionView) -> Answers | None:
    if view.kernels.device_count > MAX_TREES:
        return None
    devices = range(view.kernels.device_count)
    return {key("kernels/tree", device=device): view.kernels.tree_json(device) for device in devices}


def _staircases(view: SessionView) -> Answers | None:
    rows = [row["id"] for by in ("kernel", "gpu") for row in json.loads(view.kernels.table_json(by))["rows"]]
    found = {}
    for kernel in list(dict.fromkeys(rows))[:MAX_STAIRCASES]:
        answer = view.kernels.staircase_json(kernel)
        if answer is not None:
            found[key("kernels/staircase", kernel=kernel)] = answer
    return found


def _streams(view: SessionView) -> Answers | None:
    """All that ran, stream by stream: for searching, and for the longest kernels of a stretch."""
    if view.timeline.lane_count > MAX_STREAM_LANES:
        return None
    start, end = _extent(view)
    found = {}
    for lane in range(view.timeline.lane_count):
        answer = view.ranges.streams(lane, start, end, MAX_STREAM_EVENTS)
        if answer["truncated"]:
            return None
        found[key("timeline/streams", lane=lane)] = to_json(answer)
    return found
