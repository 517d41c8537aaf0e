"""What the tree's base class offers a runner: our harness, or an established mcoplib checkout.

Both know ``name``, ``config``, ``dtype``, ``make_launcher`` and ``check_diff``. Our harness also
gives devices, streams, byte counts and checks that name what differs; with an established one a
runner says ``cuda:N`` and counts bytes itself. The tree is read, never imported.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import TreeError
from orchestrator.suites import mcoplib, whitelist

_OURS = frozenset({"device", "stream", "synchronize", "moves", "poison", "verify"})


@dataclass(frozen=True)
class Dialect:
    """How a runner spells what it needs; ``rich``: the base class is our harness's."""

    rich: bool

    @property
    def device(self) -> str:
        """The device of the case."""
        return "self.device(dev_id)" if self.rich else 'torch.device("cuda", dev_id)'

    @property
    def stream(self) -> str:
        """The context in which the timed data is made."""
        return "self.stream(tc_s)" if self.rich else "torch.cuda.stream(tc_s)"

    @property
    def synchronize(self) -> str:
        """Wait for the device."""
        return "self.synchronize(dev_id)" if self.rich else "torch.cuda.synchronize()"

    def poison(self, tensors: Sequence[str]) -> str:
        """Fill outputs with what no operator leaves behind."""
        name = "self.poison" if self.rich else "_poison"
        return f"{name}({', '.join(tensors)})"

    def moved(
        self, read: Sequence[str], written: Sequence[str], maybe: Collection[str] = ()
    ) -> list[str]:
        """Declare the bytes of a call: tensors, or numbers where they are a part of one.

        ``maybe``: those that may be None.
        """
        lines, given = [], {}
        for name, moved in (("read", read), ("written", written)):
            given[name] = _tuple(moved)
            if maybe and set(maybe) & set(moved):
                lines.append(f"{name} = {_tuple(moved)}")
                given[name] = f"[one for one in {name} if one is not None]"
        if self.rich:
            moves = ", ".join(f"{name}={items}" for name, items in given.items())
            return [*lines, f"self.moves(state, {moves})"]
        lines = []
        for what, moved in (("reads", read), ("writes", written)):
            if moved:
                total = " + ".join(_nbytes(one, one in maybe) for one in moved)
                lines.append(f"state.add_global_memory_{what}({total})")
        return lines


# The established base has no poison: bytes of ones are NaN, or -1.
POISON = '''
def _poison(*outputs):
    """Fill the outputs with NaN or -1, so that one that is left untouched fails."""
    for out in outputs:
        out.view(torch.uint8).fill_(0xFF)
'''


def read_dialect(tree: Path) -> Dialect:
    """The dialect of the tree's base class; ``TreeError`` where there is none to be found."""
    path = tree / f"{mcoplib.WRAPPER}.py"
    module = whitelist.parse(mcoplib.read_text(path), str(path))
    names = _members(module)
    if names is None:
        for inner in _imported_from(module, tree):
            names = names or _members(whitelist.parse(mcoplib.read_text(inner), str(inner)))
    if names is None:
        raise TreeError(
            f"there is no class {mcoplib.BASE_CLASS}",
            where=f"{path}:1",
            hint="is this an mcoplib benchmark folder?",
        )
    return Dialect(rich=names >= _OURS)


def _members(module: ast.Module) -> frozenset[str] | None:
    """What the base class of a module defines; None: it has none."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == mcoplib.BASE_CLASS:
            return frozenset(one.name for one in node.body if isinstance(one, ast.FunctionDef))
    return None


def _imported_from(module: ast.Module, tree: Path) -> Iterator[Path]:
    """The files of the tree that the base class may come from."""
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            path = tree.joinpath(*node.module.split(".")).with_suffix(".py")
            named = any(alias.name in (mcoplib.BASE_CLASS, "*") for alias in node.names)
            if named and path.is_file():
                yield path


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _nbytes(moved: str, maybe: bool) -> str:
    if not moved.replace("self.", "").isidentifier():
        return moved
    nbytes = f"{moved}.numel() * {moved}.element_size()"
    return f"(0 if {moved} is None else {nbytes})" if maybe else nbytes
