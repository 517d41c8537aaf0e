"""C++ types and defaults as those of torch's schemas and as Python code."""

from __future__ import annotations

import re

from orchestrator.author.cpp.lexical import string_value

_PLAIN = {
    **dict.fromkeys(("Tensor", "TensorBase", "PyTensor"), "Tensor"),
    **dict.fromkeys(("int64_t", "int", "long", "long long", "int32_t", "int16_t", "int8_t"), "int"),
    **dict.fromkeys(("size_t", "uint64_t", "uint32_t", "unsigned", "unsigned int", "short"), "int"),
    **dict.fromkeys(("uint8_t", "uint16_t", "unsigned long", "ssize_t", "ptrdiff_t"), "int"),
    **dict.fromkeys(("intptr_t", "uintptr_t", "fptr_t"), "int"),
    **dict.fromkeys(("double", "float", "long double"), "float"),
    "bool": "bool",
    **dict.fromkeys(("string", "string_view", "char*", "str"), "str"),
    **dict.fromkeys(("ScalarType", "Dtype", "TypeMeta", "dtype"), "ScalarType"),
    **dict.fromkeys(("Device", "Layout", "MemoryFormat", "Scalar", "Generator", "Stream"), ""),
    **dict.fromkeys(("SymInt", "Storage"), ""),
    "DeviceIndex": "int",
    **dict.fromkeys(("IntArrayRef", "IntList"), "int[]"),
    **dict.fromkeys(("OptionalIntArrayRef",), "int[]?"),
    "SymIntArrayRef": "SymInt[]",
    **dict.fromkeys(("TensorList", "ITensorListRef"), "Tensor[]"),
    **dict.fromkeys(("object", "handle", "PyObject*", "IValue"), "Any"),
    "list": "Any[]",
    "tuple": "Any",
    "dict": "Any",
}
_LISTS = frozenset(
    ("vector", "ArrayRef", "List", "array", "span", "initializer_list", "SmallVector")
)
_WRAPPERS = frozenset(("reference_wrapper", "unique_ptr", "shared_ptr"))
_NOISE = re.compile(r"\b(?:const|struct|class|typename|volatile|inline|static)\b|&")
_NAMESPACE = re.compile(r"\b(?:\w+\s*::\s*)+(?=\w)")
_NUMBER = re.compile(
    r"([+-]?)\s*(0[xX][0-9a-fA-F']+|(?:[0-9][0-9']*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFlLuU]*"
)
_DTYPES = {
    **dict.fromkeys(("half", "float16", "fp16", "nv_half", "__half"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16", "nv_bfloat16", "__nv_bfloat16"), "bfloat16"),
    **dict.fromkeys(("float", "float32"), "float32"),
    **dict.fromkeys(("double", "float64"), "float64"),
    **dict.fromkeys(("long", "int64", "longlong"), "int64"),
    **dict.fromkeys(("int", "int32"), "int32"),
    **dict.fromkeys(("short", "int16"), "int16"),
    **dict.fromkeys(("char", "int8"), "int8"),
    **dict.fromkeys(("byte", "uint8"), "uint8"),
    **dict.fromkeys(("uint16", "uint32", "uint64", "bool", "float4_e2m1fn_x2"), ""),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), ""),
    **dict.fromkeys(("float8_e8m0fnu", "complex32", "complex64", "complex128"), ""),
    "complexfloat": "complex64",
    "complexdouble": "complex128",
}


def schema_type(text: str) -> str | None:
    """The schema's type for a C++ one, without its alias; None for one that torch knows not.

    ``void`` is the empty string. Several results, of ``std::tuple``, are ``(Tensor, int)``.
    """
    plain = _NAMESPACE.sub("", _NOISE.sub(" ", text))
    return _type(" ".join(plain.split()).replace(" *", "*"), 0)


