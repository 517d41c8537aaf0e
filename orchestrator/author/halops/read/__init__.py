"""The reader: a checkout's facts by its syntax trees, nothing imported and nothing run."""

from orchestrator.author.halops.read.checkout import benchmark_folder, read_checkout

__all__ = ["benchmark_folder", "read_checkout"]
