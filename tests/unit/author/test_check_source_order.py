"""What is inside a node is found by its number, as it is by its parents."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from seeded.trees import SHIPPED

from orchestrator.author.check.source import parse_text

_NESTED = "def f(a):\n    return -(a + (a + (a + a)) + a) < a < a + a or not (a and f(a + a))\n"
_FILES = sorted((SHIPPED / "runners").glob("*.py"))[:12]


@pytest.mark.parametrize("text", [_NESTED, *(path.read_text() for path in _FILES)])
def test_all_that_is_inside_is_found_and_nothing_else(text: str) -> None:
    source = parse_text(Path("x.py"), "x.py", text)
    kinds = (ast.Name, ast.Call, ast.BinOp, ast.Constant, ast.FunctionDef, ast.Return)
    for outer in (*source.walk(ast.BinOp), *source.walk(ast.FunctionDef), *source.walk(ast.Call)):
        inside = [node for node in ast.walk(outer) if node is not outer]
        for kind in kinds:
            found = list(source.walk(kind, outer))
            assert set(found) == {node for node in inside if isinstance(node, kind)}
            assert len(set(found)) == len(found)
