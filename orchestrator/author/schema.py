"""Torch's function schemas: ``silu_and_mul(Tensor! out, Tensor input) -> ()``.

A parser of its own, because importing torch takes longer than a whole lint may, and because the
machine that writes a benchmark need not have torch. It accepts what ``TORCH_LIBRARY`` accepts and
refuses what that refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.author.facts import Argument
from orchestrator.author.schema_tokens import Token, TokenError, string_value, tokens
from orchestrator.author.schema_types import (
    BASE,
    CODES,
    DEVICES,
    DTYPES,
    INTEGERS,
    LARGEST,
    LISTED,
    MEANT,
    WORDS,
)
from orchestrator.errors import TreeError
from orchestrator.inventory.spelling import near, short

_T = TypeVar("_T")
_LONGEST = 1 << 16  # characters; the longest schema of torch itself has about 2000
_DEEPEST = 40  # nested types
_INDEX = re.compile("0|[1-9][0-9]?")  # of a device


class SchemaError(TreeError):
    """Text that is no function schema; ``offset`` is where in the text it is wrong."""

    def __init__(self, message: str, text: str, offset: int, where: str | None) -> None:
        self.offset = offset
        before = short(text[max(0, offset - 30) : offset], 40)
        super().__init__(
            f"schema of {short(text.split('(')[0].strip() or '?', 50)}: {message}, after"
            f' "{before}" (character {offset + 1})',
            where=where,
        )


@dataclass(frozen=True)
class Returned:
    """One of an operator's results; ``name`` is empty where the schema gives none."""

    type: str
    name: str = ""
    mutated: bool = False


@dataclass(frozen=True)
class Schema:
    """A function schema. ``namespace`` and ``overload`` are empty where it has none."""

    namespace: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[Returned, ...]
    varargs: bool = False  # ``...`` at the end of the arguments
    varret: bool = False


@dataclass(frozen=True)
class _Type:
    """A type as it is spelled, and what a default of it has to be."""

    text: str
    default: str  # a value of BASE, or ``optional``, ``list``
    base: str = ""
    element: _Type | None = None


def parse(text: str, where: str | None = None, *, type_variables: bool = False) -> Schema:
    """Parse a schema. ``where`` is where it was read, for errors.

    ``type_variables``: lower-case names that are no type stand for any, as in TorchScript's own
    builtins; operators cannot be registered with them. Raises ``SchemaError``.
    """
    return _guarded(text, where, lambda: _Parser(text, where, type_variables).schema())


def parse_name(text: str, where: str | None = None) -> tuple[str, str, str]:
    """Parse a name alone, ``ns::name.overload``: what ``m.def`` and ``m.impl`` take besides.

    Returns namespace, name and overload. Raises ``SchemaError``.
    """

    def names() -> tuple[str, str, str]:
        parser = _Parser(text, where, False)
        found = parser.name()
        parser.expect("end")
        return found

    return _guarded(text, where, names)


def _guarded(text: str, where: str | None, work: Callable[[], _T]) -> _T:
    if len(text) > _LONGEST:
        raise SchemaError(f"longer than {_LONGEST} characters", text, 0, where)
    try:
        return work()
    except TokenError as error:
        raise SchemaError(error.message, text, error.offset, where) from None


