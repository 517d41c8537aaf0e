"""What a checkout's fields mean, by their names and by how the code uses them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from orchestrator.author.halops.facts import Field, Scenario
from orchestrator.author.halops.intent.lexer import folded
from orchestrator.author.halops.intent.lexicon import AMOUNTS, SWITCHES

BACKENDS, REFERENCE, DTYPE, CACHE_DTYPE = "backends", "reference", "dtype", "cache_dtype"
GPU, SHAPES = "gpu", "shapes"
# Swept lengths and sizes: what is measured, whatever default the code has.
SIZES = frozenset({"batch", "kv_len", "q_len", "prefix", "chunk", "m", "max_m", "n", "k", SHAPES})
GEOMETRY = frozenset({"q_heads", "kv_heads", "head_dim", "group"})

_CACHE = re.compile(r"(cache|kv).*(quant|dtype|type|precision)")
_DTYPE = ("mode", "dtype", "datatype", "torchdtype", "precision", "quantmode")
_MORE = {
    "kv_len": "seqlensk seqlenkv seqlenskv skvs kvs contextlens cachelen cachelens cacheseqlens",
    "q_len": "sq seqlensq sequences qlens sqs s",
    "q_heads": "hq nheads nheadsq headsq numheadsq nq numattentionheads",
    "kv_heads": "hkv nheadsk nheadskv headskv numheadskv nkv numkeyvalueheads hk",
    "head_dim": "d headdimension",
    "max_m": "mmax maxtokens",
    "experts": "e numexpert numgroups g",
    "mtp": "mtpsteps mtps drafttokens",
    "m": "ms", "n": "ns", "k": "ks",
}  # fmt: skip


@functools.cache
def _names() -> Mapping[str, str]:
    found = {folded(word): kind for kind, words in AMOUNTS.items() for word in words.split("|")}
    found |= {word: kind for kind, words in _MORE.items() for word in words.split()}
    found |= {folded(word): kind for kind, words in SWITCHES.items() for word in words.split("|")}
    return found


def meaning_of(name: str) -> str | None:
    """What a name stands for: ``s_kv_list`` is a ``kv_len``, ``use_cuda_graph`` a switch."""
    plain = folded(name.lower())
    for form in (plain, plain.removesuffix("list"), plain.removesuffix("values")):
        for short in (form, form.removeprefix("num"), form.removesuffix("s")):
            found = _names().get(short)
            if found is not None:
                return found
    return None


def role(field: Field, scenario: Scenario) -> str | None:
    """What the field is for, None where neither name nor use tells."""
    plain = folded(field.name.lower())
    if "ref" in plain and (field.names_backends or "reference" in plain):
        return REFERENCE
    if field.names_backends or plain in ("backends", "backend"):
        return BACKENDS
    if _CACHE.search(plain):
        return CACHE_DTYPE
    if plain in _DTYPE:
        return DTYPE
    if plain == "gputype":
        return GPU
    if field.columns or plain in ("shapes", "shape", "shapelist"):
        return SHAPES
    found = meaning_of(field.name)
    if found is None and field.name in scenario.dtypes and not _has_dtype(scenario):
        return DTYPE
    return found


def _has_dtype(scenario: Scenario) -> bool:
    return any(folded(name.lower()) in _DTYPE for name in scenario.fields)


def roles(scenario: Scenario) -> dict[str, list[Field]]:
    """The fields by role; of several dtypes the mode first. Fields of other use are left out."""
    found: dict[str, list[Field]] = {}
    for each in scenario.fields.values():
        sort = role(each, scenario)
        if sort is not None:
            found.setdefault(sort, []).append(each)
    if DTYPE in found:
        found[DTYPE].sort(key=lambda each: _rank(each.name))
    return found


def _rank(name: str) -> int:
    plain = folded(name.lower())
    return _DTYPE.index(plain) if plain in _DTYPE else len(_DTYPE)


def sweeps(field: Field) -> bool:
    """Whether its values are gone through one by one; by its name where the code does not tell."""
    return field.sweep or field.name.endswith(("_list", "_sizes", "_lens"))


def is_live(field: Field, scenario: Scenario) -> bool:
    """Whether it changes what the scenario does: a batch that it never reads does not."""
    target = scenario.fields.get(field.expands_to) if field.expands_to else None
    return field.expands_to is None or target is not None


def is_key(field: Field, scenario: Scenario) -> bool:
    """Whether it decides what is measured and has to be asked for: sweeps, dtype, backends."""
    sort = role(field, scenario)
    if sort in (BACKENDS, SHAPES):
        return True
    if sort == DTYPE:
        return roles(scenario)[DTYPE][0] is field
    if not sweeps(field) or not is_live(field, scenario):
        return False
    return field.required or field.expands_to is not None or sort in SIZES
