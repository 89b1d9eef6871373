"""Packs of the demo runs and of real profiles: the same diagnosis, and nobody's name in any byte."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpu_doctor.api import diagnose_session
from tb_gpu_doctor.cli.pack import chosen_sessions
from tb_gpu_doctor.errors import PackError, ProfileError
from tb_gpu_doctor.packing.archive import unpack_archive
from tb_gpu_doctor.packing.meaning import telling_words
from tb_gpu_doctor.packing.names import is_public_word
from tb_gpu_doctor.packing.pack import DIAGNOSES, MANIFEST, pack_sessions
from tb_gpu_doctor.packing.verification import same_findings, told_names
from tb_gpu_doctor.packing.view import manifest, opened
from tb_gpu_doctor.traces.read import read_trace
from tb_gpu_doctor.traces.sessions import Session, find_sessions
from tb_gpu_doctor.traces.xspace import walk
from tests.conftest import DEMO_LOGS, SHARED_TRACES
from tests.remote_stores import in_memory

_DEMOS = ("healthy", "input_bound", "launch_bound", "low_occupancy", "pytorch_ddp", "slow_gpu")
RUNS = [DEMO_LOGS / name for name in _DEMOS]
REAL = (
    "jax_conv_8xmi300x", "jax_conv_8xmi300x_older", "jax_gemm_1of8_mi300x", "jax_te_attention",
    "kineto_bert_small_h100", "kineto_diff_control_a100", "kineto_diff_test_v100", "kineto_dlrm_8xv100",
    "kineto_eager_b200",
    "kineto_megatron_tp8_a100", "kineto_minitoy_mi250", "kineto_resnet50_loader0_v100", "kineto_resnet50_loader4_v100",
    "tf_bert_8gpu", "xla_2xgtx1080ti",
)  # fmt: skip
ROOTS = [
    *(pytest.param(root, id=root.name) for root in RUNS),
    *(pytest.param(SHARED_TRACES / name, id=name, marks=pytest.mark.slow) for name in REAL),
]
_WORD = re.compile(r"\w+")
_FRAME = re.compile(r"^(?:\$|(?=/))(?P<file>.+\.py)(?::\d+|\(\d+\):) (?P<function>\w+)")


def session_of(root: Path) -> Session:
    if not root.is_dir():
        pytest.skip(f"not present: {root}")
    return chosen_sessions(find_sessions(str(root)), None, None)[0]


def contents(pack: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a pack, unpacked to the last byte."""
    with zipfile.ZipFile(pack) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            yield name, gzip.decompress(data) if name.endswith(".gz") else data


def private_names(session: Session) -> tuple[set[str], set[str]]:
    """(hosts, layers and paths) that the originals hold, read in another way than redaction does."""
    hosts, words = set(), set()
    for file in session.files:
        if file.problem is not None:
            continue
        if file.format == "xplane":
            hosts |= {item.data.decode() for item in walk(file.path) if item.kind == "hostname"}
        trace = read_trace(file)
        ids = {*trace.device_events.op.tolist(), *trace.host_events.op.tolist(), *trace.host_events.name.tolist()}
        for text in (trace.strings[ident] for ident in ids):
            if "/" in text and ".py" not in text:
                words |= {word for part in text.split("/")[:-1] for word in _WORD.findall(part)}
            elif frame := _FRAME.match(text):
                words |= set(_WORD.findall(frame["file"]))
    hosts |= {host.rpartition("_")[0] or host for host in (file.host for file in session.files)}
    hosts = {host for host in hosts if len(host) > 3 and not re.fullmatch(r"(?:worker|rank)\d*|GPU\d*", host)}
    # files and functions of the frameworks, which the analyses' own tables name, are nobody's
    words = {word for word in words if not telling_words().fullmatch(word.strip("_"))}
    return hosts, {word for word in words if len(word) >= 5 and not is_public_word(word)}


@pytest.mark.slow
@pytest.mark.parametrize("root", ROOTS)
def test_without_names_the_diagnosis_is_the_same_and_no_name_is_left(root: Path, tmp_path: Path) -> None:
    session = session_of(root)
    hosts, words = private_names(session)
    packed = pack_sessions([session], str(tmp_path / "p.zip"), redact=True)
    assert packed.differences == () and packed.unsure == 0 and packed.left_out == ()
    # Not by the pack's own word alone: unpacked, found by the scan, diagnosed.
    (tmp_path / "open").mkdir()
    unpack_archive(str(tmp_path / "p.zip"), str(tmp_path / "open"))
    found = [s for s in find_sessions(str(tmp_path / "open")).sessions if not s.is_telemetry]
    assert len(found) == 1
    before, after = diagnose_session(session).diagnosis, diagnose_session(found[0]).diagnosis
    assert same_findings(before, after) == []
    assert [(f.kind, f.severity, f.cause) for f in before.findings] == [
        (f.kind, f.severity, f.cause) for f in after.findings
    ]
    told = set()
    for name, data in contents(tmp_path / "p.zip"):
        assert not [host for host in hosts if host.encode() in data or host in name]
        seen = set(re.findall(rb"\w+", data))
        told |= {word for word in words if word.encode() in seen}
    # What is left are words that an analysis looks for, such as a marker called train_step; few, and no one's secret.
    assert len(told) <= 0.15 * len(words) + 3, sorted(told)


