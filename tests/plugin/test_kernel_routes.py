"""The routes about kernels as a browser asks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.profiles import session_file, training, write
from tests.plugin.test_routes import Site, error_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("logs")
    write(training(2, kernel="=cmd|' /C calc'!A0"), session_file(folder, run="a", session="s"))
    return Site(folder)


def test_each_route_answers(site: Site) -> None:
    table = site.session("kernels").json
    assert table["by"] == "gpu" and len(table["devices"]) == 2 and table["rows"]
    assert site.session("kernels?by=kernel").json["by"] == "kernel"
    assert site.session("kernels/tree").json["nodes"]
    assert site.session("kernels/tree?device=1").json["total_ms"] < site.session("kernels/tree").json["total_ms"]
    assert site.session("kernels/tree?device=").json == site.session("kernels/tree").json
    assert set(site.session("kernels/filling").json) >= {"devices", "steps", "sm_efficiency"}
    assert set(site.session("kernels/fusion").json) == {"candidates", "saving_ms", "truncated"}
    assert site.session("kernels/staircase?kernel=0").json["kernel"] == 0


def test_csv_is_a_file_to_save(site: Site) -> None:
    answer = site.session("kernels.csv?by=kernel")
    assert (
        answer.mimetype == "text/csv" and answer.headers["Content-Disposition"] == 'attachment; filename="kernels.csv"'
    )
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    lines = answer.data.decode("utf-8-sig").split("\r\n")
    assert lines[0].startswith("id,gpus,name,op,calls")
    assert ",'=cmd" in lines[1] or ",\"'=cmd" in lines[1]


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        ("kernels?by=x", 400, "bad_parameter"),
        ("kernels.csv?by=", 400, "bad_parameter"),
        ("kernels/tree?device=2", 400, "bad_parameter"),
        ("kernels/tree?device=x", 400, "bad_parameter"),
        ("kernels/staircase", 400, "bad_parameter"),
        ("kernels/staircase?kernel=-1", 400, "bad_parameter"),
        ("kernels/staircase?kernel=99999", 404, "unknown_kernel"),
    ],
)
@pytest.mark.parametrize("lang", ["en", "es"])
def test_what_cannot_be_answered(site: Site, address: str, status: int, code: str, lang: str) -> None:
    mark = "&" if "?" in address else "?"
    answer = site.session(f"{address}{mark}lang={lang}")
    assert answer.status_code == status and error_of(answer)["code"] == code


def test_no_other_profile_is_read(site: Site, tmp_path: Path) -> None:
    for route in ("kernels", "kernels/tree", "kernels/filling", "kernels/fusion", "kernels.csv"):
        answer = site.session(route, run="..", session=str(tmp_path))
        assert answer.status_code == 404
