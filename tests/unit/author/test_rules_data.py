"""Data outside the stream, in several spellings, and what only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, seed

RULE = "data-outside-stream"
_WITH = "        with torch.cuda.stream(tc_s):\n            x, y, out = self._prepare(dev_id)\n"
_SILU = """        with self.stream(tc_s):
            self.x, self.out = self._prepare(dev_id, seed=42)
"""

SEEDS = [
    seed(RULE, "my_op", (_WITH, "        x, y, out = self._prepare(dev_id)\n")),
    seed(
        RULE,
        "my_op",
        (_WITH, "        with torch.no_grad():\n            x, y, out = self._prepare(dev_id)\n"),
        line="x, y, out = self._prepare(dev_id)\n",
    ),
    seed(
        RULE,
        "my_op",
        (_WITH, _WITH + "        y = torch.zeros(8, device=f'cuda:{dev_id}')\n"),
        line="y = torch.zeros(8",
    ),
    seed(RULE, "my_op", (_WITH, _WITH + "        y = y.clone()\n"), line="y = y.clone()"),
    seed(
        RULE,
        "my_op",
        (_WITH, _WITH + '        mask = torch.ones(8).to("cuda")\n'),
        line="mask = torch.ones(8)",
    ),
    seed(
        RULE,
        "my_op",
        (_WITH, _WITH + "        z = torch.ones(8).cuda(dev_id)\n"),
        line="z = torch.ones(8)",
    ),
    seed(RULE, "silu_and_mul", (_SILU, "        self.x, self.out = self._prepare(dev_id, 42)\n")),
    seed(
        RULE,
        "silu_and_mul",
        (_SILU, _SILU.replace("self.stream(tc_s)", "torch.cuda.device(dev_id)")),
        line="self.x, self.out = self._prepare(dev_id, seed=42)",
    ),
    seed(
        RULE,
        "silu_and_mul",
        (_SILU, "        self._fill(dev_id)\n"),
        (
            "    def prepare_and_get_launcher",
            "    def _fill(self, dev_id):\n"
            "        self.x, self.out = self._prepare(dev_id, seed=42)\n\n"
            "    def prepare_and_get_launcher",
        ),
        line="self._fill(dev_id)\n",
    ),
    seed(
        RULE,
        "rms_norm",
        (
            'self.epsilon = config.get("epsilon", 1e-6)\n',
            'self.epsilon = config.get("epsilon", 1e-6)\n'
            '        self.mask = torch.ones(8, device="cuda:0")\n',
        ),
        line="self.mask = torch.ones",
    ),
    seed(
        RULE,
        "merge_attn_states",
        (
            "            self.output = torch.empty_like(self.inputs[0])\n",
            "        self.output = torch.empty_like(self.inputs[0])\n"
            "        with self.stream(tc_s):\n",
        ),
    ),
    seed(
        RULE,
        "fused_add_rms",
        (
            "with torch.cuda.device(dev_id), torch.cuda.stream(tc_s):",
            "with torch.cuda.device(dev_id):",
        ),
        line="x, residual, weight = self._data(dev_id)\n",
    ),
]

SEEDS += [
    seed(
        RULE,
        "my_op",
        ("        with torch.cuda.stream(tc_s):\n", f"        {imported}with {context}:\n"),
        line="x, y, out = self._prepare(dev_id)\n",
    )
    for imported, context in (
        ("import warnings\n\n        ", "warnings.catch_warnings()"),
        ("import contextlib\n\n        ", "contextlib.nullcontext()"),
        ("", "torch.inference_mode(), torch.cuda.device(dev_id)"),
    )
]

LOOK_ALIKES = [
    # Nested, in a helper, or under a stream of another name.
    seed(
        RULE,
        "my_op",
        (
            "        with torch.cuda.stream(tc_s):\n",
            "        s = tc_s\n        with torch.cuda.stream(s):\n",
        ),
    ),
    seed(
        RULE,
        "my_op",
        (
            "        with torch.cuda.stream(tc_s):\n",
            "        with torch.no_grad():\n          with torch.cuda.stream(tc_s):\n",
        ),
    ),
    seed(
        RULE,
        "my_op",
        (_WITH, "        torch.cuda.set_stream(tc_s)\n        x, y, out = self._prepare(dev_id)\n"),
    ),
    seed(
        RULE,
        "silu_and_mul",
        (_SILU, "        self._fill(dev_id, tc_s)\n"),
        (
            "    def prepare_and_get_launcher",
            "    def _fill(self, dev_id, stream):\n"
            "        with self.stream(stream):\n"
            "            self.x, self.out = self._prepare(dev_id, seed=42)\n\n"
            "    def prepare_and_get_launcher",
        ),
    ),
    # On the host.
    seed(RULE, "my_op", (_WITH, "        sizes = torch.tensor([1, 2, 3])\n" + _WITH)),
    seed(RULE, "my_op", (_WITH, '        sizes = torch.arange(4, device="cpu")\n' + _WITH)),
    # Contexts that are kept in a name, chosen, entered by a stack, or of a manager of one's own.
    *(
        seed(RULE, "my_op", ("        with torch.cuda.stream(tc_s):\n", lines))
        for lines in (
            "        s = torch.cuda.stream(tc_s)\n        with s:\n",
            "        with torch.cuda.stream(tc_s) if tc_s else torch.no_grad():\n",
            "        with self.anything(tc_s):\n",
            "        with torch.cuda.stream(self.as_torch_stream(tc_s, dev_id)) as s:\n",
            "        import contextlib\n\n        with contextlib.ExitStack() as stack:\n"
            "            stack.enter_context(torch.cuda.stream(tc_s))\n",
        )
    ),
    # Views make nothing.
    seed(RULE, "my_op", (_WITH, _WITH + "        x = x.view(-1, self.hidden_size)\n")),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_data_outside_the_stream_is_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_data_under_a_stream_is_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)
