"""docs/operators.md says what the runners say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_operators  # noqa: E402


def test_the_file_is_current() -> None:
    script = str(ROOT / "docs" / "make_operators.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_operator_of_the_suite_has_a_chapter() -> None:
    text = make_operators.render()
    for name in make_operators.operators():
        head = f"- `{name}`" if name.startswith("torch_") else f"## {name}\n"
        assert head in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Adds.\n\nLibraries: vllm\n\nArguments:\n    x: [n].\n", "no Call"),
        ("Adds.\n\nCall: ``f(x)``\n\nArguments:\n    x: [n].\n", "no Libraries"),
        ("Adds.\n\nCall: ``f(x)``\nLibraries: vllm\n", "no Arguments"),
    ],
)
def test_a_docstring_that_lacks_a_part_is_named(text: str, words: str) -> None:
    with pytest.raises(make_operators.MalformedError, match=f"add.*{words}"):
        make_operators.parse("add", text)


def test_a_line_that_goes_on_belongs_to_the_one_before() -> None:
    found = make_operators.parse(
        "add",
        "Adds.\n\nCall: ``f(\n    x)``\nLibraries: vllm\n\nArguments:\n    x: [n],\n"
        "        any dtype.\n    y: [n].\n\nPitfalls:\n    - None.\n",
    )
    assert found["Call"] == "``f( x)``"
    assert make_operators._items(found["Arguments"]) == ["- x: [n], any dtype.", "- y: [n]."]
    assert make_operators._items(found["Pitfalls"]) == ["- None."]
