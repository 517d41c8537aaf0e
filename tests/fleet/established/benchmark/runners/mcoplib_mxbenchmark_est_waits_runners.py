import time
from pathlib import Path

from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class WaitsRunner(OpBenchmarkBase):
    def setup(self):
        length = self.config["length"]
        x = [float(i % 17) for i in range(length)]
        y = [float(i % 5) for i in range(length)]
        return x, y

    def run_verification(self, dev_id):
        x, y = self.setup()
        out = [2.0 * a + b for a, b in zip(x, y, strict=True)]
        return self.check_diff(out, [a + a + b for a, b in zip(x, y, strict=True)])

    def make_launcher(self):
        while not Path(self.config["gate"]).exists():
            print("waiting at the gate")
            time.sleep(0.2)
        x, y = self.setup()
        return lambda: [2.0 * a + b for a, b in zip(x, y, strict=True)]
