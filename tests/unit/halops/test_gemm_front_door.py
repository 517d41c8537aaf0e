"""GEMM configurations through the suite's front door, as a target runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kernel.gemm.scenarios import dense

SUITE = Path(dense.__file__).resolve().parents[3]

DENSE = """\
scenario: dense
mode: {mode}
shapes:
  - [5, 48, {k}]
  - [7, 32, 64]
backends: [halops, golden]
seed: 3
swizzled_scales: false
"""


def run(folder: Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    config = folder / "gemm" / "case.yaml"
    config.parent.mkdir()
    config.write_text(text, encoding="utf-8")
    command = [sys.executable, "benchmark.py", f"--config={config}", "--device=cpu"]
    command += ["--dry-run-iters=1", "--repeat-iters=1", *flags]
    return subprocess.run(command, cwd=SUITE, capture_output=True, text=True, check=False)


def test_every_case_leaves_a_record_with_its_work(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    done = run(tmp_path, DENSE.format(mode="w4a4-nvfp4", k=64), f"--records={records}")
    assert done.returncode == 0, done.stderr
    assert "never reads" not in done.stdout
    found = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    assert [(r["parameters"]["backend"], r["status"]) for r in found] == [
        ("halops", "UNAVAILABLE"),
        ("golden", "UNVERIFIED"),
    ] * 2
    golden = found[1]
    assert golden["op"] == "gemm.dense" and golden["parameters"]["mode"] == "w4a4-nvfp4"
    assert golden["flops"] == 2 * 5 * 48 * 64
    # Half a byte an element, a scale a 16, a float32 each; bfloat16 out.
    assert golden["bytes_read"] == (5 + 48) * (32 + 4) + 8
    assert golden["bytes_written"] == 5 * 48 * 2


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        (DENSE.format(mode="w4a4-nvfp4", k=100), 1, "K = 100"),
        (DENSE.format(mode="bfloat16", k=64), 2, "mode 'bfloat16'"),
        (DENSE.format(mode="bf16", k=64).replace("golden", "fa2"), 2, "no backend 'fa2'"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, text: str, code: int, told: str) -> None:
    done = run(tmp_path, text)
    assert done.returncode == code
    assert told in done.stdout + done.stderr
