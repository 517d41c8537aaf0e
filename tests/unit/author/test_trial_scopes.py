"""Names that code reads from around it, held against Python's own symbol tables.

The functions are those of Python's library: more spellings than anybody would write for a test.
"""

from __future__ import annotations

import ast
import inspect
import symtable
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.author.trial.scopes import binds, reads, unbound, value_reads

MODULES = [
    *("argparse", "asyncio.tasks", "ast", "collections", "configparser", "contextlib", "csv"),
    *("dataclasses", "difflib", "dis", "doctest", "enum", "fractions", "functools", "heapq"),
    *("inspect", "json.decoder", "logging.config", "pathlib", "pickle", "pprint", "random"),
    *("shutil", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap"),
    *("traceback", "typing", "unittest.mock", "urllib.request", "zipfile"),
]


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Names that a scope and those within take from the module, or from builtins."""
    own = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    return own.union(*(_globals(child) for child in table.get_children()))


class _Plain(ast.NodeTransformer):
    """Without what is evaluated outside of the function, and annotations."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.decorator_list, node.returns = [], None
        node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
        node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Assign([node.target], node.value or ast.Constant(0)), node)


@pytest.mark.parametrize("name", MODULES)
def test_functions_read_what_their_symbol_tables_say(name: str) -> None:
    try:
        source = inspect.getsource(import_module(name))
    except (ImportError, OSError):
        pytest.skip(f"no source of {name} here")
    checked = 0
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        plain = ast.fix_missing_locations(_Plain().visit(node))
        if any(isinstance(n, (ast.Global, ast.Nonlocal)) for n in ast.walk(plain)):
            continue
        table = symtable.symtable(ast.unparse(plain), "x", "exec")
        scope = next(c for c in table.get_children() if c.get_name() == node.name)
        expected = _globals(scope)
        if isinstance(node, ast.ClassDef):
            expected |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
            # A class body that binds a name and reads it reads its own.
            expected -= {s.get_name() for s in scope.get_symbols() if s.is_assigned()}
            assert expected <= set(reads(plain)) | {"super", "__class__", node.name}, node.name
        else:
            assert set(reads(plain)) == expected - {node.name}, node.name
        checked += 1
    assert checked


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = y\nz = x", {"y"}),
        ("x += 1", {"x"}),
        ("x[0] = y", {"x", "y"}),
        ("x.data = y", {"x", "y"}),
        ("for i in a:\n    b = i\nc = b", {"a"}),
        ("if a:\n    b = 1\nc = b", {"a"}),
        ("for i in a:\n    b.append(b2)\n    b2 = i", {"a", "b", "b2"}),
        ("with a as b:\n    c = b", {"a"}),
        ("try:\n    a = b\nexcept C as e:\n    d = e\nfinally:\n    f = g", {"b", "C", "g"}),
        ("[x for x in y if x > z]", {"y", "z"}),
        ("[x for x in y for y2 in x]", {"y"}),
        ("{(n := v): w for v in u}", {"w", "u"}),
        ("f = lambda a, b=c: a + b + d", {"c", "d"}),
        ("def f(a, b=c):\n    return a + g + f(1)", {"c", "g"}),
        ("class A(B):\n    x = y\n    z = x\n    def m(self): return x", {"B", "y", "x"}),
        ("while (line := f()):\n    print(line)", {"f", "print"}),
        ("match a:\n    case [b, *c] if b: d = c\n    case K(e): pass", {"a", "K"}),
        ("import a.b, c as d\na.b(d)", set()),
        ("del x", set()),
        ("a, (b, *c) = d\ne = b", {"d"}),
    ],
)
def test_sequences_read_what_they_do_not_bind_before(code: str, expected: set[str]) -> None:
    assert set(unbound(ast.parse(code).body)) == expected


def test_known_names_are_not_unbound() -> None:
    assert set(unbound(ast.parse("a = b + c").body, ["b"])) == {"c"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x.shape[0]", set()),
        ("x.size(0) * y", {"y"}),
        ("torch.empty_like(x)", set()),
        ("torch.full_like(x, v)", {"v"}),
        ("x.new_empty(n)", {"n"}),
        ("x[:, y.shape[0]]", {"x"}),
        ("x.float() + z", {"x", "z"}),
        ("torch.randn(x.shape, dtype=x.dtype, device=x.device)", {"torch"}),
    ],
)
def test_values_are_not_read_by_asking_for_the_shape(code: str, expected: set[str]) -> None:
    assert value_reads(ast.parse(code, mode="eval").body) - {"torch"} == expected - {"torch"}


names = st.sampled_from("abcd")
expressions = st.recursive(
    names,
    lambda inner: st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("[{} for {} in {}]".format, inner, names, inner),
        st.builds("(lambda {}: {})".format, names, inner),
        st.builds("{{{}: {} for {} in {}}}".format, inner, inner, names, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=12,
)


@given(expressions)
def test_any_expression_reads_what_its_symbol_table_says(text: str) -> None:
    table = symtable.symtable(f"def f():\n    return {text}", "x", "exec")
    assert set(reads(ast.parse(text, mode="eval").body)) == _globals(table.get_children()[0])


@given(st.lists(st.builds("{} = {}".format, names, expressions), max_size=6))
def test_a_line_of_assignments_runs_exactly_with_what_is_unbound(lines: list[str]) -> None:
    body = ast.parse("\n".join(lines)).body
    missing = set(unbound(body))
    bound: set[str] = set()
    for node in body:
        expected = set(reads(node)) - bound
        assert expected <= missing
        bound |= set(binds(node))
    assert missing <= set("abcd")
