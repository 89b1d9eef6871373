"""How the answer of ``sessions`` describes what the scan found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tb_gpu_doctor.plugin.scanner import FoundSession

if TYPE_CHECKING:
    from tb_gpu_doctor.traces.related import Offer


def describe(found: FoundSession, lang: str) -> dict[str, Any]:
    """One entry of ``sessions``."""
    from tb_gpu_doctor.report.sentences import note_sentence

    session = found.session
    return {
        "run": found.run,
        "session": session.session,
        "label": f"{found.run} · {session.session}" if found.run else session.session,
        "hosts": list(dict.fromkeys(file.host for file in session.files)),
        "format": session.files[0].format if session.files else "",
        "size_bytes": session.size_bytes,
        "modified_unix_s": session.modified_unix_s,
        "problem": None if session.problem is None else note_sentence(session.problem, lang),
        "related": None if found.offer is None else _describe_offer(found.offer),
    }


def _describe_offer(offer: Offer) -> dict[str, Any]:
    return {
        "session": offer.name,
        "sessions": [{"run": member.run, "session": member.session} for member in offer.members],
        "hosts": [file.host for member in offer.members for file in member.files],
        "apart_s": offer.apart_s,
    }
