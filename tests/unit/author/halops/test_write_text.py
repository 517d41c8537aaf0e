"""The YAML: as neighbours write it, marked, and the same values when it is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.author.halops.facts import NeighbourStyle
from orchestrator.author.halops.write.text import flows_of, read_yaml, yaml_text
from orchestrator.errors import TreeError

VALUES: dict[str, Any] = {
    "scenario": "dense",
    "shapes": [[1, 2, 3], [4, 5, 6]],
    "backends": ["halops", "fi(trtllm-gen)"],
    "refcheck": True,
    "note": "yes: no",
    "none": None,
}
FLOW = """\
scenario: dense
shapes: [[1, 2, 3], [4, 5, 6]]  # inferred
backends: [halops, fi(trtllm-gen)]
refcheck: true
note: 'yes: no'
none: null
"""
BLOCK = """\
---
scenario: "dense"
shapes:  # inferred
- [1, 2, 3]
- [4, 5, 6]
backends:
- "halops"
- "fi(trtllm-gen)"
refcheck: true
note: "yes: no"
none: null
"""


@pytest.mark.parametrize(
    ("style", "text"),
    [
        (NeighbourStyle(), FLOW),
        (NeighbourStyle(flow=False, indent=0, quotes='"', document_start=True), BLOCK),
    ],
)
def test_it_is_written_as_the_neighbours_are(style: NeighbourStyle, text: str) -> None:
    assert yaml_text(VALUES, style, {"shapes"}) == text
    assert read_yaml(text, "x.yaml") == VALUES


def test_each_list_is_as_the_nearest_config_has_it(tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("shapes:\n  - [1, 2, 3]\nbackends: [halops]\nrefcheck: true\n")
    flows = flows_of(config)
    assert flows == {"shapes": (False, True), "backends": (True, True)}
    text = yaml_text(VALUES, NeighbourStyle(), (), flows)
    assert "shapes:\n  - [1, 2, 3]\n  - [4, 5, 6]\nbackends: [halops, fi" in text


def test_a_list_stays_on_its_line() -> None:
    values = {"s_kv_list": list(range(1000, 1100))}
    text = yaml_text(values, NeighbourStyle())
    assert text.count("\n") == 1 and read_yaml(text, "x.yaml") == values


@pytest.mark.parametrize("text", ["- 1\n", "a: [\n", ""])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(TreeError, match=r"x\.yaml"):
        read_yaml(text, "x.yaml")


def test_a_config_that_cannot_be_read_has_no_style(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    assert flows_of(tmp_path / "a.yaml") == flows_of(tmp_path / "none.yaml") == {}