@pytest.mark.slow
@pytest.mark.parametrize("root", ROOTS)
def test_slim_packs_are_smaller_and_say_the_same(root: Path, tmp_path: Path) -> None:
    session = session_of(root)
    slim = pack_sessions([session], str(tmp_path / "s.zip"), slim=True)
    assert slim.differences == ()
    assert slim.unpacked_bytes < slim.before_bytes + 40_000
    if slim.before_bytes > 50_000:
        assert slim.pack_bytes < slim.before_bytes


@pytest.mark.slow
def test_both_at_once_and_twice_the_same_bytes(tmp_path: Path) -> None:
    session = session_of(DEMO_LOGS / "input_bound")
    one = pack_sessions([session], str(tmp_path / "1.zip"), redact=True, slim=True)
    pack_sessions([session], str(tmp_path / "2.zip"), redact=True, slim=True)
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    assert one.differences == () and one.replaced


def test_a_pack_holds_files_telemetry_and_diagnosis_as_they_are(tmp_path: Path) -> None:
    root = DEMO_LOGS / "slow_gpu"
    packed = pack_sessions([session_of(root)], str(tmp_path / "p.zip"))
    found = dict(contents(tmp_path / "p.zip"))
    label = "2026_03_03_10_41_37"
    assert packed.files == 6 and packed.sessions == 1
    for name in found:
        if name != MANIFEST and not name.startswith(DIAGNOSES):
            assert (root / name).read_bytes() == found[name]
    assert f"plugins/profile/{label}/gpu-node-0.xplane.pb" in found
    assert sum(name.startswith("gpu_doctor/gpu-node-0/") for name in found) == 5
    for lang in ("en", "es"):
        diagnosis = json.loads(found[f"{DIAGNOSES}/{label}/{lang}.json"])
        assert diagnosis["language"] == lang and diagnosis["findings"]
    assert json.loads(found[MANIFEST])["redacted"] is False


@pytest.mark.slow
def test_several_runs_stay_apart(tmp_path: Path) -> None:
    scan = find_sessions(str(DEMO_LOGS))
    sessions = chosen_sessions(scan, None, None, everything=True)
    assert len(sessions) == 6
    packed = pack_sessions(sessions, str(tmp_path / "p.zip"), redact=True, slim=True)
    assert packed.sessions == 6 and packed.differences == ()
    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        names = archive.namelist()
    assert len({name.split("/")[0] for name in names if "/plugins/profile/" in name}) == 5
    assert not [name for name in names if "slow_gpu" in name or "gpu-node" in name]


def test_sessions_are_chosen_by_run_and_name(tmp_path: Path) -> None:
    scan = find_sessions(str(DEMO_LOGS))
    assert [s.run for s in chosen_sessions(scan, "healthy", None)] == ["healthy"]
    assert [s.session for s in chosen_sessions(scan, None, None)] == [scan.sessions[0].session]
    both = chosen_sessions(scan, None, ["2026_03_02_09_14_05", "slow_gpu/2026_03_03_10_41_37"])
    assert [s.run for s in both] == ["input_bound", "slow_gpu"]
    assert [s.format for s in chosen_sessions(scan, "slow_gpu", ["telemetry"])[0].files] == ["telemetry"]
    with pytest.raises(ProfileError):
        chosen_sessions(scan, "no_such_run", None)


def test_telemetry_alone_can_be_packed(tmp_path: Path) -> None:
    scan = find_sessions(str(DEMO_LOGS / "slow_gpu"))
    alone = [session for session in scan.sessions if session.is_telemetry]
    packed = pack_sessions(alone, str(tmp_path / "p.zip"), redact=True)
    assert packed.files == 5 and packed.differences == () and packed.sessions == 1


