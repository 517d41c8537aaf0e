"""What a trial says of statements that it had to leave out: no reference is silently a part."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from emit_kit import operator

from orchestrator.author.facts import Operator, Trial
from orchestrator.author.trial import read_trial

SILU = operator("silu", "out!: Tensor", "x: Tensor")
SCAN = operator("scan", "acc!: Tensor", "x: Tensor")
HEAD = """
import torch
import mcoplib._C
from vllm import _custom_ops as ops
def test_it():
    x = torch.randn(4, 8, device="cuda")
"""


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read(op: Operator, text: str) -> Trial:
        path = tmp_path / "test_it.py"
        path.write_text(HEAD + textwrap.indent(textwrap.dedent(text), "    "))
        return read_trial(path, op)

    return read


def _said(trial: Trial) -> str:
    return "; ".join(todo.what for todo in trial.todos)


@pytest.mark.parametrize(
    "reference",
    [
        "torch.ops._C.other(ref, x)",
        "ops.other(ref, x)",
        "ops.other(ref.view(-1), x)",
        "for i in range(4): ops.other(ref[i], x[i])",
        "ops.first(ref, x); ref.mul_(2)",
        "torch.ops._C.silu(ref, x)",
    ],
)
def test_a_reference_by_another_kernel_is_told(read, reference: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        f"""
        out, ref = torch.empty_like(x), torch.empty_like(x)
        torch.ops._C.silu(out, x)
        {reference}
        torch.testing.assert_close(out, ref)
        """,
    )
    assert "ref" in _said(trial)


def test_a_chain_of_kernels_is_told_of_every_output(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        operator("fused", "out!: Tensor", "x: Tensor", "res!: Tensor"),
        """
        residual = torch.randn_like(x)
        fused, unfused = torch.empty_like(x), torch.empty_like(x)
        residual_fused = residual.clone()
        torch.ops._C.fused(fused, x, residual_fused)
        again = x.clone()
        torch.ops._C.add_norm(again, residual)
        ops.quantise(unfused, again)
        torch.testing.assert_close(residual_fused, residual)
        torch.testing.assert_close(fused.float(), unfused.float())
        """,
    )
    assert "what residual should be" in _said(trial)
    assert "what unfused should be" in _said(trial)


@pytest.mark.parametrize(
    "expected", ["before", "torch.zeros_like(acc)", "before.float()", "empty", "copied.cpu()"]
)
def test_an_expected_value_that_nothing_computes_is_told(read, expected: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        f"""
        acc = torch.randn(4, 8, device="cuda")
        before = acc.clone()
        empty = torch.empty_like(x)
        copied = before
        torch.ops._C.scan(acc, x)
        expected = {expected}
        torch.testing.assert_close(acc, expected)
        """,
    )
    assert "depends on nothing" in _said(trial)


@pytest.mark.parametrize("expected", ["x", "x.clone()", "x[:, perm]", "x.view(8, 4).t()", "plus"])
def test_moved_data_is_a_reference(read, expected: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        f"""
        perm = torch.randperm(8, device="cuda")
        out = torch.zeros_like(x)
        plus = out.clone()
        plus += 1
        torch.ops._C.silu(out, x)
        torch.testing.assert_close(out, {expected})
        """,
    )
    assert not trial.todos
    if "perm" in expected:
        assert trial.reference == (f"expected = {expected}",)


def test_a_loop_that_fills_the_reference_is_kept(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        operator("scatter", "key: Tensor", "cache!: Tensor", "slots: Tensor"),
        """
        cache = torch.randn(16, 8, device="cuda")
        slots = torch.randperm(16, device="cuda")[:4]
        cloned = cache.clone()
        torch.ops._C.scatter(x, cache, slots)
        places = slots.tolist()
        for i in range(4):
            cloned[places[i]] = x[i]
        torch.testing.assert_close(cache, cloned)
        """,
    )
    assert not trial.todos
    assert trial.reference[-1] == "for i in range(4):\n    cloned[places[i]] = x[i]"


def test_what_a_kernel_fills_for_the_operator_is_told(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        out, quantised = torch.empty_like(x), torch.empty_like(x)
        ops.quantise(quantised, x)
        torch.ops._C.silu(out, quantised)
        torch.testing.assert_close(out, quantised.sigmoid())
        """,
    )
    assert "what quantised should be" in _said(trial)


