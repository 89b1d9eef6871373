"""The plugin as TensorBoard sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorboard.plugins import base_plugin

from tb_gpu_doctor.plugin.analyses import Analyses
from tb_gpu_doctor.plugin.logdir import Scanner, roots_of
from tb_gpu_doctor.plugin.routes import Routes

PLUGIN_NAME = "gpu_doctor"
# TensorBoard asks every plugin in turn before it shows anything: a slow logdir may not hold it up.
ACTIVE_WAIT_S = 0.2

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class GpuDoctorPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The GPU Doctor tab. The scan of the logdir starts with the plugin, in the background."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: base_plugin.TBContext) -> None:
        super().__init__(context)
        logdir, roots = roots_of(context)
        self._scanner = Scanner(roots)
        self._routes = Routes(self._scanner, Analyses(), logdir)
        self._active = False
        self._scanner.start()

    def get_plugin_apps(self) -> dict[str, WsgiApp]:
        """Return the WSGI application of each route of docs/http_api.md."""
        return self._routes.apps()

    def is_active(self) -> bool:
        """Tell whether the logdir holds a profile; answers within `ACTIVE_WAIT_S`, and a yes is kept."""
        if not self._active:
            self._active = bool(self._scanner.snapshot(wait_s=ACTIVE_WAIT_S).sessions)
        return self._active

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Describe the tab: an ES module in an iframe of its own."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="GPU Doctor")

    def data_plugin_names(self) -> tuple[str, ...]:
        """Name the summaries that alone would switch the tab on: only our own."""
        return (PLUGIN_NAME,)
