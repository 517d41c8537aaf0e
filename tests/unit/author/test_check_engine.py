"""Reading hostile trees, silencing findings, mending files; the shipped tree is clean."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from check_kit import CONFIG, SCRIPT, SKELETON, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.author.check import check_tree
from orchestrator.author.check.config_file import read_config
from orchestrator.author.check.finding import At, Edit, Finding
from orchestrator.author.check.fix import mend
from orchestrator.author.check.literals import UNKNOWN
from orchestrator.author.check.reading import LARGEST
from orchestrator.author.check.registry import RULES
from orchestrator.author.check.rules import load_rules
from orchestrator.author.check.source import parse_text
from orchestrator.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
READ = '        self.hidden_size = config.get("hidden_size", 4096)\n'


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_shipped_tree_is_clean() -> None:
    assert [str(one) for one in check_tree(ROOT / "benchmark")] == []


def test_nothing_that_is_read_is_imported(tree: Tree) -> None:
    tree.runner(f"raise SystemExit('ran')\n{SKELETON}")
    before = set(sys.modules)
    assert tree.check() == []
    assert not {name for name in set(sys.modules) - before if "mxbenchmark" in name}


def test_a_folder_that_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no benchmark tree"):
        check_tree(tmp_path)


def test_an_operator_that_is_not_there(tree: Tree) -> None:
    with pytest.raises(UsageError, match='did you mean "my_op"'):
        tree.check("my_opp")


# Broken files.

BROKEN_CONFIGS: list[tuple[str, bytes, int, int, str]] = [
    ("a comma too many", b'{\n  "a": 1,\n}', 2, 9, "broken JSON: a comma before the closing brace"),
    ("no comma", b'{\n  "a": 1\n  "b": 2\n}', 3, 3, "broken JSON: expecting ',' or '}'"),
    ("a key twice", b'{\n  "a": 1,\n  "a": 2\n}', 3, 3, '"a" stands twice, first in line 2'),
    ("a key twice inside", b'{\n  "a": [{"b": 1, "b": 2}]\n}', 2, 8, '"b" stands twice'),
    ("NaN", b'{\n  "a": NaN\n}', 2, 8, "NaN is no JSON number"),
    ("infinity", b'{"a": 1e999}', 1, 7, "a number too large for a float"),
    ("a list", b"[1]", 1, 1, "the config is not a JSON object"),
    ("nothing", b" \n", 2, 1, "the config is empty"),
    ("no text", b"", 1, 1, "the config is empty"),
    ("single quotes", b"{'a': 1}", 1, 2, "broken JSON: expecting property name"),
    ("text behind", b"{}\n\nx", 3, 1, "broken JSON: text behind the object"),
    ("cut off", b'{"a": ', 1, 7, "broken JSON: expecting value"),
    ("cut off in text", b'{"a": "x', 1, 7, "broken JSON: unterminated string"),
    ("a tab in text", b'{"a": "\t"}', 1, 8, "broken JSON: invalid control character"),
    ("not UTF-8", b'{\n"a": "\xff"}', 2, 1, "not UTF-8 text"),
    ("a byte order mark", b"\xef\xbb\xbf{}", 1, 1, "begins with a byte order mark"),
    ("deep", b'{"a": ' + b"[" * 200_000, 1, 7, "nested too deeply"),
    ("many digits", b'{"a": ' + b"1" * 10_000 + b"}", 1, 7, "beyond what Python reads"),
    ("NUL", b'{"a\x00": 1}', 1, 4, "broken JSON: invalid control character"),
    ("huge", b" " * (LARGEST + 1), 1, 1, f"has {LARGEST + 1} bytes"),
]


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [case[1:] for case in BROKEN_CONFIGS],
    ids=[case[0] for case in BROKEN_CONFIGS],
)
def test_a_broken_config(tree: Tree, data: bytes, line: int, column: int, message: str) -> None:
    tree.config_path().write_bytes(data)
    finding = tree.only("config-syntax")
    assert finding.message.startswith(message)
    assert (finding.at.line, finding.at.column) == (line, column)


BROKEN_RUNNERS = [
    ("a bracket", b"x = (\n", 1, "syntax error"),
    ("NUL", b"x = 1\x00\n", 1, "source code"),
    ("not UTF-8", b"x = 1\n# \xff\n", 2, "not UTF-8 text"),
    ("deep", b"x = " + b"(" * 5000 + b")" * 5000, 1, "too"),
    ("deep without brackets", b"x = " + b"-" * 50_000 + b"1", 1, "not Python"),
    ("huge", b"#" * (LARGEST + 1), 1, "has"),
    ("an indent", b"x = 1\n  y = 2\n", 2, "syntax error"),
]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [case[1:] for case in BROKEN_RUNNERS],
    ids=[case[0] for case in BROKEN_RUNNERS],
)
def test_a_broken_runner(tree: Tree, data: bytes, line: int, words: str) -> None:
    tree.runner_path().write_bytes(data)
    finding = tree.only("runner-syntax")
    assert finding.at.line == line
    assert words in finding.message


@pytest.mark.parametrize("kind", ["folder", "loop", "dangling", "pipe", "unreadable folder"])
@pytest.mark.parametrize("which", ["config", "runner", "script"])
def test_what_is_no_file(tree: Tree, kind: str, which: str) -> None:
    path = {
        "config": tree.config_path(),
        "runner": tree.runner_path(),
        "script": tree.folder / SCRIPT,
    }[which]
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/proc/1/mem/x")
    rule = {"config": "config-syntax", "runner": "runner-syntax", "script": "whitelist-syntax"}
    assert tree.only(rule[which]).at.line == 1


def test_folders_that_are_missing_or_files(tree: Tree) -> None:
    tree.config_path().unlink()
    (tree.folder / "config").rmdir()
    assert tree.rules() == ["missing-config"]
    (tree.folder / "config").write_text("")
    assert tree.rules() == ["missing-config"]


def test_links_that_lead_somewhere_are_followed(tree: Tree) -> None:
    path = tree.runner_path()
    real = tree.folder / "real.py"
    path.rename(real)
    path.symlink_to(real)
    tree.change(hidden_size=1)
    mend(tree.check(), tree.check)
    assert path.is_symlink()
    assert '"hidden_size", 1)' in real.read_text(encoding="utf-8")


def test_windows_line_ends_and_a_byte_order_mark(tree: Tree) -> None:
    tree.runner_path().write_bytes(b"\xef\xbb\xbf" + SKELETON.replace("\n", "\r\n").encode())
    text = json.dumps({**CONFIG, "x": 1}, indent=1).replace("\n", "\r\n")
    tree.config_path().write_bytes(text.encode())
    assert tree.only("unread-key").at.line == 8
    tree.change(hidden_size=1)
    mend(tree.check(), tree.check)
    data = tree.runner_path().read_bytes()
    assert b'config.get("hidden_size", 1)\r\n' in data
    assert data.count(b"\r\n") == SKELETON.count("\n")


ODD = st.text(max_size=60) | st.sampled_from(
    ['{"a": 1}', "{", "[]", '"', "\\", "\ud800", "\u2028", "NaN", "-", "1e5", "true", ",", ":", "}"]
)


@given(st.lists(ODD, max_size=8).map("".join))
@settings(max_examples=300)
def test_a_config_is_what_json_says(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    config = read_config(path, "fuzz.json")
    try:
        plain = json.loads(path.read_bytes().decode("utf-8"))
    except ValueError:
        plain = None
    if not isinstance(plain, dict):
        assert config.problem is not None
        assert not config.entries
    elif config.problem is None:
        assert {key: config.get(key) for key in config} == plain


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, width=16) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(ODD, VALUES, max_size=5), st.sampled_from([None, 1, 4]), st.booleans())
def test_places_of_keys_and_edits_of_values(
    tmp_path_factory: Any, values: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    path = tmp_path_factory.getbasetemp() / "keys.json"
    path.write_bytes(text.encode("utf-8", "replace"))
    text = path.read_bytes().decode()
    values = json.loads(text)
    config = read_config(path, "keys.json")
    if config.problem is not None:  # numbers beyond JSON, keys that "replace" made equal
        assert "stands twice" in config.problem.message or "number" in config.problem.message
        return
    assert list(config) == list(values)
    for key in config:
        at = config.at(key)
        line = text.split("\n")[at.line - 1]
        assert line[at.column - 1] == '"'
        edit = config.replacing(key, {"new": [1]})
        changed = text[: edit.start] + edit.after + text[edit.end :]
        assert json.loads(changed) == {**values, key: {"new": [1]}}


PIECES = st.sampled_from(
    [line + "\n" for line in SKELETON.split("\n")]
    + ["    x: int = config\n", "        config = self.config = config\n", "class A(A): pass\n"]
    + ["        self.make_launcher(*a, **b)\n", "        global config, x\n", "    *a, b = b, *a\n"]
    + ["for config in config: config[config]\n", "        self.a = (*self.a,)\n", "lambda: x\n"]
    + ["def f(*, config): return f(config=config)\n", "        a = a = (a, *a)\n", "del self.a\n"]
    + ["class B(OpBenchmarkBase, B): pass\n", "match config:\n    case {'a': x}: pass\n"]
    + ["torch.ops._C.my_op(*self.b, x=1)\n", "        self.b = self.b[1:] + self.b\n"]
)


@given(st.lists(PIECES, max_size=30), st.booleans())
@settings(max_examples=200, deadline=None)
def test_no_text_breaks_the_check(tmp_path_factory: Any, pieces: list[str], flat: bool) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    tree = Tree(folder)
    text = "".join(piece.lstrip() if flat else piece for piece in pieces)
    tree.runner(text)
    for finding in tree.check(known=lambda name: []):
        assert finding.at.line >= 1
        assert finding.at.column >= 1
        assert finding.message


# What a rule sees.


@given(st.integers(-(10**6), 10**6), st.integers(-9, 9), st.sampled_from("+-*/"))
def test_literals_are_folded_as_python_does(left: int, right: int, sign: str) -> None:
    text = f"A = {left}\nB = (A {sign} {right}, 'x', [-A])\nC = B\n"
    source = parse_text(Path("x.py"), "x.py", text)
    node = source.tree.body[2].value  # type: ignore[attr-defined]
    try:
        expected = eval(f"({left} {sign} {right}, 'x', [-({left})])")
    except ZeroDivisionError:
        expected = UNKNOWN
    assert source.literal(node) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = 2 ** 2 ** 99",
        "x = 9 ** 9 ** 9",
        "x = 1 << 99999",
        "x = x",
        "x = y\ny = x",
        "x = 'a' * 9**9",
    ],
)
def test_what_is_not_folded(text: str) -> None:
    source = parse_text(Path("x.py"), "x.py", text)
    assert source.literal(source.tree.body[0].value) is UNKNOWN  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text", ["é = 'ü'; x = 1\n", "x = 1\n", "\tif 1: y = '𝄞', x\n", "a = '''\nü''', x\n"]
)
def test_spans_are_characters(text: str) -> None:
    text = "if 1:\n" + text if text.startswith("\t") else text
    source = parse_text(Path("x.py"), "x.py", text)
    for name in source.walk(ast.Name):
        start, end = source.span(name)
        assert text[start:end] == name.id
        at = source.at(name)
        assert text.split("\n")[at.line - 1][at.column - 1 :].startswith(name.id)


def test_doubling_ends(tree: Tree) -> None:
    rows = ["a0 = (1, 2)", "b0 = 1", "c0 = (1,)"]
    for n in range(1, 39):
        rows += [f"a{n} = ({f'a{n - 1}, ' * 9})", f"b{n} = {f' + b{n - 1}' * 9}"]
        rows += [f"c{n} = ({f'*c{n - 1}, ' * 9})"]
        rows += [f"def f{n}():\n    return ({f'*f{n - 1}(), ' * 9})"]
    use = (
        '        self.a = config.get("a", a38)\n        self.b = config.get("b", b38)\n'
        "        torch.ops._C.my_op(*c38)\n        torch.ops._C.my_op(*f38())\n"
    )
    tree.runner("\n".join(rows) + "\n" + SKELETON.replace(READ, READ + use))
    assert tree.rules(known=lambda name: []) == []


def test_a_config_that_is_handed_on_without_end(tree: Tree) -> None:
    helpers = [f"def f{n}(c):\n    return f{n + 1}(c)\n" for n in range(400, -1, -1)]
    tree.runner("".join(helpers) + SKELETON.replace(READ, READ + "        f0(config)\n"))
    tree.change(top_k=8)
    assert tree.check() == []  # it may be read anywhere


def test_very_many_comments_and_keys(tree: Tree) -> None:
    line = "# mxfleet: ignore[other-defualt] why\n"
    tree.runner(SKELETON + line * 20_000)
    tree.config({**CONFIG, **{f"key_{n}": n for n in range(20_000)}})
    found = tree.rules()
    assert found.count("unread-key") == 20_000
    assert found.count("ignore-form") == 1000


# Silencing.


def ignoring(tree: Tree, comment: str, above: str = "") -> list[Finding]:
    """What is found with a default beside the config's, and a comment at that line."""
    tree.change(hidden_size=1)
    tree.swap(READ, above + READ.replace("\n", f"  {comment}\n"))
    return tree.check()


