"""The benchmarks' tests run under the settings of the package's."""

from tests.conftest import chromium, demo_logs, shared_traces

__all__ = ["chromium", "demo_logs", "shared_traces"]
