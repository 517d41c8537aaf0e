"""docs/check.md says what the rules of ``mxfleet check`` say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_is_current() -> None:
    script = str(ROOT / "docs" / "make_rules.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_an_entry() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    import make_rules

    text = make_rules.render()
    for name in make_rules.RULES:
        assert f"### {name}\n" in text
