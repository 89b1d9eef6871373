"""The rules about telemetry: each speaks above its threshold, is silent below it, and on a healthy recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tb_gpu_doctor.diagnosis.model import Diagnosis, Finding
from tb_gpu_doctor.diagnosis.telemetry_engine import diagnose_telemetry
from tb_gpu_doctor.report.sentences import say
from tb_gpu_doctor.telemetry.series import Rank, Recording, Telemetry, ToldNote
from tests.telemetry.build import GIB, recording, series, steps

COUNT = 400
ROWS = np.arange(COUNT)


def diagnosed(*recordings: Recording) -> Diagnosis:
    return diagnose_telemetry(Telemetry(recordings))


def gpus(gpu: int = 2, count: int = COUNT, others: int = 4, growth: bool | None = None, **values: object) -> Recording:
    """Four healthy GPUs, one of them with other values."""
    return recording(
        *(series(number, count, **(values if number == gpu else {})) for number in range(others)),
        step_times=steps([0.1] * 50),
        memory_growth=growth,
    )


def only(found: Diagnosis, kind: str) -> Finding:
    assert [finding.kind for finding in found.findings] == [kind], found.findings
    return found.findings[0]


def words(finding: Finding, lang: str = "en") -> str:
    return "\n".join(say(p, lang) for p in (finding.title, *finding.explanation, *finding.advice))


def share_of(share: float, value: float) -> np.ndarray:
    """``value`` for the last part of the samples."""
    return np.where(round(COUNT * (1 - share)) <= ROWS, value, 0)


def test_a_healthy_recording_has_no_finding_and_is_no_proof_of_health() -> None:
    found = diagnosed(gpus())
    assert found.findings == () and found.verdict == "cannot_tell" and found.format == "telemetry"
    said = " ".join(say(reason, "en") for reason in found.reasons)
    assert "97%" in said and "only says that some kernel ran" in said
    assert found.telemetry is not None and len(found.telemetry.gpus) == 4
    assert found.telemetry.gpus[0].utilization == pytest.approx(0.97)


@pytest.mark.parametrize(("share", "severity"), [(0.03, None), (0.10, "warning"), (0.40, "critical")])
def test_heat(share: float, severity: str | None) -> None:
    bits = share_of(share, 0x40)
    found = diagnosed(
        gpus(clock_event_reasons=bits, sm_clock_mhz=np.where(bits > 0, 1300, 1900), temperature_celsius=91.0)
    )
    if severity is None:
        assert found.findings == ()
        return
    finding = only(found, "thermal_throttle")
    assert finding.severity == severity == found.verdict and [gpu.id for gpu in finding.gpus] == [2]
    step = f"since step {round(COUNT * (1 - share)) * 10:,}"
    assert step in words(finding) and "1,300 MHz" in words(finding) and "91 °C" in words(finding)
    assert "desde el paso" in words(finding, "es") and "1.300 MHz" in words(finding, "es")


def test_heat_from_the_first_sample_on() -> None:
    finding = only(diagnosed(gpus(clock_event_reasons=0x40, sm_clock_mhz=1000)), "thermal_throttle")
    assert "since the recording began" in words(finding)


def test_heat_without_steps_is_told_by_the_clock() -> None:
    bits = share_of(0.4, 0x40)
    found = diagnosed(gpus(clock_event_reasons=bits, sm_clock_mhz=1300, steps_per_s=None))
    assert "since 2023-11-14 22:17:20 UTC" in words(only(found, "thermal_throttle"))


@pytest.mark.parametrize(
    ("values", "cause", "severity"),
    [
        ({"clock_event_reasons": 0x4, "sm_clock_mhz": 1500.0}, "full_power", "info"),
        ({"clock_event_reasons": 0x4, "sm_clock_mhz": 1500.0, "power_limit_watts": 400.0}, "lowered_limit", "critical"),
        (
            {"clock_event_reasons": share_of(0.1, 0x4), "sm_clock_mhz": 1500.0, "power_limit_watts": 400.0},
            "lowered_limit",
            "warning",
        ),
        ({"clock_event_reasons": 0x88, "sm_clock_mhz": 1000.0}, "power_brake", "critical"),
        ({"clock_event_reasons": 0x8, "sm_clock_mhz": 1000.0}, "hardware", "critical"),
        ({"clock_event_reasons": 0x4, "sm_clock_mhz": 1900.0}, None, None),
        ({"clock_event_reasons": share_of(0.03, 0x80), "sm_clock_mhz": 1000.0}, None, None),
    ],
)
def test_power(values: dict[str, object], cause: str | None, severity: str | None) -> None:
    found = diagnosed(gpus(**values))
    if cause is None:
        assert found.findings == ()
        return
    finding = only(found, "power_throttle")
    assert (finding.cause, finding.severity) == (cause, severity)
    assert (found.verdict == "cannot_tell") == (severity == "info")
    assert ("400 W" in words(finding)) == (cause == "lowered_limit")


@pytest.mark.parametrize(("others", "cause"), [(700.0, "lowered_limit"), (400.0, "full_power")])
def test_power_where_nobody_says_what_the_usual_limit_is(others: float, cause: str) -> None:
    """Then GPUs of the same kind beside it tell, and without them nothing is called usual."""
    unsaid = {"power_limit_default_watts": 0.0}
    short = series(2, clock_event_reasons=0x4, sm_clock_mhz=1500.0, power_limit_watts=400.0, limits=unsaid)
    healthy = [series(gpu, power_limit_watts=others, limits=unsaid) for gpu in (0, 1)]
    finding = only(diagnosed(recording(*healthy, short, step_times=steps([0.1] * 50))), "power_throttle")
    told = {"lowered_limit": "that of others of its kind 700 W", "full_power": "the usual one was not recorded"}
    assert finding.cause == cause and told[cause] in words(finding)


@pytest.mark.parametrize(("peak", "speaks"), [(70.0, False), (49.0, False), (47.0, True), (8.0, True)])
def test_headroom(peak: float, speaks: bool) -> None:
    made = recording(
        *(series(gpu, allocator_peak_bytes=peak * GIB, allocator_used_bytes=peak * GIB / 2) for gpu in range(2)),
        step_times=steps([0.1] * 50, samples=256),
    )
    found = diagnosed(made)
    assert bool(found.findings) == speaks
    if speaks:
        finding = only(found, "memory_headroom")
        assert finding.severity == "info" and found.verdict == "cannot_tell"
        grown = 256 * 0.9 / (peak / 80)
        told = {47.0: 390, 8.0: 2300}[peak]
        assert told <= grown and f"{told:,}" in words(finding) and "batch of 256" in words(finding)


def test_headroom_needs_every_gpu_and_a_source_to_believe() -> None:
    low = {"allocator_peak_bytes": 8.0 * GIB, "allocator_used_bytes": 8.0 * GIB}
    none = ("allocator_used_bytes", "allocator_peak_bytes")
    full = recording(series(0, **low), series(1))
    assert diagnosed(full).findings == ()  # the batch is limited by the fullest GPU
    assert diagnosed(recording(series(0, **low), series(1, drop=none))).findings == ()
    # Preallocated memory: NVML shows 76 of 80 GiB, and nobody knows the need.
    unknown = diagnosed(recording(series(0, drop=none)))
    assert unknown.findings == () and any("cannot be told" in say(reason, "en") for reason in unknown.reasons)
    few = diagnosed(recording(series(0, drop=none, memory_used_bytes=8.0 * GIB), memory_growth=True))
    assert only(few, "memory_headroom").kind and "driver" in words(few.findings[0])


@pytest.mark.parametrize("used", [0.0, 5e-324, 1.0])
def test_memory_that_nobody_uses_is_no_headroom(used: float) -> None:
    found = diagnosed(recording(series(0, allocator_peak_bytes=used, allocator_used_bytes=used)))
    assert not any(finding.kind == "memory_headroom" for finding in found.findings)


def test_a_leak() -> None:
    rise = 20 * GIB + ROWS * 0.1 * GIB
    finding = only(diagnosed(gpus(allocator_used_bytes=rise, allocator_peak_bytes=rise)), "memory_pressure")
    assert (finding.cause, finding.severity) == ("growing", "critical") and [gpu.id for gpu in finding.gpus] == [2]
    assert "10.2\N{NO-BREAK SPACE}MiB a step" in words(finding)
    slow = 20 * GIB + ROWS * 0.02 * GIB
    assert only(diagnosed(gpus(allocator_used_bytes=slow)), "memory_pressure").severity == "warning"
    creep = 20 * GIB + ROWS * 0.0005 * GIB
    assert diagnosed(gpus(allocator_used_bytes=creep)).findings == ()


def test_nearly_full_is_a_remark() -> None:
    found = diagnosed(gpus(allocator_peak_bytes=78.0 * GIB))
    assert (only(found, "memory_pressure").cause, found.findings[0].severity) == ("near_limit", "info")
    assert diagnosed(gpus(allocator_peak_bytes=75.0 * GIB)).findings == ()


@pytest.mark.parametrize(("used", "severity"), [(65, None), (50, "warning"), (10, "critical")])
def test_idle_gpus_have_no_cause(used: float, severity: str | None) -> None:
    made = recording(
        *(series(gpu, COUNT, utilization_percent=np.where(ROWS % 5 == 0, used + 40, used - 10)) for gpu in range(2))
    )
    found = diagnosed(made)
    if severity is None:
        assert found.findings == ()
        return
    finding = only(found, "low_utilization")
    assert finding.severity == severity and finding.cause is None and len(finding.gpus) == 2
    assert "does not know why" in words(finding) and "profile" in words(finding)


def test_a_gpu_that_never_worked_is_named() -> None:
    finding = only(diagnosed(gpus(utilization_percent=0.0)), "low_utilization")
    assert [gpu.id for gpu in finding.gpus] == [2] and "GPU 2 never worked" in words(finding)


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        ({"other_processes": 1.0}, "warning"),
        ({"other_processes": share_of(0.05, 1.0)}, None),
        ({"other_processes": 1.0, "memory_process_bytes": 50.0 * GIB, "memory_used_bytes": 51.0 * GIB}, "info"),
        ({"other_processes": 1.0, "memory_process_bytes": 50.0 * GIB, "memory_used_bytes": 70.0 * GIB}, "warning"),
    ],
)
def test_shared(values: dict[str, object], severity: str | None) -> None:
    found = diagnosed(gpus(**values))
    assert (only(found, "gpu_shared").severity if found.findings else None) == severity


def test_two_ranks_on_one_gpu_are_told() -> None:
    half = {"allocator_peak_bytes": 30.0 * GIB, "allocator_used_bytes": 28.0 * GIB}
    ranks = [
        recording(series(0, other_processes=1.0, **half), process_id=k, run=f"run/gpu_doctor/node1/p{k}")
        for k in range(2)
    ]
    assert "Another process of this training" in words(only(diagnosed(*ranks), "gpu_shared"))


@pytest.mark.parametrize(
    ("values", "severity"),
    [
        ({"pcie_width": 8.0}, "warning"),
        ({"pcie_generation": 3.0, "pcie_replays": 12.0}, "warning"),
        ({"pcie_width": 4.0, "pcie_receive_bytes_per_s": 1e8, "pcie_send_bytes_per_s": 0.0}, "info"),
        ({"pcie_width": 8.0, "utilization_percent": np.where(ROWS < 50, 0, 96)}, "warning"),
        ({"pcie_width": np.where(ROWS < 50, 8, 16), "utilization_percent": np.where(ROWS < 50, 0, 96)}, None),
    ],
)
def test_links(values: dict[str, object], severity: str | None) -> None:
    found = diagnosed(gpus(**values))
    assert (only(found, "pcie_degraded").severity if found.findings else None) == severity
    if "pcie_replays" in values:
        assert "12 packets" in words(found.findings[0]) and "generation 3 in place of 5" in words(found.findings[0])


@pytest.mark.parametrize(
    "made",
    [
        lambda: recording(),
        lambda: recording(series(0, count=0)),
        lambda: recording(series(0, count=5, clock_event_reasons=0x40, other_processes=3.0, pcie_width=1.0)),
        lambda: recording(series(0, drop=list(series(0).values))),
        lambda: recording(series(0, **{name: np.nan for name in series(0).values})),
        lambda: recording(series(0, utilization_percent=0.0)),
    ],
)
def test_too_little_gives_no_finding(made: Callable[[], Recording]) -> None:
    found = diagnosed(made())
    assert found.findings == () and found.verdict == "cannot_tell" and found.reasons
    assert all(say(reason, lang) for reason in found.reasons for lang in ("en", "es"))


def test_nothing_at_all() -> None:
    assert diagnosed().verdict == "cannot_tell" and diagnosed().findings == ()


def test_a_restarted_notebook_is_judged_by_its_last_start() -> None:
    hot = recording(series(0, clock_event_reasons=0x40, start_ns=1_600_000_000 * 10**9), run="run/gpu_doctor/node1/p1")
    cool = recording(series(0), run="run/gpu_doctor/node1/p2")
    found = diagnosed(hot, cool)
    assert found.findings == () and found.telemetry is not None
    assert ["earlier" in say(note, "en") for note in found.telemetry.notes] == [True]


def stopped(
    after_s: float, *, process: int = 1, host: str = "node1", count: int = COUNT, **values: object
) -> Recording:
    """A process whose steps of half a second end before the recording does."""
    gpu = series(process, count, host=host, **values)
    return recording(
        gpu,
        host=host,
        process_id=process,
        run=f"run/{host}/process_{process}",
        step_times=steps([0.5] * round(2 * after_s)),
    )


def spinning(begin: int) -> dict[str, np.ndarray]:
    late = begin < ROWS
    return {"utilization_percent": np.where(late, 100, 96), "power_watts": np.where(late, 150, 600)}


@pytest.mark.parametrize(("until", "kinds"), [(COUNT - 40, []), (COUNT - 80, ["training_hang"])])
def test_a_hang_is_told_after_a_minute(until: int, kinds: list[str]) -> None:
    found = diagnosed(stopped(until, **spinning(until)))
    assert [finding.kind for finding in found.findings] == kinds
    assert found.verdict == ("critical" if kinds else "cannot_tell")


def test_a_hang_in_a_collective_names_who_is_missing() -> None:
    absent = {name: np.where(np.arange(COUNT) > 200, 0, value) for name, value in (("utilization_percent", 96),)}
    finding = only(
        diagnosed(stopped(200, process=1, **spinning(200)), stopped(200, process=2, **absent)), "training_hang"
    )
    assert finding.cause == "collective" and [gpu.id for gpu in finding.gpus] == [2]
    assert [gpu.id for gpu in finding.victims] == [1]
    assert "never entered the collective" in words(finding) and "nunca entró" in words(finding, "es")


def test_of_several_processes_the_one_behind_is_named() -> None:
    finding = only(
        diagnosed(stopped(200, process=1, **spinning(200)), stopped(199, process=2, **spinning(199))), "training_hang"
    )
    assert [gpu.id for gpu in finding.gpus] == [2] and "node1 · 2 stands at step 397" in words(finding)


def test_a_starved_process_hangs_unless_it_left_in_good_order() -> None:
    idle = {"utilization_percent": np.where(np.arange(COUNT) > 200, 0, 96)}
    one = stopped(200, **idle)
    finding = only(diagnosed(one), "training_hang")
    assert finding.cause == "host" and finding.severity == "critical" and "data loader" in words(finding)
    assert diagnosed(dataclasses.replace(one, ended="normal")).findings == ()
    assert diagnosed(dataclasses.replace(one, ended="error")).findings != ()


def test_a_lost_gpu_is_named_as_the_driver_does() -> None:
    gone = {name: np.where(np.arange(COUNT) > 250, np.nan, 90.0) for name in ("utilization_percent", "power_watts")}
    names = [name for name in series().values if name not in gone]
    lost = series(3, COUNT, drop=names, framework_id=0, **gone)
    finding = only(diagnosed(recording(lost, series(1, COUNT, framework_id=1))), "gpu_lost")
    assert finding.severity == "critical" and [gpu.id for gpu in finding.gpus] == [0]
    assert (
        "number 3" in words(finding) and "-i 3 --gpu-reset" in words(finding) and "since step 2,500" in words(finding)
    )


@pytest.mark.parametrize(("used", "kind"), [(0, "gpu_unused"), (9, "gpu_unused"), (12, "low_utilization")])
def test_steps_without_a_gpu_at_work(used: float, kind: str) -> None:
    gpu = series(count=COUNT, utilization_percent=used)
    finding = only(diagnosed(recording(gpu, step_times=steps([0.5] * 2 * COUNT))), kind)
    assert finding.severity == "critical"
    if kind == "gpu_unused":
        assert "800 steps" in words(finding) and "list_physical_devices" in words(finding)
        assert ("no GPU worked" in words(finding)) == (used == 0)


def test_one_gpu_at_work_is_enough() -> None:
    two = recording(series(0, COUNT), series(1, COUNT, utilization_percent=0), step_times=steps([0.5] * 2 * COUNT))
    assert "gpu_unused" not in {finding.kind for finding in diagnosed(two).findings}


def reasons(found: Diagnosis, lang: str = "en") -> str:
    return "\n".join(say(reason, lang) for reason in found.reasons)


def test_commands_name_the_gpu_as_the_driver_does() -> None:
    hot = series(1, COUNT, framework_id=0, clock_event_reasons=0x20, sm_clock_mhz=900, temperature_celsius=90)
    finding = only(diagnosed(recording(hot)), "thermal_throttle")
    assert "nvidia-smi -i 1 -pl 600 " in words(finding) and [gpu.id for gpu in finding.gpus] == [0]
    shared = series(3, COUNT, framework_id=0, other_processes=1, memory_process_bytes=10.0 * GIB)
    assert "-i 3 -c EXCLUSIVE_PROCESS" in words(only(diagnosed(recording(shared)), "gpu_shared"))


def test_what_could_be_checked_is_listed_and_nothing_else() -> None:
    found = diagnosed(recording(series(count=COUNT), step_times=steps([0.5] * 2 * COUNT)))
    first = say(found.reasons[0], "en")
    assert found.verdict == "cannot_tell" and first.startswith("Looked for in the telemetry and not found: ")
    assert "Training hangs" in first and "Throttled by heat" in first and "Not checked" not in reasons(found)
    few = diagnosed(recording(series(count=COUNT, drop=["clock_event_reasons", "other_processes"])))
    assert "Throttled by heat" not in say(few.reasons[0], "en")
    assert "clocks was not recorded. Not checked: Throttled by heat and Throttled by power." in reasons(few)
    assert "container" in reasons(few) and "No training steps were recorded" in reasons(few)


def test_idle_gpus_were_not_checked_for_what_shows_at_work_only() -> None:
    found = diagnosed(recording(series(count=COUNT, utilization_percent=0)))
    assert "GPU 0 did not work long enough to judge. Not checked:" in reasons(found)
    assert "Throttled by heat" not in say(found.reasons[0], "en")


def test_a_mig_instance_without_utilization_is_named() -> None:
    whole = series(count=COUNT, drop=["utilization_percent"])
    instance = dataclasses.replace(whole, facts=dataclasses.replace(whole.facts, mig=0))
    assert "is a MIG instance" in reasons(diagnosed(recording(instance)))
    assert "MIG" not in reasons(diagnosed(recording(whole)))


@pytest.mark.parametrize(
    ("key", "reason", "says"),
    [
        ("no_driver", "RM has detected an NVML/RM version mismatch.", "different versions"),
        ("no_driver", "NVML Shared Library Not Found", "--gpus all"),
        ("no_driver", "Insufficient Permissions", "may not ask the driver"),
        ("no_driver", "Driver Not Loaded", "is not loaded"),
        ("no_driver", "No module named 'pynvml'; pip install nvidia-ml-py", "nvidia-ml-py is missing"),
        ("no_driver", "another package is installed as pynvml", "remove pynvml"),
        ("no_driver", "Unknown Error", "did not answer (Unknown Error)"),
        ("amd", "", "AMD"),
        ("no_gpus", "", "CUDA_VISIBLE_DEVICES"),
        ("unknown_gpu", "", "there is no GPU ?"),
    ],
)
def test_why_there_is_no_sample(key: str, reason: str, says: str) -> None:
    told = (ToldNote(f"recording.{key}", {"reason": reason}),)
    for step_times in (steps(), steps([0.5] * 40)):
        found = diagnosed(dataclasses.replace(recording(step_times=step_times), told=told))
        assert found.verdict == "cannot_tell" and says in reasons(found)
    assert "The recording holds no samples" in reasons(diagnosed(recording(step_times=steps([0.5] * 40))))


def small(process: int = 1, **values: object) -> Recording:
    used = {"allocator_peak_bytes": 20.0 * GIB, "allocator_used_bytes": 20.0 * GIB, "memory_used_bytes": 22.0 * GIB}
    gpu = series(0, COUNT, **{**used, **values})
    return recording(gpu, process_id=process, run=f"run/{process}", memory_growth=True)


def headroom(*recordings: Recording) -> Finding | None:
    return next((finding for finding in diagnosed(*recordings).findings if finding.kind == "memory_headroom"), None)


def test_room_is_what_other_processes_leave() -> None:
    alone = headroom(small())
    assert alone is not None and alone.title.params["free"] == pytest.approx(60 * GIB)
    beside = {"other_processes": 1, "memory_process_bytes": 21.0 * GIB}
    some = headroom(small(memory_used_bytes=51.0 * GIB, **beside))
    assert some is not None and some.title.params["free"] == pytest.approx(30 * GIB)
    assert some.title.params["times"] == pytest.approx(0.9 * 50 / 20)
    assert headroom(small(memory_used_bytes=71.0 * GIB, **beside)) is None
    assert headroom(small(other_processes=1)) is None  # nobody knows how much they hold


def test_where_other_processes_cannot_be_seen_only_what_the_driver_calls_free_counts() -> None:
    """As in a container: somebody holds 30 GiB, and the list of processes does not say who."""
    hidden = recording(
        series(0, COUNT, drop=("other_processes",), allocator_peak_bytes=20.0 * GIB, allocator_used_bytes=20.0 * GIB,
               memory_used_bytes=52.0 * GIB)
    )  # fmt: skip
    found = headroom(hidden)
    assert found is not None and found.title.params["free"] == pytest.approx(28 * GIB)
    full = recording(
        series(0, COUNT, drop=("other_processes",), allocator_peak_bytes=20.0 * GIB, allocator_used_bytes=20.0 * GIB,
               memory_used_bytes=72.0 * GIB)
    )  # fmt: skip
    assert headroom(full) is None
    # The framework's own pool, taken in advance, is its own.
    pool = series(0, COUNT, drop=("other_processes",), allocator_peak_bytes=20.0 * GIB, allocator_used_bytes=20.0 * GIB,
                  memory_used_bytes=61.0 * GIB, limits={"allocator_limit_bytes": 60.0 * GIB})  # fmt: skip
    found = headroom(recording(pool))
    assert found is not None and found.title.params["free"] == pytest.approx(40 * GIB)
    nothing = series(0, COUNT, drop=("other_processes", "memory_used_bytes"), allocator_peak_bytes=20.0 * GIB,
                     allocator_used_bytes=20.0 * GIB)  # fmt: skip
    assert headroom(recording(nothing)) is None


def test_ranks_on_one_gpu_count_together() -> None:
    two = headroom(small(1), small(2))
    assert two is not None and two.title.params["used"] == pytest.approx(0.5)
    assert two.title.params["free"] == pytest.approx(40 * GIB)
    assert headroom(small(1), small(2), small(3)) is None


def standing(one: Recording, *frames: str, in_step: bool = True) -> Recording:
    """What a watchdog adds to a recording of a hang."""
    threads = [{"name": "loader", "main": False, "frames": ["x.py:1 wait"]}]
    threads.append({"name": "MainThread", "main": True, "frames": list(frames)})
    hang = {"step": int(one.steps.number[-1]), "in_step": in_step, "resumed": False, "threads": threads}
    return dataclasses.replace(one, facts={"hang": hang})


def test_the_rank_whose_stack_differs_is_named() -> None:
    there, elsewhere = ("dist.py:9 all_reduce", "train.py:4 step"), ("data.py:7 next", "train.py:3 step")
    ranks = [standing(stopped(200, process=p, **spinning(200)), *there) for p in (1, 2)]
    ranks.append(standing(stopped(200, process=3, **spinning(200)), *elsewhere))
    finding = only(diagnosed(*ranks), "training_hang")
    assert [gpu.id for gpu in finding.gpus] == [3] and "node1 · 3 stands elsewhere" in words(finding)
    assert "node1 · 3 stands in data.py:7 next < train.py:3 step" in words(finding)
    assert "node1 · 1 and node1 · 2 stand in dist.py:9 all_reduce < train.py:4 step" in words(finding)


def test_a_process_that_waits_between_two_steps_may_be_done() -> None:
    idle = stopped(200, utilization_percent=np.where(ROWS > 200, 0, 96))
    finding = only(diagnosed(standing(idle, "train.py:3 main", in_step=False)), "training_hang")
    assert finding.severity == "warning" and "between two steps" in words(finding)
    assert only(diagnosed(standing(idle, "train.py:3 main")), "training_hang").severity == "critical"
    resumed = dataclasses.replace(idle, facts={"hang": {"step": 399, "in_step": False, "resumed": True}})
    assert only(diagnosed(resumed), "training_hang").severity == "critical"


def test_a_hang_without_power_figures_is_told_without_its_place() -> None:
    """As on a GPU that gives no power: full utilization may be work or a collective."""
    finding = only(diagnosed(stopped(200, drop=("power_watts",))), "training_hang")
    assert (finding.cause, finding.severity) == ("unknown", "warning") and "computing GPU" in words(finding)


def test_a_step_that_does_not_end_hangs_whatever_the_gpus_do() -> None:
    busy = stopped(200)
    found = diagnosed(busy)
    assert found.findings == ()  # it may evaluate, and nobody told the monitor
    assert "Training hangs" not in say(found.reasons[0], "en"), "that was not looked for in vain"
    assert "No step came in the last" in reasons(found) and "Ningún paso" not in reasons(found, "es")
    assert "No llegó ningún paso" in reasons(found, "es")
    inside = standing(busy, "train.py:4 step")
    assert only(diagnosed(inside), "training_hang").severity == "warning"
    between = standing(busy, "train.py:9 evaluate", in_step=False)
    assert diagnosed(between).findings == ()
    ended = diagnosed(dataclasses.replace(busy, ended="normal"))
    assert "No step came" not in reasons(ended) and "Training hangs" in say(ended.reasons[0], "en")


def test_a_few_long_steps_without_a_gpu_are_enough() -> None:
    idle = series(count=COUNT, utilization_percent=0.0, power_watts=60.0)
    assert only(diagnosed(recording(idle, step_times=steps([60.0] * 6))), "gpu_unused").severity == "critical"
    assert "gpu_unused" not in {f.kind for f in diagnosed(recording(idle, step_times=steps([5.0] * 6))).findings}


def test_a_gpu_whose_samples_end_before_the_others_is_lost() -> None:
    finding = only(
        diagnosed(recording(series(0, COUNT), series(1, 250), step_times=steps([0.5] * 2 * COUNT))), "gpu_lost"
    )
    assert [gpu.id for gpu in finding.gpus] == [1]


def test_a_process_that_holds_pythons_lock_hangs_although_its_samples_end_with_its_steps() -> None:
    one = stopped(COUNT, process=1)
    held = {"written_unix_ns": int(one.steps.end_ns[-1]) + 65 * 10**9, "resumed": False}
    held["threads"] = [{"name": "x", "main": True, "frames": ["lib/x.py:3 native", "train.py:4 step"]}]
    finding = only(diagnosed(dataclasses.replace(one, facts={"lock_held": held})), "training_hang")
    assert finding.cause == "lock" and finding.severity == "critical"
    assert "holds Python's lock" in words(finding) and "lib/x.py:3 native < train.py:4 step" in words(finding)
    assert "--native" in words(finding) and "bloqueo de Python" in words(finding, "es")
    resumed = dataclasses.replace(one, facts={"lock_held": {**held, "resumed": True}})
    assert diagnosed(resumed).findings == ()


def test_a_rank_that_is_gone_while_the_others_wait_is_named() -> None:
    ranks = [stopped(200, process=p, **spinning(200)) for p in (1, 2)]
    gone = dataclasses.replace(stopped(198, process=3, count=200), rank=Rank(2, 3))
    finding = only(diagnosed(*ranks, gone), "training_hang")
    assert [gpu.id for gpu in finding.gpus] == [3] and "rank 2 (node1 · 3) records nothing any more" in words(finding)
    assert "ya no graba nada" in words(finding, "es")


def rank(number: int, step_s: float, *, of: int = 3, **values: object) -> Recording:
    """One rank of a job, on a GPU of its own; the driver counts its GPUs from 4 on."""
    gpu = series(number + 4, round(400 * step_s), framework_id=0, **values)
    one = recording(gpu, process_id=number, run=f"run/node1/process_{number}", step_times=steps([step_s] * 400))
    return dataclasses.replace(one, rank=Rank(number, of))


def test_a_slow_rank_is_named_with_its_gpu_as_the_driver_counts_it_and_the_reason() -> None:
    hot = rank(2, 0.75, clock_event_reasons=0x20, sm_clock_mhz=1300, temperature_celsius=88)
    found = diagnosed(rank(0, 0.5), rank(1, 0.5), hot)
    (finding,) = [finding for finding in found.findings if finding.kind == "slow_rank"]
    assert finding.severity == "warning" and finding.cause == "heat"
    said = words(finding)
    assert "rank 2 (node1 · 2) is slower than the others: 50% longer steps" in said
    assert "750\xa0ms a step; the others took 500\xa0ms" in said
    assert "the driver's number 6) is throttled by heat" in said
    assert "nvidia-smi -i 6 " in said and "un 50\xa0% más largos" in words(finding, "es")


@pytest.mark.parametrize(
    "job",
    [
        [rank(0, 0.5), rank(1, 0.5), rank(2, 0.55)],  # a tenth
        [rank(0, 0.5), rank(1, 0.5), rank(1, 0.9)],  # two starts of one rank
        [rank(0, 0.5, of=2), rank(1, 0.5, of=3), rank(2, 0.9, of=3)],  # two jobs
        [rank(0, 0.5), rank(1, 0.9), rank(2, 0.9)],  # most are slow: uneven by design
    ],
)
def test_what_is_no_slow_rank(job: list[Recording]) -> None:
    assert [finding for finding in diagnosed(*job).findings if finding.kind == "slow_rank"] == []


def test_processes_without_ranks_are_compared_where_they_began_together_with_the_same_batch() -> None:
    job = [dataclasses.replace(rank(number, 0.75 if number else 0.5), rank=None) for number in (0, 1)]
    assert [finding.kind for finding in diagnosed(*job).findings] == ["slow_rank"]
    batch = dataclasses.replace(job[1].steps, samples=job[1].steps.samples * 2)
    assert diagnosed(job[0], dataclasses.replace(job[1], steps=batch)).findings == ()


def test_in_lockstep_the_rank_whose_gpu_rests_while_the_others_spin_holds_them_up() -> None:
    job = [rank(0, 0.5), rank(1, 0.5), rank(2, 0.5, utilization_percent=55.0)]
    (finding,) = [finding for finding in diagnosed(*job).findings if finding.kind == "slow_rank"]
    assert finding.cause == "idle" and finding.severity == "warning"
    assert "rank 2 (node1 · 2) holds the others up" in words(finding) and "its input is late" in words(finding)


def test_the_check_for_slow_ranks_is_listed_only_where_there_are_several_processes() -> None:
    reasons = [say(reason, "en") for reason in diagnosed(rank(0, 0.5), rank(1, 0.5), rank(2, 0.5)).reasons]
    assert "Slow rank" in reasons[0] and "Slow rank" not in " ".join(reasons[1:])
    assert not any("Slow rank" in say(reason, "en") for reason in diagnosed(rank(0, 0.5)).reasons)


def told(*notes: tuple[str, dict[str, object]], count: int = COUNT) -> Recording:
    """Two healthy GPUs, the driver's numbers 4 and 5, and what the monitor noted."""
    gpus = [series(number, count, framework_id=number - 4) for number in (4, 5)]
    notes_told = tuple(ToldNote(f"recording.{key}", params) for key, params in notes)
    return dataclasses.replace(recording(*gpus, step_times=steps([0.5] * 2 * count)), told=notes_told)


