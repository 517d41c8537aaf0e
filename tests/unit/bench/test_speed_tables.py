"""The speed tables' judgement and text, from numbers given: nothing here is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import command, table  # noqa: E402
from common.errors import Failed, Skip  # noqa: E402
from common.table import Promise, Report  # noqa: E402


def report(*promises: Promise) -> Report:
    """A report of two rows; the first one's median is 2, the other's 8."""
    return Report(
        title="Title",
        how="How it was done.",
        command="python bench/x.py",
        seconds={"ours": [1.0, 2.0, 30.0], "theirs": [8.0, 7.0, 9.0]},
        reference={"theirs": "ours"},
        promises=promises,
        foot=["CPUs: 2"],
    )


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        (Promise("at most", 0.5, 0.5), True),
        (Promise("at most", 0.51, 0.5), False),
        (Promise("at least", 20.0, 20.0, "×", at_least=True), True),
        (Promise("at least", 19.9, 20.0, "×", at_least=True), False),
        (Promise("nothing sent", 0, 0, ""), True),
        (Promise("nothing sent", 1, 0, ""), False),
    ],
)
def test_a_promise_is_kept_up_to_its_limit(promise: Promise, kept: bool) -> None:
    assert promise.kept is kept
    assert report(Promise("kept", 0.0, 1.0), promise).kept is kept


def test_the_table_says_what_was_measured_and_what_broke() -> None:
    text = report(Promise("fast", 2.0, 1.0), Promise("small", 1.0, 2.0)).markdown()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["ours", "2.000", "1.000", "30.000", "725%", "3", ""] in cells
    assert ["theirs", "8.000", "7.000", "9.000", "12%", "3", "4.00× ours"] in cells
    assert ["fast", "2 s", "≤ 1 s", "**no**"] in cells
    assert ["small", "1 s", "≤ 2 s", "yes"] in cells
    assert "- CPUs: 2" in text.splitlines()


@pytest.mark.parametrize(
    ("outcome", "code", "written", "said"),
    [
        (report(Promise("fast", 1.0, 2.0)), 0, True, ""),
        (report(Promise("fast", 3.0, 2.0)), 1, True, ""),
        (Skip("no rsync"), 0, False, "bench/x.py: skipped: no rsync"),
        (Failed("the wire broke"), 1, False, "bench/x.py: the wire broke"),
        (KeyboardInterrupt(), 130, False, "bench/x.py: interrupted"),
    ],
)
def test_exit_codes(
    outcome: Report | BaseException,
    code: int,
    written: bool,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["x.py", "--table", str(tmp_path / "new" / "x.md")])

    def measure(rounds: int) -> table.Report:
        assert rounds == 5
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    assert command.table_command("bench/x.py", "x", measure, 5, tmp_path / "other.md") == code
    assert (tmp_path / "new" / "x.md").exists() is written
    assert capsys.readouterr().err.strip() == said


def test_one_round_shows_no_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x.py", "--rounds", "1"])
    with pytest.raises(SystemExit) as end:
        command.table_command("bench/x.py", "x", lambda rounds: report(), 5, tmp_path / "x.md")
    assert end.value.code == 2
    assert "at least 2" in capsys.readouterr().err
