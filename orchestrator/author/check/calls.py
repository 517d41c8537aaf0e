"""Where a runner calls its operator, with which values at which position.

An operator is called directly, or handed to ``make_launcher`` with its arguments. It is found
through aliases (``op_func = torch.ops._C.x``, ``self.op = ...``, ``getattr(torch.ops._C, "x")``,
``from mcoplib import op``); starred arguments are spread out where they are a tuple that this
module makes. What cannot be told is None, and no rule guesses it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.author.check.literals import UNKNOWN
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import Function, dotted

# Packages whose functions are operators; ``torch`` itself only where a launcher gets it.
LIBRARIES = ("mcoplib", "vllm", "sgl_kernel", "sglang")
_DEEPEST = 12
_MOST_STEPS = 2000  # of spreading, in one runner: tuples of tuples double with each name


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator.

    ``target``: ``torch.ops._C.silu_and_mul``, without an overload's name; of an imported function
    its full name: ``mcoplib.op.fused_bias_dropout``. ``node`` is the call, or that of
    ``make_launcher`` where ``launched``. ``arguments``: what is passed by position, up to the first
    star that cannot be spread; ``open`` when there is one. ``keywords`` by name; ``open_keywords``
    for ``**more``.
    """

    target: str
    node: ast.Call
    launched: bool
    arguments: tuple[ast.expr, ...]
    open: bool
    keywords: dict[str, ast.expr]
    open_keywords: bool

    @property
    def name(self) -> str:
        """The operator's name alone."""
        return self.target.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """``_C`` of ``torch.ops._C.x``; the module of an imported function."""
        return self.target.rpartition(".")[0].removeprefix("torch.ops.")


@dataclass(frozen=True)
class Launched:
    """A ``make_launcher`` call: ``operator`` is what it launches, ``arguments`` what follows."""

    node: ast.Call
    operator: ast.expr
    arguments: Sequence[ast.expr]


class Calls:
    """All operator calls of a runner."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.source = runner.source
        self._steps = _MOST_STEPS

    @cached_property
    def launched(self) -> list[Launched]:
        """What is handed to ``make_launcher``; calls that are too short are left out."""
        found = []
        for call in self.runner.calls():
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "make_launcher":
                continue
            words = {word.arg: word.value for word in call.keywords}
            head = call.args[:2]
            if len(head) == 2 and not any(isinstance(one, ast.Starred) for one in head):
                found.append(Launched(call, head[1], call.args[2:]))
            elif len(head) == 1 and "op" in words:
                found.append(Launched(call, words["op"], ()))
        return found

    @cached_property
    def operators(self) -> list[OperatorCall]:
        """All calls of operators, in the order of the text."""
        found = []
        for launch in self.launched:
            target = self.target(launch.operator, launched=True)
            if target is not None:
                found.append(self._call(target, launch.node, launch.arguments, launched=True))
        for call in self.runner.calls():
            target = self.target(call.func)
            if target is not None:
                found.append(self._call(target, call, call.args, launched=False))
        return sorted(found, key=lambda one: (one.node.lineno, one.node.col_offset))

    def target(self, node: ast.expr | None, *, launched: bool = False) -> str | None:
        """The full name of the operator that ``node`` stands for; None when it is none."""
        name = self._full_name(node, 0)
        if name is None:
            return None
        words = name.split(".")
        if words[:2] == ["torch", "ops"]:
            # torch.ops.<namespace>.<operator>, and an overload of it: .default
            return ".".join(words[:4]) if len(words) in (4, 5) else None
        if words[0] in LIBRARIES and len(words) > 1:
            return name
        return name if launched and words[0] == "torch" and len(words) > 1 else None

    def _full_name(self, node: ast.expr | None, depth: int) -> str | None:
        if node is None or depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            value = self.source.value_of(node)
            if value is not None:
                return self._full_name(value, depth + 1)
            if self.source.bound_anywhere(node):
                return None
            return self.source.imports.get(node.id)
        if isinstance(node, ast.Attribute):
            if self.runner.attribute(node) is not None:
                return self._full_name(self.runner.value_of(node), depth + 1)
            owner = self._full_name(node.value, depth + 1)
            return f"{owner}.{node.attr}" if owner is not None else None
        if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) >= 2:
            owner = self._full_name(node.args[0], depth + 1)
            word = self.source.literal(node.args[1])
            return f"{owner}.{word}" if owner is not None and isinstance(word, str) else None
        return None

    def _call(
        self, target: str, node: ast.Call, given: Sequence[ast.expr], *, launched: bool
    ) -> OperatorCall:
        arguments: list[ast.expr] = []
        is_open = False
        for one in given:
            if not isinstance(one, ast.Starred):
                arguments.append(one)
                continue
            spread = self.spread(one.value)
            if spread is None:
                is_open = True
                break
            arguments += spread
        own = {"dev_id", "op"} if launched else set()
        return OperatorCall(
            target,
            node,
            launched,
            tuple(arguments),
            is_open,
            {word.arg: word.value for word in node.keywords if word.arg and word.arg not in own},
            any(word.arg is None for word in node.keywords),
        )

    def spread(self, node: ast.expr, depth: int = 0) -> list[ast.expr] | None:
        """The elements of a tuple or list that this module makes; None when it cannot be told."""
        self._steps -= 1
        if depth > _DEEPEST or self._steps < 0:
            return None
        if isinstance(node, ast.Tuple | ast.List):
            return self._elements(node.elts, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.spread(node.left, depth + 1), self.spread(node.right, depth + 1)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self._slice(node, node.slice, depth)
        if isinstance(node, ast.Call):
            if dotted(node.func) in ("tuple", "list") and len(node.args) == 1 and not node.keywords:
                return self.spread(node.args[0], depth + 1)
            function = self.runner.callee(node)
            return self._returned(function, depth) if function is not None else None
        value = self.runner.value_of(node)
        # A list may have grown since; a tuple has not.
        if value is None or isinstance(value, ast.List):
            return None
        return self.spread(value, depth + 1)

    def _elements(self, elements: Sequence[ast.expr], depth: int) -> list[ast.expr] | None:
        found: list[ast.expr] = []
        for one in elements:
            inner = self.spread(one.value, depth + 1) if isinstance(one, ast.Starred) else [one]
            if inner is None:
                return None
            found += inner
        return found

    def _slice(self, node: ast.Subscript, cut: ast.Slice, depth: int) -> list[ast.expr] | None:
        whole = self.spread(node.value, depth + 1)
        ends = [None if end is None else self.source.literal(end) for end in (cut.lower, cut.upper)]
        if whole is None or cut.step is not None:
            return None
        if any(end is UNKNOWN or not isinstance(end, int | None) for end in ends):
            return None
        return whole[ends[0] : ends[1]]

    def _returned(self, function: Function, depth: int) -> list[ast.expr] | None:
        """The elements of what a function returns, where all its returns have as many."""
        if isinstance(function, ast.AsyncFunctionDef) or function.decorator_list:
            return None
        source = self.source
        if any(
            source.function(y) is function
            for kind in (ast.Yield, ast.YieldFrom)
            for y in source.walk(kind, function)
        ):
            return None
        returns = [r for r in source.walk(ast.Return, function) if source.scope(r) is function]
        found = [self.spread(r.value, depth + 1) if r.value else None for r in returns]
        first = found[0] if found else None
        if first is None or any(one is None or len(one) != len(first) for one in found):
            return None
        return first
