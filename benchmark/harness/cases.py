"""What a case is: the operator and the parameters really used, defaults of the runner included.

A runner reads its configuration with ``config.get(key, default)``. ``CaseConfig`` is a dict that
remembers the defaults handed out, so that a default changed in the runner makes a different case.
Parameters are frozen once the runner is constructed: a case that later fails keeps its identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

# How long, where and on which board is measured does not change what is measured.
NOT_PARAMETERS = frozenset({"samples", "device_id", "device_name"})


class CaseConfig(dict[str, Any]):
    """The configuration of one case; records which keys are read and which defaults are used."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._read: set[str] = set()
        self._defaults: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """``dict.get``; a default that is used becomes a parameter of the case."""
        self._read.add(key)
        if key in self.keys():
            return super().__getitem__(key)
        self._defaults[key] = default
        return default

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        # Whoever walks over the whole configuration (``**config`` too) reads all of it.
        self._read.update(super().keys())
        return super().__iter__()

    def parameters(self) -> dict[str, Any]:
        """The configuration's own values plus the defaults used so far, by name."""
        merged = {
            **self._defaults,
            **{key: super(CaseConfig, self).__getitem__(key) for key in self.keys()},
        }
        return {key: _plain(merged[key]) for key in sorted(merged) if key not in NOT_PARAMETERS}

    def unread(self) -> list[str]:
        """Parameters that nobody has read: most likely misspelt."""
        return sorted(set(self.keys()) - self._read - NOT_PARAMETERS)


def _plain(value: Any) -> Any:
    """``value`` as JSON knows it (a default may be a torch dtype, say)."""
    return json.loads(json.dumps(value, default=str))


def case_id(op: str, parameters: dict[str, Any]) -> str:
    """Sixteen hex digits that name the case ``op`` with ``parameters``, the same everywhere."""
    kept = {key: value for key, value in parameters.items() if key not in NOT_PARAMETERS}
    text = json.dumps(
        {"op": op, "parameters": kept}, sort_keys=True, separators=(",", ":"), default=str
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
