"""Measure some cases, then go on talking, with processes around that are hard to get rid of.

It ends after `steps`, or when the file `until` is there.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Runner(OpBenchmarkBase):
    """A case for each size, and then many steps."""

    def run(self, records: Any) -> None:
        """Start what is hard to get rid of, measure, linger."""
        if self.config["nap"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            nap = str(self.config["nap"])
            subprocess.Popen(["sleep", nap])
            subprocess.Popen(["sleep", nap], start_new_session=True)
            subprocess.run(["setsid", "--fork", "sleep", nap], check=True)  # a daemon
            subprocess.run(
                ["env", "--ignore-environment", "setsid", "--fork", "sleep", nap], check=True
            )
        for size in self.config["sizes"]:
            records.measured(size, self.config["samples"])
            print(f"measured {size}")
        for step in range(self.config["steps"]):
            print(f"step {step}")
            if self.config["until"] and Path(self.config["until"]).exists():
                return
            time.sleep(self.config["pause"])
