"""What TensorBoard imports at its start.

TensorBoard calls ``entry_point.load()`` without a guard, so an error in this module would
take TensorBoard down, and its import time is everybody's start-up time: it imports nothing
but TensorBoard's own base class.
"""

from __future__ import annotations

import logging

from tensorboard.plugins import base_plugin


class GpuDoctorLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Makes the plugin, or leaves it out with a line in the log."""

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin | None:
        """Return the plugin, or None when it cannot run here; never raises."""
        try:
            from tb_gpu_doctor.plugin.plugin import GpuDoctorPlugin

            return GpuDoctorPlugin(context)
        except Exception:
            logging.getLogger("tensorboard").exception("GPU Doctor could not be loaded; its tab is left out")
            return None
