"""How a unit test may spell things: its operator, what it varies, how it compares, its devices."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from emit_kit import operator

from orchestrator.author.facts import Operator, Trial
from orchestrator.author.trial import read_trial
from orchestrator.errors import UsageError

SILU = operator("silu", "out!: Tensor", "x: Tensor")
RET = operator("ret", "x: Tensor", "eps: float = 1e-6", returns=("Tensor",))
NORM = operator("norm", "x!: Tensor", "res!: Tensor", "w: Tensor", "eps: float")
TOPK = operator("topk", "w!: Tensor", "i!: Tensor", "x: Tensor")


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read(op: Operator, text: str, **others: str) -> Trial:
        for name, content in others.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(content))
        path = tmp_path / "test_it.py"
        head = "import pytest\nimport torch\nimport mcoplib._C\n"
        path.write_text(head + textwrap.dedent(text))
        return read_trial(path, op)

    return read


def _outputs(trial: Trial) -> list[tuple[str, str, str]]:
    return [(o.actual, o.expected, o.how) for o in trial.outputs]


def _parameters(trial: Trial) -> dict[str, tuple[str, ...]]:
    return {p.name: p.values for p in trial.parameters}


# -- the operator ---------------------------------------------------------------------------------

BODY = """
{imports}
{more}
def test_it():
    x = torch.randn(4, 8, device="cuda")
    out = torch.empty_like(x)
    {call}
    torch.testing.assert_close(out, x * x.sigmoid())
"""


@pytest.mark.parametrize(
    ("imports", "more", "call"),
    [
        ("", "", "torch.ops._C.silu(out, x)"),
        ("", "", "torch.ops._C.silu.default(out, x)"),
        ("", "ops = torch.ops._C", "ops.silu(out, x)"),
        ("", "", "ops = torch.ops._C; ops.silu(out, x)"),
        ("", "fn = torch.ops._C.silu", "fn(out, x)"),
        ("", "", "fn = getattr(torch.ops._C, 'silu'); fn(out, x)"),
        ("", "", "getattr(torch.ops._C, 'silu')(out, x)"),
        ("from vllm import _custom_ops as ops", "", "ops.silu(out, x)"),
        ("import vllm._custom_ops as ops", "", "ops.silu(out, x)"),
        ("from mcoplib import op", "", "op.silu(out, x)"),
        ("import mcoplib.op as o", "", "o.silu(out, x)"),
        ("import mcoplib.op", "", "mcoplib.op.silu(out, x)"),
        ("from sgl_kernel import silu", "", "silu(out, x)"),
        ("from sgl_kernel import silu as act", "", "act(out, x)"),
        ("import functools", "", "functools.partial(torch.ops._C.silu, out)(x)"),
        ("from functools import partial", "", "fn = partial(torch.ops._C.silu, x=x); fn(out)"),
        ("", "", "args = (out, x); torch.ops._C.silu(*args)"),
        ("", "", "kw = {'x': x, 'out': out}; torch.ops._C.silu(**kw)"),
        ("", "", "kw = dict(x=x); torch.ops._C.silu(out, **kw)"),
        ("", "def run(a, b):\n    torch.ops._C.silu(a, b)", "run(out, x)"),
        ("", "def run(b):\n    o = torch.empty_like(b)\n    torch.ops._C.silu(o, b)\n    return o",
         "out = run(x)"),
        ("", "", "with torch.inference_mode(), torch.cuda.stream(s): torch.ops._C.silu(out, x)"),
        ("", "", "torch.ops._C.silu(out=out, x=x)"),
    ],
)  # fmt: skip
def test_the_operator_is_found(read, imports: str, more: str, call: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(SILU, BODY.format(imports=imports, more=more, call=call))
    assert not trial.todos
    (output,) = trial.outputs
    assert output.how == "close"
    assert set(trial.arguments) == {"out", "x"}
    assert trial.arguments["x"] == "x" and trial.arguments["out"] == output.actual
    assert trial.reference[-1] == f"{output.expected} = x * x.sigmoid()"


def test_a_reference_of_the_same_name_is_not_the_operator(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        import torch.nn.functional as F
        def test_it():
            x = torch.randn(4, device="cuda")
            out = torch.empty_like(x)
            ref = F.silu(x)
            torch.ops._C.silu(out, x)
            assert torch.allclose(ref, out)
        """,
    )
    assert trial.reference == ("ref = F.silu(x)",)
    assert _outputs(trial) == [("out", "ref", "close")]


def test_nothing_calls_it(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r'nothing in the unit test calls silu; it calls "silu2"'):
        read(SILU, "def test_it():\n    torch.ops._C.silu2(1)\n")


@pytest.mark.parametrize("order", ["first", "second"])
def test_the_test_that_compares_is_chosen(read, order: str) -> None:  # type: ignore[no-untyped-def]
    runs = """
def test_runs():
    x = torch.randn(4, device="cuda")
    torch.ops._C.silu(torch.empty_like(x), x)
"""
    compares = """
def test_compares():
    x = torch.randn(4, device="cuda")
    out = torch.empty_like(x)
    torch.ops._C.silu(out, x)
    torch.testing.assert_close(out, x)
"""
    text = runs + compares if order == "first" else compares + runs
    assert read(SILU, text).function == "test_compares"


