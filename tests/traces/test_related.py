from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_gpu_doctor.errors import ProfileError
from tb_gpu_doctor.phrase import Phrase
from tb_gpu_doctor.traces.related import MAX_APART_S, Offers, full_name, join_sessions, named_sessions
from tb_gpu_doctor.traces.sessions import ProfileFile, Session, find_sessions
from tests.traces.kineto_files import kineto


def session(name: str, *hosts: str, run: str = "", form: str = "xplane", problem: Phrase | None = None) -> Session:
    files = tuple(ProfileFile(f"/{run}/{name}/{host}", host, form, 10, 5.0, problem) for host in hosts)
    return Session(run, name, f"/{run}/{name}", files, problem, 5.0, 10 * len(hosts))


def at(second: int, *hosts: str, run: str = "", **more) -> Session:
    return session(f"2026_01_01_00_{second // 60:02d}_{second % 60:02d}", *hosts, run=run, **more)


def offered(of: Session, *others: Session) -> list[str] | None:
    offer = Offers([of, *others]).of(of)
    if offer is None:
        return None
    assert of in offer.members and len(offer.members) == len(offer.names) == offer.others + 1
    return [file.host for member in offer.members for file in member.files]


def test_workers_that_named_their_own_folders_seconds_apart():
    workers = [at(second, f"worker{second}") for second in (0, 2, 10, 4)]
    for worker in workers:
        offer = Offers(workers).of(worker)
        assert offer is not None
        assert [member.files[0].host for member in offer.members] == ["worker0", "worker2", "worker4", "worker10"]
        assert offer.apart_s == 10
        assert offer.name == ",".join(f"2026_01_01_00_00_{second:02d}" for second in (0, 2, 4, 10))


def test_sibling_runs_and_none_further_apart():
    here = at(0, "a", run="job/worker0/train")
    assert offered(here, at(3, "b", run="job/worker1/train")) == ["a", "b"]
    assert offered(here, at(3, "b", run="job/worker0/eval")) == ["a", "b"]
    for other in ("job/worker1/eval", "job/worker1", "job", "", "other/worker1/train/x"):
        assert offered(here, at(3, "b", run=other)) is None, other
    assert offered(at(0, "a"), at(3, "b", run="train")) is None, "a run inside the other is no sibling"
    offer = Offers([here, at(3, "b", run="job/worker1/train")]).of(here)
    assert offer is not None
    assert offer.names == ("2026_01_01_00_00_00", "job/worker1/train/2026_01_01_00_00_03")
    same_second = [at(0, "a", run="w0"), at(0, "b", run="w1")]
    offer = Offers(same_second).of(same_second[0])
    assert offer is not None and offer.name == "2026_01_01_00_00_00,w1/2026_01_01_00_00_00"


def test_two_captures_of_one_host_are_no_job():
    assert offered(at(0, "a"), at(5, "a")) is None
    assert offered(at(0, "a", "b"), at(5, "b", "c")) is None
    assert offered(at(0, "a", run="x"), at(0, "a", run="y")) is None


def test_far_apart_in_time():
    assert offered(at(0, "a"), at(int(MAX_APART_S), "b")) == ["a", "b"]
    assert offered(at(0, "a"), at(int(MAX_APART_S) + 1, "b")) is None


def test_each_capture_of_a_host_goes_with_the_nearest_of_another():
    first, second = at(0, "a"), at(10, "a")
    early, late = at(2, "b"), at(11, "b")
    everybody = (first, second, early, late)
    for one, other in ((first, early), (second, late)):
        for this in (one, other):
            offer = Offers(everybody).of(this)
            assert offer is not None and set(offer.members) == {one, other}
    assert offered(at(5, "b"), first, second) is None, "as near to one as to the other: cannot be told"
    # the second capture of b came alone
    assert offered(late, first, at(10, "c"), early) == ["b", "c"]


def test_a_copy_of_the_logdir_takes_nothing_away():
    originals = [at(second, f"w{second}", run="job") for second in (0, 3)]
    copies = [at(second, f"w{second}", run="copy") for second in (0, 3)]
    for pair in (originals, copies):
        for this in pair:
            offer = Offers([*originals, *copies]).of(this)
            assert offer is not None and list(offer.members) == pair


def test_what_is_never_offered():
    here = at(0, "a")
    assert offered(here) is None
    assert offered(here, session("named_by_hand", "b")) is None
    assert offered(session("named_by_hand", "a"), at(0, "b")) is None
    assert offered(here, at(1, "b", problem=Phrase("notes.riegeli"))) is None
    assert offered(here, at(1, "b", form="kineto")) is None
    assert offered(here, session("2026_01_01_00_00_01,x", "b")) is None, "a name that would be taken for two"
    assert offered(at(0, "a", run="x,y"), at(1, "b", run="x,y")) is None
    assert offered(session("2026_99_99_99_99_99", "a"), session("9999999_99_99_99_99_99", "b")) is None


names = st.text(alphabet="ab,/ \n\x00é🙂.", max_size=6)


