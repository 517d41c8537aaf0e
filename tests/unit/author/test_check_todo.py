"""What a mark says is told as it stands there, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_kit import CONFIG, SKELETON, Tree

LONG = f"look into {'a/long/folder/' * 12}test_it.py (unit_test/test_it.py:12)"


@pytest.mark.parametrize("what", ["the test passes nothing (test_it.py:12)", "f(a, b)", LONG])
def test_a_todo_is_told_whole(tmp_path: Path, what: str) -> None:
    tree = Tree(tmp_path)
    tree.runner(SKELETON.replace("class My_op", f"# TODO(mxfleet): {what}\nclass My_op"))
    assert tree.only("todo").message == f"still open: {what}"


def test_quotes_and_brackets_around_it_are_not_of_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.config({**CONFIG, "device_name": "TODO(mxfleet): which?"})
    assert tree.only("todo").message == "still open: which?"
    tree.config(CONFIG)
    tree.runner(SKELETON.replace("class My_op", 'x = ("TODO(mxfleet): f(a)")\n\n\nclass My_op'))
    assert tree.only("todo").message == "still open: f(a)"
