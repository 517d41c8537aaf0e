"""The runner's calls against the operator's schema, in torch's own words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from check_kit import CONFIG, SKELETON, Tree

from orchestrator.author.facts import Argument, Operator, Place

LAUNCH = "return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)"
DIRECT = "torch.ops._C.my_op(x, y, out)"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def operator(*arguments: str, namespace: str = "_C", **fields: object) -> Operator:
    """``my_op`` with arguments as ``Tensor x``, ``int k=3``, ``*`` before keywords only."""
    found = []
    keyword_only = False
    for text in arguments:
        if text == "*":
            keyword_only = True
            continue
        kind, name = text.split(" ", 1)
        name, equals, default = name.partition("=")
        found.append(
            Argument(name, kind, default=default if equals else None, keyword_only=keyword_only)
        )
    return Operator(
        name="my_op",
        namespace=namespace,
        framework="vllm",
        kind="schema",
        call=f"torch.ops.{namespace}.my_op",
        arguments=tuple(found),
        sources=(Place("ops.cpp", 7),),
    )


XYO = ("Tensor x", "Tensor y", "Tensor out")


def found(tree: Tree, *operators: Operator) -> list[tuple[str, str]]:
    """Rule and message of what is found with these schemas at hand."""

    def known(name: str) -> Sequence[Operator]:
        return operators if name == "my_op" else ()

    return [(one.rule, one.message) for one in tree.check(known=known)]


def test_a_call_that_fits(tree: Tree) -> None:
    assert found(tree, operator(*XYO)) == []
    assert found(tree, operator(*XYO, "float eps=1e-6")) == []
    assert found(tree) == []


def test_a_missing_argument_in_torch_s_words(tree: Tree) -> None:
    both = [("missing-argument", "my_op: missing value for argument 'topK'")] * 2
    assert found(tree, operator(*XYO, "int topK")) == both
    fix = tree.check(known=lambda name: [operator(*XYO, "int topK", "int k=1")])[0].fix
    assert fix == "the operator is my_op(x, y, out, topK, k=1) (ops.cpp:7)"


def test_several_missing_arguments(tree: Tree) -> None:
    message = "my_op: missing value for argument 'a', 'b'"
    assert found(tree, operator(*XYO, "int a", "*", "int b"))[0] == ("missing-argument", message)


def test_too_many_arguments(tree: Tree) -> None:
    message = "my_op: expected at most 2 argument(s) but received 3"
    assert found(tree, operator(*XYO[:2])) == [("too-many-arguments", message)] * 2


def test_one_of_several_schemas_takes_the_call(tree: Tree) -> None:
    assert found(tree, operator(*XYO, "int k"), operator(*XYO)) == []


def test_another_library_s_operator_says_nothing(tree: Tree) -> None:
    assert found(tree, operator("int k", namespace="sgl_kernel")) == []


def test_an_operator_that_moved_to_another_namespace(tree: Tree) -> None:
    rules = found(tree, operator(*XYO, namespace="_moe_C"))
    message = "torch.ops._C.my_op is registered as torch.ops._moe_C.my_op"
    assert rules == [("other-namespace", message)] * 2


# Each calls with x and y only, where out is missing.
SPELLINGS = [
    "return self.make_launcher(dev_id, torch.ops._C.my_op, x, y)",
    "op_func = torch.ops._C.my_op\n        return self.make_launcher(dev_id, op_func, x, y)",
    "self.f = torch.ops._C.my_op\n        return self.make_launcher(dev_id, self.f, x, y)",
    "return self.make_launcher(dev_id, torch.ops._C.my_op.default, x, y)",
    'return self.make_launcher(dev_id, getattr(torch.ops._C, "my_op"), x, y)',
    "ops = torch.ops._C\n        return self.make_launcher(dev_id, ops.my_op, x, y)",
    "return self.make_launcher(dev_id, torch.ops._C.my_op, *(x, y))",
    "a = (x, y)\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
    "a = (x,)\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a, *[y])",
    "a = self._prepare(dev_id)[:2]\n"
    "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
    "return self.make_launcher(dev_id, torch.ops._C.my_op, *self._prepare(dev_id)[:-1])",
    "self.a = (x, y)\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *self.a)",
    "a = (x,) + (y,)\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
    "return self.make_launcher(dev_id, torch.ops._C.my_op, *tuple((x, y)))",
    "return self.make_launcher(dev_id, torch.ops._C.my_op, x, y=y)",
    "return self.make_launcher(dev_id, op=torch.ops._C.my_op, x=x, y=y)",
    "def launch(launch):\n            torch.ops._C.my_op(x, y)\n        return launch",
    "return lambda launch: torch.ops._C.my_op(x, y)",
    # What only interpreting the runner tells.
    "return lambda launch: self._call(x, y)",
    "return self.make_launcher(dev_id, self._call, x, y)",
    "self.pair = x, y\n        return self.make_launcher(dev_id, self._call, *self._two(x, y))",
    "a = [x]\n        a.append(y)\n"
    "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
    "a = self._nested(x, (y,))\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
    "return self.make_launcher(dev_id, torch.ops._C.my_op, *(n for n in (x, y)))",
    "m = {'y': y}\n        return self.make_launcher(dev_id, torch.ops._C.my_op, x, **m)",
]
HELPERS = """\
    def _call(self, *given):
        return torch.ops._C.my_op(*given)

    def _nested(self, x, others):
        return (x, *others)

    def _two(self, *given):
        return given

    def _prepare("""


@pytest.mark.parametrize("launch", SPELLINGS)
def test_spellings_of_a_call_that_lacks_one(tree: Tree, launch: str) -> None:
    text = SKELETON.replace(LAUNCH, launch).replace(DIRECT, "pass")
    tree.runner(text.replace("    def _prepare(", HELPERS))
    rules = found(tree, operator(*XYO))
    assert ("missing-argument", "my_op: missing value for argument 'out'") in rules
    assert [rule for rule, _ in rules if rule.endswith("-argument")] == ["missing-argument"]
    # And with what is missing by default, the same call is right.
    call_rules = {"missing-argument", "too-many-arguments", "unknown-argument", "argument-kind"}
    assert not call_rules & {
        rule for rule, _ in found(tree, operator(*XYO[:2], "Tensor? out=None"))
    }


@pytest.mark.parametrize(
    "launch",
    [
        "a = [x]\n        a.append(y)\n        a.append(out)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "return self.make_launcher(dev_id, torch.ops._C.my_op, *arguments_of(x))",
        "return self.make_launcher(dev_id, torch.ops._C.my_op, x, **more)",
        "a = [n for n in (x, y, out) if n.any()]\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = [x, y]\n        for n in range(dev_id):\n            a.append(out)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = [x, y]\n        if dev_id:\n            a.append(out)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = [x, y]\n        fill(a)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = list(given(x))\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = (x, y)\n        while dev_id:\n            a += (out,)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "def some():\n            return (x, y) if dev_id else (x, y, out)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *some())",
        "return self.make_launcher(dev_id, torch.ops._C.my_op, *self._some(x, y, out))",
        "a = (x, y) + self.extra\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = (x, y)\n        try:\n            a = (x, y, out)\n        except TypeError:\n"
        "            pass\n        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "a = (x, y)\n        if dev_id:\n            a = (x, y, out)\n"
        "        return self.make_launcher(dev_id, torch.ops._C.my_op, *a)",
        "return self.make_launcher(dev_id, lambda *a: torch.ops._C.my_op(*a, out), x, y)",
        "return self.make_launcher(dev_id, torch.ops._C.other, x)",
        "f = torch.ops._C.my_op if dev_id else None\n"
        "        return self.make_launcher(dev_id, f, x)",
        "return self.make_launcher(dev_id, functools.partial(torch.ops._C.my_op, x, y), out)",
    ],
)
def test_what_cannot_be_told_is_no_finding(tree: Tree, launch: str) -> None:
    some = """\
    def _some(self, x, y, out):
        if out.is_contiguous():
            return x, y
        return x, y, out

    def _prepare("""
    text = SKELETON.replace(LAUNCH, launch).replace(DIRECT, "pass")
    tree.runner(text.replace("    def _prepare(", some))
    rules = {rule for rule, _ in found(tree, operator(*XYO))}
    assert not {rule for rule in rules if "argument" in rule}


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from mcoplib import op", "op.my_op"),
        ("import mcoplib.op as op", "op.my_op"),
        ("import mcoplib.op", "mcoplib.op.my_op"),
        ("from mcoplib.op import my_op", "my_op"),
        ("from mcoplib.op import my_op as fast", "fast"),
    ],
)
def test_operators_of_a_module(tree: Tree, imports: str, call: str) -> None:
    text = SKELETON.replace("import mcoplib._C ", imports).replace("torch.ops._C.my_op", call)
    tree.runner(text)
    pybind = operator(*XYO, "float p", namespace="op")
    assert found(tree, pybind) == [
        ("missing-argument", "my_op: missing value for argument 'p'")
    ] * 2  # fmt: skip


@pytest.mark.parametrize(
    ("passed", "kind", "wrong"),
    [
        ("None", "Tensor", True),
        ("None", "Tensor?", False),
        ("None", "int", True),
        ("None", "int?", False),
        ("None", "Any", False),
        ("1.5", "int", True),
        ("1.5", "SymInt", True),
        ("1.5", "int?", True),
        ("1.5", "float", False),
        ("1", "float", False),
        ("True", "int", False),
        ("1", "Tensor", True),
        ("'auto'", "str", False),
        ("'auto'", "int", True),
        ("'auto'", "Tensor?", True),
        ("0", "str", True),
        ("(1, 2)", "int", True),
        ("(1, 2)", "int[]", False),
        ("[x, y]", "Tensor[]", False),
        ("x", "int", False),
        ("torch.float16", "ScalarType", False),
        ("torch.float16", "Tensor", True),
        ("torch.float16", "Tensor?", True),
        ("self.dtype", "Tensor", True),
        ("self.dtype", "ScalarType?", False),
        ("self.dtype", "int", False),
        ("'cuda'", "Device", False),
        ("self.num_tokens", "int", False),
        ("self.num_tokens", "str", True),
        ("self.epsilon", "int", True),
        ("self.epsilon", "float", False),
    ],
)
def test_kinds_of_literals_and_of_config_values(
    tree: Tree, passed: str, kind: str, wrong: bool
) -> None:
    read = '        self.hidden_size = config.get("hidden_size", 4096)\n'
    text = SKELETON.replace(read, f'{read}        self.epsilon = config.get("epsilon", 1e-6)\n')
    tree.runner(text.replace(LAUNCH, LAUNCH[:-1] + f", {passed})").replace(DIRECT, "pass"))
    tree.config({**CONFIG, "epsilon": [1e-6, 1e-5]})
    rules = [rule for rule, _ in found(tree, operator(*XYO, f"{kind} z"))]
    assert ("argument-kind" in rules) is wrong


def test_a_keyword_that_is_none_of_its_own(tree: Tree) -> None:
    tree.swap(LAUNCH, LAUNCH[:-1] + ", epsilom=1.0)")
    finding = tree.check(known=lambda name: [operator(*XYO, "float epsilon=1.0")])[0]
    assert finding.rule == "unknown-argument"
    assert finding.fix == "did you mean 'epsilon'?"


def test_a_value_that_is_given_twice(tree: Tree) -> None:
    tree.swap(LAUNCH, LAUNCH[:-1] + ", out=out)")
    message = "my_op: argument 'out' is given by position and by name"
    assert ("unknown-argument", message) in found(tree, operator(*XYO))


@pytest.mark.parametrize(
    ("order", "swapped"),
    [
        (("Tensor y", "Tensor x", "Tensor out"), True),
        (("Tensor out", "Tensor x", "Tensor y"), True),
        (("Tensor input", "Tensor y", "Tensor out"), False),
        (("Tensor y", "Tensor input", "Tensor out"), False),
        (("Tensor a", "Tensor b", "Tensor c"), False),
    ],
)
def test_arguments_in_each_other_s_places(
    tree: Tree, order: tuple[str, ...], swapped: bool
) -> None:
    rules = [rule for rule, _ in found(tree, operator(*order))]
    assert rules == ["swapped-arguments"] * 2 if swapped else rules == []


def test_source_says_that_an_operator_allocates(tree: Tree) -> None:
    from dataclasses import replace

    allocating = replace(operator(*XYO), allocates=(Place("k.cu", 30),))
    assert found(tree, allocating) == [
        (
            "many-samples-allocating",
            "1000 samples of an operator that allocates at each call (k.cu:30)",
        )
    ]