def test_a_parametrised_test_is_preferred(read) -> None:  # type: ignore[no-untyped-def]
    one = "def test_{}({}):\n    x = torch.randn({})\n    out = torch.empty_like(x)\n"
    one += "    torch.ops._C.silu(out, x)\n    torch.testing.assert_close(out, x)\n"
    text = one.format("one", "", "4")
    text += "@pytest.mark.parametrize('n', [4, 8])\n" + one.format("many", "n", "n")
    assert read(SILU, text).function == "test_many"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("torch.ops._C.ret(x, 1e-5, 3)", "passes 3 arguments, of which the operator has 2"),
        ("torch.ops._C.ret(x, epsilon=1)", "passes argument epsilon, which ret lacks"),
        ("torch.ops._C.ret(x, x=1)", "passes argument x, twice"),
        ("torch.ops._C.ret(*some())", "what *some() passes"),
        ("torch.ops._C.ret(x, **some())", "what **some() passes"),
    ],
)
def test_calls_that_do_not_fit_are_told(read, call: str, words: str) -> None:  # type: ignore[no-untyped-def]
    text = f"def some(): ...\ndef test_it():\n    x = torch.randn(3)\n    y = {call}\n"
    trial = read(RET, text + "    torch.testing.assert_close(y, x)\n")
    assert any(words in todo.what for todo in trial.todos)


def test_the_call_of_opcheck_is_a_call(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        from tests.kernels.utils import opcheck
        class Layer:
            def forward_native(self, x):
                return x * x.sigmoid()
        @pytest.mark.parametrize("n", [4, 8])
        def test_it(n):
            x = torch.randn(n, 4, device="cuda")
            layer = Layer()
            out = layer(x)
            ref_out = layer.forward_native(x)
            torch.testing.assert_close(out, ref_out)
            out = torch.empty_like(x)
            opcheck(torch.ops._C.silu, (out, x))
        """,
    )
    assert trial.arguments == {"out": "out", "x": "x"}
    assert _outputs(trial) == [("out", "ref_out", "close")]
    assert not trial.todos


def test_the_operator_inside_of_a_layer(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        class Model(torch.nn.Module):
            def forward(self, x):
                out = torch.empty_like(x)
                torch.ops._C.silu(out, x)
                return out
        def test_it():
            model = Model().cuda()
            x = torch.randn(3, 4, device="cuda")
            torch.testing.assert_close(actual=model(x), expected=x * x.sigmoid())
        """,
    )
    assert trial.prepare[-1] == "out = torch.empty_like(x)"
    assert trial.outputs[0].actual == "out"


# -- what is varied -------------------------------------------------------------------------------

VARIED = """
{above}
{marks}
def test_it({names}):
    x = torch.randn({use}, device="cuda")
    y = torch.ops._C.ret(x)
    torch.testing.assert_close(y, x)
"""


@pytest.mark.parametrize(
    ("above", "marks", "expected"),
    [
        ("", "@pytest.mark.parametrize('m', [1, 2])\n@pytest.mark.parametrize('n', (3,))",
         {"m": ("1", "2"), "n": ("3",)}),
        ("", "@pytest.mark.parametrize('m, n', [(1, 2), (3, 4)])",
         {"m": ("1", "3"), "n": ("2", "4")}),
        ("", "@pytest.mark.parametrize(['m', 'n'], [[1, 2], [3, 4]])",
         {"m": ("1", "3"), "n": ("2", "4")}),
        ("", "@pytest.mark.parametrize(argnames=('m', 'n'), argvalues=[(1, 2)], ids=['a'])",
         {"m": ("1",), "n": ("2",)}),
        ("", "@pytest.mark.parametrize('m,n', [pytest.param(1, 2, marks=pytest.mark.slow)])",
         {"m": ("1",), "n": ("2",)}),
        ("S = [1, 2]\nT = S + [64 * 2]", "@pytest.mark.parametrize('m', T)\n"
         "@pytest.mark.parametrize('n', [s for s in S if s > 1])",
         {"m": ("1", "2", "128"), "n": ("2",)}),
        ("import itertools\nS = [1, 2]",
         "@pytest.mark.parametrize('m,n', list(itertools.product(S, range(3, 5))))",
         {"m": ("1", "2"), "n": ("3", "4")}),
        ("S = {'a': 1, 'b': 2}", "@pytest.mark.parametrize('m', S.values())\n"
         "@pytest.mark.parametrize('n', [2**3])", {"m": ("1", "2"), "n": ("8",)}),
        ("pytestmark = [pytest.mark.parametrize('m,n', [(5, 6)])]", "",
         {"m": ("5",), "n": ("6",)}),
        ("@pytest.fixture(params=[7, 8])\ndef m(request):\n    return request.param\n"
         "@pytest.fixture\ndef n():\n    return 9", "", {"m": ("7", "8"), "n": ("9",)}),
        ("from parameterized import parameterized", "@parameterized.expand([(1, 2)])",
         {"m": ("1",), "n": ("2",)}),
    ],
)  # fmt: skip
def test_parameters_are_read(read, above: str, marks: str, expected: dict) -> None:  # type: ignore[no-untyped-def, type-arg]
    trial = read(RET, VARIED.format(above=above, marks=marks, names="m, n", use="m, n"))
    assert not trial.todos
    assert _parameters(trial) == expected
    assert all(p.kind == "int" for p in trial.parameters)


def test_what_belongs_together_is_told(read) -> None:  # type: ignore[no-untyped-def]
    marks = "@pytest.mark.parametrize('m,n', [(1, 2), (3, 4)])"
    trial = read(RET, VARIED.format(above="", marks=marks, names="m, n", use="m, n"))
    assert [p.together for p in trial.parameters] == [("n",), ("m",)]


