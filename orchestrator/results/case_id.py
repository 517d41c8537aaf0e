"""The identity of a case: an operator and the parameters really used.

The harness computes the same on the target (it cannot import this package); a test holds both
equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

NOT_PARAMETERS = frozenset({"samples", "device_id", "device_name"})


def case_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config is a parameter of the operator: not how, nor where, it is measured."""
    return {key: value for key, value in config.items() if key not in NOT_PARAMETERS}


def case_id(op: str, config: Mapping[str, Any]) -> str:
    """16 hex digits: the start of the SHA-256 over ``{"op": …, "parameters": …}``.

    Written as JSON with sorted keys, no blanks and ASCII only (``\\u`` escapes).
    """
    text = json.dumps(
        {"op": op, "parameters": case_parameters(config)},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
