"""Code set anew is the same code, in the form that the project's formatter leaves alone."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.author.emit.tidy import tidy

ROOT = Path(__file__).parents[3]
RUFF = Path(sys.executable).with_name("ruff")
RUNNERS = sorted((ROOT / "benchmark" / "runners").glob("*.py"))
TESTS = sorted((Path(__file__).parent / "trees").rglob("*.py"))
HARNESS = sorted((ROOT / "benchmark" / "harness").glob("*.py"))


def formatted(folder: Path, sources: dict[str, str]) -> str:
    """What ruff would change in ``sources``; empty: nothing."""
    for name, text in sources.items():
        (folder / name).write_text(text)
    words = [str(RUFF), "format", "--isolated", "--line-length", "100", "--diff", str(folder)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    return ran.stdout


def comments(source: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return Counter(t.string.rstrip() for t in tokens if t.type == tokenize.COMMENT)


def without_positions(source: str) -> str:
    return ast.dump(ast.parse(source))


def stretched(source: str) -> str:
    """The same code with every bracket's content on one endless line, and single quotes."""
    return ast.unparse(ast.parse(source))


@pytest.mark.skipif(not RUFF.exists(), reason="ruff is not installed beside this Python")
def test_code_is_set_as_ruff_sets_it(tmp_path: Path) -> None:
    sources = {path.name: stretched(path.read_text(encoding="utf-8")) for path in RUNNERS}
    sources |= {path.name: path.read_text(encoding="utf-8") for path in [*HARNESS, *TESTS]}
    assert formatted(tmp_path, {name: tidy(text) for name, text in sources.items()}) == ""


@pytest.mark.parametrize("path", [*RUNNERS[:12], *TESTS], ids=lambda path: path.stem)
def test_nothing_but_the_form_changes(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    made = tidy(source)
    assert comments(made) == comments(source)
    # A docstring's indentation is form, too.
    plain = [without_positions(text).replace(" ", "").replace("\\n", "") for text in (made, source)]
    assert plain[0] == plain[1]
    assert tidy(made) == made


names = st.sampled_from(["x", "num_tokens", "self.dtype", "a_rather_long_name_of_something"])
numbers = st.sampled_from(["0", "1.5e-6", "0xFF", "2**31", "-1", "1_000", "-(2**31)"])
texts = st.sampled_from(["'it'", '"a \\"b\\""', "f'{x}: {y!r}'", "'a' 'b'", "b'raw'", "r'\\d'"])


TEMPLATES = (
    *("torch.randn({}, {}, dtype={})", "torch.stack([{}, {}])", "f({}, key={})", "({},)"),
    *("({} + {}) * {}", "{} - ({} - {})", "({}) ** ({})", "-({})", "(not ({}))"),
    *("(({}) if ({}) else ({}))", "(({}) or ({}) and ({}))", "(({}) < ({}) <= ({}))"),
    *("{{'k': {}, **x}}", "[y for x in ({}) if ({})]", "x[{}, :, {}:]", "(await_ := ({}))"),
    *("x.to({}).view({}).sum()", "(lambda x, *y, z=1: ({}))", "({} @ {}, {})"),
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    filled = st.tuples(st.sampled_from(TEMPLATES), inner, inner, inner)
    return filled.map(lambda drawn: drawn[0].format(*drawn[1:]))


expressions = st.recursive(st.one_of(names, numbers, texts), grown, max_leaves=12)
heads = st.sampled_from(["x = {}", "return_ = yes, {}", "x += {}", "assert {}, 'no'", "{}"])


@settings(max_examples=150, deadline=None)
@given(heads, expressions, st.sampled_from([20, 60, 100]))
def test_any_expression_means_the_same_at_any_width(head: str, code: str, width: int) -> None:
    source = head.format(f"({code})") + "\n"
    made = tidy(source, width)
    assert without_positions(made) == without_positions(source)
    assert without_positions(tidy(made, 100)) == without_positions(source)


BLOCKS = '''
import os, sys
from torch import nn
@decorator(1)
class A(Base, metaclass=M):
    """What it is."""
    # above
    def f(self, x, /, y: int=1, *args, z, **rest) -> dict[str,int]:
        # first
        if x: # beside
            pass
        elif y:
            # inner
            return
        else:
            for i, j in z: print(i)
            else: x = 1
            # at the end of the block
        while (n := f(x)): break
        with open(x) as a, open(y): a = b = c
        try: raise E from e
        except (A, B) as error: del x, y[0]
        finally: x: int = 3
    async def g(self):
        async with a: await b
# last
'''


def test_statements_of_all_kinds_stay() -> None:
    made = tidy(BLOCKS)
    assert without_positions(made) == without_positions(BLOCKS)
    assert comments(made) == comments(BLOCKS)
    assert tidy(made) == made


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        tidy("x = (\n")
