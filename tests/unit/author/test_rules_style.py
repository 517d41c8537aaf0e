"""Debugging, endless timeouts and imports, in several spellings."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded.trees import Seed, check_clean, check_seed, plant, runner_of, seed

from orchestrator.author.check import check_tree
from orchestrator.author.check.fix import mend

DEBUG, TIMEOUT = "debug-left", "blocking-timeout"
FOREIGN, LOCAL, UNGUARDED = "foreign-import", "local-import", "unguarded-import"
_METRICS = "    def define_metrics(self, state):\n"
_CALL = "        torch.ops._C.my_op(x, y, out)\n        torch.cuda.synchronize()\n"
_TORCH = "import torch\nfrom mcoplib_mxbenchmark_op_wrapper"
_TRY = """try:
    import mcoplib._C          # 或 mcoplib._moe_C / mcoplib.sgl_kernel / mcoplib.op
except ImportError:
    pass
"""


def _says(line: str, *imports: str) -> Seed:
    """The skeleton with a line before the operator's call."""
    changes = [(_CALL, f"        {line}\n{_CALL}")]
    if imports:
        changes.append((_TORCH, "".join(f"{one}\n" for one in imports) + _TORCH))
    return seed(DEBUG, "my_op", *changes)


def _timeout(*lines: str, line: str | None = None) -> Seed:
    text = "".join(f"        {one}\n" for one in lines)
    return seed(TIMEOUT, "my_op", (_METRICS, _METRICS + text), line=line or lines[-1])


def _imports(rule: str, line: str) -> Seed:
    return seed(rule, "my_op", (_TORCH, f"{line}\n{_TORCH}"))


SEEDS = [
    _says('print("here")'),
    _says("print(out.shape, flush=True)"),
    _says("breakpoint()"),
    _says("torch.set_printoptions(precision=8)"),
    _says("pprint.pprint(out)", "import pprint"),
    _says("show(out)", "from pprint import pprint as show"),
    _says('logging.debug("x")', "import logging"),
    _says('logger.debug("x")', "import logging", 'logger = logging.getLogger("x")'),
    _says('sys.stderr.write("x")', "import sys"),
    _says("say = print; say(out)"),
    seed(
        DEBUG,
        "rms_norm",
        (
            '        state.add_summary("Op", self.name)\n',
            '        print(self.name)\n        state.add_summary("Op", self.name)\n',
        ),
    ),
    seed(
        DEBUG,
        "my_op",
        (
            "    total = x.float() + y.float()\n",
            "    total = x.float() + y.float()\n    print(total)\n",
        ),
        line="print(total)",
    ),
    _imports(DEBUG, "import pdb"),
    _imports(DEBUG, "from ipdb import set_trace"),
    _timeout("state.set_blocking_kernel_timeout(-1)"),
    _timeout("state.set_blocking_kernel_timeout(-1.0)"),
    _timeout("endless = -1", "state.set_blocking_kernel_timeout(endless)"),
    _timeout("s = state", "s.set_blocking_kernel_timeout(timeout=-1)"),
    _timeout('state.set_blocking_kernel_timeout(float("-1"))'),
    _timeout("set_it = state.set_blocking_kernel_timeout", "set_it(-1)"),
    seed(
        TIMEOUT,
        "fused_add_rms",
        ("    SEED = 42\n", "    SEED = 42\n    WAIT = -1\n"),
        (
            "        for key, value in summaries.items():\n",
            "        state.set_blocking_kernel_timeout(self.WAIT)\n"
            "        for key, value in summaries.items():\n",
        ),
        line="state.set_blocking_kernel_timeout",
    ),
    seed(
        TIMEOUT,
        "gate",
        ("class GateRunner", "_WAIT = -1\n\n\nclass GateRunner"),
        ("        es = 4\n", "        state.set_blocking_kernel_timeout(_WAIT)\n        es = 4\n"),
        line="state.set_blocking_kernel_timeout",
    ),
    _imports(FOREIGN, "import numpy as np"),
    _imports(FOREIGN, "from numpy import testing"),
    _imports(FOREIGN, "import pandas"),
    _imports(FOREIGN, "import requests"),
    _imports(FOREIGN, "from scipy.special import erf"),
    seed(
        FOREIGN,
        "rms_norm",
        ("import torch\nfrom", "import torch\nimport tqdm\nfrom"),
        line="import tqdm",
    ),
    seed(
        FOREIGN,
        "my_op",
        (
            "    total = x.float() + y.float()\n",
            "    import einops\n    total = x.float() + y.float()\n",
        ),
        line="import einops",
    ),
    seed(
        FOREIGN,
        "my_op",
        (_TRY, _TRY + "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n"),
        line="import numpy",
    ),
    _imports(LOCAL, "from . import shared"),
    _imports(LOCAL, "from .shared import helper"),
    _imports(LOCAL, "import config.loader"),
    seed(UNGUARDED, "my_op", (_TRY, "import mcoplib._C\n")),
    seed(UNGUARDED, "my_op", (_TRY, "from mcoplib import op\n")),
    seed(
        UNGUARDED,
        "gate",
        (
            "try:\n    from vllm import _custom_ops as ops\nexcept ImportError:\n    ops = None\n",
            "from vllm import _custom_ops as ops\n",
        ),
    ),
    seed(
        UNGUARDED,
        "sgl_topk_softmax",
        (
            "try:\n"
            "    import mcoplib.sgl_kernel  # noqa: F401 - registers torch.ops.sgl_kernel\n"
            "except ImportError:\n    pass\n",
            "import sgl_kernel\n",
        ),
    ),
]

