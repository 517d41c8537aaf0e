"""The name under which runners import their base class."""

from harness.base import OpBenchmarkBase

__all__ = ["OpBenchmarkBase"]
