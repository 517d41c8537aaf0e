"""Python statements of a unit test: what names they read, bind and change, and edits in their text.

Edits are made in the text, by the positions of its syntax tree, so that comments stay.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from orchestrator.author.trial import effects, scopes
from orchestrator.author.trial.scopes import root as root

_RANDOM = ("rand", "randn", "randint", "randperm", "normal", "uniform", "bernoulli", "multinomial")


def parsed(code: str) -> list[ast.stmt]:
    """The statements of ``code``."""
    return ast.parse(code).body


def reads(code: str | Iterable[str]) -> list[str]:
    """Names that the code takes from outside, in the order of their first use.

    Those of builtins are among them: a test may call a tensor ``input``.
    """
    texts = [code] if isinstance(code, str) else code
    return list(scopes.unbound([node for text in texts for node in parsed(text)]))


def binds(code: str | Iterable[str]) -> list[str]:
    """Names that the code binds at its own level, in order."""
    texts = [code] if isinstance(code, str) else code
    return list(scopes.binds([node for text in texts for node in parsed(text)]))


def changes(code: str) -> set[str]:
    """Names whose objects the code may change: ``x[0] = ..``, ``x += ..``, ``x.mul_(..)``.

    Also what is passed to a function of which nothing is taken: it can only be there to change it.
    """
    tree = ast.parse(code)
    found = set(effects.changes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            given = [*node.value.args, *(k.value for k in node.value.keywords)]
            found |= {name for one in given for name in [root(one)] if name is not None}
    return found


def is_random(code: str) -> bool:
    """Whether the code draws random numbers, or calls what may."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            module = root(node.func)
            if name.rstrip("_").removesuffix("_like") in _RANDOM or module in ("random", "np"):
                return True
    return False


def needed(code: Sequence[str], names: Iterable[str]) -> list[bool]:
    """Which of the statements ``names`` depend on: those that bind or change them, and so on."""
    wanted = set(names)
    found = [False] * len(code)
    for number in reversed(range(len(code))):
        made = set(binds(code[number]))
        touched = made | changes(code[number])
        if touched & wanted:
            found[number] = True
            wanted |= set(reads(code[number]))
    return found


def returning(statements: Sequence[str], names: Sequence[str]) -> list[str]:
    """The statements and a return of ``names``; where the last one makes it, it returns it."""
    if len(names) == 1 and statements:
        *before, last = statements
        (node, *others) = parsed(last)
        target = node.targets[0] if isinstance(node, ast.Assign) and not others else None
        if isinstance(target, ast.Name) and target.id == names[0] and len(node.targets) == 1:  # type: ignore[attr-defined]
            edit = Edit(last)
            edit.replace(target, "return")
            text = edit.done()
            equals = text.index("=")
            return [*before, text[:equals].rstrip() + " " + text[equals + 1 :].lstrip()]
    return [*statements, f"return {', '.join(names)}"]


# Edits.


class Edit:
    """Replacements in one text, by the nodes of its tree."""

    def __init__(self, code: str) -> None:
        self.tree = ast.parse(code)
        self._lines = code.split("\n")
        self._found: list[tuple[tuple[int, int], tuple[int, int], str]] = []

    def replace(self, node: ast.AST, text: str) -> None:
        """Put ``text`` in the place of an expression, a keyword or an argument."""
        first, last = _span(node)
        self._found.append((first, last, text))

    def replace_between(self, after: ast.AST, until: ast.AST, text: str) -> None:
        """Put ``text`` in the place of what stands from the end of one node to that of another."""
        self._found.append((_span(after)[1], _span(until)[1], text))

    def done(self) -> str:
        """The text with all replacements; of those that overlap the outermost."""
        lines = [line.encode("utf-8") for line in self._lines]
        reach: tuple[int, int] | None = None
        kept = []
        for first, last, text in sorted(self._found, key=lambda f: (f[0], (-f[1][0], -f[1][1]))):
            if reach is None or first >= reach:
                kept.append((first, last, text))
                reach = last
        for first, last, text in reversed(kept):
            head = lines[first[0] - 1][: first[1]]
            tail = lines[last[0] - 1][last[1] :]
            lines[first[0] - 1 : last[0]] = [head + text.encode("utf-8") + tail]
        return b"\n".join(lines).decode("utf-8")


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    first = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    last = getattr(node, "end_lineno", None) or first[0], getattr(node, "end_col_offset", None) or 0
    return first, last


def renamed(code: str, new: Callable[[str], str | None]) -> str:
    """The code with other texts for names that it reads from outside; ``new``: None keeps one."""
    edit = Edit(code)
    outside = set(reads(code))
    bound = _bound_within(edit.tree)
    names = {name: new(name) for name in outside - bound}
    known = {name: text for name, text in names.items() if text is not None}
    todo: list[ast.AST] = [edit.tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.JoinedStr):
            _rename_in_text(edit, node, known)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
            edit.replace(node, known[node.id])
        todo += ast.iter_child_nodes(node)
    return edit.done()


def _rename_in_text(edit: Edit, node: ast.JoinedStr, names: Mapping[str, str]) -> None:
    # What stands in an f-string has no positions of its own before Python 3.12.
    inner = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names]
    for name in inner:
        name.id = names[name.id]
    if inner:
        edit.replace(node, ast.unparse(node))


def _bound_within(tree: ast.AST) -> set[str]:
    """Names that are bound anywhere in the code, in scopes within too."""
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return stored | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def bound_within(code: Iterable[str]) -> set[str]:
    """Names that any of the statements binds, in scopes within too."""
    return {name for text in code for name in _bound_within(ast.parse(text))}
