"""The wheel carries what ``mxfleet init`` lays out, and nothing that lies about in a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _tracked(*folders: str) -> set[str]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--", *folders], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return set(listed.stdout.splitlines())


def test_the_wheel_carries_benchmark_and_env_as_they_are_tracked(tmp_path: Path) -> None:
    statistics = ROOT / "benchmark" / "statistics"
    made = not statistics.exists()
    statistics.mkdir(exist_ok=True)
    stray = statistics / "stray-for-packaging-test.csv"
    stray.write_text("op_name\n")
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--no-deps",
                "-q",
                "-w",
                str(tmp_path),
                str(ROOT),
            ],
            capture_output=True,
            text=True,
        )
    finally:
        stray.unlink()
        if made:
            statistics.rmdir()
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("mxfleet-*.whl")
    prefix = "orchestrator/bundled/"
    names = zipfile.ZipFile(wheel).namelist()
    carried = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    assert carried == {
        name for name in _tracked("benchmark", "env") if not name.startswith("env/loopback/")
    }
    assert {n for n in names if n.startswith("orchestrator/") and n.endswith(".py")} - {
        prefix + name for name in carried
    } == {name for name in _tracked("orchestrator") if name.endswith(".py")}
