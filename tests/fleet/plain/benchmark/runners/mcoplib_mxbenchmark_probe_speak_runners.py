"""Say what the job finds around it, as JSON so that nothing is lost or added on the way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class Runner(OpBenchmarkBase):
    """One case."""

    def run(self, records: Any) -> None:
        """Print, one `said NAME VALUE` a line, then measure."""
        for name in self.config["show"]:
            print(f"said {name} {json.dumps(os.environ.get(name))}")
        print(f"said cwd {json.dumps(str(Path.cwd()))}")
        print(f"said uid {os.geteuid()}")
        print(f"said samples {self.config['samples']}")
        records.measured(self.config["size"], self.config["samples"])
