"""The routes of docs/http_api.md as WSGI applications, thin: check, look up, answer."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from tb_gpu_doctor.errors import RequestError
from tb_gpu_doctor.plugin.analyses import Analyses, Progress
from tb_gpu_doctor.plugin.answer_memory import AnswerMemory
from tb_gpu_doctor.plugin.garbage_collection import keep_collections_short
from tb_gpu_doctor.plugin.history_view import Histories, compare_answer
from tb_gpu_doctor.plugin.logdir import FoundSession, Scanner, Snapshot, describe
from tb_gpu_doctor.plugin.open_sessions import SCAN_WAIT_S, Analyse, NotReady, OpenSessions
from tb_gpu_doctor.plugin.requests import (
    MAX_SESSION_CHARS,
    by_argument,
    int_argument,
    lane_argument,
    language,
    name_argument,
    own_page,
    range_arguments,
    series_arguments,
    session_argument,
    time_argument,
    unix_ms_range,
    viewer_of,
)
from tb_gpu_doctor.plugin.responses import (
    StaticFile,
    binary_answer,
    csv_answer,
    error_answer,
    json_answer,
    to_json,
)

if TYPE_CHECKING:
    from tb_gpu_doctor.plugin.live_telemetry import LiveTelemetry
    from tb_gpu_doctor.plugin.session_view import SessionView

_LOG = logging.getLogger("tensorboard")

STATIC_FOLDER = Path(__file__).parent / "static"
ENTRY = "index.js"
# A report of one file holds it; nobody fetches it.
_UNSERVED = frozenset({"report.js"})


def static_files() -> dict[str, StaticFile]:
    """Everything that the tab may fetch from the package, by name: its module and those of its views."""
    entry = STATIC_FOLDER / ENTRY
    views = {path.name for path in STATIC_FOLDER.glob("*.js")} - _UNSERVED - {ENTRY}
    kind = "text/javascript"
    return {ENTRY: StaticFile(entry, kind)} | {
        name: StaticFile(STATIC_FOLDER / name, kind, part_of=entry) for name in sorted(views)
    }


MAX_WIDTH = 8_192
MAX_EVENTS = 2_000_000
DEFAULT_EVENTS = 200_000
# Of one answer with bins: where there are more GPUs there are fewer pixels.
MAX_BIN_BYTES = 1 << 20
# Of one interval of a timeline.
EVENT_BYTES = 13

Handler = Callable[[Request], Response]
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Routes:
    """All routes over one logdir.

    Args:
        scanner: knows the sessions; nothing outside its snapshot is served.
        analyses: runs and caches the analyses.
        logdir: as TensorBoard shows it.
        analyse: from a session to its view.
    """

    def __init__(
        self,
        scanner: Scanner,
        analyses: Analyses[SessionView],
        logdir: str,
        analyse: Analyse | None = None,
    ) -> None:
        self._scanner = scanner
        self._open = OpenSessions(scanner, analyses, analyse)
        self._logdir = logdir
        # The list of sessions in each language, made once for each scan and whenever another verdict is known.
        self._listed: dict[tuple[str, bool], tuple[Snapshot, tuple[str | None, ...], bytes]] = {}
        self._memory = AnswerMemory()
        self._histories = Histories(scanner, self._open.summary)
        self._live: LiveTelemetry | None = None
        self._static = static_files()

    def apps(self) -> dict[str, WsgiApp]:
        """The WSGI application of each path below the plugin's address."""
        handlers: dict[str, Handler] = {
            "/sessions": self._sessions,
            "/diagnosis": self._diagnosis,
            "/progress": self._progress,
            "/timeline/meta": self._meta,
            "/timeline/bins": self._bins,
            "/timeline/events": self._events,
            "/timeline/at": self._at,
            "/timeline/range": self._range,
            "/timeline/find": self._find_kernels,
            "/timeline/next_gap": self._next_gap,
            "/timeline/waits": self._waits,
            "/timeline/streams": self._streams,
            "/kernels": self._kernels,
            "/kernels/tree": self._kernel_tree,
            "/kernels/filling": self._kernel_filling,
            "/kernels/fusion": self._kernel_fusion,
            "/kernels/staircase": self._kernel_staircase,
            "/kernels.csv": self._kernels_csv,
            "/steps": self._steps,
            "/gaps": self._gaps,
            "/collectives": self._collectives,
            "/input": self._input,
            "/telemetry": self._telemetry,
            "/telemetry/series": self._telemetry_series,
            "/telemetry/live": self._telemetry_live,
            "/timeline/telemetry": self._timeline_telemetry,
            "/batch_sweeps": self._batch_sweeps,
            "/compare": self._compare,
            "/history": self._history,
            "/doc": self._doc,
        }
        changing: dict[str, Handler] = {"/cancel": self._cancel, "/retry": self._retry}
        static = {f"/{name}": _wsgi(file.answer, guarded=False) for name, file in self._static.items()}
        return (
            {path: _wsgi(handler) for path, handler in handlers.items()}
            | {path: _wsgi(handler, method="POST") for path, handler in changing.items()}
            | static
        )

    def _sessions(self, request: Request) -> Response:
        from tb_gpu_doctor.report.sentences import error_sentence

        lang = language(request)
        snapshot = self._scanner.snapshot(wait_s=SCAN_WAIT_S)
        scanning = self._scanner.scanning
        verdicts = self._open.verdicts(snapshot.sessions)
        told = self._listed.get((lang, scanning))
        if told is None or told[0] is not snapshot or told[1] != verdicts:
            answer = {
                "scanning": scanning,
                "sessions": [
                    describe(found, lang, verdict) for found, verdict in zip(snapshot.sessions, verdicts, strict=True)
                ],
                "searched": list(snapshot.searched),
                "logdir": self._logdir,
                "problems": [
                    {"path": problem.path, "message": error_sentence(problem.error.with_path(problem.path), lang)}
                    for problem in snapshot.problems
                ],
            }
            told = self._listed[lang, scanning] = (snapshot, verdicts, to_json(answer))
        return json_answer(request, told[2])

    def _diagnosis(self, request: Request) -> Response:
        return json_answer(request, self._view(request).diagnosis_json(language(request)))

    def _progress(self, request: Request) -> Response:
        return json_answer(request, self._open.progress(self._found(request)).to_dict())

    def _cancel(self, request: Request) -> Response:
        found = self._found(request)
        self._open.cancel(found, viewer_of(request))
        return json_answer(request, self._open.progress(found).to_dict())

    def _retry(self, request: Request) -> Response:
        found = self._found(request)
        self._open.retry(found)
        return json_answer(request, self._open.progress(found).to_dict())

    def _meta(self, request: Request) -> Response:
        return json_answer(request, self._view(request).meta_json)

    def _bins(self, request: Request) -> Response:
        start, end = range_arguments(request)
        timeline = self._view(request).timeline
        width = _fitting(int_argument(request, "width", 1, MAX_WIDTH), timeline.cell_count(1))
        size = 2 * timeline.cell_count(width)  # and the same again while it is compressed
        return self._large(request, size, lambda: timeline.bins(start, end, width), compress=True)

    def _events(self, request: Request) -> Response:
        start, end = range_arguments(request)
        limit = int_argument(request, "limit", 0, MAX_EVENTS, default=DEFAULT_EVENTS)
        timeline = self._view(request).timeline
        count = timeline.event_count(start, end)
        size = EVENT_BYTES * (count if count <= limit else 0)
        return self._large(request, size, lambda: timeline.events(start, end, limit))

    def _large(self, request: Request, size: int, make: Callable[[], bytes], compress: bool = False) -> Response:
        """An answer in bytes, once there is memory for it; it is given back when the answer is sent."""
        give_back = self._memory.lend(size, viewer_of(request))
        if give_back is None:
            raise NotReady(Progress("queued"))
        try:
            response = binary_answer(request, make(), compress)
        except BaseException:
            give_back()
            raise
        response.call_on_close(give_back)
        return response

    def _at(self, request: Request) -> Response:
        time = time_argument(request, "time_ps")
        lane = int_argument(request, "lane", 0, 1 << 16)
        timeline = self._view(request).timeline
        if lane >= timeline.lane_count:
            raise RequestError(404, "unknown_lane", lane=str(lane))
        return json_answer(request, timeline.at(lane, time))

    def _range(self, request: Request) -> Response:
        start, end = range_arguments(request)
        return json_answer(request, self._view(request).ranges.accounting(start, end))

    def _find_kernels(self, request: Request) -> Response:
        from tb_gpu_doctor.plugin.timeline_range import DEFAULT_HITS, MAX_HITS

        start, end = range_arguments(request)
        query = name_argument(request, "query")
        limit = int_argument(request, "limit", 0, MAX_HITS, default=DEFAULT_HITS)
        last = int_argument(request, "last", 0, 1, default=0) == 1
        view = self._view(request)
        lane = lane_argument(request, view.timeline.lane_count)
        return json_answer(request, view.ranges.find(query, start, end, limit, lane, last))

    def _next_gap(self, request: Request) -> Response:
        time = time_argument(request, "time_ps")
        back = int_argument(request, "back", 0, 1, default=0) == 1
        shortest = int_argument(request, "shortest_ps", 0, 1 << 62, default=1)
        view = self._view(request)
        lane = lane_argument(request, view.timeline.lane_count)
        return json_answer(request, view.ranges.next_gap(time, back, shortest, lane))

    def _waits(self, request: Request) -> Response:
        start, end = range_arguments(request)
        view = self._view(request)
        width = _fitting(int_argument(request, "width", 1, MAX_WIDTH), view.timeline.lane_count)
        size = 2 * view.timeline.lane_count * width
        return self._large(request, size, lambda: view.ranges.wait_bins(start, end, width), compress=True)

    def _streams(self, request: Request) -> Response:
        from tb_gpu_doctor.plugin.timeline_range import DEFAULT_STREAM_EVENTS, MAX_STREAM_EVENTS

        start, end = range_arguments(request)
        limit = int_argument(request, "limit", 0, MAX_STREAM_EVENTS, default=DEFAULT_STREAM_EVENTS)
        view = self._view(request)
        lane = lane_argument(request, view.timeline.lane_count)
        if lane is None:
            raise RequestError(400, "bad_parameter", name="lane")
        return json_answer(request, view.ranges.streams(lane, start, end, limit))

    def _kernels(self, request: Request) -> Response:
        return json_answer(request, self._view(request).kernels.table_json(by_argument(request)))

    def _kernel_tree(self, request: Request) -> Response:
        kernels = self._view(request).kernels
        device = None
        if request.args.get("device"):
            device = int_argument(request, "device", 0, max(0, kernels.device_count - 1))
        return json_answer(request, kernels.tree_json(device))

    def _kernel_filling(self, request: Request) -> Response:
        return json_answer(request, self._view(request).kernels.filling_json)

    def _kernel_fusion(self, request: Request) -> Response:
        return json_answer(request, self._view(request).kernels.fusion_json)

    def _kernel_staircase(self, request: Request) -> Response:
        kernel = int_argument(request, "kernel", 0, 1 << 31)
        answer = self._view(request).kernels.staircase_json(kernel)
        if answer is None:
            raise RequestError(404, "unknown_kernel", kernel=str(kernel))
        return json_answer(request, answer)

    def _kernels_csv(self, request: Request) -> Response:
        return csv_answer(request, self._view(request).kernels.csv(by_argument(request)), "kernels.csv")

    def _steps(self, request: Request) -> Response:
        return json_answer(request, self._view(request).steps_json)

    def _gaps(self, request: Request) -> Response:
        from tb_gpu_doctor.analysis.results import CAUSE_IDS
        from tb_gpu_doctor.plugin.gaps_view import DEFAULT_GAPS, MAX_GAPS

        limit = int_argument(request, "limit", 0, MAX_GAPS, default=DEFAULT_GAPS)
        lane = int_argument(request, "lane", 0, 1 << 16) if "lane" in request.args else None
        name = name_argument(request, "cause")
        if name and name not in CAUSE_IDS:
            raise RequestError(400, "bad_parameter", name="cause")
        view = self._view(request)
        if lane is not None and lane >= view.timeline.lane_count:
            raise RequestError(404, "unknown_lane", lane=str(lane))
        cause = CAUSE_IDS.index(name) if name else None
        return json_answer(request, view.gaps.answer(limit, cause, lane))

    def _collectives(self, request: Request) -> Response:
        return json_answer(request, self._view(request).collectives_json)

    def _input(self, request: Request) -> Response:
        return json_answer(request, self._view(request).input_json)

    def _telemetry(self, request: Request) -> Response:
        return json_answer(request, self._view(request).telemetry.answer(language(request)))

    def _telemetry_series(self, request: Request) -> Response:
        metrics, points = series_arguments(request)
        window = unix_ms_range(request)
        return json_answer(request, self._view(request).telemetry.series(metrics, window, points))

    def _telemetry_live(self, request: Request) -> Response:
        metrics, points = series_arguments(request)
        seconds = int_argument(request, "seconds", 0, 1 << 24, default=0)
        runs = self._view(request).telemetry.runs
        if self._live is None:
            from tb_gpu_doctor.plugin.live_telemetry import LiveTelemetry

            self._live = LiveTelemetry()
        homes = self._found(request).session.homes
        return json_answer(request, self._live.answer(homes, runs, metrics, seconds, points))

    def _timeline_telemetry(self, request: Request) -> Response:
        metrics, points = series_arguments(request)
        start, end = range_arguments(request)
        view = self._view(request).telemetry
        return json_answer(request, view.lanes(metrics, start, end, points, language(request)))

    def _batch_sweeps(self, request: Request) -> Response:
        return json_answer(request, self._view(request).telemetry.sweeps())

    def _compare(self, request: Request) -> Response:
        from tb_gpu_doctor.comparison.compare import Batches

        batches = [
            int_argument(request, name, 1, 1 << 40) if request.args.get(name) else None
            for name in ("batch_before", "batch_after")
        ]
        views = [
            self._open.view(
                self._open.find(name_argument(request, f"{which}_run"), session_argument(request, which)),
                viewer_of(request),
            )
            for which in ("before", "after")
        ]
        return json_answer(
            request, compare_answer(views[0].summary, views[1].summary, Batches(*batches), language(request))
        )

    def _history(self, request: Request) -> Response:
        run = name_argument(request, "run") if "run" in request.args else None
        return json_answer(request, self._histories.view(run, viewer_of(request)).answer(language(request)))

    def _doc(self, request: Request) -> Response:
        page = name_argument(request, "page")
        try:
            html = _page_html(page, language(request))
        except (KeyError, OSError):
            raise RequestError(404, "unknown_page", page=page) from None
        return json_answer(request, {"html": html})

    def _found(self, request: Request) -> FoundSession:
        """The session that the request names."""
        return self._open.find(name_argument(request, "run"), name_argument(request, "session", MAX_SESSION_CHARS))

    def _view(self, request: Request) -> SessionView:
        return self._open.view(self._found(request), viewer_of(request))


