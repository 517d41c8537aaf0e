"""The source trees tell the truth: their unit tests pass with the right kernels, on the CPU.

A unit test that is itself wrong would make every runner generated from it wrong. Each is read with
"cuda" replaced by "cpu", and called with tiny parameters, in one process of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from authored import AUTHORED, STAND_INS, TREES

# How each unit test is called: Python over its module ``t``, torch, and the parameters ``p``.
CALLS = {
    "silu_and_mul": "t.test_silu_and_mul(17, 96, torch.bfloat16, 0, 'cpu')",
    "fatrelu_and_mul": "t.test_fatrelu_and_mul(17, 96, torch.half, 0, 'cpu')",
    "rms_norm": "t.test_rms_norm(17, 96, torch.bfloat16)",
    "fused_add_rms_norm": (
        "t.TestFusedAddRMSNorm()._run_fused_add_rms_norm(17, 96, torch.bfloat16)"
    ),
    "vllm_rotary_embedding": (
        "[t.test_rotary_embedding(neox, 2, 5, 4, 2, 16, dim, dtype, key, 64, device='cpu')"
        " for neox in (True, False) for dim in (None, 8) for key in (True, False)"
        " for dtype in (torch.half, torch.float32)]"
    ),
    "sgl_rotary_embedding": (
        "[t.test_rotary_embedding(16, dim, 32, 8000, neox, torch.bfloat16, 9, 4, 2)"
        " for neox in (True, False) for dim in (16, 8)]"
    ),
    "paged_attention_v1": (
        "[setattr(t, 'MAX_SEQ_LEN', 37), setattr(t, 'NUM_BLOCKS', 12),"
        " t.test_paged_attention_v1(3, (4, 2), 16, False, 8, torch.half, 0, 'cpu')]"
    ),
    "reshape_and_cache": "t.run(12, 2, 16, 4, 6, torch.bfloat16)",
    "vllm_topk_softmax": (
        "[t.test_topk_softmax(9, 16, 3, again, torch.float32) for again in (True, False)]"
    ),
    "sgl_topk_softmax": "t.test_topk_softmax(9, 16, 3)",
    "top_k_per_row_decode": "t.test_top_k_per_row_decode(3, 2, 96, 16)",
    "moe_align_block_size": "t.test_moe_align_block_size(9, 2, 16, 4)",
    "awq_dequantize": "t.test_awq_dequantize(64, 6, 16, torch.float16)",
    "gptq_shuffle": "[t.check_gptq_shuffle(64, 12, order) for order in (True, False)]",
    "static_scaled_fp8_quant": "t.test_static_scaled_fp8_quant(20, 96, torch.bfloat16, 0)",
    "dynamic_per_token_scaled_fp8_quant": (
        "[t.test_dynamic_per_token_scaled_fp8_quant(20, 96, torch.bfloat16, bound, 0)"
        " for bound in (True, False)]"
    ),
    "fused_rope_fwd": "t.TestFusedRope('test_fused_rope_fwd').debug()",
    "fused_bias_dropout": "t.test_fused_bias_dropout(2, 9, 64, 'bfloat16')",
    "softcap_softmax": "t.test_softcap_softmax(9, 50, 30.0, torch.float32)",
    "segment_mean": "t.test_segment_mean(40, 24, 6, torch.bfloat16)",
    "quantize_blocks": "t.test_quantize_blocks(6, 64, 16, torch.float16)",
    "gelu_quick": "t.test_quick_gelu(17, 96, torch.float, 0, 'cpu')",
    "moe_sum": "t.test_moe_sum(7, 3, 48, torch.float16)",
}

PROCESS = """
import json, pathlib, sys, traceback, types
import torch

def package(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)

# What vLLM itself would bring to its tests.
class Platform:
    seed_everything = staticmethod(torch.manual_seed)

tree = pathlib.Path(sys.argv[1], "vllm")
for part in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
    package(part, __path__=[str(tree / part.replace(".", "/"))])
package("vllm._custom_ops", gelu_quick=lambda *a: torch.ops._C.gelu_quick(*a),
        moe_sum=lambda *a: torch.ops._moe_C.moe_sum(*a))
package("vllm.platforms", current_platform=Platform)
for part in ("tests", "tests.kernels"):
    package(part, __path__=[str(tree / part.replace(".", "/"))])
import tests.kernels.utils as utils
utils.opcheck = lambda *a: None

from authored_kernels import subjects
from faults import installed

known = subjects(pathlib.Path())
for line in sys.stdin:
    name, path, call = json.loads(line)
    torch.set_default_device("cpu")
    sys.path[:0] = [str(pathlib.Path(path).parent)]
    for local in ("quant_utils", "paged_cache"):
        sys.modules.pop(local, None)
    said = []
    for kernel in (known[name].kernel, known[name].damaged(f"scaled:{known[name].outputs()[0]}")):
        with installed(known[name], kernel):
            t = types.ModuleType("t")
            try:
                exec(compile(pathlib.Path(path).read_text(), path, "exec"), t.__dict__)
                eval(call, {"t": t, "torch": torch})
                said.append("")
            except BaseException:
                said.append(traceback.format_exc())
    sys.path[:1] = []
    print(json.dumps([name, *said]), flush=True)
"""


def _on_the_cpu(text: str) -> str:
    """The unit test as it would be written for a CPU: as small as here, and no operator library."""
    text = re.sub(r"[\"']cuda(:0)?[\"']", '"cpu"', text).replace(".cuda()", "")
    text = text.replace("torch.cuda.manual_seed", "torch.manual_seed")
    text = text.replace("= 4096, 32, 8, 128", "= 7, 6, 2, 16")
    return re.sub(
        r"^(import mcoplib\.(_|sgl)|from mcoplib import (_C|sgl)|import blockops).*$",
        "",
        text,
        flags=re.M,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What each unit test raised with the right kernel, and with a damaged one."""
    asked = []
    for authored in AUTHORED:
        folder = tmp_path_factory.mktemp(authored.name)
        for path in authored.test.parent.glob("*.py"):
            (folder / path.name).write_text(_on_the_cpu(path.read_text()))
        asked.append([authored.name, str(folder / authored.test.name), CALLS[authored.name]])
    here = TREES.parent
    places = [here, here.parent / "operators", here.parents[2] / "benchmark"]
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(TREES)],
        input="".join(json.dumps(one) + "\n" for one in asked),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        timeout=300,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(lines) == len(AUTHORED), done.stderr[-3000:]
    return {name: (right, damaged) for name, right, damaged in lines}


@pytest.mark.parametrize("name", [authored.name for authored in AUTHORED])
def test_a_unit_test_passes_with_the_right_kernel(
    told: dict[str, tuple[str, str]], name: str
) -> None:
    assert told[name][0] == ""


@pytest.mark.parametrize("name", [authored.name for authored in AUTHORED])
def test_a_unit_test_fails_with_a_kernel_that_is_twice_too_large(
    told: dict[str, tuple[str, str]], name: str
) -> None:
    assert told[name][1] != "" and "changes nothing" not in told[name][1]


def test_the_trees_hold_the_kinds_that_are_asked_for() -> None:
    frameworks = Counter(authored.framework for authored in AUTHORED)
    assert len(AUTHORED) >= 14 and set(frameworks) == {"vllm", "sgl", "mcoplib", "torch"}
    assert STAND_INS.is_dir()
    for authored in AUTHORED:
        assert authored.test.is_file()
