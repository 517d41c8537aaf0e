"""Generated runners are run as they are: right kernels pass, damaged ones fail.

On the CPU, through the real harness, with kernels written independently of the unit tests that
the runners' references come from (``authored_kernels.py``).
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from authored import AUTHORED, Authored
from authored_work import Generated, Work

each = pytest.mark.parametrize("authored", AUTHORED, ids=str)
# Operators that write only to what they also read, and those that return what they make.
IN_PLACE = {
    "fused_add_rms_norm",
    "vllm_rotary_embedding",
    "sgl_rotary_embedding",
    "reshape_and_cache",
    "gptq_shuffle",
    "fused_rope_fwd",
}
RETURN = {"awq_dequantize", "fused_bias_dropout", "softcap_softmax", "segment_mean"}
Lines = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def judged(generated: Generated) -> Lines:
    found: Lines = defaultdict(list)
    for line in generated.work.judge([authored.name for authored in AUTHORED]):
        found[line["name"]].append(line)
    return found


@each
def test_the_right_kernel_passes(judged: Lines, authored: Authored) -> None:
    right = judged[authored.name][0]
    assert right["passed"] is True, right.get("raised") or right["reason"]
    assert not right["own_check"], "the harness did not see what was compared"


@each
def test_outputs_that_hold_nothing_are_poisoned_before_the_call(
    judged: Lines, authored: Authored
) -> None:
    empty = authored.name not in IN_PLACE | RETURN
    assert judged[authored.name][0]["poisoned"] is empty


@each
def test_damaged_kernels_fail(judged: Lines, authored: Authored) -> None:
    damaged = [line for line in judged[authored.name] if line.get("fault")]
    assert len(damaged) >= 6
    missed = [line["fault"] for line in damaged if line["passed"] is not False]
    assert missed == [], [line.get("raised") for line in damaged if line["fault"] in missed]


@each
def test_timing_calls_the_operator_alone_and_declares_what_it_moves(
    judged: Lines, authored: Authored
) -> None:
    timing = judged[authored.name][-1]
    assert "raised" not in timing, timing["raised"]
    assert timing["called"] in (None, [timing["qualified"]] * 3)
    assert list(timing["summaries"])[:3] == ["Op", "dtype", "Shape"]
    assert "," not in timing["summaries"]["Shape"]
    assert timing["elements"] and timing["read"] and timing["written"]
    assert timing["timed"] in (True, None)


# One of each way in: torch.ops through a registering module, pybind functions, code in Python.
RUN = ["silu_and_mul", "vllm_topk_softmax", "fused_rope_fwd", "segment_mean"]


@pytest.mark.parametrize("authored", [a for a in AUTHORED if a.name in RUN], ids=str)
def test_what_was_generated_is_measured_by_mxfleet_run(tmp_path: Path, authored: Authored) -> None:
    work = Work(tmp_path / "work").lay_out()
    flags = [word for key, value in authored.tiny.items() for word in ("--set", f"{key}={value}")]
    made = work.generate(authored, *flags)
    assert (work.benchmark / authored.files()[1]).is_file(), made.out + made.err
    measured = work.measure(authored, "--samples", "20")
    assert [one["status"] for one in measured] == ["PASSED"]
    assert measured[0]["verification"]["passed"] is True
    assert measured[0]["timers"]["cpu"]["median"] > 0
