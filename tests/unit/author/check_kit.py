"""A small tree with one clean benchmark, the one of the working description, to break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.author.check import Finding, check_tree
from orchestrator.author.check.registry import RULES
from orchestrator.author.check.tree import Known

# Other rules look at how a runner measures and verifies, and have tests of their own.
SUBJECTS = {"names", "whitelist", "config", "harness_keys", "todo", "call", "suppress"}
SCRIPT = "mcoplib_mxbenchmark_ops.py"
CONFIG: dict[str, Any] = {
    "device_id": 0,
    "device_name": "MetaX C500",
    "num_tokens": 4096,
    "hidden_size": 4096,
    "dtype": "bfloat16",
    "samples": 1000,
}
# The skeleton of the working description, put together.
SKELETON = """\
import torch
from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

try:
    import mcoplib._C          # 或 mcoplib._moe_C / mcoplib.sgl_kernel / mcoplib.op
except ImportError:
    pass


def _ref_my_op(x, y):
    total = x.float() + y.float()
    return total


class My_op_runner(OpBenchmarkBase):
    def __init__(self, name, config):
        super().__init__(name, config)
        self.num_tokens = config.get("num_tokens", 4096)
        self.hidden_size = config.get("hidden_size", 4096)

    def define_metrics(self, state):
        state.add_summary("Op", self.name)
        state.add_summary("dtype", self.config.get("dtype", str(self.dtype)))
        # 注意：Shape 字符串中不要包含逗号，用空格分隔
        state.add_summary("Shape", f"({self.num_tokens} {self.hidden_size})")
        elems = self.num_tokens * self.hidden_size
        state.add_element_count(elems * 2)            # 读 x + 写 out
        es = 2 if self.dtype in (torch.float16, torch.bfloat16) else 4
        state.add_global_memory_reads(elems * es * 2)
        state.add_global_memory_writes(elems * es)

    def _prepare(self, dev_id, seed=42):
        dev = f'cuda:{dev_id}'
        gen = torch.Generator(device=dev).manual_seed(seed)
        x = torch.randn(self.num_tokens, self.hidden_size,
                        dtype=self.dtype, device=dev, generator=gen)
        y = torch.randn_like(x)
        out = torch.empty_like(x)
        return x, y, out

    def prepare_and_get_launcher(self, dev_id, tc_s):
        with torch.cuda.stream(tc_s):
            x, y, out = self._prepare(dev_id)
        return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)

    def run_verification(self, dev_id):
        x, y, out = self._prepare(dev_id, seed=7)        # 用与 benchmark 不同的 seed
        torch.ops._C.my_op(x, y, out)
        torch.cuda.synchronize()
        out_ref = _ref_my_op(x, y).to(out.dtype)
        return self.check_diff(out, out_ref, threshold=0.999999)
"""


class Tree:
    """A benchmark tree in ``folder``, at first with the one operator ``my_op``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("config", "runners"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.list("my_op")
        self.config(CONFIG)
        self.runner(SKELETON)

    def list(self, *names: str) -> None:
        """Write the whitelist."""
        rows = "".join(f'    "{name}",\n' for name in names)
        (self.folder / SCRIPT).write_text(f"SUPPORTED_OPERATORS = [\n{rows}]\n")

    def config_path(self, op: str = "my_op") -> Path:
        """Where a config lies."""
        return self.folder / "config" / f"{op}.json"

    def runner_path(self, op: str = "my_op") -> Path:
        """Where a runner lies."""
        return self.folder / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"

    def config(self, values: dict[str, Any] | str, op: str = "my_op") -> None:
        """Write a config, as text or as values, one key a line."""
        text = values if isinstance(values, str) else json.dumps(values, indent=4) + "\n"
        self.config_path(op).write_text(text, encoding="utf-8")

    def change(self, op: str = "my_op", **keys: Any) -> None:
        """Give keys of the clean config other values; ``...`` takes one away."""
        values = {k: v for k, v in {**CONFIG, **keys}.items() if v is not ...}
        self.config(values, op)

    def runner(self, text: str, op: str = "my_op") -> None:
        """Write a runner."""
        self.runner_path(op).write_text(text, encoding="utf-8")

    def swap(self, old: str, new: str) -> None:
        """Write the skeleton with ``old`` changed."""
        assert old in SKELETON
        self.runner(SKELETON.replace(old, new))

    def everything(self, *ops: str, known: Known | None = None) -> list[Finding]:
        """What all rules find."""
        return check_tree(self.folder, list(ops) or None, known=known)

    def check(self, *ops: str, known: Known | None = None) -> list[Finding]:
        """What the rules on names, whitelist, config, calls, and the engine itself find."""
        found = self.everything(*ops, known=known)
        return [one for one in found if RULES[one.rule].subject in SUBJECTS]

    def rules(self, *ops: str, known: Known | None = None) -> list[str]:
        """The ids of what is found."""
        return [finding.rule for finding in self.check(*ops, known=known)]

    def only(self, rule: str, known: Known | None = None) -> Finding:
        """The one finding, which has to be of ``rule``."""
        found = self.check(known=known)
        assert [finding.rule for finding in found] == [rule], found
        return found[0]