@pytest.mark.parametrize("unpack", ["a, b = shape", "a, b = shape[0], shape[1]"])
def test_tuples_become_a_parameter_for_each_element(read, unpack: str) -> None:  # type: ignore[no-untyped-def]
    text = f"""
@pytest.mark.parametrize("shape", [(1, 2), (3, 4)])
def test_it(shape):
    {unpack}
    x = torch.randn(a, b, device="cuda")
    torch.testing.assert_close(torch.ops._C.ret(x), x)
"""
    trial = read(RET, text)
    assert not trial.todos
    assert list(_parameters(trial).values()) == [("1", "3"), ("2", "4")]


@pytest.mark.parametrize(
    ("values", "use"),
    [
        ("[torch.half, torch.float]", "dtype"),
        ("['float16', 'float32']", "getattr(torch, dtype)"),
        ("['h', 'f']", "{'h': torch.half, 'f': torch.float}[dtype]"),
        ("['h', 'f']", "TYPES[dtype]"),
    ],
)
def test_dtypes_in_any_spelling(read, values: str, use: str) -> None:  # type: ignore[no-untyped-def]
    text = f"""
TYPES = dict(h=torch.half) | dict(f=torch.float)
TYPES = {{"h": torch.half, "f": torch.float32}}
@pytest.mark.parametrize("dtype", {values})
def test_it(dtype):
    x = torch.randn(4, dtype={use}, device="cuda")
    torch.testing.assert_close(torch.ops._C.ret(x), x)
"""
    trial = read(RET, text.replace("TYPES = dict(h=torch.half) | dict(f=torch.float)\n", ""))
    (parameter,) = trial.parameters
    assert parameter.kind == "dtype"
    assert parameter.values == ("torch.float16", "torch.float32")
    assert trial.prepare == ("x = torch.randn(4, dtype=dtype, device=device)",)


def test_loops_and_literals_are_parameters(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        HIDDEN = 64
        def test_it():
            rows, eps = 8, 1e-5
            for n in [1, 2]:
                for dtype in (torch.half, torch.bfloat16):
                    x = torch.randn(rows, n, HIDDEN, dtype=dtype, device="cuda")
                    torch.testing.assert_close(torch.ops._C.ret(x, eps), x)
        """,
    )
    assert _parameters(trial) == {
        "n": ("1", "2"),
        "dtype": ("torch.float16", "torch.bfloat16"),
        "hidden": ("64",),
        "rows": ("8",),
        "eps": ("1e-05",),
    }


def test_values_that_lead_elsewhere_are_left_out(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        @pytest.mark.parametrize("version", ["v1", "v2", "v3"])
        @pytest.mark.parametrize("n", [4, 8, 512])
        def test_it(version, n):
            if n > 256:
                pytest.skip("slow")
            x = torch.randn(n, device="cuda")
            if version == "v1":
                y = torch.ops._C.ret(x)
            elif version == "v2":
                y = torch.ops._C.ret_v2(x)
            else:
                raise ValueError(version)
            ref = x if version == "v1" else x * 2
            torch.testing.assert_close(y, ref)
        """,
    )
    assert _parameters(trial) == {"n": ("4", "8", "512")}
    assert trial.skips == ("n > 256",)
    assert _outputs(trial) == [("y", "x", "close")]


def test_of_a_script_the_calls_below_give_the_values(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def check(n, dtype=torch.half, seed=3):
            torch.manual_seed(seed)
            x = torch.randn(n, dtype=dtype).cuda()
            y = torch.ops._C.ret(x)
            assert torch.equal(y, x)
        if __name__ == "__main__":
            for size in (16, 32):
                check(size)
            check(64, dtype=torch.float)
        """,
    )
    found = _parameters(trial)
    assert found["n"] == ("16", "32", "64")
    assert found["dtype"] == ("torch.float16", "torch.float16", "torch.float32")
    assert _outputs(trial) == [("y", "x", "exact")]


def test_values_that_nobody_gives_are_told(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def test_it(size):
            x = torch.randn(size, device="cuda")
            torch.testing.assert_close(torch.ops._C.ret(x), x)
        """,
    )
    assert [t.what for t in trial.todos] == [
        "values of the test's argument size: nothing at hand defines it"
    ]


# -- comparisons ----------------------------------------------------------------------------------

COMPARED = """
import unittest
import numpy as np
import torch.nn.functional as F
LIMIT = 1e-3
TOLERANCES = {{torch.half: dict(atol=1e-2, rtol=1e-1)}}
def close_enough(a, b, limit=1e-2):
    return (a - b).abs().max().item() < limit
def check(a, b):
    if a.shape != b.shape:
        raise AssertionError("shapes")
    torch.testing.assert_close(a, b, atol=LIMIT, rtol=0)
def calc_diff(x, y):
    x, y = x.double(), y.double()
    return 1 - 2 * (x * y).sum() / (x * x + y * y).sum()
class TestIt(unittest.TestCase):
    def test_it(self):
        dtype = torch.half
        x = torch.randn(8, 8, dtype=dtype, device="cuda")
        y = torch.ops._C.ret(x)
        z = x + 1
        {compare}
"""


