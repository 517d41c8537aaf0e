"""Which dtypes a dispatch macro lets through.

Those of torch, vLLM and sgl-kernel are known by name; a macro that the sources define is looked
into, so that anybody's own dispatch over the known ones, or over constants, is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.author.cpp.preprocess import Macro
from orchestrator.author.cpp.types import dtype_name

_FLOATS = ("float32", "float16", "bfloat16")
_HALVES = ("float16", "bfloat16")
_FP8 = ("float8_e4m3fn",)
_SIGNED = ("uint8", "int8", "int16", "int32", "int64")
_KNOWN: dict[str, tuple[str, ...]] = {
    "AT_DISPATCH_FLOATING_TYPES": ("float32", "float64"),
    "AT_DISPATCH_FLOATING_TYPES_AND_HALF": ("float32", "float64", "float16"),
    "AT_DISPATCH_REDUCED_FLOATING_TYPES": _HALVES,
    "AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES": ("float32", "float64", "complex64", "complex128"),
    "AT_DISPATCH_COMPLEX_TYPES": ("complex64", "complex128"),
    "AT_DISPATCH_INTEGRAL_TYPES": _SIGNED,
    "AT_DISPATCH_ALL_TYPES": (*_SIGNED, "float32", "float64"),
    "AT_DISPATCH_ALL_TYPES_AND_COMPLEX": (
        *(*_SIGNED, "float32", "float64"),
        *("complex64", "complex128"),
    ),
    "AT_DISPATCH_INDEX_TYPES": ("int32", "int64"),
    "AT_DISPATCH_FLOAT8_TYPES": ("float8_e5m2", "float8_e4m3fn"),
    "VLLM_DISPATCH_FLOATING_TYPES": _FLOATS,
    "VLLM_STABLE_DISPATCH_FLOATING_TYPES": _FLOATS,
    "VLLM_DISPATCH_HALF_TYPES": _HALVES,
    "VLLM_STABLE_DISPATCH_HALF_TYPES": _HALVES,
    "VLLM_DISPATCH_FP8_TYPES": _FP8,
    "VLLM_DISPATCH_QUANT_TYPES": ("float8_e4m3fn", "int8"),
    "VLLM_DISPATCH_FLOATING_AND_BYTE_TYPES": (*_FLOATS, "uint8"),
    "VLLM_DISPATCH_INTEGRAL_TYPES": _SIGNED,
    "VLLM_DISPATCH_INTEGRAL_AND_UNSIGNED_TYPES": (*_SIGNED, "uint16", "uint32", "uint64"),
    "DISPATCH_PYTORCH_DTYPE_TO_CTYPE_FP16": _HALVES,
    "DISPATCH_PYTORCH_DTYPE_TO_CTYPE_FLOAT_FP16": _FLOATS,
    "DISPATCH_PYTORCH_DTYPE_TO_CTYPE_FP8": ("float8_e4m3fn", "float8_e5m2"),
    "DISPATCH_PYTORCH_DTYPE_TO_CTYPE": (*_HALVES, "float8_e4m3fn", "float8_e5m2"),
    "DISPATCH_FLOAT_TYPES": _FLOATS,
    "DISPATCH_HALF_AND_BFLOAT16": _HALVES,
    "AT_FLOATING_TYPES": ("float32", "float64"),
    "AT_INTEGRAL_TYPES": _SIGNED,
    "AT_ALL_TYPES": (*_SIGNED, "float32", "float64"),
    "AT_FLOAT8_TYPES": ("float8_e5m2", "float8_e4m3fn"),
}
_AND = re.compile(r"(AT_DISPATCH_\w+?)_AND(\d?)")
_CONSTANT = re.compile(
    r"(?:\bScalarType\s*::\s*\w+|\bk[A-Z]\w*|\b(?:at|torch|c10)\s*::\s*(?!ScalarType)[A-Z]\w*)"
)
_MACRO = re.compile(r"[A-Z_][A-Z0-9_]{3,}")
_DEEPEST = 8


def dispatched(name: str, given: Sequence[str], macros: Mapping[str, Macro]) -> frozenset[str]:
    """Names of the dtypes that ``name(given...)`` lets through; empty when none can be told."""
    found = set(_dispatched(name, given, macros, 0))
    return frozenset(found)


def _dispatched(
    name: str, given: Sequence[str], macros: Mapping[str, Macro], depth: int
) -> set[str]:
    macro = macros.get(name)
    if macro is not None and depth < _DEEPEST:
        inside = _in_body(macro, macros, depth)
        if inside:
            return inside
    if name in _KNOWN:
        return set(_KNOWN[name])
    match = _AND.fullmatch(name)
    if match is not None and match[1] in _KNOWN:
        extra = (dtype_name(piece) for piece in given[: int(match[2] or 1)])
        return set(_KNOWN[match[1]]) | {dtype for dtype in extra if dtype}
    # AT_DISPATCH_SWITCH and AT_DISPATCH_V2 name the dtypes in what they are given.
    if name.endswith(("DISPATCH_SWITCH", "DISPATCH_V2", "DISPATCH_CASE")):
        if name.endswith("CASE"):
            given = given[:1]
        return _constants(" ".join(given[1:] if len(given) > 1 else given), macros, depth)
    return set()


def _in_body(macro: Macro, macros: Mapping[str, Macro], depth: int) -> set[str]:
    others = {name: other for name, other in macros.items() if name != macro.name}
    return _constants(macro.body, others, depth)


def _constants(text: str, macros: Mapping[str, Macro], depth: int) -> set[str]:
    """Dtypes that a text names, or that the macros it uses let through."""
    found = {name for match in _CONSTANT.findall(text) if (name := dtype_name(match))}
    for word in set(_MACRO.findall(text)):
        if depth < _DEEPEST and (word in _KNOWN or _AND.fullmatch(word) or word in macros):
            found |= _dispatched(word, (), macros, depth + 1)
    return found
