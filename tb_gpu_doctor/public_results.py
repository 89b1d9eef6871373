"""What Python programs get: results in words of one language, that print as the terminal shows them.

They stand before the results of the packages inside, which are in picoseconds and in no language. Here times are
milliseconds, sentences are plain strings, and whatever is large is a `Table`.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tb_gpu_doctor.diagnosis.model import GpuRef, Severity, Verdict
from tb_gpu_doctor.texts import pick_language

if TYPE_CHECKING:
    from rich.console import Console

    from tb_gpu_doctor.analysis.results import StepSource
    from tb_gpu_doctor.comparison.check import CheckResult as InnerCheck
    from tb_gpu_doctor.comparison.check import Status
    from tb_gpu_doctor.comparison.compare import Comparison as InnerComparison
    from tb_gpu_doctor.comparison.history import History as InnerHistory
    from tb_gpu_doctor.diagnosis.model import Finding as InnerFinding
    from tb_gpu_doctor.report.diagnosis_report import DiagnosisReport
    from tb_gpu_doctor.session_tables import SessionTables
    from tb_gpu_doctor.tables import Table
    from tb_gpu_doctor.traces.sessions import Session

# Of results that are printed: as wide as the command's output where that is piped.
_WIDTH = 100


@dataclass(frozen=True)
class Evidence:
    """One place in the recording where a finding can be seen.

    Attributes:
        host: host label.
        gpu: device number, None where it is about the host.
        start_ms, end_ms: on the host's clock, as the trace viewer shows it.
        thread: host thread to look at.
        step: step number as recorded.
        what: what can be seen there.
    """

    host: str
    gpu: int | None
    start_ms: float
    end_ms: float
    thread: str | None
    step: int | None
    what: str


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, in words.

    Attributes:
        kind: stable id (``input_bound``, ...), see ``docs/rules.md``.
        severity: ``critical``, ``warning`` or ``info``.
        about: ``run``, ``profile`` or ``telemetry``.
        cost: what ``share`` is: time ``lost``, time ``spent``, or ``none``.
        title: one sentence.
        explanation: sentences, one a line.
        advice: what to do, the most useful first; some hold code in a Markdown fence.
        check: how to see whether the advice helped.
        share: of the window, 0..1, mean over ``gpus``; None for kinds without a time.
        saving_ms_per_step: what a step would gain at most; None where that cannot be told.
        cause: a stable id of the cause, None where it has none.
        gpus: the culprits, never the victims.
        victims: GPUs that lose time although nothing is wrong with them.
        evidence: where to see it.
        docs: name of the documentation page.
    """

    kind: str
    severity: Severity
    about: str
    cost: str
    title: str
    explanation: str
    advice: tuple[str, ...]
    check: str
    share: float | None
    saving_ms_per_step: float | None
    cause: str | None
    gpus: tuple[GpuRef, ...]
    victims: tuple[GpuRef, ...]
    evidence: tuple[Evidence, ...]
    docs: str

    def __str__(self) -> str:
        return self.title


def _finding(finding: InnerFinding, data: dict[str, Any]) -> Finding:
    """A finding with the words of its JSON."""
    names = ("kind", "severity", "about", "cost", "title", "explanation", "check", "share", "saving_ms_per_step")
    return Finding(
        **{name: data[name] for name in (*names, "cause", "docs")},
        advice=tuple(data["advice"]),
        gpus=finding.gpus,
        victims=finding.victims,
        evidence=tuple(Evidence(**item) for item in data["evidence"]),
    )