def test_a_reason_silences_a_rule_at_its_line(tree: Tree) -> None:
    assert [one.rule for one in ignoring(tree, "")] == ["other-default"]
    assert ignoring(tree, "# mxfleet: ignore[other-default] as upstream has it") == []
    assert ignoring(tree, "", "        # mxfleet: ignore[other-default] as upstream has it\n") == []
    stacked = "        # mxfleet: ignore[other-default] as upstream has it\n        # and more\n"
    assert ignoring(tree, "", stacked) == []
    both = "# mxfleet: ignore[unread-key, other-default] as upstream has it"
    assert [one.rule for one in ignoring(tree, both)] == ["unused-ignore"]


def test_a_comment_elsewhere_silences_nothing(tree: Tree) -> None:
    above = "        # mxfleet: ignore[other-default] why\n        pass\n"
    rules = [one.rule for one in ignoring(tree, "", above)]
    assert rules == ["unused-ignore", "other-default"]


@pytest.mark.parametrize(
    ("comment", "words", "fix"),
    [
        ("# mxfleet: ignore[other-default]", "without a reason", "write the reason"),
        ("# mxfleet: ignore[other-defualt] why", "no rule is called", '"other-default"'),
        ("# mxfleet: ignore[] why", "names no rule", "rule-id"),
        ("# mxfleet: ignore why", "names no rule", "rule-id"),
        ("# mxfleet: ignore[unused-ignore] why", "no rule is called", ""),
    ],
)
def test_a_comment_that_is_no_good(tree: Tree, comment: str, words: str, fix: str) -> None:
    found = {one.rule: one for one in ignoring(tree, comment)}
    assert set(found) == {"other-default", "ignore-form"}
    assert words in found["ignore-form"].message
    assert fix in found["ignore-form"].fix


