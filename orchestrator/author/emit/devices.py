"""Code of a unit test made to run on the device that the runner is given.

A test says ``"cuda"``, ``.cuda()``, or sets a default device; a runner has one from outside.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Sequence

from orchestrator.author.emit import code

_DEVICE = re.compile(r"(cuda|gpu|maca|musa|npu|xpu)(:\d+)?")
_FACTORIES = frozenset(
    {
        *("empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange"),
        *("tensor", "linspace", "logspace", "eye", "as_tensor", "empty_strided", "normal"),
    }
)
_SETTINGS = frozenset(
    {
        *("set_default_device", "set_device", "synchronize", "empty_cache"),
        *("manual_seed", "manual_seed_all", "seed", "seed_everything", "set_random_seed"),
    }
)


def is_device(node: ast.AST | None, names: Collection[str]) -> bool:
    """Whether an expression is the test's GPU."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _DEVICE.fullmatch(node.value) is not None
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return isinstance(first, ast.Constant) and str(first.value).startswith("cuda")
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.device":
        return bool(node.args) and is_device(node.args[0], names)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("torch.cuda.current_device", "torch.get_default_device")
    if isinstance(node, ast.IfExp):  # "cuda" if torch.cuda.is_available() else "cpu"
        return is_device(node.body, names)
    return False


def device_names(statements: Iterable[str], known: Collection[str]) -> set[str]:
    """Names that stand for the device: those known, and what is assigned a device."""
    found = set(known)
    for text in statements:
        for node in code.parsed(text):
            if isinstance(node, ast.Assign) and is_device(node.value, found):
                found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def only_sets_up(statement: str, names: Collection[str]) -> bool:
    """Whether a statement does nothing but name, set or wait for the device, or seed.

    A runner does all of it by itself.
    """
    nodes = code.parsed(statement)
    if len(nodes) != 1:
        return False
    node = nodes[0]
    if isinstance(node, ast.Assign):
        bound = [t.id for t in node.targets if isinstance(t, ast.Name)]
        return is_device(node.value, names) and all(name in names for name in bound)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        name = called.attr if isinstance(called, ast.Attribute) else code.root(called)
        return name in _SETTINGS
    return False


def without_context(statement: str, names: Collection[str]) -> list[str]:
    """The statements of a block that is there only for the device: ``with torch.device(..):``.

    The runner makes all of its data within one.
    """
    (node, *others) = code.parsed(statement)
    if others or not isinstance(node, ast.With) or len(node.items) != 1:
        return [statement]
    item = node.items[0]
    if item.optional_vars is not None or not is_device(item.context_expr, names):
        return [statement]
    lines = statement.split("\n")
    found = []
    for inner in node.body:
        block = lines[inner.lineno - 1 : inner.end_lineno]
        block[0] = block[0][inner.col_offset :]
        found.append(textwrap.dedent("\n".join([" " * inner.col_offset + block[0], *block[1:]])))
    return found


def in_method(text: str, names: Collection[str], device: str = "device") -> str:
    """A statement of a method: where it says the test's device it says ``device``."""
    edit = code.Edit(text)
    for node in ast.walk(edit.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "cuda":
                edit.replace_between(node.func.value, node, f".to({device})")
        elif isinstance(node, ast.Name) and node.id == device:
            continue
        if isinstance(node, ast.expr) and is_device(node, names):
            edit.replace(node, device)
    return edit.done()


def in_helper(text: str, names: Collection[str]) -> str:
    """A function of the test's module: it makes tensors where the default device is.

    ``None`` is that device; what is moved to it stays where it was made.
    """
    text = _without_set_up(text, names)
    edit = code.Edit(text)
    names = set(names) - code.bound_within([text])  # its own argument is what it is given
    for node in ast.walk(edit.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            moves = node.func.attr == "cuda" and not node.args
            to = node.func.attr == "to" and len(node.args) == 1 and not node.keywords
            if moves or (to and is_device(node.args[0], names)):
                edit.replace_between(node.func.value, node, "")
    for node in ast.walk(edit.tree):
        if isinstance(node, ast.keyword) and is_device(node.value, names):
            edit.replace(node.value, "None")
        if isinstance(node, ast.arguments):
            for default in [*node.defaults, *(d for d in node.kw_defaults if d)]:
                if is_device(default, names):
                    edit.replace(default, "None")
    return edit.done()


def _without_set_up(text: str, names: Collection[str]) -> str:
    """A function without statements that only seed or choose the device."""
    edit = code.Edit(text)
    for node in ast.walk(edit.tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list) and not isinstance(node, ast.Module):
                _drop(edit, block, names)
    return edit.done()


def _drop(edit: code.Edit, block: Sequence[ast.stmt], names: Collection[str]) -> None:
    """Leave such statements of a block out, or say ``pass`` where there is nothing else."""
    gone = [node for node in block if _only_sets_up_within(node, names)]
    for node in gone:
        edit.replace(node, "pass" if node is gone[-1] and len(gone) == len(block) else "")


def _only_sets_up_within(node: ast.stmt, names: Collection[str]) -> bool:
    if isinstance(node, ast.If) and not node.orelse:
        return all(_only_sets_up_within(inner, names) for inner in node.body)
    return isinstance(node, ast.Expr) and only_sets_up(ast.unparse(node), names)


def makes_tensors(statements: Sequence[str]) -> bool:
    """Whether the code makes a tensor without saying on which device."""
    for text in statements:
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of_torch = code.root(node.func) == "torch" and node.func.attr in _FACTORIES
            said = [one.value for one in node.keywords if one.arg == "device"]
            none = [s for s in said if isinstance(s, ast.Constant) and s.value is None]
            if of_torch and len(said) == len(none):
                return True
    return False