@pytest.mark.parametrize(
    ("xids", "severity", "says"),
    [
        ([48], "critical", "cannot be corrected"),
        ([79], "critical", "fallen off the bus"),
        ([31, 43], "warning", "compute-sanitizer"),
        ([31, 48], "critical", "not its own"),
        ([999], "critical", "Xid 999; the kernel's log says more"),
    ],
)
def test_errors_that_the_driver_reports_are_findings(xids: list[int], severity: str, says: str) -> None:
    finding = only(diagnosed(told(*[("xid", {"gpu": "gpu5", "xid": xid}) for xid in xids])), "gpu_lost")
    assert finding.severity == severity and [gpu.id for gpu in finding.gpus] == [1]
    assert says in words(finding) and "the driver's number 5" in words(finding) and words(finding, "es")
    assert ("-i 5 --gpu-reset" in words(finding)) == (severity == "critical")


def test_a_gpu_that_never_answered_is_told_although_nothing_was_recorded_of_it() -> None:
    silent = ("silent_gpu", {"gpu": 1, "reason": "GPU is lost"})
    finding = only(diagnosed(told(silent)), "gpu_lost")
    assert finding.severity == "warning" and "A GPU of the machine does not answer: number 1" in words(finding)
    none = recording()
    notes = (ToldNote("recording.silent_gpu", dict(silent[1])), ToldNote("recording.no_gpus_at_all", {}))
    found = diagnosed(dataclasses.replace(none, told=notes))
    assert only(found, "gpu_lost").severity == found.verdict == "critical"
    assert "GPU 1 does not answer (GPU is lost)" in reasons(found) and "knows none" not in reasons(found)


def test_a_driver_that_stops_answering_is_critical_unless_it_comes_back() -> None:
    lost = ("driver_lost", {"reason": "RM has detected an NVML/RM version mismatch."})
    finding = only(diagnosed(told(lost)), "gpu_lost")
    assert finding.severity == "critical" and "The driver stopped answering while training ran" in words(finding)
    assert "version mismatch" in words(finding) and "/proc/driver/nvidia/version" in words(finding)
    assert diagnosed(told(lost, ("driver_back", {}))).findings == ()
    again = dataclasses.replace(told(lost, ("driver_back", {}), count=200), steps=steps([0.5] * 800))
    assert only(diagnosed(again), "gpu_lost").severity == "critical"
