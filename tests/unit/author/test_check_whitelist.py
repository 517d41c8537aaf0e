"""The whitelist has every operator once, in order; --fix puts it right and touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_kit import CONFIG, SCRIPT, SKELETON, Tree
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.author.check import check_tree
from orchestrator.author.check.fix import mend
from orchestrator.errors import TreeError
from orchestrator.suites import whitelist


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def fixed(tree: Tree) -> str:
    """The front door after --fix."""
    mend(check_tree(tree.folder), lambda: check_tree(tree.folder))
    return (tree.folder / SCRIPT).read_text()


def two(tree: Tree) -> None:
    """A second clean operator."""
    tree.config(CONFIG, "a_op")
    tree.runner(SKELETON, "a_op")


def test_an_operator_that_is_not_listed_is_added_in_its_place(tree: Tree) -> None:
    two(tree)
    finding = tree.only("unlisted")
    assert finding.at.path.endswith("mcoplib_mxbenchmark_a_op_runners.py")
    assert fixed(tree) == 'SUPPORTED_OPERATORS = [\n    "a_op",\n    "my_op",\n]\n'
    assert tree.check() == []


def test_many_that_are_not_listed_are_added_at_once(tree: Tree) -> None:
    names = [f"op_{number:02}" for number in range(30)]
    for name in names:
        tree.config(CONFIG, name)
        tree.runner(SKELETON, name)
    assert tree.rules() == ["unlisted"] * 30
    assert whitelist.names(fixed(tree), "x") == ["my_op", *names]


def test_an_entry_without_files_names_the_near_operator(tree: Tree) -> None:
    tree.list("my_opp")
    found = {one.rule: one for one in tree.check()}
    assert set(found) == {"listed-without-files", "unlisted"}
    assert found["listed-without-files"].at.line == 2
    assert 'did you mean "my_op"?' in found["listed-without-files"].fix
    assert found["unlisted"].edit is None  # which of both is right, a person knows


def test_order_and_repetition_are_mended(tree: Tree) -> None:
    two(tree)
    tree.list("my_op", "a_op", "my_op")
    assert sorted(tree.rules()) == ["listed-twice", "whitelist-order"]
    assert fixed(tree) == 'SUPPORTED_OPERATORS = [\n    "a_op",\n    "my_op",\n]\n'


def test_what_belongs_to_an_entry_moves_along(tree: Tree) -> None:
    two(tree)
    (tree.folder / SCRIPT).write_text(
        "# top\nSUPPORTED_OPERATORS = [\n  'my_op',  # mine\n  'a_op'\n]  # end\nx = 1\n"
    )
    assert fixed(tree) == (
        "# top\nSUPPORTED_OPERATORS = [\n  'a_op',\n  'my_op',  # mine\n]  # end\nx = 1\n"
    )


def test_a_comment_between_entries_keeps_a_list_as_it_is(tree: Tree) -> None:
    two(tree)
    text = 'SUPPORTED_OPERATORS = [\n    # mine\n    "my_op",\n    # theirs\n    "a_op",\n]\n'
    (tree.folder / SCRIPT).write_text(text)
    assert fixed(tree) == text
    assert tree.rules() == ["whitelist-order"]


def test_a_list_in_one_line(tree: Tree) -> None:
    two(tree)
    (tree.folder / SCRIPT).write_text("SUPPORTED_OPERATORS: list[str] = ['my_op', 'a_op']\n")
    assert fixed(tree) == "SUPPORTED_OPERATORS: list[str] = ['a_op', 'my_op']\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "there is no SUPPORTED_OPERATORS list"),
        ("SUPPORTED_OPERATORS = sorted(['my_op'])\n", "not a literal list"),
        ("SUPPORTED_OPERATORS = ['my_op', 1]\n", "not a literal list"),
        ("SUPPORTED_OPERATORS = [\n", "never closed"),
        ("", "there is no SUPPORTED_OPERATORS list"),
    ],
)
def test_a_whitelist_that_cannot_be_read_is_told_once(tree: Tree, text: str, words: str) -> None:
    (tree.folder / SCRIPT).write_text(text)
    assert words in tree.only("whitelist-syntax").message


def test_no_front_door(tree: Tree) -> None:
    (tree.folder / SCRIPT).unlink()
    assert tree.only("whitelist-syntax").message == "the file is missing"


def test_an_ignore_comment_in_the_front_door(tree: Tree) -> None:
    two(tree)
    (tree.folder / SCRIPT).write_text(
        'SUPPORTED_OPERATORS = [\n    "my_op",\n'
        '    "a_op",  # mxfleet: ignore[whitelist-order] kept last on purpose\n]\n'
    )
    assert tree.check() == []


NAMES = st.lists(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), max_size=8)


@given(
    NAMES, st.sampled_from(["own", "line", "wrapped"]), st.sampled_from(["'", '"']), st.booleans()
)
def test_tidied_is_sorted_once_and_nothing_else(
    names: list[str], style: str, quote: str, comma: bool
) -> None:
    words = [f"{quote}{name}{quote}" for name in names]
    end = "," if comma and words else ""
    if style == "own":
        body = "\n" + ",\n".join(f"    {word}" for word in words) + f"{end}\n" if words else ""
    elif style == "line":
        body = ", ".join(words) + end
    else:
        body = "\n    " + ", ".join(words) + end + "\n"
    source = f"a = 1  # é\nSUPPORTED_OPERATORS = [{body}]\nb = 2\n"
    try:
        tidied = whitelist.tidy(source, "x")
    except TreeError:
        assert len(set(names)) < len(names)  # of a list in one line nothing is taken out
        assert style != "own" or len(names) == 1
        return
    assert whitelist.names(tidied, "x") == sorted(set(names))
    assert tidied.startswith("a = 1  # é\nSUPPORTED_OPERATORS = [")
    assert tidied.endswith("]\nb = 2\n")


def test_only_what_was_asked_for_is_listed(tree: Tree) -> None:
    two(tree)
    tree.config(CONFIG, "b_op")
    tree.runner(SKELETON, "b_op")
    found = check_tree(tree.folder, ["b_op"])
    assert [one.rule for one in found] == ["unlisted"]
    mend(found, lambda: check_tree(tree.folder, ["b_op"]))
    text = (tree.folder / SCRIPT).read_text()
    assert whitelist.names(text, "x") == ["b_op", "my_op"]


def test_a_whitelist_behind_a_link_out_of_the_tree_stays_as_it_is(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    two(tree)
    script, other = tree.folder / SCRIPT, tmp_path_factory.mktemp("other") / "front.py"
    script.rename(other)
    script.symlink_to(other)
    before = other.read_text()
    done = mend(check_tree(tree.folder), lambda: check_tree(tree.folder))
    assert other.read_text() == before
    assert [one.rule for one in done.left] == ["unlisted"] and not done.files
    assert "leads out of the tree" in done.kept[script]
