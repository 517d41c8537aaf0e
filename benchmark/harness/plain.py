"""Make a record such that every JSON reader takes it, and say in it what had to be rewritten.

JSON has no word for inf and nan, UTF-8 has none for a lone surrogate, and many readers hold an
integer in 64 bits: one such value makes the line unreadable for them.
"""

from __future__ import annotations

import math
from typing import Any

# What a runner or a configuration chose freely: there a text tells more than null.
_FREE = frozenset({"parameters", "summaries"})
REWRITTEN = "rewritten"


def clean(record: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``record`` that is strict JSON in UTF-8, numbers within signed 64 bits.

    Lone surrogates are escaped (``\\udcff`` in six characters). A number that cannot stay becomes
    text in parameters and summaries, null elsewhere. The places are listed under ``rewritten``,
    which is absent when there are none. Cleaning twice changes nothing.
    """
    places: list[str] = []
    cleaned = {
        text(str(key)): _value(value, text(str(key)), key in _FREE, places)
        for key, value in record.items()
    }
    if places:
        cleaned[REWRITTEN] = [*cleaned.get(REWRITTEN, []), *places]
    return cleaned


def text(value: str) -> str:
    """``value`` with lone surrogates escaped visibly."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _value(value: Any, place: str, free: bool, places: list[str]) -> Any:
    if isinstance(value, str):
        cleaned = text(value)
        if cleaned != value:
            places.append(f"{place}: lone surrogates escaped")
        return cleaned
    if isinstance(value, dict):
        items = [(text(str(key)), item) for key, item in value.items()]
        return {key: _value(item, f"{place}.{key}", free, places) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_value(item, f"{place}[{at}]", free, places) for at, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        places.append(f"{place}: {value} is no JSON number")
        return str(value) if free else None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        places.append(f"{place}: integer beyond 64 bits")
        return _digits(value) if free else None
    return value


def _digits(value: int) -> str:
    # Python refuses to write more than some thousand decimal digits.
    return str(value) if value.bit_length() <= 1024 else hex(value)
