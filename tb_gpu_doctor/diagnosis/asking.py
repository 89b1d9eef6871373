"""Questions about one file, answered where its columns are.

Rules conclude over all hosts of a session. What they need to know of a host's events they ask: a question is a
function of a module, ``question(profile, *arguments)``, that reads the columns and gives a small answer. Where the
columns are in this process it is simply called; where they are on other machines the questions about all their
files travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tb_gpu_doctor.analysis.trace_analysis import TraceAnalysis
    from tb_gpu_doctor.diagnosis.context import HostProfile
    from tb_gpu_doctor.traces.columns import Trace
    from tb_gpu_doctor.traces.elsewhere import Desk, Elsewhere

T = TypeVar("T")


def ask(question: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> list[T]:
    """The answers in order.

    Args:
        question: called with the items of a call.
        calls: a `HostProfile`, then what else the question needs.
    """
    answers: list[Any] = [None] * len(calls)
    far: dict[int, tuple[Desk, list[int]]] = {}
    for index, (profile, *arguments) in enumerate(calls):
        place = profile.trace.elsewhere
        if place is None:
            answers[index] = question(profile, *arguments)
        else:
            far.setdefault(id(place.desk), (place.desk, []))[1].append(index)
    for desk, indices in far.values():
        sent: list[tuple[Elsewhere, tuple[Any, ...]]] = []
        for index in indices:
            profile, *arguments = calls[index]
            sent.append((profile.trace.elsewhere, (profile.label, profile.claim, question, tuple(arguments))))
        for index, answer in zip(indices, desk.work(_answer, sent), strict=True):
            answers[index] = answer
    return answers


def ask_one(question: Callable[..., T], profile: HostProfile, *arguments: Any) -> T:
    """The answer about one file."""
    return ask(question, [(profile, *arguments)])[0]


def _answer(
    trace: Trace,
    analysis: TraceAnalysis,
    label: str,
    claim: Any,
    question: Callable[..., T],
    arguments: tuple[Any, ...],
) -> T:
    """Where the columns are: the profile as the asking side sees it, and its answer."""
    from tb_gpu_doctor.diagnosis.claims import claimed
    from tb_gpu_doctor.diagnosis.context import HostProfile

    profile = HostProfile(label, trace, analysis)
    return question(profile if claim is None else claimed(profile, claim), *arguments)