@pytest.mark.parametrize(
    ("compare", "how", "atol", "rtol"),
    [
        ("torch.testing.assert_close(y, z)", "close", None, None),
        ("torch.testing.assert_close(z, y, rtol=1e-2, atol=LIMIT)", "close", "0.001", "0.01"),
        ("torch.testing.assert_close(y, z, rtol=0, atol=0)", "exact", "0", "0"),
        ("torch.testing.assert_close(expected=z, actual=y)", "close", None, None),
        ("torch.testing.assert_allclose(y, z, 0.1, 0.2)", "close", "0.2", "0.1"),
        ("assert torch.allclose(y, z)", "close", "1e-08", "1e-05"),
        ("assert torch.allclose(y, z, 0.1, 0.2), 'text'", "close", "0.2", "0.1"),
        ("assert y.allclose(z, atol=0.5)", "close", "0.5", "1e-05"),
        ("assert torch.equal(y, z)", "exact", None, None),
        ("assert y.equal(z)", "exact", None, None),
        ("assert (y == z).all()", "exact", None, None),
        ("assert torch.all(y == z)", "exact", None, None),
        ("assert bool(torch.all(torch.eq(y, z)).item())", "exact", None, None),
        ("assert y.tolist() == z.tolist()", "exact", None, None),
        ("assert (y != z).sum() == 0", "exact", None, None),
        ("assert (y - z).abs().max() < 1e-3", "close", "0.001", "0"),
        ("assert 1e-3 > (y - z).abs().max().item()", "close", "0.001", "0"),
        ("assert torch.max(torch.abs(z - y)) <= LIMIT", "close", "0.001", "0"),
        ("err = (y.float() - z.float()).abs().max()\n        assert err < 0.1",
         "close", "0.1", "0"),
        ("assert ((y - z).abs() / z.abs()).max() < 0.1", "close", None, "0.1"),
        ("assert (y - z).norm() / z.norm() < 0.1", "close", None, "0.1"),
        ("ok = torch.allclose(y, z, atol=0.5)\n        assert ok", "close", "0.5", "1e-05"),
        ("if not torch.allclose(y, z, atol=0.5):\n            raise ValueError",
         "close", "0.5", "1e-05"),
        ("print('ok' if torch.allclose(y, z) else 'bad')", "close", "1e-08", "1e-05"),
        ("self.assertTrue(torch.allclose(y, z, atol=0.1, rtol=0))", "close", "0.1", "0"),
        ("self.assertTrue(torch.equal(y, z), msg='x')", "exact", None, None),
        ("self.assertLess((y - z).abs().max().item(), 0.1)", "close", "0.1", "0"),
        ("self.assertEqual(y.tolist(), z.tolist())", "exact", None, None),
        ("np.testing.assert_allclose(y.cpu().numpy(), z.cpu().numpy(), rtol=0.1)",
         "close", "0.0", "0.1"),
        ("np.testing.assert_array_equal(y.cpu().numpy(), z.cpu().numpy())", "exact", None, None),
        ("assert F.cosine_similarity(y.flatten(), z.flatten(), dim=0) > 0.99",
         "cosine", "1 - 0.99", None),
        ("cos = F.cosine_similarity(y.view(1, -1), z.view(1, -1))\n        assert 1 - cos < 0.1",
         "cosine", "0.1", None),
        ("assert torch.nn.CosineSimilarity(dim=0)(y.view(-1), z.view(-1)).item() >= 0.99",
         "cosine", "1 - 0.99", None),
        ("assert calc_diff(y, z) < 0.001", "cosine", "0.001", None),
        ("assert close_enough(y, z)", "close", "0.01", "0"),
        ("check(y, z)", "close", "0.001", "0"),
        ("torch.testing.assert_close(y, z, **TOLERANCES[dtype])",
         "close", "TOLERANCES[dtype]['atol']", "TOLERANCES[dtype]['rtol']"),
        ("assert y.shape == z.shape and torch.equal(y, z)", "exact", None, None),
        ("assert all(torch.equal(a, b) for a, b in zip([y], [z]))", "exact", None, None),
        ("assert torch.equal(y.sort()[0], z.sort()[0])", "unordered", None, None),
        ("assert torch.equal(torch.sort(y, dim=-1).values, torch.sort(z, dim=-1).values)",
         "unordered", None, None),
        ("a, _ = torch.sort(y, -1)\n        b, _ = torch.sort(z, -1)\n"
         "        torch.testing.assert_close(a, b)", "unordered", None, None),
        ("for i in range(8):\n            assert set(y[i].tolist()) == set(z[i].tolist())",
         "unordered", None, None),
        ("for i in range(8):\n            torch.testing.assert_close(y[i], z[i])",
         "close", None, None),
    ],
)  # fmt: skip
def test_comparisons(read, compare: str, how: str, atol: str | None, rtol: str | None) -> None:  # type: ignore[no-untyped-def]
    trial = read(RET, COMPARED.format(compare=compare))
    assert not trial.todos
    (output,) = trial.outputs
    assert (output.how, output.atol, output.rtol) == (how, atol, rtol)
    text = " ".join([*trial.reference, *trial.after, output.expected])
    assert "z" in text and "y" in " ".join([*trial.after, output.actual])
    assert "z = x + 1" in trial.reference


