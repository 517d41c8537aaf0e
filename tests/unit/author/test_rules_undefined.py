"""Names that nothing defines, in several spellings, and what only looks like it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from check_kit import Tree
from seeded.trees import SHIPPED, Seed, check_seed, seed

from orchestrator.author.check.undefined import undefined

RULE = "undefined-name"
_RETURN = "        return self.check_diff(out, out_ref, threshold=0.999999)\n"
_REF = "    total = x.float() + y.float()\n"

SEEDS = [
    seed(RULE, "my_op", (_RETURN, _RETURN.replace("out_ref", "expectd"))),
    seed(RULE, "my_op", (_REF, "    total = x.float() + scaled(y)\n")),
    seed(RULE, "my_op", (_REF, "    total = F.silu(x.float()) + y.float()\n")),
    seed(RULE, "my_op", (_REF, _REF + "    total = [v * w for v in (total,)][0]\n"), line="v * w"),
    seed(RULE, "my_op", (_REF, _REF + "    total = (lambda v: v + w)(total)\n"), line="lambda v"),
    seed(RULE, "my_op", ("def _ref_my_op(x, y):\n", "def _ref_my_op(x, y, scale=SCALE):\n")),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


def test_a_near_name_is_told(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.swap("return self.check_diff(out, out_ref,", "return self.check_diff(out, out_reff,")
    (finding,) = tree.everything()
    assert finding.fix == "did you mean out_ref?"


@pytest.mark.parametrize(
    "text",
    [
        "from os import *\nprint(sep)",
        "exec('x = 1')\nprint(x)",
        "globals()['x'] = 1\nprint(x)",
        "try:\n    unicode\nexcept NameError:\n    unicode = str\nunicode('x')",
        "try:\n    import a\nexcept ImportError:\n    a = None\na",
        "def f():\n    global x\n    x = 1\ndef g():\n    return x",
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    return x",
        "class A:\n    b = 1\n    c = [d for d in (b,)]\n    def f(s):\n        return __class__",
        "match 1:\n    case [x, *y]:\n        x, y\n    case {'a': z, **w}:\n        z, w",
        "with open('x') as f, open('y') as (g, h):\n    f, g, h",
        "for i, (j, k) in []:\n    i, j, k",
        "def f(a, /, b=1, *c, d, **e):\n    return a, b, c, d, e",
        "if (n := 3) > 2:\n    n",
        "def f(t):\n    return [v for v in (t,) if (w := v) is v][0], w",
        "def later():\n    return below()\ndef below(): ...",
        "import a.b.c\na.b",
        "del_me = 1\ndel del_me",
        "[x for y in range(3) for x in range(y)]",
        "{k: v for k, v in {}.items()}",
        "print(__file__, __name__)",
        "def f(x: Undefined) -> AlsoUndefined: ...",
        "try:\n    pass\nexcept ValueError as error:\n    error",
    ],
)
def test_defined_by_python_s_rules(text: str) -> None:
    assert [name.id for name, _ in undefined(ast.parse(text))] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("class A:\n    b = 1\n    def f(self):\n        return b", ["b"]),
        ("def f():\n    x = 1\ndef g():\n    return x", ["x"]),
        ("[x for x in range(3)]\nx", ["x"]),
        ("a.b.c()\na", ["a"]),
        ("def f(x=x): ...", ["x"]),
        ("f'{who}'", ["who"]),
        ("@deco\nclass A(Base): ...", ["deco", "Base"]),
        ("x += 1\ny[z] = 1", ["y", "z"]),
    ],
)
def test_undefined_by_python_s_rules(text: str, names: list[str]) -> None:
    assert [name.id for name, _ in undefined(ast.parse(text))] == names


def test_no_name_of_the_shipped_runners_is_undefined() -> None:
    for path in (SHIPPED / "runners").glob("*.py"):
        assert [n.id for n, _ in undefined(ast.parse(path.read_text(encoding="utf-8")))] == []