def test_words_in_a_string_are_no_comment(tree: Tree) -> None:
    text = '        x = "# mxfleet: ignore[other-default] why"\n'
    assert [one.rule for one in ignoring(tree, "", text)] == ["other-default"]


@pytest.mark.parametrize("line", [READ, "class My_op_runner(OpBenchmarkBase):\n"])
def test_a_finding_in_a_config_is_silenced_in_the_runner(tree: Tree, line: str) -> None:
    tree.change(hidden_size=[])
    comment = "  # mxfleet: ignore[empty-sweep] filled in by hand"
    tree.swap(line, line.replace("\n", f"{comment}\n"))
    assert tree.check() == []


def test_a_rule_that_had_nothing_to_look_at_is_not_unused(tree: Tree) -> None:
    comment = "  # mxfleet: ignore[missing-argument] older library\n"
    line = "        torch.ops._C.my_op(x, y, out)\n"
    tree.swap(line, line.replace("\n", comment))
    assert tree.check() == []
    assert tree.rules(known=lambda name: []) == ["unused-ignore"]


# Mending.


def finding(edit: Edit) -> Finding:
    return Finding(At("x", 1), "r", "error", "m", "w", "f", edit=edit)


def test_edits_that_touch_wait_and_those_that_do_not_fit_are_left(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("abcdef = 1\n")
    edits = [Edit(path, 0, 2, "ab", "x"), Edit(path, 2, 3, "c", "y"), Edit(path, 4, 5, "Q", "z")]
    rounds: list[list[Finding]] = [[finding(Edit(path, 0, 1, "x", "yy"))], []]
    done = mend([finding(edit) for edit in edits], lambda: rounds.pop(0))
    assert path.read_text() == "yycdef = 1\n"
    assert [one.edit.after for one in done.mended if one.edit] == ["x", "yy"]


def test_an_edit_that_breaks_a_file_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("a = 1\n")
    done = mend([finding(Edit(path, 0, 1, "a", "("))], list)
    assert path.read_text() == "a = 1\n"
    assert done.mended == []
    assert done.files == ()


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_smallest_edit_between_two_texts(old: str, new: str) -> None:
    edit = Edit.between(Path("x"), old, new)
    assert old[: edit.start] + edit.after + old[edit.end :] == new
    assert old[edit.start : edit.end] == edit.before


def test_mending_twice_changes_nothing_more(tree: Tree) -> None:
    tree.change(device_id=3, dtype="BF16", hidden_size=5)
    mend(tree.check(), tree.check)
    before = {path: path.read_bytes() for path in tree.folder.rglob("*") if path.is_file()}
    done = mend(tree.check(), tree.check)
    assert done.files == ()
    assert before == {path: path.read_bytes() for path in tree.folder.rglob("*") if path.is_file()}


# The rules themselves.


def test_every_rule_says_what_why_and_what_to_do() -> None:
    load_rules()
    for name, rule in RULES.items():
        assert name == rule.id
        assert name == name.lower().replace("_", "-").replace(" ", "-")
        assert rule.what.endswith("."), name
        assert rule.why.endswith("."), name
        assert rule.fix, name
