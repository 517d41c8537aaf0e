"""Devices, default dtypes and seeds of a test, written as names that a runner gives values.

``"cuda"``, ``x.cuda()`` and a default device all become the test's device argument, or ``device``
where it has none; the number that seeds a generator becomes ``seed``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from orchestrator.author.trial.literals import Lookup, NotLiteral, evaluate
from orchestrator.author.trial.scopes import dotted

_DEVICE = re.compile(r"(cuda|gpu|musa|maca|npu|xpu)(:\d+)?")
_NAMES = ("device", "dev", "device_id", "device_type", "device_name")
_SEED = re.compile(r"(\w+_)?seed(_\w+)?")
# Factories that make a tensor on the default device, and those of them that take its dtype.
_FACTORIES = frozenset(
    [
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "randint",
        "randperm",
        "arange",
        "linspace",
        "eye",
        "tensor",
        "empty_strided",
        "tril_indices",
        "triu_indices",
        "logspace",
        "as_tensor",
    ]
)
_FLOATING = frozenset(["empty", "zeros", "ones", "rand", "randn", "linspace", "eye"])
_MODULES = frozenset(["Linear", "Embedding", "LayerNorm", "RMSNorm", "Conv1d", "Conv2d"])


def is_device(value: object) -> bool:
    """Whether a literal names an accelerator."""
    return isinstance(value, str) and _DEVICE.fullmatch(value) is not None


def device_name(names: list[str], values: Callable[[str], list[object]]) -> str | None:
    """The test's parameter that stands for the device."""
    for name in names:
        known = values(name)
        if name in _NAMES[:2] or (known and all(is_device(v) for v in known)):
            return name
    return None


def is_seed(name: str) -> bool:
    """Whether a parameter is named as a seed."""
    return _SEED.fullmatch(name) is not None


class Normal(ast.NodeTransformer):
    """Writes devices and seeds as names; notes what it wrote in ``used``."""

    def __init__(
        self,
        device: str,
        seed: str,
        lookup: Lookup,
        *,
        default_device: bool = False,
        default_dtype: ast.expr | None = None,
        makes_tensors: Callable[[ast.Call], bool] | None = None,
    ) -> None:
        self._device = device
        self._seed = seed
        self._lookup = lookup
        self._default_device = default_device
        self._default_dtype = default_dtype
        self._makes_tensors = makes_tensors

    def statement(self, node: ast.stmt) -> ast.stmt:
        """``node`` in normal form; within a block of the default device where a helper needs it."""
        made = self.visit(node)
        assert isinstance(made, ast.stmt)
        if self._default_device and self._makes_tensors is not None:
            calls = [n for n in ast.walk(made) if isinstance(n, ast.Call)]
            simple = isinstance(made, (ast.Assign, ast.AugAssign, ast.Expr))
            if simple and any(self._makes_tensors(call) for call in calls):
                context = ast.parse(f"torch.device({self._device})", mode="eval").body
                block = ast.With([ast.withitem(context, None)], [made])
                return ast.fix_missing_locations(ast.copy_location(block, made))
        return ast.fix_missing_locations(made)

    def _name(self) -> ast.Name:
        return ast.Name(self._device, ast.Load())

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """``"cuda"`` -> ``device``."""
        return ast.copy_location(self._name(), node) if is_device(node.value) else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A constant of the module that is ``"cuda"`` -> ``device``."""
        if isinstance(node.ctx, ast.Load) and node.id != self._device:
            value = self._lookup(node.id)
            if value is not None and self._is_device(value):
                return ast.copy_location(self._name(), node)
        return node

    def _is_device(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self._is_device(node.body) or self._is_device(node.orelse)
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.device" and node.args:
            return self._is_device(node.args[0])
        try:
            return is_device(evaluate(node, self._lookup))
        except NotLiteral:
            return False

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """``"cuda" if torch.cuda.is_available() else "cpu"`` -> ``device``."""
        if self._is_device(node):
            return ast.copy_location(self._name(), node)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``.cuda()``, factories without a device, seeds."""
        path = dotted(node.func) or ""
        if path == "torch.cuda.current_device":
            return ast.copy_location(self._name(), node)
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute):
            if function.attr == "cuda" and not path.startswith("torch."):
                function.attr, node.args, node.keywords = "to", [self._name()], []
            elif node.args and (
                function.attr in ("manual_seed", "seed")
                or path.endswith(("random.default_rng", "random.RandomState", "random.Random"))
            ):
                node.args[0] = self._seeded(node.args[0])
        for keyword in node.keywords:
            if keyword.arg is not None and is_seed(keyword.arg):
                keyword.value = self._seeded(keyword.value)
        self._factory(node, path)
        return node

    def _seeded(self, value: ast.expr) -> ast.expr:
        fixed = isinstance(value, ast.Constant)
        return ast.copy_location(ast.Name(self._seed, ast.Load()), value) if fixed else value

    def _factory(self, node: ast.Call, path: str) -> None:
        head, _, name = path.rpartition(".")
        module = head in ("torch.nn", "nn") and name in _MODULES
        if not (head == "torch" and name in _FACTORIES) and not module:
            return
        given = {k.arg for k in node.keywords}
        if None in given:
            return
        if self._default_dtype is not None and "dtype" not in given and name in _FLOATING:
            node.keywords.append(ast.keyword("dtype", self._default_dtype))
        if self._default_device and "device" not in given:
            node.keywords.append(ast.keyword("device", self._name()))


def makes_on_default(node: ast.AST) -> bool:
    """Whether code makes a tensor without saying on which device."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            head, _, name = (dotted(part.func) or "").rpartition(".")
            makes = (head == "torch" and name in _FACTORIES) or head in ("torch.nn", "nn")
            if makes and not any(k.arg == "device" for k in part.keywords):
                return True
    return False
