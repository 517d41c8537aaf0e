"""``--case KEY=VALUE`` against a config, before anything starts: a typo costs no round of hosts.

The front door filters by the same rules; a test holds both equal.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import UsageError

# Where and how long is measured: no parameters of an operator.
_NOT_PARAMETERS = frozenset({"samples", "device_id", "device_name"})
_NEVER_SWEPT = _NOT_PARAMETERS | {"batch_size_list"}


def check_cases(config: Mapping[str, Any], filters: Sequence[str], where: str) -> None:
    """Raise ``UsageError`` unless some case of ``config`` passes all ``KEY=VALUE`` filters.

    A value is compared as JSON, then as text; a key that is named several times lets any of its
    values through. ``where`` names the config.
    """
    wanted: dict[str, list[str]] = {}
    for text in filters:
        key, _, value = text.partition("=")
        wanted.setdefault(key.strip(), []).append(value.strip())
    names = [key for key in config if key not in _NOT_PARAMETERS]
    for key, texts in wanted.items():
        if key not in names:
            near = difflib.get_close_matches(key, names, n=3)
            raise UsageError(
                f"--case {key}: the config has no such parameter",
                where=where,
                hint=f"did you mean {' or '.join(near)}?"
                if near
                else f"it has {', '.join(names) or 'none'}",
            )
        value = config[key]
        swept = isinstance(value, list) and key not in _NEVER_SWEPT
        values = value if swept else [value]
        # Every combination is a case: one that is left of each key is one that is left of all.
        if not any(_is(one, text) for one in values for text in texts):
            shown = dict.fromkeys(
                one if isinstance(one, str) else json.dumps(one) for one in values
            )
            raise UsageError(
                f"no case has {' or '.join(f'{key}={text}' for text in texts)}",
                where=where,
                hint=f"{key} is {', '.join(shown)} there",
            )


def _is(value: Any, text: str) -> bool:
    try:
        if json.dumps(json.loads(text), sort_keys=True) == json.dumps(value, sort_keys=True):
            return True
    except (ValueError, RecursionError):
        pass
    return str(value) == text


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
