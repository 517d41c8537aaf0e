"""Adding to the front door's list: the one line, in the list's own style, and nothing else."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import TreeError
from orchestrator.suites import whitelist

ONE_A_LINE = 'x = 1\nSUPPORTED_OPERATORS = [\n    "b",\n    "d",\n]\ny = 2\n'

# (name of the case, before, what is added, after)
STYLES = [
    ("in the middle", ONE_A_LINE, "c", ONE_A_LINE.replace('"b",\n', '"b",\n    "c",\n')),
    ("first", ONE_A_LINE, "a", ONE_A_LINE.replace("[\n", '[\n    "a",\n')),
    ("last", ONE_A_LINE, "e", ONE_A_LINE.replace('"d",\n', '"d",\n    "e",\n')),
    ("there already", ONE_A_LINE, "b", ONE_A_LINE),
    (
        "no trailing comma",
        'SUPPORTED_OPERATORS = [\n  "b"\n]\n',
        "c",
        'SUPPORTED_OPERATORS = [\n  "b",\n  "c",\n]\n',
    ),
    (
        "single quotes",
        "SUPPORTED_OPERATORS = [\n\t'b',\n]\n",
        "c",
        "SUPPORTED_OPERATORS = [\n\t'b',\n\t'c',\n]\n",
    ),
    (
        "comments",
        'SUPPORTED_OPERATORS = [\n    # norms\n    "b",  # b\n    "d"  # no comma\n    # end\n]\n',
        "e",
        'SUPPORTED_OPERATORS = [\n    # norms\n    "b",  # b\n    "d",  # no comma\n    "e",\n'
        "    # end\n]\n",
    ),
    (
        "CRLF",
        'a = 1\r\nSUPPORTED_OPERATORS = [\r\n    "b",\r\n]\r\n',
        "c",
        'a = 1\r\nSUPPORTED_OPERATORS = [\r\n    "b",\r\n    "c",\r\n]\r\n',
    ),
    (
        "one line",
        'SUPPORTED_OPERATORS = ["b", "d"]\n',
        "c",
        'SUPPORTED_OPERATORS = ["b", "c", "d"]\n',
    ),
    ("one line, end", "SUPPORTED_OPERATORS = ['b']", "c", "SUPPORTED_OPERATORS = ['b', 'c']"),
    (
        "one line, comma",
        'SUPPORTED_OPERATORS = ["b",]\n',
        "c",
        'SUPPORTED_OPERATORS = ["b", "c",]\n',
    ),
    (
        "several a line",
        'SUPPORTED_OPERATORS = [\n    "a", "c",\n    "e", "g",\n]\n',
        "f",
        'SUPPORTED_OPERATORS = [\n    "a", "c",\n    "e", "f", "g",\n]\n',
    ),
    (
        "brackets on the lines",
        'SUPPORTED_OPERATORS = ["a",\n                       "c"]\n',
        "d",
        'SUPPORTED_OPERATORS = ["a",\n                       "c", "d"]\n',
    ),
    (
        "closing bracket on the last line",
        'SUPPORTED_OPERATORS = [\n    "a",\n    "c"]\n',
        "d",
        'SUPPORTED_OPERATORS = [\n    "a",\n    "c", "d"]\n',
    ),
    ("empty", "SUPPORTED_OPERATORS = []\n", "a", 'SUPPORTED_OPERATORS = ["a"]\n'),
    ("empty, open", "SUPPORTED_OPERATORS = [\n]\n", "a", 'SUPPORTED_OPERATORS = ["a"\n]\n'),
    (
        "annotated",
        'SUPPORTED_OPERATORS: list[str] = [\n    "b",\n]\n',
        "a",
        'SUPPORTED_OPERATORS: list[str] = [\n    "a",\n    "b",\n]\n',
    ),
    (
        "not sorted",
        'SUPPORTED_OPERATORS = [\n    "z",\n    "b",\n]\n',
        "c",
        'SUPPORTED_OPERATORS = [\n    "c",\n    "z",\n    "b",\n]\n',
    ),
    (
        "other line ends before it",
        '"""\x0cpage\u2028line\x85"""\nSUPPORTED_OPERATORS = [\n    "b",\n]\n',
        "c",
        '"""\x0cpage\u2028line\x85"""\nSUPPORTED_OPERATORS = [\n    "b",\n    "c",\n]\n',
    ),
    (
        "wide characters before it",
        '\u4e2d = ["\u4e2d"]; SUPPORTED_OPERATORS = ["b"]\n',
        "c",
        '\u4e2d = ["\u4e2d"]; SUPPORTED_OPERATORS = ["b", "c"]\n',
    ),
    (
        "byte order mark",
        '\ufeffSUPPORTED_OPERATORS = [\n    "b",\n]\n',
        "c",
        '\ufeffSUPPORTED_OPERATORS = [\n    "b",\n    "c",\n]\n',
    ),
]


@pytest.mark.parametrize(
    ("before", "name", "after"), [s[1:] for s in STYLES], ids=[s[0] for s in STYLES]
)
def test_styles(before: str, name: str, after: str) -> None:
    assert whitelist.add(before, [name], "door.py") == after
    assert name in whitelist.names(after, "door.py")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ('SUPPORTED_OPERATORS = [\n    "b"\n    ,\n]\n', "c"),
        ('\ufeffSUPPORTED_OPERATORS = ["b"]\n', "a"),
        (ONE_A_LINE, 'quote"inside'),
        (ONE_A_LINE, "back\\slash"),
        (ONE_A_LINE, "new\nline"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_done_safely_is_left_to_people(source: str, name: str) -> None:
    try:
        after = whitelist.add(source, [name], "door.py")
    except TreeError as error:
        assert "by hand" in str(error)
        assert re.match(r"door\.py:\d+: cannot add", str(error))
    else:
        assert sorted([*whitelist.names(source, ""), name]) == whitelist.names(after, "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "door.py: there is no SUPPORTED_OPERATORS list"),
        (
            "\nSUPPORTED_OPERATORS = sorted(['a'])\n",
            "door.py:2: SUPPORTED_OPERATORS is not a literal",
        ),
        ("SUPPORTED_OPERATORS = ('a',)\n", "door.py:1: SUPPORTED_OPERATORS is not a literal"),
        ("SUPPORTED_OPERATORS = ['a', 1]\n", "door.py:1: SUPPORTED_OPERATORS is not a literal"),
        ("SUPPORTED_OPERATORS = [*OTHERS]\n", "door.py:1: SUPPORTED_OPERATORS is not a literal"),
        ("SUPPORTED_OPERATORS = ['a'] + ['b']\n", "door.py:1: SUPPORTED_OPERATORS is not a"),
        ("SUPPORTED_OPERATORS: list\n", "door.py:1: SUPPORTED_OPERATORS is not a literal"),
        ("x = 1\nSUPPORTED_OPERATORS = [\n", "door.py:2: syntax error"),
        ("a\0b", "door.py:1:"),
        ("(" * 5000, "door.py:1:"),
        ("SUPPORTED_OPERATORS = " + "-" * 200_000 + "1", "door.py:1:"),
    ],
)
def test_lists_that_cannot_be_read(source: str, message: str) -> None:
    for action in (whitelist.names, lambda s, w: whitelist.add(s, ["a"], w)):
        with pytest.raises(TreeError) as caught:
            action(source, "door.py")
        assert str(caught.value).startswith(message)
        assert caught.value.hint


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)


@given(st.data())
def test_any_layout(data: st.DataObject) -> None:
    """Whatever the list looks like: the names are there afterwards, the other lines untouched."""
    there = sorted(data.draw(st.sets(NAMES, max_size=6)))
    new = data.draw(st.sets(NAMES, max_size=4))
    gap = st.sampled_from([" ", "\n    ", "  # note, [ ] \" '\n    ", "\n\n  "])
    text = "SUPPORTED_OPERATORS = [" + data.draw(gap)
    for count, name in enumerate(there):
        quote = data.draw(st.sampled_from("'\""))
        last = count == len(there) - 1
        comma = "," if not last or data.draw(st.booleans()) else ""
        text += f"{quote}{name}{quote}{comma}{data.draw(gap)}"
    source = f"before = 1\n{text}]\nafter = 2\n"
    ast.parse(source)
    after = whitelist.add(source, new, "door.py")
    assert sorted(whitelist.names(after, "")) == sorted({*there, *new})
    rest = iter(after)
    assert all(character in rest for character in source)  # nothing is gone, nothing moved
