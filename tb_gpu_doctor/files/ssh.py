"""SFTP with the servers' keys that this machine knows: fsspec's own takes any key."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any


@functools.cache
def with_known_hosts(kind: Any) -> Any:
    """A file system like fsspec's for SFTP that refuses a server whose key is not the one in ``known_hosts``.

    A server that is not in there is accepted, unless fsspec's configuration says otherwise (``host_key_policy``).

    Raises:
        ImportError: paramiko is missing.
    """
    paramiko: Any = importlib.import_module("paramiko")

    class KnownHosts(kind):  # type: ignore[misc]
        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            with contextlib.suppress(OSError, paramiko.SSHException):
                self.client.load_system_host_keys()
            self.client.set_missing_host_key_policy(getattr(self, "host_key_policy", None) or paramiko.AutoAddPolicy())
            self.client.connect(self.host, **self.ssh_kwargs)
            self.ftp = self.client.open_sftp()

    return KnownHosts
