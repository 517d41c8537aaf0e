"""The established base class, as far as the test's operators need it."""

import math


class OpBenchmarkBase:
    leaves_no_row = False

    def __init__(self, name, config):
        self.name = name
        self.config = config

    def check_diff(self, out, ref, threshold=0.999999):
        dot = math.fsum(a * b for a, b in zip(out, ref, strict=True))
        norm = math.sqrt(math.fsum(a * a for a in out) * math.fsum(b * b for b in ref))
        return dot / norm >= threshold, 1 - dot / norm

    def size(self):
        return self.config["length"]

    def shape(self):
        return f"({self.config['length']} 1)"
