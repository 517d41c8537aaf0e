"""Python source set anew, as a formatter sets it: ``tidy``."""

from orchestrator.author.emit.tidy.statements import WIDTH, tidy

__all__ = ["WIDTH", "tidy"]
