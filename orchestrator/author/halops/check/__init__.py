"""The checks of a config's values against what the checkout's code says."""

from orchestrator.author.halops.check.config import check_config

__all__ = ["check_config"]
