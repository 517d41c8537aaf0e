"""Known failures: what the file may hold, which cases it is about, and when they count again."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from harness import known
from harness.errors import TreeError
from harness_tree import BENCHMARK, make_tree

ENTRY = {"op": "gemm", "status": "FAILED", "reason": "wrong tail", "expires": "2026-12-31"}
BEFORE, LAST, AFTER = date(2026, 12, 1), date(2026, 12, 31), date(2027, 1, 1)


def loaded(root: Path, *entries: dict[str, Any]) -> known.Known:
    (root / known.FILE).write_text(json.dumps(entries))
    return known.load(root)


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in ENTRY.items() if name != key}


def test_the_tree_ships_an_empty_list_and_none_is_as_good(tmp_path: Path) -> None:
    assert json.loads((BENCHMARK / known.FILE).read_text()) == []
    assert known.load(BENCHMARK) == known.load(tmp_path) == known.Known()


@pytest.mark.parametrize(
    ("narrowed", "parameters", "model", "status", "hit"),
    [
        ({}, {"rows": 8}, "H200", "FAILED", True),
        ({}, {}, "C500", "FAILED", True),
        # Another failure than the known one is news.
        ({}, {}, "C500", "ERROR", False),
        ({}, {}, "C500", "TIMEOUT", False),
        ({}, {}, "C500", "PASSED", False),
        ({}, {}, "C500", "UNVERIFIED", False),
        ({"op": "gemm2"}, {}, "C500", "FAILED", False),
        ({"op": "gem"}, {}, "C500", "FAILED", False),
        ({"device": "C500"}, {}, "C500", "FAILED", True),
        ({"device": "C500"}, {}, "C5000", "FAILED", False),
        ({"device": "C5*"}, {}, "C550", "FAILED", True),
        ({"device": "C5*"}, {}, "H200", "FAILED", False),
        ({"case": {}}, {"rows": 8}, "H200", "FAILED", True),
        ({"case": {"rows": 8}}, {"rows": 8, "bits": 4}, "H200", "FAILED", True),
        ({"case": {"rows": 8}}, {"rows": 16, "bits": 4}, "H200", "FAILED", False),
        ({"case": {"rows": 8, "bits": 8}}, {"rows": 8, "bits": 4}, "H200", "FAILED", False),
        ({"case": {"rows": 8}}, {"rows": "8"}, "H200", "FAILED", False),
        ({"case": {"rows": 1}}, {"rows": True}, "H200", "FAILED", False),
        ({"case": {"row": None}}, {}, "H200", "FAILED", False),
        ({"case": {"shape": {"n": [1, 2]}}}, {"shape": {"n": [1, 2]}}, "H200", "FAILED", True),
    ],
)
def test_what_an_entry_is_about(
    tmp_path: Path,
    narrowed: dict[str, Any],
    parameters: dict[str, Any],
    model: str,
    status: str,
    hit: bool,
) -> None:
    found = loaded(tmp_path, {**ENTRY, **narrowed}).match("gemm", parameters, model, status, BEFORE)
    expected = {"reason": "wrong tail", "expires": "2026-12-31", "expired": False}
    assert found == (expected if hit else None)


@pytest.mark.parametrize(
    ("status", "today", "said", "expired"),
    [
        ("FAILED", BEFORE, "[KNOWN] gemm FAILED: wrong tail (until 2026-12-31)", False),
        ("FAILED", LAST, "[KNOWN] gemm FAILED: wrong tail (until 2026-12-31)", False),
        (
            "FAILED",
            AFTER,
            "[KNOWN] gemm FAILED: wrong tail (expired 2026-12-31, it counts again)",
            True,
        ),
        ("PASSED", BEFORE, "[KNOWN] gemm passes now; remove it from known_failures.json", None),
        ("PASSED", AFTER, "[KNOWN] gemm passes now; remove it from known_failures.json", None),
        ("ERROR", BEFORE, "", None),
        ("NOT_RUN", BEFORE, "", None),
    ],
)
def test_what_is_said_of_a_case(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: str,
    today: date,
    said: str,
    expired: bool | None,
) -> None:
    entry = {**ENTRY, "reason": "wrong\n tail"}
    found = loaded(tmp_path, entry).honour("gemm", {}, "H200", status, today)
    assert capsys.readouterr().out == (f"{said}\n" if said else "")
    assert (found["expired"] if found else None) is expired


def test_what_passes_elsewhere_is_not_told_to_be_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = loaded(tmp_path, {**ENTRY, "device": "C500", "case": {"rows": 8}})
    assert listed.honour("gemm", {"rows": 8}, "H200", "PASSED", BEFORE) is None
    assert listed.honour("gemm", {"rows": 9}, "C500", "PASSED", BEFORE) is None
    assert listed.honour("other", {"rows": 8}, "C500", "PASSED", BEFORE) is None
    assert capsys.readouterr().out == ""


def test_of_several_entries_one_that_still_holds_excuses(tmp_path: Path) -> None:
    old = {**ENTRY, "reason": "old", "expires": "2026-01-01"}
    for entries in ([old, ENTRY], [ENTRY, old]):
        found = loaded(tmp_path, *entries).match("gemm", {}, "H200", "FAILED", LAST)
        assert found == {"reason": "wrong tail", "expires": "2026-12-31", "expired": False}
    found = loaded(tmp_path, old).match("gemm", {}, "H200", "FAILED", LAST)
    assert found is not None and found["expired"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "not JSON"),
        ("[\n{]", 2, "not JSON"),
        ("{}", 1, "holds no list"),
        ('{"op": "a"}', 1, "holds no list"),
        ("null", 1, "holds no list"),
        ('[\n\n"gemm"]', 3, "no object"),
        ("[[]]", 1, "no object"),
        (json.dumps([ENTRY, {**ENTRY, "devise": "C500"}], indent=1), 8, "did you mean 'device'?"),
        (json.dumps([{**ENTRY, "x": 1}]), 1, "unknown key 'x'; known are op, status"),
        *[(json.dumps([without(key)]), 1, f"needs '{key}'") for key in ENTRY],
        *[(json.dumps([{**ENTRY, key: " "}]), 1, f"'{key}' is") for key in ENTRY],
        *[(json.dumps([{**ENTRY, key: None}]), 1, f"'{key}' is null") for key in ENTRY],
        (json.dumps([{**ENTRY, "device": ["C500"]}]), 1, "'device' is"),
        (json.dumps([{**ENTRY, "case": "rows=8"}]), 1, "'case': \"rows=8\" is no object"),
        (json.dumps([{**ENTRY, "case": ["rows"]}]), 1, "is no object"),
        (json.dumps([{**ENTRY, "status": "PASSED"}]), 1, "none of FAILED, ERROR, TIMEOUT"),
        (json.dumps([{**ENTRY, "status": "failed"}]), 1, "none of FAILED"),
        *[
            (json.dumps([{**ENTRY, "expires": day}]), 1, "write YYYY-MM-DD")
            for day in ("2026-02-30", "20261231", "2026-12-31T00:00", "soon", "31.12.2026")
        ],
        (json.dumps([ENTRY])[:-2] + ', "op": "b"}]', 1, "'op' stands twice"),
        ('[{"op": ' + "[" * 100_000, 1, "JSON"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    (tmp_path / known.FILE).write_text(text)
    with pytest.raises(TreeError) as raised:
        known.load(tmp_path)
    place, message = str(raised.value).split(": ", 1)
    assert words in message
    assert place == f"{known.FILE}:{line}" or "beyond what Python reads" in message


@pytest.mark.parametrize("data", [b"\xff[]", None])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / known.FILE
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(TreeError, match=known.FILE):
        known.load(tmp_path)


@pytest.mark.parametrize(
    ("op", "words"),
    [("torch_softmx", "did you mean 'torch_softmax'"), ("nothing_like_it", "no operator")],
)
def test_an_operator_that_the_tree_has_not_is_a_mistake(
    tmp_path: Path, op: str, words: str
) -> None:
    tree = make_tree(tmp_path / "benchmark")
    entry = {"op": op, "status": "FAILED", "reason": "r", "expires": "2999-01-01"}
    (tree.root / "known_failures.json").write_text(f"[\n{json.dumps(entry)}]")
    ran = tree.run("--op", "torch_softmax")
    assert ran.code == 2 and "known_failures.json:2: " in ran.err and words in ran.err, ran
