"""Unit tests that fight back: one sentence with its place, never a traceback, never a hang."""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from emit_kit import operator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trial_kit import CASES, TRIALS

from orchestrator.author.trial import read_trial
from orchestrator.errors import MxfleetError, TreeError, UsageError

SILU = operator("silu", "out!: Tensor", "x: Tensor")
GOOD = """
import torch
import mcoplib._C
def test_it():
    x = torch.randn(4)
    out = torch.empty_like(x)
    torch.ops._C.silu(out, x)
    torch.testing.assert_close(out, x)
"""


@contextmanager
def _not_for_ever(seconds: int = 20) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\x01\x02", r"not Python|null bytes"),
        (b"\x7fELF" + bytes(range(256)), "not Python text"),
        (b"x = '\xff\xfe'\n", "not Python text"),
        (b"# coding: nosuch\nx = 1\n", "not Python text"),
        (b"def f(:\n", "syntax error"),
        (b"x = " + b"(" * 5000 + b")" * 5000, "not Python|syntax error|nested"),
        (b"x = " + b"-" * 200_000 + b"1", "not Python|syntax error|nested"),
        (b"#" * (5 << 20), "4 MiB|5 MiB|no unit test"),
    ],
)
def test_what_is_no_python(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "test_it.py"
    path.write_bytes(content)
    with _not_for_ever(), pytest.raises(TreeError, match=words) as caught:
        read_trial(path, SILU)
    assert caught.value.where and caught.value.where.startswith(str(path))
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_other_encodings_and_ends_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_bytes(("# coding: latin-1\n# \xe9\n" + GOOD).encode("latin-1"))
    assert read_trial(path, SILU).outputs
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    trial = read_trial(path, SILU)
    assert trial.prepare == ("x = torch.randn(4)", "out = torch.empty_like(x)")
    path.write_text(GOOD.replace("x = torch.randn(4)", "x = torch.randn(4)  # \x0c page"))
    assert read_trial(path, SILU).prepare[0] == "x = torch.randn(4)  # \x0c page"


def test_what_is_no_file(tmp_path: Path) -> None:
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "missing.py", loop, pipe, tmp_path / ("x" * 400)):
        with _not_for_ever(), pytest.raises(TreeError) as caught:
            read_trial(path, SILU)
        assert caught.value.where == str(path)


def test_deep_nesting_is_told(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    deep = "x = " + " + ".join(["1"] * 3000)
    path.write_text(GOOD.replace("x = torch.randn(4)", f"{deep}\n    x = torch.randn(4)"))
    with _not_for_ever(), pytest.raises(TreeError, match=r"nested|not Python"):
        read_trial(path, SILU)
    blocks = "".join(f"{'  ' * i}if x:\n" for i in range(1, 90)) + "  " * 90 + "pass\n"
    path.write_text(GOOD + "def other(x):\n" + blocks)
    with _not_for_ever():
        try:
            assert read_trial(path, SILU).outputs
        except TreeError as error:
            assert "not Python" in str(error) or "syntax" in str(error) or "nested" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        # circles: of functions, of names, of modules, of fixtures
        "def a(x):\n    b(x)\n    torch.ops._C.silu(x, x)\ndef b(x):\n    a(x)\n"
        "def test_it():\n    x = torch.randn(2)\n    a(x)\n"
        "    torch.testing.assert_close(x, x + 1)\n",
        "A = B\nB = A\n@pytest.mark.parametrize('n', A)\ndef test_it(n):\n"
        "    torch.ops._C.silu(n, n)\n",
        "from test_it import *\nfrom other import f\ndef test_it():\n    x = f()\n"
        "    torch.ops._C.silu(x, x)\n",
        "@pytest.fixture\ndef a(b):\n    return b\n@pytest.fixture\ndef b(a):\n    return a\n"
        "def test_it(a):\n    torch.ops._C.silu(a, a)\n",
        "def test_it(n):\n    torch.ops._C.silu(n, n)\n    test_it(n + 1)\n",
        # numbers and lists without end
        "N = 10 ** 10 ** 10\n@pytest.mark.parametrize('n', [N, 2 ** 2 ** 2 ** 99])\n"
        "def test_it(n):\n    torch.ops._C.silu(n, n)\n",
        "@pytest.mark.parametrize('n', range(10 ** 12))\ndef test_it(n):\n"
        "    torch.ops._C.silu(n, n)\n",
        "@pytest.mark.parametrize('n', [0] * 10 ** 9)\ndef test_it(n):\n"
        "    torch.ops._C.silu(n, n)\n",
        "import itertools\nR = range(4000)\n"
        "@pytest.mark.parametrize('a,b', list(itertools.product(R, R, R, R)))\n"
        "def test_it(a, b):\n    torch.ops._C.silu(a, b)\n",
        "L = [[0] * 2000 for _ in range(2000)]\nM = [L for _ in L for _ in L]\n"
        "@pytest.mark.parametrize('n', M)\ndef test_it(n):\n    torch.ops._C.silu(n, n)\n",
        "S = 'x' * 4000\nT = ','.join(S)\n@pytest.mark.parametrize(S, [S])\n"
        "def test_it():\n    torch.ops._C.silu(1, 1)\n",
        # odd shapes of calls and marks
        "@pytest.mark.parametrize()\ndef test_it():\n    torch.ops._C.silu()\n",
        "@pytest.mark.parametrize('a,b', [1, (2,), (3, 4, 5)])\ndef test_it(a, b):\n"
        "    torch.ops._C.silu(a, b)\n",
        "def test_it():\n    torch.ops._C.silu(*(), **{})\n",
        "def test_it():\n    torch.ops._C.silu(*[*[1]], **{'x': 1, **{}})\n",
        "async def test_it():\n    async with a as b:\n        torch.ops._C.silu(b, b)\n",
        "class TestIt:\n    def test_it():\n        torch.ops._C.silu(1, 1)\n",
        "def test_it():\n    x: int\n    y = z = torch.ops._C.silu(1, 1)\n    [a.b, *c] = y\n",
        "def test_it():\n    f = lambda: torch.ops._C.silu(1, 1)\n    [f() for _ in range(2)]\n",
        "def test_it():\n    if torch.ops._C.silu(1, 1): pass\n"
        "    assert torch.ops._C.silu(2, 2)\n",
        "torch.ops._C.silu(1, 1)\n",
        "def test_it():\n    match 1:\n        case 1: torch.ops._C.silu(1, 1)\n",
        "def test_it():\n    x = 1\n    del x\n    global y\n    y = 2\n"
        "    torch.ops._C.silu(y, y)\n",
    ],
)
def test_odd_tests_are_read_or_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("import pytest\nimport torch\n" + text)
    (tmp_path / "other.py").write_text("from test_it import *\nfrom other import f\n")
    with _not_for_ever():
        try:
            trial = read_trial(path, SILU)
        except MxfleetError as error:
            assert isinstance(error, (TreeError, UsageError))
            return
    assert trial.function
    for part in (*trial.prepare, *trial.reference, *trial.after, *trial.helpers):
        ast.parse(part)


