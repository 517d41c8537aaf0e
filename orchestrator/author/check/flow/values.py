"""Values of the abstract interpreter: constants, tensors by their memory, names, functions.

A tensor knows its ``Storage``; a storage counts the operator calls that it was passed to. A
``Token`` is a storage as it was after so many calls: from the tokens of a reference follows what it
was computed from, and when.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

# What a storage holds before any operator writes to it.
Kind = Literal["random", "empty", "filled", "host", "result", "computed"]
Place = Literal["host", "device"]
MOST_OPTIONS = 8
# Items of a sequence that are kept; what is longer was made to be.
MOST_ITEMS = 4096


class Value:
    """Anything an expression may evaluate to."""


@dataclass(frozen=True)
class Const(Value):
    """A number, text, bool or None, and the node that wrote it down."""

    value: Any
    node: ast.AST | None = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different things to write.
        return (
            isinstance(other, Const)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )


@dataclass(frozen=True)
class Setting(Value):
    """A config key as a runner reads it, with the default it gives."""

    key: str
    default: Value | None = field(default=None, compare=False)
    node: ast.AST | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Name(Value):
    """Something known by its dotted name only: ``torch.float16``, ``state``, ``self.verify``."""

    path: str


@dataclass(frozen=True)
class Symbol(Value):
    """A number that depends on settings and sizes: ``key`` tells equal ones apart.

    ``sizes``: the storages whose sizes went into it. ``whole``: it is the bytes, the elements or
    the element size of those tensors and nothing else.
    """

    key: Any
    sizes: frozenset[Storage] = frozenset()
    whole: bool = False
    # How many numbers went into the key: a long one costs more to compare than it tells.
    weight: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Text(Value):
    """A text that is not known word for word; whether a comma is certainly in it."""

    comma: bool
    node: ast.AST | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Shape(Value):
    """The shape of a tensor."""

    storage: Storage


@dataclass(eq=False)
class Sequence(Value):
    """A tuple or list; ``more``: it may have other items than those known."""

    items: list[Value]
    more: bool = False

    def add(self, items: list[Value], more: bool = False) -> None:
        """Append items, as far as they are few enough to be told one by one."""
        if len(self.items) + len(items) > MOST_ITEMS:
            items, more = [], True
        self.items += items
        self.more |= more


@dataclass(eq=False)
class Mapping(Value):
    """A dict by its constant keys; ``more``: it may have others."""

    items: dict[Value, Value]
    more: bool = False


@dataclass(eq=False)
class Function(Value):
    """A function of the module, a method (then ``bound``) or a lambda, with what it closes over."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    frame: Frame | None
    bound: bool = False
    owner: ast.ClassDef | None = None

    @property
    def name(self) -> str:
        """As ``def`` has it."""
        return "lambda" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False)
class Partial(Value):
    """A callable with arguments; ``launcher``: it was made by ``make_launcher``."""

    callee: Value
    args: list[Value]
    kwargs: dict[str, Value]
    launcher: bool = False


@dataclass(frozen=True)
class Method(Value):
    """The method ``name`` of a value, not yet called."""

    owner: Value
    name: str


@dataclass(eq=False)
class Frame:
    """Names of one running function; ``outer``: of the function that it was defined in."""

    names: dict[str, Value]
    outer: Frame | None
    function: Function | None = None


@dataclass(eq=False)
class Generator(Value):
    """A random generator; ``seed`` None: never seeded. ``phase``: where it was made."""

    seed: Value | None
    node: ast.AST
    phase: str


class Token(NamedTuple):
    """The content of a storage after ``version`` operator calls that had it as an argument."""

    storage: Storage
    version: int


@dataclass(eq=False)
class Storage:
    """Memory of a tensor: what it was made of, where, and by which operator calls it went."""

    kind: Kind
    node: ast.AST
    place: Place | None = None
    dtype: Value | None = None
    # Computed ones: what they depend on. ``copy_of``: they are those contents and nothing else.
    content: frozenset[Token] = frozenset()
    copy_of: Token | None = None
    version: int = 0
    name: str | None = None
    # Computed ones: the function of the runner that did it, and the call in the phase's own method
    # by which it came about.
    by: str | None = None
    came_by: ast.AST | None = None
    # It surely has at most one element, or none.
    tiny: bool = False

    def tokens(self) -> frozenset[Token]:
        """What its present content was computed from."""
        if self.kind == "computed" and self.version == 0:
            return self.content
        return frozenset({Token(self, self.version)})

    def has_data(self) -> bool:
        """Whether it held random numbers, or what was computed from them, before any call."""
        if self.kind == "computed":
            return any(token.storage.kind == "random" for token in self.content)
        return self.kind == "random"


@dataclass(frozen=True)
class Tensor(Value):
    """A tensor, or a view: both have their storage.

    ``part``: how the view was cut out, when it is not the whole.
    """

    storage: Storage
    part: str | None = None


@dataclass(frozen=True)
class Opaque(Value):
    """What cannot be told; ``content``: the tensors it was computed from."""

    content: frozenset[Token] = frozenset()


@dataclass(frozen=True)
class Cosine(Value):
    """A cosine similarity; ``distance``: one minus it."""

    distance: bool = False


@dataclass(frozen=True)
class Either(Value):
    """One of several values, depending on a branch."""

    options: tuple[Value, ...]


UNKNOWN = Opaque()
NONE = Const(None)


def options(value: Value) -> tuple[Value, ...]:
    """All that ``value`` may be."""
    return value.options if isinstance(value, Either) else (value,)


def either(values: Iterable[Value]) -> Value:
    """One of ``values``; equal ones count once."""
    found: list[Value] = []
    for value in values:
        found += [option for option in options(value) if option not in found]
    if len(found) > MOST_OPTIONS:
        return Opaque(tokens(found))
    return found[0] if len(found) == 1 else Either(tuple(found)) if found else UNKNOWN


def tensors(value: Value | Iterable[Value]) -> list[Tensor]:
    """All tensors in ``value``, also those in tuples, lists, dicts and alternatives."""
    found: dict[Storage, Tensor] = {}
    todo: list[Value] = [value] if isinstance(value, Value) else list(value)
    seen: set[int] = set()
    while todo:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            found.setdefault(one.storage, one)
        elif isinstance(one, Sequence):
            todo += one.items
        elif isinstance(one, Mapping):
            todo += one.items.values()
        elif isinstance(one, Either):
            todo += one.options
    return list(found.values())


def tokens(value: Value | Iterable[Value]) -> frozenset[Token]:
    """What the contents of all tensors in ``value`` were computed from."""
    found: set[Token] = set()
    for tensor in tensors(value):
        found |= tensor.storage.tokens()
    for one in [value] if isinstance(value, Value) else value:
        for option in options(one):
            if isinstance(option, Opaque):
                found |= option.content
            elif isinstance(option, Sequence):
                found |= tokens([i for i in option.items if isinstance(i, Opaque)])
    return frozenset(found)


def key(value: Value) -> Any:
    """A key that is equal for what is certainly equal; None where it cannot be told."""
    if isinstance(value, Const):
        return ("const", type(value.value).__name__, value.value)
    if isinstance(value, Setting):
        return ("setting", value.key)
    if isinstance(value, Symbol):
        return value.key
    if isinstance(value, Name):
        return ("name", value.path)
    return None
