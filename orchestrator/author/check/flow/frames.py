"""What the interpreter keeps while it runs: frames, the object's attributes, events, a budget."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from orchestrator.author.check.flow.values import (
    Cosine,
    Function,
    Generator,
    Name,
    Storage,
    Tensor,
    Token,
    Value,
    either,
    tensors,
    tokens,
)
from orchestrator.author.check.runner import Runner

# Steps and calls within calls that one phase may take: hostile code ends, real runners need 2000.
MOST_STEPS = 40_000
DEEPEST = 24
# Names of events for operators between tensors, which only a launcher must not have.
ARITHMETIC = "arithmetic:"
# Items of a known sequence that a loop goes through one by one.
UNROLLED = 12


class EnoughError(Exception):
    """The budget is used up: what was seen until now is all that will be."""


@dataclass(frozen=True)
class Seen:
    """A tensor at the moment when it was compared."""

    tensor: Tensor
    version: int
    content: frozenset[Token]
    copy_of: Token | None

    @classmethod
    def of(cls, value: Value) -> Seen | None:
        """The tensor that ``value`` is; None for anything else."""
        if not isinstance(value, Tensor):
            return None
        storage = value.storage
        return cls(value, storage.version, storage.tokens(), storage.copy_of)


@dataclass(eq=False)
class Event:
    """A call as it happened: with what, in which phase, within which calls of the runner.

    ``name``: ``torch.randn``, ``tensor.clone``, ``state.add_summary``, ``self.check_diff``,
    ``def:_helper``. ``streamed``: under the benchmark's stream. ``open``: there may be arguments
    that could not be told. ``operator``: it calls the operator. ``made``: the storage it made.
    ``generator``: of random numbers; None for the global one. ``seed``: that one's, None when it
    was never seeded.
    """

    node: ast.AST
    name: str
    args: list[Value]
    kwargs: dict[str, Value]
    phase: str
    stack: tuple[ast.AST, ...]
    streamed: bool
    open: bool = False
    operator: bool = False
    made: Storage | None = None
    random: bool = False
    generator: Generator | None = None
    seed: Value | None = None
    compared: tuple[Seen | None, Seen | None] = (None, None)
    result: Value | None = None
    # The function of the runner in whose text it stands.
    function: Function | None = None

    def argument(self, position: int, word: str) -> Value | None:
        """An argument by place or by name; None when it is not given, or not known."""
        if word in self.kwargs:
            return self.kwargs[word]
        return self.args[position] if position < len(self.args) else None

    @property
    def outermost(self) -> ast.AST:
        """The call in the phase's own method by which this one came about."""
        return self.stack[0] if self.stack else self.node


@dataclass
class Machine:
    """State of one run; ``attributes``: of the runner object."""

    runner: Runner
    dtype: str | None = None
    phase: str = "init"
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    # With a dtype: which constant an expression, which way an ``if`` came to.
    chosen: dict[ast.AST, Value] = field(default_factory=dict)
    operators: set[ast.AST | str] = field(default_factory=set)
    stack: list[ast.AST] = field(default_factory=list)
    running: list[Function | None] = field(default_factory=list)
    streams: int = 0
    global_seed: Value | None = None
    steps: int = 0

    def step(self) -> None:
        """Count one step; raises ``EnoughError`` when there were too many."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise EnoughError

    def event(self, node: ast.AST, name: str, args: list[Value], kwargs: dict[str, Value]) -> Event:
        """Note a call."""
        made = Event(
            node,
            name,
            args,
            kwargs,
            self.phase,
            tuple(self.stack),
            self.streams > 0,
            function=self.running[-1] if self.running else None,
        )
        self.events.append(made)
        return made

    @contextmanager
    def streamed(self, yes: bool) -> Iterator[None]:
        """Within a ``with`` block of the stream."""
        self.streams += yes
        try:
            yield
        finally:
            self.streams -= yes

    def computed(self, node: ast.AST, *inputs: Value, copy: bool = False) -> Tensor:
        """A tensor that was computed from ``inputs``; ``copy``: it holds just what the first does.

        It has the place of the first tensor among them.
        """
        given = tensors(inputs)
        first = given[0].storage if given else None
        made = Storage("computed", node, first.place if first else None, content=tokens(inputs))
        running = self.running[-1] if self.running else None
        made.by = running.name if running is not None else None
        made.came_by = self.stack[0] if self.stack else node
        if copy and first is not None:
            whole = Token(first, first.version)
            made.copy_of = first.copy_of if first.kind == "computed" else whole
            made.dtype = first.dtype
            if first.kind == "computed" and first.version:
                made.copy_of = whole
        return Tensor(made)

    def computes(self, node: ast.AST, name: str, *values: Value) -> None:
        """Note that a launch computes with an operator between tensors."""
        if self.phase == "launch" and any(isinstance(value, Tensor) for value in values):
            self.event(node, f"{ARITHMETIC}{name}", list(values), {})

    def compared(self, node: ast.AST, name: str, left: Value, right: Value) -> None:
        """Note that two values are compared, or subtracted: of interest where one is a tensor."""
        if isinstance(left, Tensor | Cosine) or isinstance(right, Tensor | Cosine):
            event = self.event(node, f"compare:{name}", [left, right], {})
            event.compared = (Seen.of(left), Seen.of(right))

    def written(self, target: Storage, *sources: Value, whole: bool = False) -> None:
        """The runner itself writes ``sources`` to ``target`` (``whole``: nothing else is left)."""
        if target.version:
            return
        new = tokens(sources)
        if target.kind in ("empty", "filled"):
            target.kind, target.content = "computed", new
            if not new:
                target.kind = "filled"
        elif target.kind == "computed":
            target.content = new if whole else target.content | new
        target.copy_of = None
        if whole and len(sources) == 1 and isinstance(sources[0], Tensor):
            source = sources[0].storage
            target.copy_of = source.copy_of or Token(source, source.version)


def merge(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """Names after two branches: what they agree on, else one of both."""
    merged = dict(one)
    for name, value in other.items():
        if name not in merged:
            merged[name] = value
        elif merged[name] is not value and merged[name] != value:
            merged[name] = either((merged[name], value))
    return merged


SELF = Name("self")
CONFIG = Name("config")
SELF_DTYPE = Name("self.dtype")
# The benchmark's stream, or one that was made of it; a context that is none.
STREAM = Name("stream")
CONTEXT = Name("context")
