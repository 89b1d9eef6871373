"""The tab in Firefox: every view comes up, draws, and leaves no error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tb_gpu_doctor.cli.main import main
from tests.e2e.firefox import Firefox, firefox
from tests.tensorboard_server import TensorBoard

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser_window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    executable = shutil.which("firefox-esr") or shutil.which("firefox")
    if executable is None:
        pytest.skip("no Firefox on the PATH (Debian and Ubuntu: apt-get install firefox-esr)")
    with firefox(executable, tmp_path_factory.mktemp("firefox")) as running:
        yield running


# The tab's own document, from the page around it.
TAB = "const tab = document.querySelector('iframe[src*=gpu_doctor]')?.contentDocument;"


def test_every_view_in_firefox(server: TensorBoard, browser_window: Firefox):
    window = browser_window
    window.command("WebDriver:Navigate", url=f"{server.url}#gpu_doctor&p.gpu_doctor.view=verdict")
    window.wait(f"{TAB} return !!tab?.querySelector('.verdict')")
    window.run(
        f"{TAB} tab.defaultView.failures = [];"
        "tab.defaultView.addEventListener('error', event => tab.defaultView.failures.push(event.message));"
    )
    for view, proof in {
        "timeline": ".tl-foot li",
        "gaps": "#gaps table, #gaps .state.good",
        "steps": "#steps canvas",
        "gpus": "#collectives table, #collectives .state",
        "kernels": "#kernels tbody th",
        "input": "#input table, #input .state",
        "telemetry": "#telemetry table, #telemetry .state",
    }.items():
        window.run(f"{TAB} tab.querySelector('#tab-{view}').click()")
        window.wait(f"{TAB} return !!tab.querySelector('.view[data-view={view}] :is({proof})')")
        assert window.run(f"return location.hash.includes('view={view}')") or window.wait(
            f"return location.hash.includes('view={view}')"
        )
        assert window.run(f"{TAB} return tab.querySelectorAll('[role=alert]').length") == 0
    window.run(f"{TAB} tab.querySelector('#tab-timeline').click()")
    colours = f"""{TAB}
        const canvas = tab.querySelector('.tl-plot canvas');
        if (!canvas || !canvas.width) return 0;
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size > 3;"""
    assert window.wait(colours)
    assert window.run(f"{TAB} return tab.defaultView.failures") == []


def test_a_link_brings_its_language_in_firefox(server: TensorBoard, browser_window: Firefox):
    window = browser_window
    window.command("WebDriver:Navigate", url="about:blank")
    window.command("WebDriver:Navigate", url=f"{server.url}#gpu_doctor&p.gpu_doctor.lang=es")
    window.wait(f"{TAB} return tab?.documentElement?.lang === 'es' && !!tab.querySelector('.verdict')")


def test_a_report_of_one_file_in_firefox(demo_logs: Path, tmp_path: Path, browser_window: Firefox):
    page = tmp_path / "report.html"
    assert main(["report", str(demo_logs), "--run", "slow_gpu", "-o", str(page), "--lang", "es"]) == 0
    window = browser_window
    window.command("WebDriver:Navigate", url=page.as_uri())
    window.wait("return !!document.querySelector('.verdict') && document.documentElement.lang === 'es'")
    window.run("document.querySelector('#tab-timeline').click()")
    assert window.wait(
        """const canvas = document.querySelector('.tl-plot canvas');
        if (!canvas || !canvas.width) return false;
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size > 3;"""
    )
    assert window.run("return performance.getEntriesByType('resource').length") == 0