def test_many_functions_are_read_in_reasonable_time(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    many = "\n".join(
        f"def helper_{i}(x):\n    return helper_{i + 1}(x) + helper_{i + 2}(x)" for i in range(2000)
    )
    tests = "\n".join(
        GOOD.replace("test_it", f"test_{i}").replace("randn(4)", f"randn({i + 1})")
        for i in range(100)
    )
    path.write_text(many + tests)
    with _not_for_ever():
        assert read_trial(path, SILU).outputs


def test_a_chain_of_helpers_is_followed_however_long(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    chain = "\n".join(f"def f{i}(x):\n    return f{i + 1}(x)" for i in range(150))
    chain += "\ndef f150(x):\n    return x\n"
    path.write_text(chain + GOOD.replace("assert_close(out, x)", "assert_close(out, f0(x))"))
    with _not_for_ever():
        trial = read_trial(path, SILU)
    assert len(trial.helpers) == 151
    assert not trial.todos


def test_a_function_that_calls_itself_is_not_unrolled(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    again = "\n".join(f"    check({n})" for n in range(4))
    path.write_text(GOOD.replace("test_it()", "check(n)") + again + "\ndef test_it(): check(9)\n")
    with _not_for_ever(5):
        trial = read_trial(path, SILU)
    assert trial.arguments == {"out": "out", "x": "x"}


SOURCES = {case.source: (TRIALS / f"{case.source}.py").read_text() for case in CASES}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=st.sampled_from(CASES), data=st.data())
def test_damaged_tests_never_end_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, case: object, data: st.DataObject
) -> None:
    assert isinstance(case, type(CASES[0]))
    lines = SOURCES[case.source].split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "twice", "swap", "name", "indent"]))
        if change == "drop" and len(lines) > 1:
            lines.pop(index)
        elif change == "twice":
            lines.insert(index, lines[index])
        elif change == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[index], lines[other] = lines[other], lines[index]
        elif change == "name":
            lines[index] = lines[index].replace("x", "y").replace("torch", "math")
        else:
            lines[index] = "    " + lines[index]
    path = tmp_path_factory.mktemp("damaged") / "test_it.py"
    path.write_text("\n".join(lines))
    with _not_for_ever():
        try:
            trial = read_trial(path, case.operator)
        except MxfleetError:
            return
    for part in (*trial.prepare, *trial.reference, *trial.after, *trial.helpers):
        ast.parse(part)
