"""The base class that the probe runners derive from."""

from __future__ import annotations

from typing import Any


class OpBenchmarkBase:
    """An operator with its config."""

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.name = name
        self.config = config
