from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class FatalRunner(OpBenchmarkBase):
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
        x, y = self.setup()
        print("[FATAL] est_fatal: results differ after warm-up")
        return lambda: [2.0 * a + b for a, b in zip(x, y, strict=True)]