@given(st.lists(st.tuples(names, st.integers(0, 40), st.sampled_from("abcd")), max_size=12))
def test_whatever_the_names_an_offer_finds_its_own_members(entries):
    found = list({(run, second): at(second, host, run=run) for run, second, host in entries}.values())
    offers = Offers(found)
    for one in found:
        offer = offers.of(one)
        if offer is None:
            continue
        hosts = [file.host for member in offer.members for file in member.files]
        assert len(set(hosts)) == len(hosts) and one in offer.members

        def find(name: str, run: str = one.run) -> Session | None:
            in_run = [each for each in found if each.run == run and each.session == name]
            return next(iter(in_run or [each for each in found if full_name(each) == name]), None)

        assert named_sessions(offer.name, find) == list(offer.members)
        assert len(join_sessions(offer.members, offer.name).files) == len(hosts)


def test_joined_files_come_in_the_order_of_their_hosts():
    joined = join_sessions([at(0, "w10", run="x"), at(3, "w2", run="y")], "both")
    assert [file.host for file in joined.files] == ["w2", "w10"]
    assert (joined.run, joined.session, joined.size_bytes, joined.problem) == ("x", "both", 20, None)
    alone = at(0, "a")
    assert join_sessions([alone, alone], "twice the same") is alone


def test_a_session_that_cannot_be_read_is_one_bad_file_of_the_job():
    broken = at(1, "b", problem=Phrase("notes.riegeli"))
    joined = join_sessions([broken, at(0, "a")], "n")
    assert joined.problem is None and [file.problem is None for file in joined.files] == [True, False]


@pytest.mark.parametrize(
    ("others", "code", "said"),
    [
        ([at(9, "b", "a"), at(20, "a", "c")], "hosts_twice", {"hosts": ["a"]}),
        ([at(9, "b", form="kineto")], "mixed_formats", {}),
    ],
)
def test_what_can_be_no_job_says_why(others: list[Session], code: str, said: dict):
    with pytest.raises(ProfileError) as raised:
        join_sessions([at(0, "a"), *others], "n")
    assert (raised.value.code, raised.value.params) == (code, said)


def test_ranks_of_one_node_in_folders_of_their_own(tmp_path: Path):
    for rank in range(2):
        folder = tmp_path / f"rank{rank}" / "plugins" / "profile" / "2026_01_01_00_00_59"
        folder.mkdir(parents=True)
        (folder / "node-a.xplane.pb").write_bytes(b"x")
    joined = join_sessions(find_sessions(str(tmp_path)).sessions, "both")
    assert [file.host for file in joined.files] == ["node-a (rank0)", "node-a (rank1)"]


def test_ranks_in_folders_of_their_own_are_offered_by_what_their_files_say(tmp_path: Path) -> None:
    """Nothing but the files tells when they were recorded: no name does."""
    for rank, start_s in ((0, 0.0), (1, 1.0), (2, 200.0)):
        folder = tmp_path / f"rank_{rank}"
        folder.mkdir()
        (folder / "trace.json").write_text(json.dumps(kineto(rank, 2, 100 + rank, start_s=start_s)))
    sessions = {one.run: one for one in find_sessions(str(tmp_path)).sessions}
    offer = Offers(list(sessions.values())).of(sessions["rank_1"])
    assert offer is not None and [member.run for member in offer.members] == ["rank_0", "rank_1"]
    assert offer.apart_s == 1.0 and offer.name == "rank_0/rank_0,rank_1"
    assert [file.host for file in join_sessions(offer.members, "job").files] == ["trace (rank_0)", "trace (rank_1)"]
    assert Offers(list(sessions.values())).of(sessions["rank_2"]) is None


def test_names_that_ask_for_several():
    known = {name: session(name, name) for name in ("a", "b", "a,b", "c")}
    assert named_sessions("a,b", known.get) == [known["a,b"]], "a name is taken as it stands first"
    assert named_sessions("b, c,,b", known.get) == [known["b"], known["c"]]
    for unknown in ("b,x", ",", "", "b,../c", ",".join(map(str, range(5000)))):
        assert named_sessions(unknown, known.get) is None


def test_workers_folders_on_disk(tmp_path: Path):
    for second, host in ((0, "n0"), (3, "n1")):
        folder = tmp_path / "job" / "plugins" / "profile" / f"2026_01_01_00_00_0{second}"
        folder.mkdir(parents=True)
        (folder / f"{host}.xplane.pb").write_bytes(b"x")
    for rank in range(2):
        folder = tmp_path / "torch" / f"rank{rank}"
        folder.mkdir(parents=True)
        (folder / f"node_{rank}.{1_772_000_000_000 + rank * 1000}.pt.trace.json").write_bytes(b"{}")
    sessions = find_sessions(str(tmp_path)).sessions
    offers = Offers(sessions)
    found = {full_name(one): offers.of(one) for one in sessions}
    assert len(found) == 4 and all(offer is not None and offer.others == 1 for offer in found.values())
