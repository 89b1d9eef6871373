from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tb_gpu_doctor.plugin import html_report
from tb_gpu_doctor.plugin import routes as routes_module
from tb_gpu_doctor.plugin.responses import StaticFile, to_json
from tests.plugin.test_routes import Site, error_of


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_bundle_has_a_strong_tag_and_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bundle = tmp_path / "index.js"
    bundle.write_text("export function render() {}\n" * 100)
    monkeypatch.setattr(routes_module, "STATIC_FOLDER", tmp_path)
    site = Site(tmp_path)
    plain = site.get("index.js")
    assert plain.status_code == 200 and plain.data == bundle.read_bytes()
    assert plain.mimetype == "text/javascript" and plain.headers["X-Content-Type-Options"] == "nosniff"
    tag = plain.headers["ETag"]
    assert tag.startswith('"') and not tag.startswith("W/")
    packed = site.get("index.js", headers={"Accept-Encoding": "gzip"})
    assert gzip.decompress(packed.data) == plain.data and packed.headers["ETag"] != tag
    for known in (tag, packed.headers["ETag"], f'"other", {tag}', "*"):
        again = site.get("index.js", headers={"If-None-Match": known, "Accept-Encoding": "gzip"})
        assert (again.status_code, again.data) == (304, b"")
        assert "must-revalidate" in again.headers["Cache-Control"]
    bundle.write_text("export function render() { return 1; }\n")
    rebuilt = site.get("index.js", headers={"If-None-Match": tag})
    assert rebuilt.status_code == 200 and rebuilt.data == bundle.read_bytes() and rebuilt.headers["ETag"] != tag


def test_a_package_without_its_bundle_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(routes_module, "STATIC_FOLDER", tmp_path / "nothing")
    answer = Site(tmp_path).get("index.js")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "no_bundle")
    assert str(tmp_path) not in answer.text


def test_static_files_are_a_fixed_list(site: Site):
    served = {path for path in site.apps if path.endswith(".js")}
    built = {f"/{path.name}" for path in routes_module.STATIC_FOLDER.glob("*.js")}
    assert "/index.js" in served and "/TimelineView.js" in served and "/report.js" not in served
    assert served == built - {"/report.js"}
    for path in served:
        handlers = [cell.cell_contents for cell in site.apps[path].__closure__]
        assert any(isinstance(getattr(handler, "__self__", None), StaticFile) for handler in handlers)


def test_a_page_of_another_build_gets_no_module_of_this_one(site: Site, tmp_path: Path):
    whole = (routes_module.STATIC_FOLDER / "index.js").read_text()
    [version] = set(re.findall(r"\?v=([0-9a-f]{16})", whole))
    assert site.get(f"StepsView.js?v={version}").status_code == 200
    assert site.get("StepsView.js").status_code == 200
    for other in ("0" * 16, "", version[:5], f"{version}&x", "?v="):
        answer = site.get("StepsView.js", query_string={"v": other})
        assert (answer.status_code, error_of(answer)["code"]) == (404, "no_bundle")


def test_a_report_of_one_file_is_smaller_than_what_is_kept_free_for_it():
    assert (routes_module.STATIC_FOLDER / "report.js").stat().st_size < html_report.MODULE_BYTES


@pytest.mark.parametrize("lang", ["en", "es"])
def test_documentation_pages_come_as_safe_html(site: Site, lang: str):
    answer = site.get(f"doc?page=findings/input_bound&lang={lang}")
    assert answer.status_code == 200
    assert "<h1>" in answer.json["html"] and "<script" not in answer.json["html"]


@pytest.mark.parametrize(
    "page", ["", "findings/nothing", "../README", "findings/../../README", "/etc/passwd", "http_api"]
)
def test_no_other_page_is_served(site: Site, page: str):
    answer = site.get("doc", query_string={"page": page})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_page")


def test_markup_in_a_page_is_not_passed_on(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "tb_gpu_doctor.docs_pages.read_page", lambda page, lang: "# T\n<script>x</script><img src=x onerror=y>"
    )
    html = site.get("doc?page=findings/x").json["html"]
    assert "<script" not in html and "onerror" not in html


def test_json_never_holds_nan():
    value = {"a": [1.5, float("nan"), (float("inf"), {"b": -float("inf")})], "c": None}
    assert json.loads(to_json(value)) == {"a": [1.5, None, [None, {"b": None}]], "c": None}
