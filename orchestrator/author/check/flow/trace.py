"""The phases of a runner as the harness goes through them, interpreted once and kept.

``setup``: constructor, data and launcher, one launch, the metrics. ``verification``: constructor
and verification. ``metrics_as(dtype)``: the metrics again for a case of that dtype.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

from orchestrator.author.check.flow.frames import CONFIG, EnoughError, Event, Machine
from orchestrator.author.check.flow.interpret import Interpreter
from orchestrator.author.check.flow.values import (
    Function,
    Name,
    Partial,
    Symbol,
    Value,
    options,
)
from orchestrator.author.check.runner import Runner

_DEVICE_ID = Symbol(("dev_id",))


@dataclass
class Trace:
    """What happened: calls in order, and what the last method returned.

    ``complete``: nothing was cut short, so that what is not here does not happen.
    """

    events: list[Event] = field(default_factory=list)
    returned: Value | None = None
    complete: bool = True
    chosen: dict[ast.AST, Value] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)

    def of(self, *phases: str) -> Iterator[Event]:
        """The calls of some phases."""
        return (event for event in self.events if event.phase in phases)

    def named(self, *names: str) -> Iterator[Event]:
        """The calls of some names."""
        return (event for event in self.events if event.name in names)


class Traces:
    """The traces of one runner; each is made when it is first asked for."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self._by_dtype: dict[str, Trace] = {}

    @cached_property
    def setup(self) -> Trace:
        """Constructor, data, one launch, metrics, for a dtype that is left open."""
        return self._set_up(None)

    def metrics_as(self, dtype: str) -> Trace:
        """The same for a case of ``dtype``."""
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._set_up(dtype)
        return self._by_dtype[dtype]

    @cached_property
    def operators(self) -> set[ast.AST | str]:
        """What the launcher calls, where that is no operator by its name."""
        _ = self.setup
        return self._operators

    @cached_property
    def verification(self) -> Trace:
        """Constructor and verification."""
        machine = Machine(self.runner, operators=set(self.operators))
        return self._run(
            machine,
            [
                ("__init__", [Name("self.name"), CONFIG], "init"),
                ("run_verification", [_DEVICE_ID], "verify"),
            ],
        )

    def _run(self, machine: Machine, methods: list[tuple[str, list[Value], str]]) -> Trace:
        interpreter = Interpreter(machine)
        trace = Trace(machine.events, None, True, machine.chosen)
        try:
            for name, args, phase in methods:
                trace.returned = interpreter.method(name, args, phase)
                if phase == "prepare":
                    self._launch(interpreter, trace.returned)
        except (EnoughError, RecursionError):
            trace.complete = False
        trace.attributes = machine.attributes
        return trace

    def _launch(self, interpreter: Interpreter, returned: Value | None) -> None:
        """Launch once what ``prepare_and_get_launcher`` returned."""
        machine = interpreter.machine
        machine.phase, machine.streams = "launch", 0
        seen = len(machine.events)
        callees: list[ast.AST | str] = []
        for launcher in options(returned) if returned is not None else ():
            inner = launcher.callee if isinstance(launcher, Partial) else launcher
            for callee in options(inner):
                if isinstance(callee, Function):
                    callees.append(callee.node)
                elif isinstance(callee, Name):
                    callees.append(callee.path)
            if isinstance(launcher, Partial | Function):
                node = self.runner.methods["prepare_and_get_launcher"]
                interpreter.apply(launcher, ([Name("launch")], {}, False), node)
        launched = machine.events[seen:]
        if launched and not any(event.operator for event in launched):
            # No library's: what is launched is itself the operator.
            launched[0].operator = True
            machine.operators |= set(callees)
            if machine.dtype is None:
                self._operators |= set(callees)

    def _set_up(self, dtype: str | None) -> Trace:
        machine = Machine(self.runner, dtype)
        if dtype is None:
            self._operators: set[ast.AST | str] = set()
        return self._run(
            machine,
            [
                ("__init__", [Name("self.name"), CONFIG], "init"),
                ("prepare_and_get_launcher", [_DEVICE_ID, Name("stream")], "prepare"),
                ("define_metrics", [Name("state")], "metrics"),
            ],
        )


_KEPT: WeakKeyDictionary[Runner, Traces] = WeakKeyDictionary()


def traces(runner: Runner) -> Traces:
    """The traces of ``runner``."""
    if runner not in _KEPT:
        _KEPT[runner] = Traces(runner)
    return _KEPT[runner]
