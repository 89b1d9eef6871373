"""Answers on their way hold no more than there is."""

from __future__ import annotations

from tb_gpu_doctor.plugin.answer_memory import AnswerMemory


def test_all_answers_stay_within_the_bound() -> None:
    memory = AnswerMemory(100)
    given = [memory.lend(20, f"viewer {number}") for number in range(8)]
    assert sum(each is not None for each in given) == 5 and memory.lent_bytes == 100
    for give_back in given:
        if give_back is not None:
            give_back()
            give_back()
    assert memory.lent_bytes == 0 and memory._lent == {}


def test_one_viewer_does_not_take_it_all() -> None:
    memory = AnswerMemory(100)
    slow = [memory.lend(10, "slow") for _ in range(9)]
    assert sum(each is not None for each in slow) == 2
    assert memory.lend(60, "other") is not None, "one that is larger than a share goes out alone"
    assert memory.lend(1, "other") is None and memory.lend(10, "third") is not None