class Diagnosis:
    """What is wrong with a run, what it costs, and what to change.

    ``print`` shows it as the terminal does, a notebook as HTML; ``to_dict`` and ``to_json`` follow
    ``diagnosis.schema.json``. Tables are made when they are first asked for; all but ``gpus`` read the files once more.

        >>> import tb_gpu_doctor
        >>> diagnosis = tb_gpu_doctor.diagnose("demo_logs/input_bound")
        >>> diagnosis.verdict, diagnosis.findings[0].kind
        ('critical', 'input_bound')
        >>> diagnosis.in_language("es").lang
        'es'
    """

    def __init__(self, report: DiagnosisReport, session: Session, lang: str = "en") -> None:
        self._report = report
        self._session = session
        self.lang = pick_language(lang)

    def in_language(self, lang: str) -> Diagnosis:
        """The same diagnosis in another language."""
        other = Diagnosis(self._report, self._session, lang)
        if "_tables" in self.__dict__:
            other.__dict__["_tables"] = self._tables
        return other

    @property
    def verdict(self) -> Verdict:
        """The worst severity found, ``ok``, or ``cannot_tell``."""
        return self._report.verdict

    @property
    def run(self) -> str:
        """TensorBoard's run, "" for the logdir itself."""
        return self._report.run

    @property
    def session(self) -> str:
        """Name of the session."""
        return self._report.session

    @property
    def format(self) -> str:
        """``xplane``, ``kineto``, ``trace_json`` or ``telemetry``."""
        return self._report.format

    @property
    def hosts(self) -> tuple[str, ...]:
        """Labels of the hosts that could be read."""
        return self._report.hosts

    @property
    def window_ms(self) -> float | None:
        """Longest analysed window over the hosts, None without GPU data."""
        return _milliseconds(self._report.window)

    @property
    def step_count(self) -> int:
        """How many complete steps were profiled."""
        return self._report.steps.count

    @property
    def step_source(self) -> StepSource:
        """``marked`` by the program, ``inferred`` from the kernels, or ``none``."""
        return self._report.steps.source

    @property
    def median_step_ms(self) -> float | None:
        """The median step, None without complete steps."""
        return _milliseconds(self._report.steps.median)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The most expensive first."""
        pairs = zip(self._report.findings, self.to_dict()["findings"], strict=True)
        return tuple(_finding(finding, data) for finding, data in pairs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the verdict is ``cannot_tell``, and what the profile lacks."""
        from tb_gpu_doctor.report.sentences import say

        return tuple(say(phrase, self.lang) for phrase in (*self._report.reasons, *self._report.warnings))

    @cached_property
    def gpus(self) -> Table:
        """Where each GPU's window went, a row a GPU."""
        from tb_gpu_doctor.session_tables import gpu_table

        return gpu_table(self._report.gpus)

    @property
    def steps(self) -> Table:
        """Where each complete step went, a row a step and GPU.

        Raises:
            ProfileError: the files cannot be read any more, or are others than those that were diagnosed.
        """
        return self._tables.steps

    @property
    def gaps(self) -> Table:
        """The idle gaps and their causes, a row a gap; errors as of `steps`."""
        return self._tables.gaps

    @property
    def kernels(self) -> Table:
        """The kernels, a row a kernel and GPU, longest total first; errors as of `steps`."""
        return self._tables.kernels

    @property
    def collectives(self) -> Table:
        """The collectives, a row a collective and GPU; errors as of `steps`."""
        return self._tables.collectives

    @cached_property
    def _tables(self) -> SessionTables:
        from tb_gpu_doctor.errors import ProfileError
        from tb_gpu_doctor.session_tables import tables_of

        tables = tables_of(self._session)
        if tables.diagnosis.to_json() != self._report.to_json():
            raise ProfileError("changed", self._session.path)
        return tables

    def to_dict(self, lang: str | None = None) -> dict[str, Any]:
        """Plain data that follows ``diagnosis.schema.json``, by default with texts in the diagnosis' own language."""
        return self._report.to_dict(lang or self.lang)

    def to_json(self, lang: str | None = None) -> str:
        """`to_dict` as JSON text in plain ASCII."""
        return self._report.to_json(lang or self.lang)

    def __str__(self) -> str:
        from tb_gpu_doctor.report.diagnosis_text import print_report

        return _printed(lambda console: print_report(self._report, console, self.lang))

    def __repr__(self) -> str:
        name = "/".join(part for part in (self.run, self.session) if part)
        return f"<Diagnosis of {name}: {self.verdict}, {len(self._report.findings)} findings>"

    def _repr_html_(self) -> str:
        from tb_gpu_doctor.report.html_summary import html_summary

        return html_summary(self._report, self.lang)


@dataclass(frozen=True)
class Change:
    """A relative change with its interval of 95 %: 0.05 is 5 % longer; bounds are None with too few steps."""

    value: float
    low: float | None
    high: float | None


class Comparison:
    """Two runs side by side.

    >>> import tb_gpu_doctor
    >>> comparison = tb_gpu_doctor.compare("demo_logs/input_bound", "demo_logs/healthy")
    >>> comparison.outcome
    'faster'
    """

    def __init__(self, comparison: InnerComparison, lang: str = "en") -> None:
        self._inner = comparison
        self.lang = pick_language(lang)

    @property
    def outcome(self) -> Literal["faster", "slower", "same", "inconclusive", "not_comparable"]:
        """What became of the time per unit."""
        return self._inner.outcome

    @property
    def unit(self) -> Literal["step", "sample", "window"]:
        """What times are per."""
        return self._inner.unit

    @property
    def before(self) -> str:
        """What the first run is called."""
        return self._inner.before.label

    @property
    def after(self) -> str:
        """What the second run is called."""
        return self._inner.after.label

    @property
    def change(self) -> Change | None:
        """Relative change of the mean time per unit, None without steps."""
        change = self._inner.change
        return None if change is None else Change(change.value, _finite(change.low), _finite(change.high))

    @property
    def before_ms(self) -> float | None:
        """Mean time per unit of the first run, None without steps."""
        return _milliseconds(self._inner.time_before)

    @property
    def after_ms(self) -> float | None:
        """The same of the second run."""
        return _milliseconds(self._inner.time_after)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the outcome is what it is, and what makes the runs hard to compare."""
        from tb_gpu_doctor.report.sentences import say

        return tuple(say(phrase, self.lang) for phrase in (*self._inner.reasons, *self._inner.obstacles))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data, as ``gpu-doctor compare --json`` prints it."""
        from tb_gpu_doctor.report.comparison_report import comparison_dict

        return comparison_dict(self._inner, self.lang)

    def __str__(self) -> str:
        from tb_gpu_doctor.report.comparison_report import print_comparison

        return _printed(lambda console: print_comparison(self._inner, console, self.lang))

    def __repr__(self) -> str:
        return f"<Comparison of {self.before} and {self.after}: {self.outcome}>"

    def _repr_html_(self) -> str:
        return _as_html(str(self), self.lang)


