"""What a case is: the operator and the parameters really used, defaults of the runner included.

A runner reads its configuration with ``config.get(key, default)``. ``CaseConfig`` is a dict that
remembers the defaults handed out, so that a default changed in the runner makes a different case.
Parameters are frozen once the runner is constructed: a case that later fails keeps its identity.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

# How long, where and on which board is measured does not change what is measured.
NOT_PARAMETERS = frozenset({"samples", "device_id", "device_name"})


class CaseConfig(dict[str, Any]):
    """The configuration of one case; records which keys are read and which defaults are used.

    What a runner later changes in it is its own affair: parameters are the values it was given.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._given = dict(values)
        self._read: set[str] = set()
        self._defaults: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """``dict.get``; a default that is used becomes a parameter of the case."""
        self._note(key, default)
        return super().get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """``dict.setdefault``; noted like ``get``."""
        self._note(key, default)
        return super().setdefault(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """``dict.pop``; noted like ``get``."""
        self._note(key, *default)
        return super().pop(key, *default)

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    # Whoever walks over the whole configuration (``**config`` too) reads all of it.

    def __iter__(self) -> Iterator[str]:
        self._read.update(self._given)
        return super().__iter__()

    def keys(self) -> Any:
        """``dict.keys``; counts as reading all."""
        self._read.update(self._given)
        return super().keys()

    def values(self) -> Any:
        """``dict.values``; counts as reading all."""
        self._read.update(self._given)
        return super().values()

    def items(self) -> Any:
        """``dict.items``; counts as reading all."""
        self._read.update(self._given)
        return super().items()

    def copy(self) -> dict[str, Any]:
        """``dict.copy``; counts as reading all."""
        self._read.update(self._given)
        return super().copy()

    def _note(self, key: str, *default: Any) -> None:
        self._read.add(key)
        if default and key not in self._given:
            self._defaults.setdefault(key, default[0])

    def parameters(self) -> dict[str, Any]:
        """The configuration's own values plus the defaults used so far, by name."""
        merged = {**self._defaults, **self._given}
        return {key: _plain(merged[key]) for key in sorted(merged) if key not in NOT_PARAMETERS}

    def unread(self) -> list[str]:
        """Parameters that nobody has read: most likely misspelt."""
        return sorted(set(self._given) - self._read - NOT_PARAMETERS)


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