class _Parser:
    """Recursive descent over the tokens of one schema."""

    def __init__(self, text: str, where: str | None, type_variables: bool) -> None:
        self._text = text
        self._where = where
        self._type_variables = type_variables
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _wrong(self, message: str, token: Token | None = None) -> SchemaError:
        place = (token or self._now).offset
        return SchemaError(message, self._text, place, self._where)

    def _take(self, kind: str) -> Token | None:
        token = self._now
        if token.kind != kind:
            return None
        self._at += 1
        return token

    def expect(self, kind: str) -> Token:
        """The next token, which must be of this kind."""
        token = self._take(kind)
        if token is None:
            wanted = {"word": "a name", "number": "a number", "string": "a string"}.get(
                kind, "nothing more" if kind == "end" else f"'{kind}'"
            )
            raise self._wrong(f"expected {wanted}, not {short(self._now.text, 30)!r}")
        return token

    def _each(self, one: Callable[[], None]) -> None:
        """What stands between parentheses, separated by commas."""
        self.expect("(")
        if self._now.kind != ")":
            one()
            while self._take(","):
                one()
        self.expect(")")

    def name(self) -> tuple[str, str, str]:
        """``namespace::name.overload``."""
        namespace, name, overload = "", self.expect("word").text, ""
        if self._take(":"):
            self.expect(":")
            namespace, name = name, self.expect("word").text
        if self._take("."):
            token = self.expect("word")
            overload = token.text
            if overload == "default" or overload.startswith("__"):
                raise self._wrong(f"{overload!r} is no legal overload name", token)
        return namespace, name, overload

    def schema(self) -> Schema:
        """A whole schema, and nothing after it."""
        namespace, name, overload = self.name()
        arguments, varargs = self._arguments()
        self.expect("->")
        returns, varret = self._returns()
        self.expect("end")
        return Schema(namespace, name, overload, arguments, returns, varargs, varret)

    def _arguments(self) -> tuple[tuple[Argument, ...], bool]:
        found: list[Argument] = []
        state = {"keyword": False, "dots": False, "default": False}

        def one() -> None:
            if state["dots"]:
                raise self._wrong("'...' must be the last argument")
            if self._take("*"):
                state["keyword"] = True
            elif self._now.kind == "...":
                if any(argument.default is not None for argument in found):
                    raise self._wrong("'...' goes with no argument that has a default")
                self.expect("...")
                state["dots"] = True
            else:
                start = self._now
                argument, is_list = self._argument(state["keyword"])
                # A list may follow without one: torch lets a single number stand for it.
                if state["default"] and not (
                    argument.default is not None or argument.keyword_only or is_list
                ):
                    raise self._wrong(
                        f"'{argument.name}' has no default, but an argument before it has", start
                    )
                state["default"] |= argument.default is not None
                found.append(argument)

        self._each(one)
        return tuple(found), state["dots"]

    def _argument(self, keyword_only: bool) -> tuple[Argument, bool]:
        kind, size, mutated = self._sized()
        name = self.expect("word").text
        default = self._default(kind, size) if self._take("=") else None
        argument = Argument(name, kind.text, mutated, default, keyword_only)
        return argument, kind.default == "list"

    def _returns(self) -> tuple[tuple[Returned, ...], bool]:
        found: list[Returned] = []
        dots: list[Token] = []

        def one() -> None:
            if dots:
                raise self._wrong("'...' must be the last of what is returned")
            token = self._take("...")
            if token is not None:
                dots.append(token)
                return
            kind, _, mutated = self._sized()
            name = self._take("word")
            found.append(Returned(kind.text, name.text if name else "", mutated))

        if self._now.kind == "(":
            self._each(one)
        else:
            one()
        return tuple(found), bool(dots)

    def _sized(self) -> tuple[_Type, int | None, bool]:
        """A type that may end in ``[2]``: allowed for an argument, but not inside of a type."""
        kind, mutated = self._type()
        if not self._take("["):
            return kind, None, mutated
        token = self.expect("number")
        digits = token.text.partition(".")[0]
        if not digits.isdigit() or int(digits[:20]) >= 1 << 31:
            raise self._wrong(f"{short(token.text)!r} is no size", token)
        self.expect("]")
        mutated |= self._alias()
        kind = _Type(f"{kind.text}[{digits}]", "list", element=kind)
        if self._take("?"):
            kind = _Type(f"{kind.text}?", "optional", element=kind)
        return kind, int(digits), mutated

    def _type(self) -> tuple[_Type, bool]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"types nested deeper than {_DEEPEST}")
        kind, mutated = self._plain_type()
        while True:
            if self._now.kind == "[" and self._tokens[self._at + 1].kind == "]":
                self._at += 2
                mutated |= self._alias()
                kind = _Type(f"{kind.text}[]", "list", element=kind)
            elif self._take("?"):
                kind = _Type(f"{kind.text.removesuffix('?')}?", "optional", element=kind)
            else:
                break
        self._depth -= 1
        return kind, mutated

    def _plain_type(self) -> tuple[_Type, bool]:
        token = self._now
        if token.kind == "(":
            parts, mutated = self._parts()
            return _Type(f"({', '.join(parts)})", "never"), mutated
        if token.kind not in ("None", "NoneType"):
            self.expect("word")
        else:
            self._at += 1
        if token.text == "__torch__":
            return _Type(self._class_name(), "never"), False
        if token.text in ("Future", "Await", "RRef", "Dict", "Union"):
            parts, _ = self._parts()
            expected = {"Dict": (2, 2), "Union": (1, 99)}.get(token.text, (1, 1))
            if not expected[0] <= len(parts) <= expected[1]:
                raise self._wrong(f"{token.text} cannot take {len(parts)} types", token)
            mutated = self._alias() if token.text in ("Dict", "Union") else False
            return _Type(f"{token.text}({', '.join(parts)})", "never"), mutated
        name = token.text
        while name != "Tensor" and self._take("."):
            name += f".{self.expect('word').text}"
        default = BASE.get(name)
        if default is None:
            if not (self._type_variables and name[0].islower()):
                guess = MEANT.get(name) or near(name, BASE)
                advice = f", did you mean {guess}?" if guess else ""
                raise self._wrong(f"unknown type {short(name)!r}{advice}", token)
            default = "never"
        return _Type(name, default, name), self._alias()

    def _parts(self) -> tuple[list[str], bool]:
        parts: list[str] = []
        written: list[bool] = []

        def one() -> None:
            kind, mutated = self._type()
            parts.append(kind.text)
            written.append(mutated)

        self._each(one)
        return parts, any(written)

    def _class_name(self) -> str:
        words = ["__torch__"]
        for wanted in ("torch", "classes", None, None):
            self.expect(".")
            token = self.expect("word")
            if wanted is not None and token.text != wanted:
                raise self._wrong("classes are named __torch__.torch.classes.space.name", token)
            words.append(token.text)
        return ".".join(words)

    def _alias(self) -> bool:
        """``(a! -> b)`` or ``!``, or neither; whether it says that the value is written to."""
        if not self._take("("):
            return self._take("!") is not None
        self._alias_set()
        mutated = self._take("!") is not None
        if self._take("->"):
            self._alias_set()
        self.expect(")")
        return mutated

    def _alias_set(self) -> None:
        any_alias = False
        while True:
            if self._take("*"):
                any_alias = True
            elif not any_alias:
                self.expect("word")
            if not self._take("|"):
                return

    def _default(self, kind: _Type, size: int | None) -> str:
        """The default as Python code."""
        if kind.default == "never":
            raise self._wrong(f"{kind.text} takes no default")
        if kind.default == "none":
            return self.expect("None").text
        if kind.default == "string":
            return self._device(self.expect("string"))
        element = kind.element
        if kind.default != "list" or element is None:
            return self._constant(kind.base, kind.text)
        if element.default != "constant" or element.base not in LISTED:
            raise self._wrong(f"{kind.text} takes no default")
        if size is not None and self._now.kind not in ("[", "word"):
            one = self._element(element.base)
            return f"[{', '.join([one] * size)}]" if size <= 8 else f"[{one}] * {size}"
        self.expect("[")  # a word is none, not even one that stands for a number
        values: list[str] = []
        if self._now.kind != "]":
            values.append(self._element(element.base))
            while self._take(","):
                values.append(self._element(element.base))
        self.expect("]")
        return f"[{', '.join(values)}]"

    def _device(self, token: Token) -> str:
        text = string_value(token)
        kind, colon, index = text.partition(":")
        if kind not in DEVICES or bool(colon) != bool(_INDEX.fullmatch(index)):
            raise self._wrong(f"{short(text)!r} is no device", token)
        return repr(text)

    def _element(self, base: str) -> str:
        token = self._now
        value = self._constant(base, base)
        is_bool = value in ("True", "False")
        is_float = not is_bool and any(mark in value for mark in ".en")
        fits = is_bool == (base == "bool") and value != "None" and value[0] not in "'\""
        fits &= base in INTEGERS or token.kind != "word"
        if not fits or (
            base in INTEGERS and (is_float or "j" in value) and not value.startswith("torch.")
        ):
            raise self._wrong(f"{short(token.text, 30)!r} is no {base}", token)
        return value

    def _constant(self, base: str, type_text: str) -> str:
        for literal in ("True", "False", "None"):
            if self._take(literal):
                return literal
        token = self._take("string")
        if token is not None:
            return repr(string_value(token))
        token = self._take("word")
        if token is not None:
            return self._word(token, base, type_text)
        sign = "-" if self._take("-") else ""
        return self._number(sign, self.expect("number"), base)

    def _word(self, token: Token, base: str, type_text: str) -> str:
        wanted = base or type_text.removesuffix("?")
        value = WORDS.get(token.text)
        if value is None and wanted == "ScalarType" and token.text in DTYPES:
            value = f"torch.{token.text}"
        if value is None:
            raise self._wrong(f"{short(token.text)!r} is no default", token)
        if wanted in ("ScalarType", "Layout", "MemoryFormat"):
            return value
        return CODES.get(value, value)

    def _number(self, sign: str, token: Token, base: str) -> str:
        text = token.text
        if text.endswith("j"):
            return sign + text
        if base == "complex":
            raise self._wrong(f"{text!r} is no complex number, which ends in j", token)
        if base == "float" or "." in text or "e" in text:
            value = float(text)
            if value == float("inf"):
                raise self._wrong(f"{short(text)!r} is too large", token)
            return sign + repr(value)
        digits = text.partition("E")[0].lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= LARGEST + bool(sign):
            raise self._wrong(f"{short(text)!r} is too large", token)
        return sign + digits