@pytest.mark.parametrize(
    "before",
    ["acc.zero_()", "acc = torch.zeros_like(x)", "acc.copy_(torch.zeros_like(x))"],
)
def test_calls_to_warm_up_are_no_part(read, before: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        f"""
        acc = torch.zeros_like(x)
        for _ in range(3):
            torch.ops._C.scan(acc, x)
        {before}
        torch.ops._C.scan(acc, x)
        torch.testing.assert_close(acc, x.cumsum(-1))
        """,
    )
    assert not trial.todos
    assert not trial.after
    assert "scan" not in " ".join([*trial.prepare, *trial.reference])


def test_a_second_call_on_the_same_data_is_told(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        """
        acc = torch.zeros_like(x)
        torch.ops._C.scan(acc, x)
        torch.ops._C.scan(acc, x)
        torch.testing.assert_close(acc, 2 * x.cumsum(-1))
        """,
    )
    assert "another call of the operator" in _said(trial)


def test_calls_after_the_comparison_are_no_part(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        """
        acc = torch.zeros_like(x)
        ref = x.cumsum(-1)
        torch.ops._C.scan(acc, x)
        torch.testing.assert_close(acc, ref)
        for _ in range(3):
            acc.zero_()
            torch.ops._C.scan(acc, x)
        """,
    )
    assert not trial.todos and not trial.after


def test_two_runs_of_the_operator_are_compared_by_no_reference(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        operator("ret", "x: Tensor", returns=("Tensor",)),
        """
        first = torch.ops._C.ret(x)
        second = torch.ops._C.ret(x)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, x * 2)
        """,
    )
    assert [o.expected for o in trial.outputs] == ["expected"]
    assert not trial.todos


@pytest.mark.parametrize("loop", ["range(4)", "range(chunks)", "torch.arange(4).tolist()"])
@pytest.mark.parametrize("call", ["torch.ops._C.scan(acc, x[i])", "run(acc, x[i])"])
def test_a_call_a_round_is_not_what_is_compared_at_the_end(read, loop: str, call: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        f"""
        def run(a, b):
            torch.ops._C.scan(a, b)
        chunks = 4
        acc = torch.zeros_like(x)
        for i in {loop}:
            {call}
        torch.testing.assert_close(acc, x.cumsum(-1))
        """,
    )
    assert "calls for each i" in _said(trial)


def test_a_loop_of_trials_is_several_trials(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SCAN,
        """
        for n in (4, 8):
            y = torch.randn(n, device="cuda")
            acc = torch.zeros_like(y)
            torch.ops._C.scan(acc, y)
            torch.testing.assert_close(acc, y.cumsum(-1))
        for n in (2, 3):
            torch.ops._C.scan(acc, y[:n])
        """,
    )
    assert not trial.todos
    assert [p.values for p in trial.parameters] == [("4", "8")]


@pytest.mark.parametrize(
    "reference",
    [
        "ref = torch.stack([torch.ops._C.ret(row) for row in x])",
        "ref = torch.ops._C.ret(x.float()).half()",
        "ref = torch.empty_like(x)\n        for i in range(4): ref[i] = torch.ops._C.ret(x[i])",
        "again = lambda y: torch.ops._C.ret(y)\n        ref = again(x)",
        "def again(y):\n            for row in y:\n                return torch.ops._C.ret(row)\n"
        "        ref = again(x)",
    ],
)
def test_the_operator_is_no_part_of_its_reference(read, reference: str) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        operator("ret", "x: Tensor", returns=("Tensor",)),
        f"""
        y = torch.ops._C.ret(x)
        {reference}
        torch.testing.assert_close(y, ref)
        """,
    )
    assert "another call of the operator" in _said(trial)
    assert "_C.ret" not in " ".join([*trial.prepare, *trial.reference, *trial.after])


def test_calls_that_are_only_timed_do_not_matter(read) -> None:  # type: ignore[no-untyped-def]
    trial = read(
        SILU,
        """
        out = torch.empty_like(x)
        run = lambda: torch.ops._C.silu(out, x)
        torch.ops._C.silu(out, x)
        timed(lambda: torch.ops._C.silu(out, x))
        torch.testing.assert_close(out, x * x.sigmoid())
        """,
    )
    assert not trial.todos
    assert trial.prepare[-1] == "out = torch.empty_like(x)"


def test_escapes_of_the_test_are_no_news(read, recwarn) -> None:  # type: ignore[no-untyped-def]
    text = """
        def twice(y):
            "\\d"
            return y * len("\\d")
        out = torch.empty_like(x)
        torch.ops._C.silu(out, x)
        torch.testing.assert_close(out, twice(x))
        """
    assert not read(SILU, text).todos
    assert not list(recwarn)
