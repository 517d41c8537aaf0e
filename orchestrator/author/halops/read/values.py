"""The values that the reader's interpreter computes with.

Plain Python values (numbers, strings, lists, tuples, dicts, sets, None) stand for themselves. What
cannot be known without running the code is ``Unknown``, which remembers the config's fields that it
comes from, so that a constraint on it can still be told by field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_SMALL = ("float8", "fp8", "int8", "uint8", "bool", "e4m3", "e5m2", "e8m0")
_WIDE = {"64": 8, "32": 4, "16": 2}


@dataclass(frozen=True)
class Unknown:
    """A value that only a run shows.

    ``fields``: the config's fields that it comes from. ``direct``: the one field whose whole value
    it is; ``element``: the one field of which it is one of the swept values. ``dtype``: for a
    tensor, its dtype where that is known. ``name``: the attribute that it was reached by.
    """

    fields: frozenset[str] = frozenset()
    direct: str | None = None
    element: str | None = None
    dtype: Any = None
    name: str = ""


NOTHING = Unknown()


@dataclass(frozen=True)
class Dtype:
    """``torch.<name>``."""

    name: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element, as torch's attribute."""
        if self.name.startswith(_SMALL):
            return 1
        if self.name in ("bfloat16", "half"):
            return 2
        if self.name in ("float", "int"):
            return 4
        if self.name in ("double", "long"):
            return 8
        return next((size for bits, size in _WIDE.items() if self.name.endswith(bits)), 1)

    @property
    def floating(self) -> bool:
        """Whether torch calls it a floating-point type."""
        return "float" in self.name or self.name in ("half", "double")


@dataclass(eq=False)
class Source:
    """One module of the checkout: its file as shown, its tree and its top level's names."""

    name: str
    shown: str
    tree: ast.Module
    names: dict[str, Any] = field(default_factory=dict)
    ran: bool = False


@dataclass(eq=False)
class Outside:
    """A module, or something of one, that is not the checkout's: ``torch``, ``torch.nn``."""

    name: str


@dataclass(eq=False)
class Function:
    """A function, method or lambda of the checkout with the names around it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    source: Source
    scope: list[dict[str, Any]]
    bound: Any = None  # what ``self`` is
    preset: tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]] = ((), ())  # functools.partial
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name; a lambda has none."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False)
class Class:
    """A class of the checkout."""

    node: ast.ClassDef
    source: Source
    scope: list[dict[str, Any]]
    names: dict[str, Any] = field(default_factory=dict)
    bases: tuple[Any, ...] = ()

    def find(self, name: str) -> Any:
        """The attribute of it or of its bases; raises ``KeyError``."""
        if name in self.names:
            return self.names[name]
        for base in self.bases:
            if isinstance(base, Class):
                try:
                    return base.find(name)
                except KeyError:
                    continue
        raise KeyError(name)

    def annotated(self) -> list[str]:
        """Names of a data class's fields, those of its bases first."""
        found: list[str] = []
        for base in self.bases:
            if isinstance(base, Class):
                found += base.annotated()
        for each in self.node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found.append(each.target.id)
        return found


@dataclass(eq=False)
class Object:
    """An instance of one."""

    of: Class
    attributes: dict[str, Any] = field(default_factory=dict)
    maker: Any = None


@dataclass(eq=False)
class Method:
    """A method of a plain value, of the config or of an unknown value."""

    of: Any
    name: str


@dataclass(eq=False)
class Config:
    """The config. ``values``: what is given; None while only what is read of it is looked for.

    ``written``: what the code itself put in. Copies share nothing but the values.
    """

    values: dict[str, Any] | None
    written: dict[str, Any] = field(default_factory=dict)

    def names(self, value: Any) -> bool:
        """Whether a string is one of the values given, or in a list of them."""
        given = [each for each in (self.values or {}).values() if each is not None]
        return isinstance(value, str) and any(
            value == each or (isinstance(each, list) and value in each) for each in given
        )

    def copy(self) -> Config:
        """A config of its own, as ``dict(cfg)`` makes one."""
        return Config(self.values, dict(self.written))


def fields_of(value: Any, depth: int = 3) -> frozenset[str]:
    """The config's fields that a value, or what is in it, comes from."""
    if isinstance(value, Unknown):
        return value.fields
    if depth and isinstance(value, (list, tuple, set)):
        return united(value, depth - 1)
    if depth and isinstance(value, dict):
        return united(value.values(), depth - 1)
    return frozenset()


def united(values: Iterable[Any], depth: int = 3) -> frozenset[str]:
    """The fields of all of them."""
    found: frozenset[str] = frozenset()
    for value in values:
        found |= fields_of(value, depth)
    return found


def known(value: Any, depth: int = 4) -> bool:
    """Whether nothing of it is left to a run."""
    if isinstance(value, (int, float, str, type(None), Dtype)):
        return True
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return all(known(each, depth - 1) for each in value)
    if depth and isinstance(value, dict):
        return all(known(each, depth - 1) for each in value.values())
    return isinstance(value, range)


def joined(values: list[Any]) -> Any:
    """What is known of a value that is one of these."""
    first = values[0]
    if all(each is first or same(each, first) for each in values[1:]):
        return first
    # None beside one other: "if cfg.get(...) is None" and the like leave the other.
    others = [each for each in values if each is not None]
    if len(others) == 1 and not known(others[0]):
        return others[0]
    # Lists of what differs: a loop goes through the rounds of all of them.
    if all(isinstance(each, list) for each in values) and not all(known(e) for e in values):
        return [each for one in values for each in one]
    # A field's value beside a literal is that field with a default: "cfg.get(...) or [1]".
    whole = [each for each in values if isinstance(each, Unknown)]
    plain = [each for each in values if isinstance(each, (list, tuple, dict)) or known(each)]
    if len(whole) == 1 and whole[0].direct and len(plain) == len(values) - 1:
        return whole[0]
    dtypes = [each.dtype for each in values if isinstance(each, Unknown)]
    dtype = dtypes[0] if dtypes and all(each == dtypes[0] for each in dtypes) else None
    return Unknown(united(values), dtype=dtype)


def same(one: Any, other: Any) -> bool:
    """Whether two known values are the same; never raises."""
    if type(one) is not type(other) or not (known(one) and known(other)):
        return False
    return bool(one == other)


def truth(value: Any) -> bool | None:
    """Whether a value counts as true, None where only a run shows."""
    if isinstance(value, (Function, Class, Source, Method, Dtype, Object)):
        return True
    if isinstance(value, (Unknown, Outside, Config)):
        return None
    return bool(value)