@pytest.mark.parametrize(
    "compare",
    [
        "assert y.shape == z.shape",
        "assert y.dtype == x.dtype",
        "assert not torch.isnan(y).any()",
        "opcheck(torch.ops._C.ret, (x,))",
        "print(y, z)",
        "torch.testing.assert_close(x, z)",
    ],
)
def test_what_is_no_comparison_of_it(read, compare: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(RET, COMPARED.format(compare=compare))
    assert not trial.outputs
    assert "compares nothing" in trial.todos[-1].what


def test_tolerances_of_branches_become_one_expression(read) -> None:  # type: ignore[no-untyped-def]
    compare = """if dtype == torch.half:
            torch.testing.assert_close(y, z, atol=1e-2, rtol=1)
        else:
            torch.testing.assert_close(y, z, atol=1e-3, rtol=1)"""
    (output,) = read(RET, COMPARED.format(compare=compare)).outputs
    assert output.atol == "0.01 if dtype == torch.half else 0.001"
    assert (output.rtol, output.when) == ("1", None)


def test_what_is_compared_only_sometimes(read) -> None:  # type: ignore[no-untyped-def]
    compare = "if x is not None:\n            assert torch.equal(y, z)"
    (output,) = read(RET, COMPARED.format(compare=compare)).outputs
    assert output.when == "x is not None"


# -- slices ---------------------------------------------------------------------------------------


def test_in_place_operators_have_copies_or_the_tests_own_clones(read) -> None:  # type: ignore[no-untyped-def]
    head = """
def ref(x, res, w, eps):
    res = res + x
    return res * w, res
def test_it(eps=1e-6):
    x = torch.randn(4, 8, device="cuda")
    res = torch.randn_like(x)
    w = torch.ones(8, device="cuda")
"""
    compare = "    torch.testing.assert_close(x, a)\n    torch.testing.assert_close(res, b)\n"
    plain = read(
        NORM,
        head + "    a, b = ref(x, res, w, eps)\n    torch.ops._C.norm(x, res, w, eps)\n" + compare,
    )
    assert set(plain.copied) == {"x", "res"}
    own = read(
        NORM,
        head + "    x2, res2 = x.clone(), res.clone()\n    torch.ops._C.norm(x, res, w, eps)\n"
        "    a, b = ref(x2, res2, w, eps)\n" + compare,
    )
    assert own.copied == ()
    assert "x2, res2 = x.clone(), res.clone()" in own.prepare
    assert own.reference == ("a, b = ref(x2, res2, w, eps)",)


def test_only_what_is_needed_is_kept(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        import time, os
        def unused(): ...
        def helper(n):
            return n + OFFSET
        OFFSET = 2
        def test_it(capsys):
            os.environ["A"] = "1"
            torch.manual_seed(0)
            print("start")
            start = time.time()
            other = torch.randn(3, device="cuda")
            n = helper(4)
            x = torch.empty(n, device="cuda")
            x.uniform_(-1, 1)
            x[0] = 3
            x *= 2
            assert x.is_contiguous()
            if n > 5:
                x.add_(1)
                print(x)
            with torch.no_grad():
                y = torch.ops._C.ret(x)
            torch.cuda.synchronize()
            print(time.time() - start, other)
            torch.testing.assert_close(y, x.abs())
        """,
    )
    assert trial.prepare == (
        "n = helper(4)",
        "x = torch.empty(n, device=device)",
        "x.uniform_(-1, 1)",
        "x[0] = 3",
        "x *= 2",
        "if n > 5:\n    x.add_(1)",
    )
    assert trial.helpers == ("OFFSET = 2", "def helper(n):\n    return n + OFFSET")
    assert trial.imports == ("import torch",)


def test_devices_and_seeds_are_names(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        import random
        DEV = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        def test_it(seed=0):
            random.seed(seed)
            torch.manual_seed(seed)
            g = torch.Generator(device="cuda:0").manual_seed(7)
            torch.set_default_device("cuda")
            n = random.choice([4])
            x = torch.randn(n, generator=g, device=DEV) + torch.rand(n).cuda() + torch.ones(n)
            torch.testing.assert_close(torch.ops._C.ret(x), x)
        """,
    )
    assert trial.device_names == ("device",)
    assert trial.seed_names == ("seed",)
    assert trial.prepare == (
        "random.seed(seed)",
        "g = torch.Generator(device=device).manual_seed(seed)",
        "n = random.choice([4])",
        "x = torch.randn(n, generator=g, device=device) + torch.rand(n, device=device).to(device)"
        " + torch.ones(n, device=device)",
    )


def test_helpers_come_from_local_modules(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        import utils
        from utils import make as make_x, check
        def test_it():
            x = make_x(4)
            y = torch.ops._C.ret(x)
            check(y, utils.reference(x))
        """,
        utils="""
        import math
        import torch
        SCALE = math.sqrt(4)
        def make(n):
            return torch.randn(n) * SCALE
        def reference(x):
            return _inner(x)
        def _inner(x):
            return x * SCALE
        def check(a, b):
            torch.testing.assert_close(a, b, atol=1e-2, rtol=0)
        """,
    )
    assert not trial.todos
    assert trial.imports == ("import math", "import torch")
    assert trial.helpers[0] == "SCALE = math.sqrt(4)"  # made before it is read
    assert trial.helpers.index("make_x = make") > 1
    assert set(trial.helpers[1:]) == {
        "def make(n):\n    return torch.randn(n) * SCALE",
        "make_x = make",
        "def _inner(x):\n    return x * SCALE",
        "def reference(x):\n    return _inner(x)",
    }
    assert trial.reference == ("b = reference(x)",)
    assert trial.outputs[0].atol == "0.01"


def test_what_is_not_at_hand_is_told_by_name(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        from vllm.model_executor.layers.layernorm import RMSNorm
        from tests.kernels.utils import make_x
        from vllm.utils import cdiv
        def test_it():
            layer = RMSNorm(8)
            x = make_x(cdiv(16, 2))
            torch.testing.assert_close(torch.ops._C.ret(x), layer.forward_native(x))
        """,
    )
    assert [todo.what.split(" comes from ")[0] for todo in trial.todos] == ["make_x", "RMSNorm"]
    assert "vllm.model_executor.layers.layernorm" in trial.todos[1].what
    assert trial.helpers == ("def cdiv(a, b):\n    return -(-a // b)",)


def test_a_layer_of_the_tree_is_taken_without_its_kernel(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    layers = tmp_path / "vllm" / "layers"
    layers.mkdir(parents=True)
    (layers / "norm.py").write_text(
        textwrap.dedent("""
        import torch
        import torch.nn as nn
        from vllm.config import current
        from vllm.custom_op import CustomOp

        @CustomOp.register("norm")
        class Norm(CustomOp):
            def __init__(self, size: int, eps: float = 1e-6) -> None:
                super().__init__()
                self.eps = eps
                self.mode = current().mode
                self.weight = nn.Parameter(torch.ones(size))
                if current().fast:
                    self.op = torch.ops._C.ret

            @staticmethod
            def _root(x: torch.Tensor, eps: float) -> torch.Tensor:
                return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

            def forward_native(self, x: torch.Tensor) -> torch.Tensor:
                return x * self._root(x, self.eps) * self.weight

            def forward_cuda(self, x):
                return self.op(x)
        """)
    )
    trial = read(
        RET,
        """
        from vllm.layers.norm import Norm
        def test_it():
            layer = Norm(8).cuda()
            x = torch.randn(4, 8, device="cuda")
            torch.testing.assert_close(torch.ops._C.ret(x), layer.forward_native(x))
        """,
    )
    assert not trial.todos
    (layer,) = trial.helpers
    assert "class Norm(torch.nn.Module):" in layer
    assert "_root" in layer and "forward_native" in layer
    assert "current" not in layer and "torch.ops" not in layer and "register" not in layer


def test_fixtures_of_conftest_are_read(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def test_it(rows, data):
            torch.testing.assert_close(torch.ops._C.ret(data), data * rows)
        """,
        conftest="""
        import pytest, torch
        @pytest.fixture(params=[2, 4])
        def rows(request):
            return request.param
        @pytest.fixture
        def data():
            x = torch.randn(8, device="cuda")
            yield x
            print("done")
        """,
    )
    assert _parameters(trial) == {"rows": ("2", "4")}
    assert trial.prepare == ("x = torch.randn(8, device=device)",)
    assert trial.arguments == {"x": "x"}


def test_a_loop_that_fills_and_compares_does_both(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            ref = torch.empty_like(x)
            y = torch.ops._C.ret(x)
            for i in range(4):
                ref[i] = x[i] + 1
                print(i)
                torch.testing.assert_close(y[i], ref[i])
        """,
    )
    assert trial.reference == (
        "ref = torch.empty_like(x)",
        "for i in range(4):\n    ref[i] = x[i] + 1",
    )
    assert _outputs(trial) == [("y[:4]", "ref[:4]", "close")]


def test_what_asks_the_result_for_its_shape_follows_it(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            y = torch.ops._C.ret(x)
            flat = y.flatten()
            n = flat.shape[0]
            ref = x.flatten()[:n]
            torch.testing.assert_close(flat, ref)
        """,
    )
    assert trial.after == ("flat = y.flatten()", "n = flat.shape[0]", "ref = x.flatten()[:n]")
    assert not trial.todos


def test_conditions_to_skip_speak_of_parameters(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        LIMIT = 64
        @pytest.mark.parametrize("dims", [(1, 2), (3, 4)])
        @pytest.mark.parametrize("kind", ["half", "float"])
        def test_it(dims, kind, request):
            rows, columns = dims
            dtype = getattr(torch, kind)
            if rows > columns:
                pytest.skip("no")
            if dtype == torch.float and rows > LIMIT:
                return
            if request.config.getoption("--slow"):
                pytest.skip("slow")
            assert columns % rows == 0
            x = torch.randn(rows, columns, LIMIT, dtype=dtype, device="cuda")
            assert x.is_cuda
            torch.testing.assert_close(torch.ops._C.ret(x), x)
        """,
    )
    assert set(_parameters(trial)) == {"rows", "columns", "dtype", "limit"}
    assert trial.skips == (
        "rows > columns",
        "dtype == torch.float and rows > limit",
        "not columns % rows == 0",
    )


def test_what_is_changed_through_a_view_is_changed(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            first, rest = x.split([1, 3])
            first.fill_(3)
            for row in rest:
                row[0] = 1
            y = torch.ops._C.ret(x)
            torch.testing.assert_close(y, x)
        """,
    )
    assert trial.prepare[1:] == (
        "first, rest = x.split([1, 3])",
        "first.fill_(3)",
        "for row in rest:\n    row[0] = 1",
    )


def test_a_reference_in_place_works_on_copies(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        RET,
        """
        def ref_(t):
            t.add_(1)
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            y = torch.ops._C.ret(x)
            ref_(x)
            torch.testing.assert_close(y, x)
        """,
    )
    assert trial.copied == ("x",)
    assert trial.reference == ("ref_(x)",)
    assert _outputs(trial) == [("y", "x", "close")]


def test_a_name_given_to_something_else_is_no_longer_the_operators(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            out = torch.empty_like(x)
            torch.ops._C.silu(out, x)
            got = out.clone()
            out = x * 2
            torch.testing.assert_close(out, got)
        """,
    )
    assert _outputs(trial) == [("got", "out", "close")]
    assert trial.after == ("got = out.clone()", "out = x * 2")


def test_aliases_of_aliases_are_one_name(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        def test_it():
            x = torch.randn(4, 8, device="cuda")
            y = x
            z = y
            out = torch.zeros_like(z)
            torch.ops._C.silu(out, z)
            torch.testing.assert_close(out, z * z.sigmoid())
        """,
    )
    assert trial.arguments == {"out": "out", "x": "x"}
    assert trial.prepare[-1] == "out = torch.zeros_like(x)"
    assert not trial.todos


MM = operator("mm", "out!: Tensor", "a: Tensor", "b: Tensor", "s: Tensor", "bias: Tensor?")
WRAPPED = """
from vllm import _custom_ops as ops
{mark}
def test_it({given}):
    a = torch.randn(4, 8, device="cuda")
    b = torch.randn(8, 8, device="cuda")
    s = torch.randn(4, 1, device="cuda")
    out = torch.empty(4, 8, device="cuda")
    {call}
    torch.testing.assert_close(out, a @ b * s)
"""


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("out = ops.mm(a, b, s, torch.half)", "torch.half is a dtype"),
        ("out = ops.mm(a, b, s, dtype)", "dtype is a dtype"),
        ("out = ops.mm(a, b, s, None)", "None is None"),
        ("ops.mm(out, a, b, None)", "None is None, and s of the operator a Tensor"),
        ("ops.mm(out, a, b, 0.5)", "0.5 is a float"),
        ("ops.mm(out, a, b, 'ieee')", "'ieee' is a str"),
        ("out = ops.mm(a, b, s)", "it uses what the call gives back"),
        ("ops.mm(out, a, b, s, None, 8)", "it passes 6 arguments, of which the operator has 5"),
    ],
)
def test_a_wrapper_of_another_signature_is_no_call(read, call: str, wrong: str) -> None:  # type: ignore[no-untyped-def]
    mark = '@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])'
    trial = read(MM, WRAPPED.format(mark=mark, given="dtype", call=call))
    assert wrong in " ".join(todo.what for todo in trial.todos)
    assert all(name == value for name, value in trial.arguments.items())


@pytest.mark.parametrize("call", ["ops.mm(out, a, b, s, None)", "ops.mm(out, a, b, s)"])
def test_a_wrapper_of_the_same_signature_is_a_call(read, call: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(MM, WRAPPED.format(mark="", given="", call=call))
    assert not trial.todos
    assert trial.arguments["s"] == "s"


def test_a_tensor_is_no_number(read) -> None:  # type: ignore[no-untyped-def]
    op = operator("mm", "a: Tensor", "n: int", returns=("Tensor",))
    trial = read(op, WRAPPED.format(mark="", given="", call="out = ops.mm(a, b)"))
    assert "b is a tensor" in trial.todos[0].what


def test_the_test_that_passes_what_the_schema_wants_is_chosen(read) -> None:  # type: ignore[no-untyped-def]
    body = """
def test_{name}():
    x = torch.randn(4, 8, device="cuda")
    out = torch.empty_like(x, dtype=torch.int8)
    s = torch.tensor([0.1], device="cuda")
    {call}
    ref = (x / {scale}).round().to(torch.int8)
    torch.testing.assert_close(out, ref)
"""
    op = operator("static_quant", "out!: Tensor", "x: Tensor", "scale: Tensor")
    dynamic = body.format(name="dynamic_quant", call="ops.static_quant(out, x, None)", scale=2)
    static = body.format(name="static_quant", call="ops.static_quant(out, x, s)", scale="s")
    head = "from vllm import _custom_ops as ops\n"
    assert read(op, head + dynamic + static).function == "test_static_quant"
    other = body.format(name="other", call="ops.static_quant(out, x, s)", scale="s")
    assert read(op, head + other + static).function == "test_static_quant"


@pytest.mark.parametrize(
    "bias",
    [
        "bias = torch.randn(8, device='cuda') if bias else None",
        "bias = None\n    if dtype == torch.half: bias = torch.randn(8, device='cuda')",
    ],
)
def test_a_parameter_that_is_bound_again_is_no_misfit(read, bias: str) -> None:  # type: ignore[no-untyped-def]
    mark = '@pytest.mark.parametrize("bias", [True, False])\n'
    mark += '@pytest.mark.parametrize("dtype", [torch.half])'
    call = f"{bias}\n    ops.mm(out, a, b, bias, None)"
    assert not read(MM, WRAPPED.format(mark=mark, given="bias, dtype", call=call)).todos


RUN = """
def run_case({own}rows, cols, dtype=torch.float32):
    x = torch.randn(rows, cols, dtype=dtype, device="cuda")
    out = torch.empty_like(x)
    torch.ops._C.silu(out, x)
    torch.testing.assert_close(out, x * x.sigmoid())
"""


def test_values_of_all_callers_count(read) -> None:  # type: ignore[no-untyped-def]
    tests = """
def test_small_silu():
    run_case(4, 8)
@pytest.mark.parametrize("cols", [16, 32])
def test_large_silu(cols):
    run_case(4096, cols, torch.float16)
"""
    found = _parameters(read(SILU, RUN.format(own="") + tests))
    assert found["rows"] == ("4", "4096", "4096")
    assert found["cols"] == ("8", "16", "32")
    assert found["dtype"] == ("torch.float32", "torch.float16", "torch.float16")


def test_values_of_all_methods_count(read) -> None:  # type: ignore[no-untyped-def]
    methods = (
        RUN.format(own="self, ")
        + """
def test_small(self):
    self.run_case(4, 8)
def test_large(self):
    self.run_case(4096, cols=8192)
"""
    )
    text = "import unittest\nclass TestIt(unittest.TestCase):\n" + textwrap.indent(methods, "    ")
    found = _parameters(read(SILU, text))
    assert found["rows"] == ("4", "4096") and found["cols"] == ("8", "8192")


RECORDS = """
from collections import namedtuple
from dataclasses import dataclass, field
from typing import NamedTuple
@dataclass(frozen=True)
class Plain:
    rows: int
    cols: int = field(default=8)
    @property
    def size(self):
        return self.rows * self.cols
class Named(NamedTuple):
    rows: int
    cols: int = 8
Old = namedtuple("Old", "rows cols")
{text}
"""
CASE = """
@pytest.mark.parametrize("case", [{cases}])
def test_it(case):
    {first}
    x = torch.randn({rows}, {cols}, device="cuda")
    out = torch.empty_like(x)
    torch.ops._C.silu(out, x)
    torch.testing.assert_close(out, x * x.sigmoid())
"""


@pytest.mark.parametrize(
    ("cases", "form"),
    [
        ("dict(rows=4, cols=8), {'rows': 64, 'cols': 32}", "case['{}']"),
        ("Plain(4), Plain(rows=64, cols=32)", "case.{}"),
        ("Named(4), Named(64, cols=32)", "case.{}"),
        ("Old(4, 8), pytest.param(Old(64, 32), id='large')", "case.{}"),
    ],
)
@pytest.mark.parametrize("first", ["pass", "rows = {0}; cols = {1}"])
def test_records_are_parameters_together(read, cases: str, form: str, first: str) -> None:  # type: ignore[no-untyped-def]
    rows, cols = form.format("rows"), form.format("cols")
    lines = first.format(rows, cols)
    if first != "pass":
        rows, cols = "rows", "cols"
    text = CASE.format(cases=cases, first=lines, rows=rows, cols=cols)
    trial = read(SILU, RECORDS.format(text=text))
    assert _parameters(trial) == {"rows": ("4", "64"), "cols": ("8", "32")}
    assert trial.parameters[0].together == ("cols",)
    assert trial.prepare[0] == "x = torch.randn(rows, cols, device=device)"
    assert not trial.helpers and not trial.todos


def test_records_of_a_loop_are_parameters(read) -> None:  # type: ignore[no-untyped-def]
    text = """
CASES = [Plain(4), Plain(64, 32)]
def test_it():
    for c in CASES:
        if c.rows > 64:
            continue
        x = torch.randn(c.rows, c.cols, device="cuda")
        out = torch.empty_like(x)
        torch.ops._C.silu(out, x)
        torch.testing.assert_close(out, x * x.sigmoid())
"""
    trial = read(SILU, RECORDS.format(text=text))
    assert _parameters(trial) == {"rows": ("4", "64"), "cols": ("8", "32")}
    assert not trial.todos and trial.skips == ("rows > 64",)


def test_a_record_that_is_passed_on_is_made_again(read) -> None:  # type: ignore[no-untyped-def]
    text = CASE.format(
        cases="Plain(4), Plain(64, 32)", first="pass", rows="case.rows", cols="case.size"
    )
    trial = read(SILU, RECORDS.format(text=text))
    assert trial.prepare[0] == "case = Plain(rows=rows, cols=cols)"
    assert "class Plain:" in "".join(trial.helpers) and not trial.todos


WRAPPER = """
import torch
def quant(x, scale=None):
    out = torch.empty_like(x, dtype=torch.int8)
    if scale is not None:
        torch.ops._C.static_quant(out, x, scale)
        return out, scale
    scales = torch.empty(x.shape[0], device=x.device)
    torch.ops._C.dynamic_quant(out, x, scales)
    return out, scales
"""
CALLS = """
from vllm import _custom_ops as ops
from vllm.limits import most
def test_dynamic():
    x = torch.randn(4, most(), device="cuda")
    out, scales = ops.quant(x)
    torch.testing.assert_close(scales, x.amax(-1) / 127)
def test_static():
    x = torch.randn(4, most(), device="cuda")
    s = torch.tensor([0.1], device="cuda")
    out, _ = ops.quant(x, s)
    torch.testing.assert_close(out, (x / s).round().to(torch.int8))
"""


@pytest.mark.parametrize("name", ["static_quant", "dynamic_quant"])
@pytest.mark.parametrize("named", [".", "vllm", "vllm/_custom_ops.py"])
def test_wrappers_in_the_sources_are_followed(tmp_path: Path, name: str, named: str) -> None:
    package = tmp_path / "sources" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_custom_ops.py").write_text(WRAPPER)
    (package / "limits.py").write_text("def most():\n    return 8\n")
    path = tmp_path / "tests" / "test_it.py"
    path.parent.mkdir()
    path.write_text(f"import torch\n{CALLS}")
    op = operator(name, "out!: Tensor", "x: Tensor", "s!: Tensor", returns=())
    trial = read_trial(path, op, [tmp_path / "sources" / named])
    assert trial.function == f"test_{name.removesuffix('_quant')}"
    assert trial.arguments["x"] == "x"
    assert trial.helpers == ("def most():\n    return 8",)
    assert not trial.todos


def test_modules_of_the_framework_in_the_sources_are_followed(tmp_path: Path) -> None:
    package = tmp_path / "sources" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "utils.py").write_text(
        "from vllm.config import settings\n"
        "def half(n):\n    return n // 2\n"
        "def wide(n):\n    return n * settings.factor\n"
    )
    path = tmp_path / "tests" / "test_it.py"
    path.parent.mkdir()
    text = """
import torch, vllm._C
import vllm.utils as utils
from vllm import utils as again
def test_it():
    x = torch.randn(utils.half(8), again.half(16), device="cuda")
    out = torch.empty_like(x)
    torch.ops._C.silu(out, x)
    torch.testing.assert_close(out, x * utils.{used}(2))
"""
    for used, todos in (("half", 0), ("wide", 1)):
        path.write_text(text.format(used=used))
        trial = read_trial(path, SILU, [tmp_path / "sources"])
        assert trial.prepare[0] == "x = torch.randn(half(8), half(16), device=device)"
        assert trial.helpers == ("def half(n):\n    return n // 2",)
        assert len(trial.todos) == todos, trial.todos


def test_values_that_are_objects_are_told(read) -> None:  # type: ignore[no-untyped-def]
    text = CASE.format(
        cases="Plain((4, 2)), Plain((64, 2))", first="pass", rows="*case.rows", cols=8
    )
    trial = read(SILU, RECORDS.format(text=text))
    assert "argument case: Plain(rows=(4, 2), cols=8) is no plain value" in trial.todos[0].what
