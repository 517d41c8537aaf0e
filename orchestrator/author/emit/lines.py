"""Small pieces of a runner's source: imports, texts, comments, indented blocks."""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from collections.abc import Sequence

from orchestrator.author.emit.settings import Setting
from orchestrator.author.facts import Todo

TODO = "# TODO(mxfleet):"
INFERRED = "# inferred:"
_WIDTH = 100


def class_name(name: str) -> str:
    """The runner's class: ``Silu_and_mul_runner``."""
    return f"{name[:1].upper()}{name[1:]}_runner"


def used_attributes(source: str) -> frozenset[str]:
    """Attributes of ``self`` that a source reads."""
    return frozenset(
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and isinstance(node.ctx, ast.Load)
    )


def import_lines(statements: Sequence[str]) -> list[str]:
    """Import statements as isort has them: Python's own, then torch and what is left."""
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for node in (node for text in statements for node in ast.parse(text).body):
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            name = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            if isinstance(node, ast.ImportFrom):
                parts.setdefault(f"{'.' * node.level}{node.module or ''}", set()).add(name)
            else:
                whole.add(name)
    made = [(name.split()[0], f"import {name}") for name in sorted(whole)]
    made += [
        (module, f"from {module} import {', '.join(sorted(parts[module]))}")
        for module in sorted(parts)
    ]
    own = [line for module, line in made if module.split(".")[0] in sys.stdlib_module_names]
    others = [line for _, line in made if line not in own]
    return [*own, *([""] if own else []), *others]


def beside(one: Setting, what: str = "") -> str:
    """The comment beside what was concluded; empty where it was read."""
    return f"  {INFERRED} {what}{one.why}" if one.why else ""


def indented(lines: Sequence[str]) -> list[str]:
    """The lines of a block."""
    return [f"    {line}" if line.strip() else "" for line in lines]


def taken_from(call: str, names: Sequence[str]) -> list[str]:
    """Take apart what ``_prepare`` returns; on a line of its own where there is much of it."""
    if not names:
        return [call]
    together = ", ".join(names)
    if len(together) + len(call) < 85:
        return [f"{together} = {call}"]
    return [f"data = {call}", f"{together} = data"]


def text_code(text: str) -> str:
    """A text as Python code, in pieces where it is long."""
    pieces = textwrap.wrap(text, 88, break_long_words=False, break_on_hyphens=False)
    shown = [json.dumps(p + (" " if p is not pieces[-1] else "")) for p in pieces]
    return f"({' '.join(shown)})" if len(shown) > 1 else shown[0]


def todo_line(todo: Todo) -> str:
    """An open point as the rest of its comment."""
    place = f" ({todo.place})" if todo.place is not None else ""
    return " ".join(f"{todo.what}{place}".split())


def too_long(text: str) -> bool:
    """Whether a line of it is longer than the linter wants it."""
    return any(len(line) > _WIDTH for line in text.split("\n"))
