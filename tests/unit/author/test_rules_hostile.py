"""Rules on runners that nobody would write: nothing raises, nothing hangs, nothing is run."""

from __future__ import annotations

import ast
import copy
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seeded.established import RUNNERS
from seeded.trees import SHIPPED, plant, runner_of

from orchestrator.author.check.benchmark import Benchmark
from orchestrator.author.check.flow.frames import MOST_STEPS
from orchestrator.author.check.flow.trace import traces
from orchestrator.author.check.registry import RULES
from orchestrator.author.check.rules import load_rules
from orchestrator.author.check.runner import Runner
from orchestrator.author.check.source import parse_text
from orchestrator.author.check.tree import CheckedTree

SOURCES = [
    *RUNNERS.values(),
    runner_of("my_op"),
    *(path.read_text() for path in sorted((SHIPPED / "runners").glob("*.py"))),
]
_HEAD = """import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase


class My_op_runner(OpBenchmarkBase):
    def run_verification(self, dev_id):
"""


def _look(folder: Path, text: str) -> None:
    """Ask every rule about a runner of this text."""
    load_rules()
    plant(folder, "my_op")
    (folder / "runners" / "mcoplib_mxbenchmark_my_op_runners.py").write_text(text, encoding="utf-8")
    benchmark = Benchmark(CheckedTree(folder), "my_op")
    for rule in RULES.values():
        if rule.scope == "benchmark" and rule.needs is None:
            list(rule.findings(benchmark, "my_op"))


def _mixed(text: str, seed: int) -> str:
    """The runner with some of its expressions, or statements, in each other's places."""
    chance = random.Random(seed)
    module = ast.parse(text)
    expressions = [n for n in ast.walk(module) if isinstance(n, ast.expr)]
    statements = [n for n in ast.walk(module) if isinstance(n, ast.stmt)]
    for _ in range(chance.randint(1, 6)):
        node = chance.choice(list(ast.walk(module)))
        fields = [
            (name, value)
            for name, value in ast.iter_fields(node)
            if (
                isinstance(value, ast.expr)
                and not isinstance(getattr(value, "ctx", None), ast.Store)
            )
            or (name == "body" and isinstance(value, list))
        ]
        if not fields:
            continue
        name, value = chance.choice(fields)
        if isinstance(value, list):
            value.insert(chance.randint(0, len(value)), copy.deepcopy(chance.choice(statements)))
        else:
            setattr(node, name, copy.deepcopy(chance.choice(expressions)))
    return ast.unparse(ast.fix_missing_locations(module))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SOURCES), st.integers(0, 2**32))
def test_no_mixture_of_runners_makes_a_rule_raise(
    tmp_path_factory: pytest.TempPathFactory, text: str, seed: int
) -> None:
    try:
        mixed = _mixed(text, seed)
        ast.parse(mixed)
    except (SyntaxError, ValueError, RecursionError, AttributeError, TypeError):
        return
    _look(tmp_path_factory.mktemp("mixed"), mixed)


@pytest.mark.parametrize(
    "body",
    [
        "        return self.run_verification(dev_id)\n",
        "        f = lambda g: g(g)\n        return f(f)\n",
        "        x = []\n        x.append(x)\n        return self.check_diff(x, x)\n",
        "        d = {}\n        d['d'] = d\n"
        "        return self.check_diff(d, torch.ops._C.x(d))\n",
        "        x = 10 ** 10 ** 10\n        return x << 9999999, 'a' * 10 ** 12\n",
        "        while True:\n            for i in range(10 ** 9):\n"
        "                torch.randn(i)\n",
        "        return " + "+".join(["x"] * 500) + "\n",
        "        return " + "(" * 60 + "x" + ")" * 60 + "\n",
        "        return x" + ".y" * 900 + "\n",
        "        return x" + "[0]" * 900 + "\n",
        "".join(f"        x{i} = torch.randn(8)\n" for i in range(3000)) + "        return x0\n",
        "        global run_verification\n        del self.x, dev_id[0]\n        (yield) \n",
        "        async def f():\n            await g()\n            async with g() as x: pass\n",
        "        match dev_id:\n            case [x, *y]: return self.check_diff(x, y)\n",
        "        [(a, b), *c], self.d, e[0] = torch.ops._C.x(*a, **b), *c\n",
        "        return [[[x for x in y] for y in z] for z in self.w], {**a, 'b': {*c}}\n",
        # What doubles with every line.
        *(
            "        x = torch.ops._C.y\n        y = [1, dev_id]\n"
            "        z = dev_id\n        s = 'a'\n"
            + f"        {doubling}\n" * 64
            + "        return self.check_diff(x, y, z, s, x == y, z == -z, {z: z})\n"
            for doubling in (
                "y = y + y",
                "y.extend(y)",
                "y = [*y, *y]",
                "y = (y, y)",
                "z = z * z",
                "z = -z - z",
                "s = s + s",
                "s = f'{s}{s}'",
                "s = s.replace('a', 'aa')",
                "s = '%s%s' % (s, s)",
                "y = {**{'a': y}, 'b': y}",
                "x = x if dev_id else [x]",
            )
        ),
        "        import os\n        os.system('exit 1')\n        return 1 / 0\n",
    ],
    ids=range(29),
)
def test_strange_code_is_borne(tmp_path: Path, body: str) -> None:
    _look(tmp_path, _HEAD + body)


def test_calls_that_multiply_end_with_the_budget() -> None:
    """Each method calls the next one three times: 3 ** 20 calls."""
    methods = "".join(
        f"    def m{i}(self):\n" + f"        self.m{i + 1}()\n" * 3 + "\n" for i in range(20)
    )
    text = f"{_HEAD}        return self.m0()\n\n{methods}    def m20(self):\n        pass\n"
    runner = Runner(parse_text(Path("x.py"), "x.py", text))
    trace = traces(runner).verification
    assert not trace.complete
    assert len(trace.events) < MOST_STEPS


@pytest.mark.parametrize("text", ["", "x = 1\n", "class A: pass\n", _HEAD + "        pass\n"])
def test_hardly_a_runner_is_borne(tmp_path: Path, text: str) -> None:
    _look(tmp_path, text)
