"""Hash a buffer: the quickest operator that measures something."""

from __future__ import annotations

from typing import Any

from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Runner(OpBenchmarkBase):
    """One case."""

    def run(self, records: Any) -> None:
        """Measure it."""
        records.measured(self.config["size"], self.config["samples"])
