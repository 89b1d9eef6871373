"""What every answer must hold, whatever the profile: judged from the JSON alone, so by no sum that the rules make."""

from __future__ import annotations

from typing import Any

_RELATIVE, _ABSOLUTE_MS = 1e-6, 2e-6
# What an `ok` may leave unsaid of the analysed time.
_UNTOLD = 0.10


def dishonesties(document: dict[str, Any]) -> list[str]:
    """What is wrong with a diagnosis as ``--json`` prints it; nothing in a good one."""
    found: list[str] = []
    verdict, findings, step = document["verdict"], document["findings"], document["steps"].get("median_ms")
    wrong = [one for one in findings if one["severity"] in ("warning", "critical")]
    of_run = [one for one in wrong if one["about"] != "profile"]
    working = [gpu for gpu in document["devices"] if gpu["wall_ms"] and gpu["compute_ms"]]
    if verdict == "ok":
        if wrong:
            found.append(f"ok beside {[one['kind'] for one in wrong]}")
        if not working and document["profile"]["format"] != "telemetry":
            found.append("ok without any work of a GPU")
        if working:
            computed = sum(gpu["compute_ms"] / gpu["wall_ms"] for gpu in working) / len(working)
            if computed < 1 - _UNTOLD - _RELATIVE:
                found.append(f"ok over {1 - computed:.0%} of lost time")
    if verdict in ("critical", "warning") and not of_run:
        found.append(f"{verdict} without a finding of the run")
    if verdict == "cannot_tell" and not document["profile"]["warnings"] and not findings:
        found.append("cannot tell, and not why")
    for one in findings:
        what = f"{one['kind']}/{one['cause']}"
        share, saving = one["share"], one["saving_ms_per_step"]
        if share is not None and not -_RELATIVE <= share <= 1 + _RELATIVE:
            found.append(f"{what}: a share of {share}")
        if saving is not None and (step is None or not 0 <= saving <= step * (1 + _RELATIVE) + _ABSOLUTE_MS):
            found.append(f"{what}: saves {saving} ms of a step of {step} ms")
        if "{" in one["title"] + one["explanation"]:
            found.append(f"{what}: a text that is not filled in")
    for gpu in working:
        parts = sum(gpu[f"{part}_ms"] for part in ("compute", "communication", "transfer", "idle"))
        causes = sum(gpu["idle_by_cause_ms"].values())
        for name, total, whole in (("parts", parts, gpu["wall_ms"]), ("causes", causes, gpu["idle_ms"])):
            if abs(total - whole) > _RELATIVE * whole + 20 * _ABSOLUTE_MS:
                found.append(f"{gpu['label']}: {name} of {total} ms in {whole} ms")
    return found
