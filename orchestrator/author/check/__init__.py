"""Lint operator benchmarks: configs, runners and the whitelist, read and never run.

``check_tree`` is the door. ``engine`` reads a tree and asks the rules, ``rules`` holds them,
``benchmark`` is what a rule sees, ``finding`` what it says, ``suppress`` what is silenced in a
runner, ``fix`` what ``--fix`` changes.
"""

from orchestrator.author.check.engine import check_tree
from orchestrator.author.check.finding import At, Edit, Finding, Severity

__all__ = ["At", "Edit", "Finding", "Severity", "check_tree"]