def _fitting(width: int, bytes_each: int) -> int:
    """How many pixels there are bytes for, of ``width`` that were asked for."""
    return max(1, min(width, MAX_BIN_BYTES // max(1, bytes_each)))


@functools.lru_cache(maxsize=256)
def _page_html(page: str, lang: str) -> str:
    """A bundled page as safe HTML, made once: that takes a tenth of a second in which others wait.

    Raises:
        KeyError, OSError: there is no such page.
    """
    from tensorboard import plugin_util

    from tb_gpu_doctor.docs_pages import read_page

    html: str = plugin_util.markdown_to_safe_html(read_page(page, lang))
    return html


def _wsgi(handler: Handler, method: str = "GET", guarded: bool = True) -> WsgiApp:
    """The application of a route; ``guarded``: not for pages of other sites."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        keep_collections_short()  # now that everything of TensorBoard is loaded
        request = Request(environ)
        try:
            if request.method != method:
                raise RequestError(405, "method_not_allowed", allow=method)
            if guarded:
                own_page(request, changes=method == "POST")
            response = handler(request)
        except NotReady as waiting:
            response = json_answer(request, waiting.progress.to_dict(), status=202)
        except RequestError as error:
            response = error_answer(request, error)
        except Exception:  # the page must get an answer that it can show
            _LOG.exception("GPU Doctor: %s failed", request.path)
            response = error_answer(request, RequestError(500, "internal"))
        return response(environ, start_response)

    return app
