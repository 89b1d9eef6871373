"""Which process of a job this is: by each launcher's variables, and never by those of a process alone."""

from __future__ import annotations

import json

import pytest

from tb_gpu_doctor.monitor.rank import rank_of_process


def cluster(kind: str, index: int) -> str:
    return json.dumps({"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, {"number": 3, "of": 8, "local": 1}),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, {"number": 1, "of": 2}),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1"}, {"number": 5, "of": 6, "local": 1}),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        ({"TF_CONFIG": cluster("chief", 0)}, {"number": 0, "of": 3}),
        ({"TF_CONFIG": cluster("worker", 1)}, {"number": 2, "of": 3}),
        ({"TF_CONFIG": cluster("evaluator", 0)}, None),
        ({"TF_CONFIG": "{"}, None),
        ({"RANK": "8", "WORLD_SIZE": "8"}, None),
        ({"RANK": "one", "WORLD_SIZE": "8"}, None),
        ({}, None),
    ],
)
def test_the_launchers_word(environment: dict[str, str], rank: dict[str, int] | None) -> None:
    assert rank_of_process(environment) == rank
