"""The conditions of ``#if``: what they come to where that is sure, None where the build decides.

A value is a range: macros that the sources define are exact, versions of CUDA and torch are those
of any recent one, and a name that nobody defines may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import TypeAlias

# What a macro's name stands for: its body, False where it is not defined, None where nobody knows.
Meaning: TypeAlias = str | bool | None
Lookup: TypeAlias = Callable[[str], Meaning]
_Range: TypeAlias = tuple[float, float]

_ANY: _Range = (-inf, inf)
_VERSIONS: dict[str, _Range] = {
    **dict.fromkeys(("CUDA_VERSION", "CUDART_VERSION"), (12000, inf)),
    "__CUDACC_VER_MAJOR__": (12, inf),
    "TORCH_VERSION_MAJOR": (2, 2),
    "TORCH_VERSION_MINOR": (4, inf),
}
_OTHER_PLATFORM = re.compile(r"USE_ROCM|__HIP\w*|USE_XPU|USE_MUSA|_WIN32|_MSC_VER")
_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F']+|\d[\d']*)[uUlLzZ]*\b|([A-Za-z_]\w*)"
    r"|(\|\||&&|[=!<>]=|<<|>>|[-+*/%!<>()?:~&|^.,]))"
)
_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_DEEPEST = 24
_LONGEST = 4096  # characters of a condition


class _Unreadable(Exception):
    """No condition, or one nested too deeply."""


def truth(condition: str, lookup: Lookup, *, other_platforms: bool) -> bool | None:
    """Whether ``condition``, as it follows ``#if``, holds; None where that cannot be told.

    ``other_platforms``: the build may be one for ROCm, Windows and so on; else it is none.
    """
    try:
        return _truth(_Parser(lookup, other_platforms, ()).whole(condition))
    except _Unreadable:
        return None


def _truth(value: _Range) -> bool | None:
    low, high = value
    if low == high == 0:
        return False
    return True if low > 0 or high < 0 else None


def _range(value: bool | None) -> _Range:
    return (0, 1) if value is None else (int(value), int(value))


class _Parser:
    """Evaluates while it reads; ``inside``: the macros whose bodies are being read."""

    def __init__(self, lookup: Lookup, others: bool, inside: tuple[str, ...]) -> None:
        self._lookup = lookup
        self._others = others
        self._inside = inside
        self._tokens: list[str] = []
        self._at = 0
        self._depth = 0

    def whole(self, text: str) -> _Range:
        if len(text) > _LONGEST:
            raise _Unreadable
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Unreadable
            self._tokens.append(match[1] or match[2] or match[3])
            at = match.end()
        value = self._ternary()
        if self._peek():
            raise _Unreadable
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, wanted: str = "") -> str:
        token = self._peek()
        if not token or (wanted and token != wanted):
            raise _Unreadable
        self._at += 1
        return token

    def _ternary(self) -> _Range:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _Unreadable
        value = self._binary(1)
        if self._peek() == "?":
            self._next()
            yes = self._ternary()
            self._next(":")
            no = self._ternary()
            known = _truth(value)
            hull = (min(yes[0], no[0]), max(yes[1], no[1]))
            value = hull if known is None else yes if known else no
        self._depth -= 1
        return value

    def _binary(self, least: int) -> _Range:
        left = self._unary()
        while (precedence := _PRECEDENCE.get(self._peek(), 0)) >= least:
            sign = self._next()
            left = _combined(sign, left, self._binary(precedence + 1))
        return left

    def _unary(self) -> _Range:
        signs = []
        while self._peek() in ("!", "-", "+", "~"):
            signs.append(self._next())
        value = self._primary()
        for sign in reversed(signs):
            if sign == "!":
                known = _truth(value)
                value = _range(None if known is None else not known)
            elif sign == "-":
                value = (-value[1], -value[0])
            elif sign == "~":
                value = (-value[1] - 1, -value[0] - 1)
        return value

    def _primary(self) -> _Range:
        token = self._next()
        if token == "(":
            value = self._ternary()
            self._next(")")
            return value
        if token[0].isdigit():
            return _number(token.replace("'", ""))
        if token == "defined":
            bracket = self._peek() == "("
            name = self._next() if not bracket else (self._next(), self._next())[1]
            if bracket:
                self._next(")")
            return _range(self._defined(name))
        if not (token[0].isalpha() or token[0] == "_"):
            raise _Unreadable
        if self._peek() == "(":
            self._skip()  # __has_include(...) and macros with arguments are the build's
            return _ANY
        return self._named(token)

    def _skip(self) -> None:
        depth = 0
        while True:
            token = self._next()
            depth += (token == "(") - (token == ")")
            if not depth:
                return

    def _defined(self, name: str) -> bool | None:
        meaning = self._lookup(name)
        if meaning is not None:
            return meaning is not False
        if _OTHER_PLATFORM.fullmatch(name):
            return None if self._others else False
        return True if name in _VERSIONS else None

    def _named(self, name: str) -> _Range:
        if name in ("true", "false"):
            return _range(name == "true")
        meaning = self._lookup(name)
        if isinstance(meaning, str):
            if name in self._inside or len(self._inside) > _DEEPEST:
                raise _Unreadable
            return _Parser(self._lookup, self._others, (*self._inside, name)).whole(meaning)
        if meaning is False:
            return (0, 0)
        if _OTHER_PLATFORM.fullmatch(name):
            return _ANY if self._others else (0, 0)
        return _VERSIONS.get(name, _ANY)


def _number(token: str) -> _Range:
    try:
        value = int(token, 8 if re.fullmatch(r"0[0-7]+", token) else 0)
    except ValueError:
        raise _Unreadable from None
    return (value, value) if abs(value) < 1 << 63 else _ANY


def _combined(sign: str, left: _Range, right: _Range) -> _Range:
    if sign in ("&&", "||"):
        both = _truth(left), _truth(right)
        decides = sign == "||"
        if decides in both:
            return _range(decides)
        return _range(None if None in both else not decides)
    if sign in (">", ">="):
        left, right, sign = right, left, {">": "<", ">=": "<="}[sign]
    if sign == "<":
        return _range(True if left[1] < right[0] else False if left[0] >= right[1] else None)
    if sign == "<=":
        return _range(True if left[1] <= right[0] else False if left[0] > right[1] else None)
    if sign in ("==", "!="):
        apart = left[1] < right[0] or right[1] < left[0]
        same = left == right and left[0] == left[1]
        equal = False if apart else True if same else None
        return _range(equal if equal is None or sign == "==" else not equal)
    if sign == "+":
        return _sane(left[0] + right[0], left[1] + right[1])
    if sign == "-":
        return _sane(left[0] - right[1], left[1] - right[0])
    if sign in ("*", "/") and right[0] == right[1] > 0 and left[0] >= 0:
        by = right[0]
        low, high = (one * by if sign == "*" else one // by for one in left)
        return _sane(low, left[1] if left[1] == inf else high)
    return _ANY


def _sane(low: float, high: float) -> _Range:
    # inf - inf is nobody's number.
    return (low, high) if low <= high and abs(low) < 1 << 62 else _ANY
