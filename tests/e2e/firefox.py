"""A headless Firefox over its own remote protocol (Marionette): enough to open a page and run scripts in it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 90.0
# No traffic of the browser's own, and a port that it chooses itself.
PREFERENCES = {
    "marionette.port": 0,
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.dns.disableIPv6": True,
    "services.settings.server": "data:,",
    "toolkit.telemetry.enabled": False,
    "intl.accept_languages": "en-US",
}


class Firefox:
    """One browser with one tab."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._file = self._socket.makefile("rb")
        self._read()  # its greeting
        self._count = 0
        self.command("WebDriver:NewSession", capabilities={})

    def command(self, name: str, **params: Any) -> Any:
        """Send a command; returns its result.

        Raises:
            AssertionError: Firefox refused it.
        """
        self._count += 1
        text = json.dumps([0, self._count, name, params]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self._read()
        assert error is None, f"{name}: {error['message']}"
        return result

    def _read(self) -> Any:
        digits = b""
        while (byte := self._file.read(1)) != b":":
            assert byte, "Firefox ended"
            digits += byte
        return json.loads(self._file.read(int(digits)))

    def run(self, script: str) -> Any:
        """Run a script in the page; ``return`` gives its value."""
        return self.command("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def wait(self, script: str, timeout_s: float = 60.0) -> Any:
        """Run a script until it returns something true."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, script
            time.sleep(0.1)
        return value


@contextmanager
def firefox(executable: str, profile: Path) -> Iterator[Firefox]:
    """Start a headless Firefox with a fresh profile in the empty folder ``profile``; ends it on exit."""
    lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});" for key, value in PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines), encoding="utf-8")
    command = [executable, "--headless", "--no-remote", "--marionette", "--profile", str(profile)]
    environment = os.environ | {"MOZ_HEADLESS_WIDTH": "1280", "MOZ_HEADLESS_HEIGHT": "1000", "HOME": str(profile)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        browser = Firefox(_port(profile / "MarionetteActivePort", process))
        yield browser
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if file.is_file() and (text := file.read_text().strip()):
            return int(text)
        time.sleep(0.1)
    raise AssertionError("Firefox did not start")
