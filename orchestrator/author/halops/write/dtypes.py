"""How a scenario spells the dtype or format that somebody means."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orchestrator.author.halops.facts import Field, Scenario

_TORCH = {"fp8": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}
_TORCH |= {name: name for name in ("bfloat16", "float16", "float32", "int8")}
_SAME = {
    "bfloat16": ("bfloat16", "bf16"),
    "float16": ("float16", "fp16", "half", "f16"),
    "float32": ("float32", "fp32", "float"),
    "fp8": ("fp8", "e4m3", "fp8_e4m3", "float8_e4m3fn", "e4m3fn"),
    "float8_e5m2": ("float8_e5m2", "e5m2", "fp8_e5m2"),
    "nvfp4": ("nvfp4", "fp4"),
}
# What a config may be called by, in a file's name.
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_SHORT |= {"float8_e4m3fn": "fp8", "e4m3": "fp8", "float8_e5m2": "e5m2"}


def spelled(meant: str, field: Field, scenario: Scenario, used: Iterable[str]) -> str | None:
    """The field's value for ``meant`` (``fp8``, ``bfloat16``), None where it has none.

    ``used``: what neighbours write, preferred among several spellings.
    """
    names = _SAME.get(meant, (meant,))
    spelling = scenario.dtypes.get(field.name)
    own = list(spelling.aliases) if spelling is not None else []
    accepted = spelling.accepts if spelling is not None else ()
    known = [*own, *field.choices, *accepted]
    as_torch = spelling is not None and spelling.torch is not None
    if as_torch and meant in _TORCH:
        known = [*own, _TORCH[meant], *field.choices, *accepted]
    fit = [one for one in known if one.lower() in names]
    written = [one for one in used if one in fit]
    if written or fit:
        return (written or fit)[0]
    parts = [one for one in known if set(re.split(r"[-_/ ]", one.lower())) & set(names)]
    if len(set(parts)) == 1:
        return parts[0]
    return _TORCH.get(meant) if as_torch or not known else None


def short(value: str) -> str:
    """``bf16`` for ``bfloat16``: as file names have it."""
    return _SHORT.get(value, value)