LOOK_ALIKES = [
    # A docstring, a comment, a function of that name of its own.
    seed(
        DEBUG,
        "my_op",
        (
            "    total = x.float() + y.float()\n",
            '    """print(x), then breakpoint()"""\n'
            "    total = x.float() + y.float()  # print(total)\n",
        ),
    ),
    seed(
        DEBUG,
        "my_op",
        ("class My_op_runner", "def print_nothing():\n    pass\n\n\nclass My_op_runner"),
        (_CALL, "        print_nothing()\n" + _CALL),
    ),
    seed(DEBUG, "my_op", (_CALL, '        self.note = "{!r}".format("print")\n' + _CALL)),
    _timeout("state.set_blocking_kernel_timeout(15)"),
    _timeout("state.set_blocking_kernel_timeout(60.0)"),
    _timeout("state.set_timeout(-1)"),
    _imports(FOREIGN, "import math\nimport collections.abc\nfrom functools import partial"),
    _imports(FOREIGN, "import torch.nn.functional as F"),
    _imports(FOREIGN, "import triton\nimport triton.language as tl"),
    # A package that may register operators.
    seed(FOREIGN, "my_op", (_TRY, "try:\n    import blockops\nexcept ImportError:\n    pass\n")),
    # The operator's own package, whatever it is called.
    seed(
        FOREIGN,
        "my_op",
        (_TRY, "try:\n    import my_kernels\nexcept ImportError:\n    my_kernels = None\n"),
        (
            "return self.make_launcher(dev_id, torch.ops._C.my_op, x, y, out)",
            "return self.make_launcher(dev_id, my_kernels.my_op, x, y, out)",
        ),
        ("        torch.ops._C.my_op(x, y, out)\n", "        my_kernels.my_op(x, y, out)\n"),
    ),
    seed(
        UNGUARDED,
        "my_op",
        (
            _TRY,
            "import importlib.util\n\nif importlib.util.find_spec('mcoplib'):\n"
            "    import mcoplib._C\n",
        ),
    ),
]


@pytest.mark.parametrize("planted", SEEDS, ids=str)
def test_what_does_not_belong_is_found(tmp_path: Path, planted: Seed) -> None:
    check_seed(tmp_path, planted)


@pytest.mark.parametrize("look_alike", LOOK_ALIKES, ids=str)
def test_what_belongs_is_not(tmp_path: Path, look_alike: Seed) -> None:
    check_clean(tmp_path, look_alike)


@pytest.mark.parametrize(
    "planted",
    [
        _says('print("here")'),
        _imports(DEBUG, "import pdb"),
        _timeout("state.set_blocking_kernel_timeout(-1)"),
    ],
    ids=str,
)
def test_lines_that_only_debug_or_wait_are_removed(tmp_path: Path, planted: Seed) -> None:
    plant(tmp_path, planted.operator, planted.changes)
    assert mend(check_tree(tmp_path), lambda: check_tree(tmp_path)).left == []
    runner = tmp_path / "runners" / "mcoplib_mxbenchmark_my_op_runners.py"
    assert runner.read_text() == runner_of("my_op")


def test_a_print_that_is_all_of_its_block_stays(tmp_path: Path) -> None:
    planted = seed(
        DEBUG, "my_op", (_CALL, '        if out is None:\n            print("x")\n' + _CALL)
    )
    plant(tmp_path, planted.operator, planted.changes)
    assert [one.edit for one in check_tree(tmp_path)] == [None]