class CheckResult:
    """Whether a run passes.

    >>> import tb_gpu_doctor
    >>> tb_gpu_doctor.check("demo_logs/input_bound").status
    'finding'
    """

    def __init__(self, result: InnerCheck, lang: str = "en") -> None:
        self._inner = result
        self.lang = pick_language(lang)

    @property
    def status(self) -> Status:
        """The weightiest failure, else what cannot be told, else a pass."""
        return self._inner.status

    @property
    def passed(self) -> bool:
        """Whether everything was judged and nothing failed."""
        return self.status == "pass"

    @property
    def messages(self) -> tuple[str, ...]:
        """A sentence for each limit that did not pass."""
        from tb_gpu_doctor.report.sentences import say

        return tuple(say(item.message, self.lang) for item in self._inner.items if item.status != "pass")

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, as ``gpu-doctor check --format json`` prints it."""
        import json

        from tb_gpu_doctor.report.check_report import as_json

        content: dict[str, Any] = json.loads(as_json(self._inner, self.lang))
        return content

    def __str__(self) -> str:
        from tb_gpu_doctor.report.check_report import as_text

        return as_text(self._inner, self.lang).rstrip("\n")

    def __repr__(self) -> str:
        return f"<CheckResult of {self._inner.run.label}: {self.status}>"

    def _repr_html_(self) -> str:
        return _as_html(str(self), self.lang)


class History:
    """How the sessions of a logdir went over time.

    >>> import tb_gpu_doctor
    >>> [row.run for row in tb_gpu_doctor.history("demo_logs", run="healthy").sessions]
    ['healthy']
    """

    def __init__(self, history: InnerHistory, lang: str = "en") -> None:
        self._inner = history
        self.lang = pick_language(lang)

    @cached_property
    def sessions(self) -> Table:
        """The sessions in order of time, a row a session."""
        from tb_gpu_doctor.tables import Table, floats, integers, words

        rows = self.to_dict()["sessions"]
        text = {name: words(row[name] for row in rows) for name in ("run", "session", "verdict", "problem")}
        return Table(
            "sessions",
            {
                "run": text["run"],
                "session": text["session"],
                "time_unix_s": floats(row["time_unix_s"] for row in rows),
                "verdict": text["verdict"],
                "step_ms": floats(row["step_ms"] for row in rows),
                "steps": integers(row["steps"] for row in rows),
                "occupancy": floats(row["occupancy"] for row in rows),
                "problem": text["problem"],
            },
        )

    @property
    def first_regression(self) -> str | None:
        """The first session that is slower than those before it, as ``RUN/SESSION``; None where there is none."""
        from tb_gpu_doctor.report.history_report import entry_name

        first = self._inner.first_regression
        return None if first is None else entry_name(self._inner.entries[first.entry])

    def to_dict(self) -> dict[str, Any]:
        """The history as plain data, as ``gpu-doctor history --json`` prints it."""
        from tb_gpu_doctor.report.history_report import history_dict

        return history_dict(self._inner, self.lang)

    def __str__(self) -> str:
        from tb_gpu_doctor.report.history_report import print_history

        return _printed(lambda console: print_history(self._inner, console, self.lang))

    def __repr__(self) -> str:
        return f"<History of {len(self._inner.entries)} sessions>"

    def _repr_html_(self) -> str:
        return _as_html(str(self), self.lang)


def _milliseconds(value: float | None) -> float | None:
    from tb_gpu_doctor.documents import milliseconds

    return milliseconds(value)


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _printed(show: Callable[[Console], None]) -> str:
    """What is printed to a terminal without colours; in a notebook too, where rich would show it by itself."""
    from rich.console import Console

    written = io.StringIO()
    show(
        Console(
            file=written,
            width=_WIDTH,
            color_system=None,
            force_terminal=False,
            force_jupyter=False,
            markup=False,
            highlight=False,
            emoji=False,
        )
    )
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def _as_html(printed: str, lang: str) -> str:
    style = "white-space:pre-wrap;font-family:monospace"
    return f'<pre class="gpu-doctor" lang="{lang}" style="{style}">{html.escape(printed)}</pre>'
