"""Values as people write them on a command line or at a prompt, for the field they are for."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.author.halops.facts import Field, Scenario
from orchestrator.author.halops.intent import numbers
from orchestrator.author.halops.intent.lexer import tokens
from orchestrator.author.halops.intent.meaning import BACKENDS, SHAPES, meaning_of, role, sweeps

_WORDS = {"true": True, "false": False, "null": None, "none": None}


def is_list(field: Field, scenario: Scenario) -> bool:
    """Whether the field's value is a list: sweeps, shapes, backends."""
    return sweeps(field) or role(field, scenario) in (BACKENDS, SHAPES)


def value_of(text: Any, field: Field, scenario: Scenario) -> Any:
    """``1/16/64`` or ``4k to 64k`` as numbers, ``halops,fi`` as names; JSON as it is.

    A single value of a field that sweeps is a list of one.
    """
    found = _read(text, field, scenario) if isinstance(text, str) else text
    if not is_list(field, scenario):
        return found
    if not isinstance(found, list):
        return [found]
    if role(field, scenario) == SHAPES and found and not isinstance(found[0], list):
        return [found]
    return found


def _read(text: str, field: Field, scenario: Scenario) -> Any:
    plain = text.strip()
    try:
        return json.loads(plain)
    except ValueError:
        pass
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    read = tokens(plain)
    if role(field, scenario) == SHAPES and any(one.kind in ("shape", "list") for one in read):
        return [list(one.numbers) for one in read if one.kind in ("shape", "list")]
    found = numbers.take(read, 0, meaning_of(field.name) or "") if read else None
    if found is not None and found.end == len(read) and found.values and not found.unclear:
        return list(found.values) if len(found.values) > 1 else found.values[0]
    if is_list(field, scenario):
        inner = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
        parts = inner.replace("、", ",").replace("，", ",").split(",")
        return [part.strip().strip("'\"") for part in parts if part.strip()]
    return plain