def test_damaged_files_are_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_01_01_00_00_00"
    folder.mkdir(parents=True)
    good = next((DEMO_LOGS / "healthy").rglob("*.xplane.pb")).read_bytes()
    (folder / "a.xplane.pb").write_bytes(good)
    (folder / "b.xplane.pb").write_bytes(good[: len(good) // 2])
    sessions = [find_sessions(str(tmp_path / "logs")).sessions[0]]
    packed = pack_sessions(sessions, str(tmp_path / "p.zip"), redact=True)
    assert packed.files == 1 and [error.code for error in packed.left_out] == ["truncated"]
    (folder / "a.xplane.pb").unlink()
    sessions = [find_sessions(str(tmp_path / "logs")).sessions[0]]
    with pytest.raises(ProfileError):
        pack_sessions(sessions, str(tmp_path / "q.zip"), redact=True)
    assert not (tmp_path / "q.zip").exists()


@pytest.mark.slow
def test_hosts_of_a_job_keep_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "acme_job" / "plugins" / "profile" / "secret_session"
    folder.mkdir(parents=True)
    good = next((DEMO_LOGS / "healthy").rglob("*.xplane.pb")).read_bytes()
    for host in ("zebra2.acme.com", "zebra10.acme.com"):
        (folder / f"{host}.xplane.pb").write_bytes(good)
    packed = pack_sessions([find_sessions(str(tmp_path / "logs")).sessions[0]], str(tmp_path / "p.zip"), redact=True)
    assert packed.differences == ()
    names = [name for name, data in contents(tmp_path / "p.zip") if b"zebra" in data or b"acme" in data]
    assert names == []
    with zipfile.ZipFile(tmp_path / "p.zip") as archive:
        paths = [name for name in archive.namelist() if name.endswith(".pb")]
    assert [Path(path).name for path in paths] == ["host1.domain1.xplane.pb", "host2.domain1.xplane.pb"]
    assert not [path for path in paths if "secret" in path or "acme" in path]


def test_a_name_that_is_told_after_all_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x" * 5_000_000 + b" Zebra " + b"y" * 100)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b" " * 5_000_000 + b"zebra"))
    (tmp_path / "c").write_bytes(b"giraffe zebras")
    assert [name for name, _ in told_names(str(tmp_path), ["a.bin", "b.json.gz", "c"], ["zebra", "abc"])] == [
        "a.bin",
        "b.json.gz",
    ]


@pytest.mark.slow
def test_a_run_behind_an_address_gives_the_same_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DOCTOR_WORKERS", "1")  # the store in memory is that of this process
    root = DEMO_LOGS / "slow_gpu"
    held = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    address = in_memory({name: path.read_bytes() for name, path in held.items() if name.endswith((".pb", "doctor"))})
    for redact in (False, True):
        packs = [tmp_path / f"{redact}{number}.zip" for number in range(2)]
        for pack, place in zip(packs, (str(root), address), strict=True):
            session = chosen_sessions(find_sessions(place), None, None)[0]
            packed = pack_sessions([session], str(pack), redact=redact, slim=True)
            assert packed.differences == () and packed.left_out == () and packed.files == 2
        assert packs[0].read_bytes() == packs[1].read_bytes()


def test_a_pack_behind_an_address_opens(tmp_path: Path) -> None:
    pack_sessions([session_of(DEMO_LOGS / "low_occupancy")], str(tmp_path / "p.zip"), slim=True)
    address = in_memory({"p.zip": (tmp_path / "p.zip").read_bytes()})
    with opened(f"{address}/p.zip") as folder:
        assert len(find_sessions(folder).sessions) == 1
        assert manifest(folder)["slim"] is True
    assert not Path(folder).exists()
    with pytest.raises(PackError) as caught, opened(f"{address}/q.zip"):
        pass
    assert caught.value.code == "missing"


@pytest.mark.slow
def test_a_name_is_replaced_by_the_same_one_in_every_file(tmp_path: Path) -> None:
    root = DEMO_LOGS / "pytorch_ddp"
    before = session_of(root)
    pack_sessions([before], str(tmp_path / "p.zip"), redact=True)
    (tmp_path / "open").mkdir()
    unpack_archive(str(tmp_path / "p.zip"), str(tmp_path / "open"))
    (after,) = (s for s in find_sessions(str(tmp_path / "open")).sessions if not s.is_telemetry)
    known: dict[str, str] = {}
    back: dict[str, str] = {}
    ranks = {trace.rank: trace for trace in map(read_trace, after.files)}
    for trace in map(read_trace, before.files):
        other = ranks[trace.rank]
        for one, two in ((trace.device_events, other.device_events), (trace.host_events, other.host_events)):
            for old, new in set(zip(one.name.tolist(), two.name.tolist(), strict=True)):
                a, b = trace.strings[old], other.strings[new]
                assert known.setdefault(a, b) == b and back.setdefault(b, a) == a
    assert len(ranks) == 4 and any(a != b for a, b in known.items())
    # The diagnosis in the pack speaks the same language.
    told = "".join(data.decode() for name, data in contents(tmp_path / "p.zip") if name.startswith(DIAGNOSES))
    diagnosis = diagnose_session(before).diagnosis
    for kernel in diagnosis.kernels[:10]:
        assert json.dumps(known[kernel.name], ensure_ascii=False)[1:-1] in told
