"""Launchers that make data, or do more than call, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

DATA, MORE = "data-in-launcher", "launcher-does-more"
_MY = "        return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)\n"
_CLOSED = "                self.op_func(x, residual, weight, self.eps)\n\n        return launcher"
_CALL = "        self.out = torch.ops._C.awq_gemm(input, *weight, self.split_k_iters)\n"


def _launcher(*lines: str) -> str:
    """A closure of these lines in place of make_launcher."""
    body = "".join(f"            {line}\n" for line in lines)
    return f"        def launcher(launch):\n{body}\n        return launcher\n"


def _closed(line: str) -> tuple[str, str]:
    return (_CLOSED, f"                {line}\n{_CLOSED}")


SEEDS = [
    seed(
        DATA,
        "my_op",
        (_MY, _launcher("out = torch.empty_like(x)", "torch.ops._C.my_op(x, y, out)")),
        line="out = torch.empty_like(x)\n            torch",
    ),
    seed(
        DATA,
        "my_op",
        (_MY, "        return lambda launch: torch.ops._C.my_op(x.clone(), y, out)\n"),
    ),
    seed(
        DATA,
        "my_op",
        (
            _MY,
            "        return self.make_launcher(\n"
            "            dev_id, lambda: torch.ops._C.my_op(x.half(), y, out)\n        )\n",
        ),
        line="dev_id, lambda",
    ),
    seed(
        DATA,
        "my_op",
        (_MY, "        return self.make_launcher(dev_id, self._run, dev_id)\n"),
        (
            "    def run_verification",
            "    def _run(self, dev_id):\n"
            "        torch.ops._C.my_op(*self._prepare(dev_id))\n\n"
            "    def run_verification",
        ),
        line="torch.ops._C.my_op(*self._prepare",
    ),
    seed(DATA, "awq_gemm", (_CALL, "        input = input.to(self.dtype)\n" + _CALL)),
    seed(
        DATA,
        "awq_gemm",
        (_CALL, "        self.bias = torch.zeros(8, device=input.device)\n" + _CALL),
    ),
    seed(DATA, "awq_gemm", (_CALL, "        self.extra = input.new_empty(8)\n" + _CALL)),
    seed(DATA, "awq_gemm", (_CALL, "        noise = torch.rand_like(input)\n" + _CALL)),
    seed(DATA, "fused_add_rms", _closed("x_copy = x.clone()"), line="x_copy = x.clone()"),
    seed(
        DATA,
        "torch_softmax",
        (
            "self.make_launcher(dev_id, torch.softmax, self.x, -1)",
            "self.make_launcher(dev_id, lambda: torch.softmax(torch.randn(8, 8), -1))",
        ),
    ),
    seed(
        MORE,
        "fused_add_rms",
        _closed("torch.cuda.synchronize()"),
        line="torch.cuda.synchronize()\n                self.op_func",
    ),
    seed(MORE, "fused_add_rms", _closed("stream.synchronize()"), line="stream.synchronize()"),
    seed(
        MORE,
        "awq_gemm",
        (_CALL, _CALL + "        self.first = self.out[0, 0].item()\n"),
        line="self.first",
    ),
    seed(
        MORE, "awq_gemm", (_CALL, _CALL + "        self.host = self.out.cpu()\n"), line="self.host"
    ),
    seed(MORE, "awq_gemm", (_CALL, "        input = torch.relu(input)\n" + _CALL)),
    seed(MORE, "awq_gemm", (_CALL, "        self.synchronize(0)\n" + _CALL)),
    seed(MORE, "awq_gemm", (_CALL, "        input = input * 2\n" + _CALL)),
    seed(
        MORE,
        "awq_gemm",
        (_CALL, _CALL + "        self.out = self.out + 1\n"),
        line="self.out = self.out + 1",
    ),
    seed(MORE, "awq_gemm", (_CALL, "        input += 1\n" + _CALL)),
    seed(MORE, "awq_gemm", (_CALL, "        input[0] = 1\n" + _CALL)),
    seed(
        MORE,
        "my_op",
        (_MY, _launcher("out.zero_()", "torch.ops._C.my_op(x, y, out)")),
        line="out.zero_()",
    ),
    seed(
        MORE,
        "my_op",
        (_MY, _launcher("x.copy_(y)", "torch.ops._C.my_op(x, y, out)")),
        line="x.copy_(y)",
    ),
    seed(
        MORE,
        "torch_matmul",
        (
            "    torch.mm(a, b, out=out)\n",
            "    torch.mm(a, b, out=out)\n    torch.cuda.synchronize()\n",
        ),
        line="torch.cuda.synchronize()",
    ),
]

LOOK_ALIKES = [
    # What the operator returns is its own.
    seed(DATA, "awq_gemm", (_CALL, _CALL + "        return self.out\n")),
    seed(MORE, "my_op", (_MY, _launcher("torch.ops._C.my_op(x, y, out)"))),
    seed(
        MORE,
        "my_op",
        (_MY, "        return self.make_launcher(dev_id, lambda: torch.ops._C.my_op(x, y, out))\n"),
    ),
    seed(
        MORE,
        "my_op",
        (
            _MY,
            "        import functools\n\n        return functools.partial(self._go, x, y, out)\n",
        ),
        (
            "    def run_verification",
            "    def _go(self, x, y, out, launch):\n        torch.ops._C.my_op(x, y, out)\n\n"
            "    def run_verification",
        ),
    ),
    # Arguments are evaluated once, before.
    seed(
        DATA,
        "my_op",
        (
            _MY,
            "        return self.make_launcher(dev_id, torch.ops._C.my_op, x, y.view_as(x), out)\n",
        ),
    ),
    # Views cost nothing that counts.
    seed(DATA, "awq_gemm", (_CALL, "        input = input.view(-1, self.in_features)\n" + _CALL)),
    # Of torch itself: what the function does is the operator.
    seed(
        DATA,
        "torch_softmax",
        (
            "self.make_launcher(dev_id, torch.softmax, self.x, -1)",
            "self.make_launcher(dev_id, lambda: torch.softmax(self.x.float(), -1))",
        ),
    ),
    seed(
        DATA,
        "torch_matmul",
        (
            "    torch.mm(a, b, out=out)\n",
            "    wide = torch.zeros_like(out)\n    torch.mm(a, b, out=out)\n    out.add_(wide)\n",
        ),
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_a_launcher_that_does_more_is_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_a_launcher_that_only_calls_is_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
