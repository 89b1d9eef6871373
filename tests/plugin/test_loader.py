from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest
from tensorboard.plugins import base_plugin

from tb_gpu_doctor.plugin import plugin as plugin_module
from tb_gpu_doctor.plugin.loader import GpuDoctorLoader
from tb_gpu_doctor.plugin.logdir import Scanner
from tb_gpu_doctor.plugin.plugin import GpuDoctorPlugin
from tb_gpu_doctor.traces.sessions import SessionScan
from tests.plugin.test_logdir import add_session


def context_of(logdir: str, spec: str = "") -> base_plugin.TBContext:
    return base_plugin.TBContext(logdir=logdir or spec, flags=Namespace(logdir=logdir, logdir_spec=spec))


def run_python(code: str, *arguments: str) -> dict:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_loader_imports_next_to_nothing():
    code = (
        "import json, sys, time\n"
        "from tensorboard.plugins import base_plugin\n"
        "before = set(sys.modules)\n"
        "began = time.process_time()\n"
        "import tb_gpu_doctor.plugin.loader\n"
        "took = time.process_time() - began\n"
        "print(json.dumps({'took': took, 'modules': sorted(set(sys.modules) - before)}))\n"
    )
    answer = run_python(code)
    ours = [name for name in answer["modules"] if name.startswith("tb_gpu_doctor")]
    assert ours == ["tb_gpu_doctor", "tb_gpu_doctor.plugin", "tb_gpu_doctor.plugin.loader"]
    # The standard library's logging may come along; nothing that is installed may.
    assert len(answer["modules"]) < 30
    # Of a busy machine the quickest of three tells most.
    assert min(answer["took"], *(run_python(code)["took"] for _ in range(2))) < 0.05


@pytest.mark.slow
def test_a_used_plugin_imports_neither_tensorflow_nor_xprof(demo_logs: Path):
    answer = run_python(
        "import json, sys, time\n"
        "from argparse import Namespace\n"
        "from tensorboard.plugins import base_plugin\n"
        "from werkzeug.test import Client\n"
        "from tb_gpu_doctor.plugin.loader import GpuDoctorLoader\n"
        "context = base_plugin.TBContext(logdir=sys.argv[1], flags=Namespace(logdir=sys.argv[1], logdir_spec=''))\n"
        "plugin = GpuDoctorLoader().load(context)\n"
        "assert plugin.is_active()\n"
        "apps = plugin.get_plugin_apps()\n"
        "first = Client(apps['/sessions']).get('/sessions').json['sessions'][0]\n"
        "name = {'run': first['run'], 'session': first['session']}\n"
        "while (status := Client(apps['/diagnosis']).get('/diagnosis', query_string=name).status_code) == 202:\n"
        "    time.sleep(0.05)\n"
        "unwanted = [name for name in ('tensorflow', 'xprof', 'jax', 'torch') if name in sys.modules]\n"
        "print(json.dumps({'status': status, 'unwanted': unwanted}))\n",
        str(demo_logs),
    )
    assert answer == {"status": 200, "unwanted": []}


def test_the_loader_never_raises(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    def fail(context: object) -> None:
        raise RuntimeError("broken installation")

    monkeypatch.setattr(plugin_module, "GpuDoctorPlugin", fail)
    assert GpuDoctorLoader().load(context_of("/logs")) is None
    assert "broken installation" in caplog.text


@pytest.mark.parametrize("context", [base_plugin.TBContext(), context_of(""), context_of("", "a:/nowhere,b:/nothing")])
def test_a_context_without_a_usable_logdir_is_inactive(context: base_plugin.TBContext):
    plugin = GpuDoctorLoader().load(context)
    assert plugin is not None and not plugin.is_active()


def test_what_tensorboard_is_told():
    plugin = GpuDoctorPlugin(context_of(""))
    assert plugin.plugin_name == "gpu_doctor"
    assert set(plugin.data_plugin_names()) == {"gpu_doctor"}
    metadata = plugin.frontend_metadata()
    assert (metadata.es_module_path, metadata.tab_name) == ("/index.js", "GPU Doctor")
    assert metadata.es_module_path in plugin.get_plugin_apps()
    assert all(path.startswith("/") for path in plugin.get_plugin_apps())


def test_the_scan_starts_with_the_plugin_and_a_hit_is_kept(tmp_path: Path):
    file = add_session(tmp_path, "a", "s")
    plugin = GpuDoctorPlugin(context_of(str(tmp_path)))
    assert plugin.is_active()
    file.unlink()
    assert plugin.is_active()


def test_a_profile_recorded_later_switches_the_tab_on(tmp_path: Path):
    plugin = GpuDoctorPlugin(context_of(str(tmp_path)))
    plugin._scanner._min_interval_s = 0.0
    assert not plugin.is_active()
    add_session(tmp_path, "a", "s")
    deadline = time.monotonic() + 5
    while not plugin.is_active() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert plugin.is_active()


def test_is_active_is_bounded_in_time_on_a_slow_logdir(monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()

    def find(path: str) -> SessionScan:
        release.wait(30)
        return SessionScan(path, (), (), ())

    monkeypatch.setattr(plugin_module, "Scanner", lambda roots: Scanner(roots, find=find))
    plugin = GpuDoctorPlugin(context_of("/logs"))
    began = time.monotonic()
    assert not plugin.is_active()
    assert time.monotonic() - began < 0.5
    release.set()
