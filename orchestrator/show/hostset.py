"""Names of targets as people write sets of them: ``c500-[01-40],c550-07``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from orchestrator.show.text import safe

# Other names, which no inventory has, could mean something to whoever folds ranges.
_ORDINARY = re.compile(r"[A-Za-z0-9_.+-]+(?::[A-Za-z0-9_.+-]+)?")


def host_set(names: Iterable[str]) -> str:
    """``names`` folded into ranges, as one line that is safe to show; remembered."""
    return _folded(frozenset(names))


@lru_cache(maxsize=256)
def _folded(names: frozenset[str]) -> str:
    from orchestrator.inventory.nodeset import fold

    ordinary = {name for name in names if _ORDINARY.fullmatch(name)}
    parts = fold(ordinary) if len(ordinary) > 1 else sorted(ordinary)
    odd = sorted(safe(name).replace("\t", " ") for name in names - ordinary)
    return ",".join([*parts, *odd])
