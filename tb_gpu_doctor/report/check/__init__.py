"""The result of a check in the forms that people and CI systems read: one file a format."""

from __future__ import annotations

from collections.abc import Callable

from tb_gpu_doctor.comparison.check import CheckResult
from tb_gpu_doctor.report.check.as_json import as_json
from tb_gpu_doctor.report.check.github import as_github
from tb_gpu_doctor.report.check.junit import as_junit
from tb_gpu_doctor.report.check.markdown import as_markdown
from tb_gpu_doctor.report.check.text import as_text

# By the name that the command takes.
FORMATS: dict[str, Callable[[CheckResult, str], str]] = {
    "text": as_text,
    "json": as_json,
    "junit": as_junit,
    "github": as_github,
    "markdown": as_markdown,
}
