"""What all formats say."""

from __future__ import annotations

from tb_gpu_doctor.comparison.check import CheckResult, Status
from tb_gpu_doctor.texts import text


def headline(result: CheckResult, lang: str) -> str:
    """One sentence for the whole check."""
    statuses = [item.status for item in result.items]
    return text(
        f"check.headline.{result.status}",
        lang,
        count=len(statuses),
        failed=statuses.count("regression"),
        unsure=statuses.count("cannot_tell"),
    )


def status_word(status: Status, lang: str) -> str:
    """PASS, REGRESSION or CANNOT TELL."""
    return text(f"check.statuses.{status}", lang)