def _type(text: str, depth: int) -> str | None:
    if depth > 8:
        return None
    text = text.strip()
    if text == "void":
        return ""
    known = _PLAIN.get(text)
    if known is not None:
        return known or text
    match = re.fullmatch(r"(\w+)\s*<(.*)>", text, re.DOTALL)
    if match is None:
        return None
    outer, inner = match[1], [_type(part, depth + 1) for part in _parts(match[2])]
    if outer in ("tuple", "pair"):
        return f"({', '.join(str(p) for p in inner)})" if None not in inner else None
    if not inner or inner[0] is None:
        return None
    if outer == "optional":
        return f"{inner[0].removesuffix('?')}?"
    if outer in _LISTS:
        return f"{inner[0]}[]"
    if outer in ("Dict", "unordered_map", "map") and len(inner) > 1 and inner[1] is not None:
        return f"Dict({inner[0]}, {inner[1]})"
    return inner[0] if outer in _WRAPPERS else None


def _parts(text: str) -> list[str]:
    """Template arguments: cut at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def dtype_name(text: str) -> str | None:
    """The torch dtype that a C++ constant or type names: ``at::kHalf``, ``c10::BFloat16``."""
    last = re.split(r"\s*::\s*", text.strip())[-1]
    spelled = last[1:] if re.fullmatch(r"k[A-Z]\w*", last) else last
    key = spelled.lower().removesuffix("_t")
    known = _DTYPES.get(key)
    return (known or key) if known is not None else None


def returns_of(text: str) -> tuple[str, ...] | None:
    """Types of what a function with this C++ result returns; None where one is unknown."""
    kind = schema_type(text)
    if kind is None:
        return None
    if kind.startswith("("):
        return tuple(part.strip() for part in _parts(kind[1:-1]))
    return (kind,) if kind else ()


def default_code(text: str, kind: str) -> str | None:
    """A C++ default as Python code; None where it has no plain counterpart.

    ``kind``: the schema's type of the argument.
    """
    text = text.strip()
    literal = string_value(text)
    if literal is not None:
        return repr(literal)
    if text in ("true", "false"):
        return text.capitalize()
    last = re.split(r"\s*::\s*", text.removesuffix("()"))[-1].strip()
    if last in ("nullopt", "nullptr", "NULL", "none", "None") or re.fullmatch(
        r"(?:\w+::)*(?:optional<.*>\s*)?(?:\(\s*\)|\{\s*\})", text
    ):
        return "[]" if kind.endswith("[]") and text.startswith("{") else "None"
    number = _NUMBER.fullmatch(text)
    if number is not None:
        return _number(number[1], number[2].replace("'", ""), kind)
    inside = re.fullmatch(r"(?:(?:\w+::)*\w+(?:<.*>)?\s*)?\{(.*)\}", text, re.DOTALL)
    if inside is not None and kind.removesuffix("?").endswith("[]"):
        element = kind.removesuffix("?").removesuffix("[]")
        values = [default_code(part, element) for part in _parts(inside[1])]
        plain = [value for value in values if value is not None]
        return f"[{', '.join(plain)}]" if len(plain) == len(values) else None
    named = re.fullmatch(r"(?:\w+::)*\w+", text)
    if named is not None and kind.removesuffix("?") in ("ScalarType", "Any"):
        name = dtype_name(text)
        return f"torch.{name}" if name else None
    wrapped = re.fullmatch(r"(?:\w+::)*\w+(?:<.*>)?\((.*)\)", text, re.DOTALL)  # static_cast<T>(1)
    return default_code(wrapped[1], kind) if wrapped is not None else None


def _number(sign: str, digits: str, kind: str) -> str:
    sign = sign.removeprefix("+")
    if digits[:2] in ("0x", "0X"):
        return f"{sign}{int(digits, 16)}"
    base = kind.removesuffix("?")
    if base == "bool":
        return str(float(digits) != 0)
    if base == "float" or re.search(r"[.eE]", digits):
        return f"{sign}{float(digits)!r}"
    return f"{sign}{int(digits[:40])}"
