"""The performance CSV: nothing is lost on a round trip, and the modes do what they say."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import csvlines, csvmodes, csvtable, sheets
from harness.csvtable import ESTABLISHED, EXTRA, Col, Row
from harness_tree import BENCHMARK, REPOSITORY, rows_of

from orchestrator.results.device_csv import DeviceTable, parse_seconds

MakeRow = Callable[..., Row]
DATA = Path(os.environ.get("MXFLEET_SHARED_DATA", REPOSITORY / "../shared/data"))
HEADER = ",".join(ESTABLISHED)


def passed_record(summaries: dict[str, Any]) -> dict[str, Any]:
    rates = ("elements_per_second", "bytes_per_second", "bandwidth_utilisation")
    return {
        "op": "my_op",
        "case_id": "aaaa",
        "summaries": summaries,
        "timers": {"cold_gpu": {"mean": 1e-5, "median": 9e-6}, "cpu": None, "batch_gpu": None},
        "rates": dict.fromkeys(rates),
        "repeats": 1,
        "repeat_spread": None,
        "flops": None,
        "flags": [],
        "device": {"kind": "maca", "index": 0, "name": "MetaX C500"},
    }


@pytest.fixture(params=["c500_rows.csv", "h200_rows.csv"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a CSV that the established scripts wrote on hardware."""
    source = DATA / request.param
    if not source.is_file():
        pytest.skip(f"no {source}; MXFLEET_SHARED_DATA can name the folder")
    copy = tmp_path / source.name
    copy.write_bytes(source.read_bytes())
    return copy


def test_real_tables_survive_a_round_trip_byte_for_byte(real: Path) -> None:
    before = real.read_bytes()
    table = csvtable.read(real)
    assert len(table.rows) > 10 and not table.rejected
    csvtable.write(real, table)
    assert real.read_bytes() == before


def test_appending_leaves_the_cells_of_real_tables_alone(real: Path, row: MakeRow) -> None:
    before, end = rows_of(real), real.read_bytes()[-2:]
    csvmodes.generate(real, [row(gpu="1e-05")])
    after = rows_of(real)
    assert [cells[: len(old)] for cells, old in zip(after, before, strict=False)] == before
    assert after[0] == [*before[0], *EXTRA]
    assert len(after) == len(before) + 1 and len({len(cells) for cells in after}) == 1
    assert (real.read_bytes()[-2:] == b"\r\n") == (end == b"\r\n")


def test_updating_real_tables_changes_the_one_row_only(real: Path, row: MakeRow) -> None:
    before, end = rows_of(real), real.read_bytes()[-2:]
    old = before[2]
    faster = Row([*old[: len(ESTABLISHED)]], {"case_id": "aaaa", "GPU Median (sec)": "1e-09"})
    faster.cells[Col.GPU_TIME] = "1e-09"
    csvmodes.update(real, [faster, row()])
    after = rows_of(real)
    width = len(before[0])
    kept = [cells[:width] for cells in after]
    assert kept[:2] + kept[3:-1] == before[:2] + before[3:]
    changed = [at for at in range(width) if kept[2][at] != old[at]]
    assert changed == [Col.GPU_TIME] and after[2][-1] == "aaaa"
    assert len({len(cells) for cells in after}) == 1
    assert (real.read_bytes()[-2:] == b"\r\n") == (end == b"\r\n")


def test_columns_that_are_not_ours_keep_their_cells_in_an_update(
    tmp_path: Path, row: MakeRow
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER},Bits,note\n{','.join(row(gpu='1e-5').cells)},4,mine\n")
    csvmodes.update(path, [row(gpu="1e-6", Bits="8")])
    header, cells = rows_of(path)
    assert (cells[Col.GPU_TIME], cells[header.index("note")]) == ("1e-6", "mine")
    assert (cells[header.index("Bits")], cells[header.index("case_id")]) == ("8", "aaaa")


def test_columns_that_a_file_of_ours_lacks_are_added(tmp_path: Path, row: MakeRow) -> None:
    path = tmp_path / "t.csv"
    former = ["GPU Median (sec)", "Repeats", "Repeat Spread", "case_id"]
    path.write_text(f"{HEADER},{','.join(former)}\n{','.join(row(op='b').cells)},1e-5,1,,bbbb\n")
    csvmodes.generate(path, [row(**{"FLOP/s": "1e12", "Flags": "LAUNCH_BOUND"})])
    header, old, new = rows_of(path)
    assert header[len(ESTABLISHED) :] == [*former, "FLOP/s", "Flags"]
    assert old[-3:] == ["bbbb", "", ""] and new[-3:] == ["aaaa", "1e12", "LAUNCH_BOUND"]


def test_both_noise_columns_keep_their_values(real: Path) -> None:
    first = csvtable.read(real).rows[0]
    assert first[Col.CPU_NOISE] and first[Col.GPU_NOISE] and first[Col.BATCH_SAMPLES]
    assert ESTABLISHED.count("Noise") == ESTABLISHED.count("Samples") == 2


def test_an_old_row_is_found_without_a_case_id_and_on_another_device(
    real: Path, row: MakeRow, capsys: pytest.CaptureFixture[str]
) -> None:
    old = csvtable.read(real).rows[0]
    new = Row([*old], {"case_id": "new", "GPU Median (sec)": ""})
    new.cells[Col.DEVICE] = "3"
    csvmodes.generate(real, [new])
    assert "[SUMMARY] Appended: 0, Skipped: 1" in capsys.readouterr().out
    other = Row([*old], {"case_id": "new", "GPU Median (sec)": ""})
    other.cells[Col.DEVICE_NAME] = "MetaX C600"
    csvmodes.generate(real, [other])
    assert "[SUMMARY] Appended: 1, Skipped: 0" in capsys.readouterr().out


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_stay(
    tmp_path: Path, row: MakeRow, end: str, mark: str
) -> None:
    path = tmp_path / "t.csv"
    line = ",".join(["other", "0", "MetaX C500", *["x"] * 15])
    path.write_bytes((mark + HEADER + end + line + end).encode())
    csvmodes.generate(path, [row(SHAPE="(1, 2)"), row(case="bbbb", SHAPE='say "3"')])
    data = path.read_bytes()
    assert data.decode().startswith(mark + "op_name")
    assert data.count(b"\n") == 4 and data.count(b"\r\n") == (4 if end == "\r\n" else 0)
    assert [cells[Col.SHAPE] for cells in csvtable.read(path).rows] == ["x", "(1, 2)", 'say "3"']


def test_rows_of_the_wrong_width_are_named_and_kept_aside(
    tmp_path: Path, row: MakeRow, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    long, short = "a,0,C500,Yes,0,a,f16,(1, 2)" + "," * 10, "b,0,C500"
    good = "c" + "," * 17
    path.write_text("\n".join([HEADER, long, good, short]) + "\n")
    csvmodes.generate(path, [row()])
    warned = capsys.readouterr().err
    aside = path.with_name("t.csv.rejected.csv")
    kept = f"kept aside in {aside}"
    assert f"{path}:2: 19 cells where the header has 18; {kept}" in warned
    assert f"{path}:4: 3 cells where the header has 18; {kept}" in warned
    assert [cells[0] for cells in csvtable.read(path).rows] == ["c", "my_op"]
    assert aside.read_text().splitlines() == [long, short]
    csvmodes.generate(path, [row(case="bbbb", SHAPE="(9)")])
    assert aside.read_text().splitlines() == [long, short]


def old_line(op: str, shape: str = "(1 2)") -> str:
    cells = [op, "0", "MetaX C500", "Yes", "0.00e+00", op, "float16", shape]
    return ",".join([*cells, "9", "2e-05", "0.1", "1e-05", "0.2", "", "", "", "9", "3e-05"])


BROKEN = [
    pytest.param(old_line("bad", '"(1 2'), "a quote in it is not closed", id="unclosed quote"),
    pytest.param(old_line("bad", '"(1'), "a quote in it is not closed", id="and it spans columns"),
    pytest.param(old_line("bad", "(1, 2)"), "19 cells where the header has 18", id="comma"),
]


@pytest.mark.parametrize("mode", ["generate", "update"])
@pytest.mark.parametrize(("bad", "reason"), BROKEN)
def test_a_broken_line_costs_no_other(
    tmp_path: Path,
    row: MakeRow,
    capsys: pytest.CaptureFixture[str],
    bad: str,
    reason: str,
    mode: str,
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([HEADER, old_line("a"), bad, old_line("b", '"two\nlines"')]) + "\n")
    table = csvtable.read(path)
    assert [cells[0] for cells in table.rows] == ["a", "b"]
    assert table.rejected == [csvtable.Rejected(3, bad + "\n", reason)]
    csvmodes.compare(path, "my_op", [("Pass", row())], None)
    assert f"{path}:3: {reason}; not compared with" in capsys.readouterr().err
    assert not csvtable.rejected_path(path).exists()
    # Also when there is nothing to append: the other tools leave such a line aside as well.
    getattr(csvmodes, mode)(path, [])
    assert path.read_text() == f"{HEADER}\n{old_line('a')}\n" + old_line("b", '"two\nlines"') + "\n"
    assert csvtable.rejected_path(path).read_text() == bad + "\n"


@pytest.mark.parametrize(
    "text", ["plain\n", "\n", 'a,"b\nc",d\n', 'x,"\ny,1\n', 'x,"\r\ny,1', "a\rb"]
)
def test_both_readers_keep_the_same_lines_aside(tmp_path: Path, text: str) -> None:
    path, link = tmp_path / "t.csv", tmp_path / "link.csv"
    link.symlink_to(path)
    path.write_bytes(f"{HEADER}\n{old_line('a')}\n{text}{old_line('b')}\n".encode())
    ours, theirs = csvtable.read(link), DeviceTable.read(link)
    assert ours.rows == [line.cells for line in theirs.lines]
    found = [(line.number, line.raw, line.reason) for line in theirs.rejected]
    assert [(line.number, line.raw, line.reason) for line in ours.rejected] == found
    assert csvtable.rejected_path(link) == theirs.rejected_path == tmp_path / "t.csv.rejected.csv"


@pytest.mark.parametrize(
    "cell",
    [
        "1.5e-05",
        "3",
        "12.5 us",
        "2 µs",
        "2 μs",
        "7ns",
        " 2 s ",
        "",
        "n/a",
        "nan",
        "NaN",
        "inf",
        "1e999",
        "-1",
        "3 h",
        "1.2.3",
    ],
)
def test_both_readers_take_the_same_times(cell: str) -> None:
    assert csvtable.seconds(cell) == parse_seconds(cell)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (math.nan, ""),
        (math.inf, ""),
        (None, ""),
        (1e-05, "1e-05"),
        ("\x00", "\\x00"),
        ("\ud800", "?"),
    ],
)
def test_a_cell_without_a_value_is_empty_and_a_text_harmless(
    tmp_path: Path, value: object, cell: str
) -> None:
    record = passed_record(summaries={"Op": "my_op", "Bits": value, "Shape": "(1)"})
    path = tmp_path / "t.csv"
    csvmodes.generate(path, [csvtable.row_of(record, "0.00e+00")])
    assert rows_of(path)[1][-1] == cell


@pytest.mark.parametrize("text", ["a,b,c\n1,2,3\n", "hello\n", HEADER.replace("Shape", "shape")])
def test_a_foreign_csv_is_refused_and_left_alone(tmp_path: Path, row: MakeRow, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(csvtable.TreeError, match=r"t\.csv:1: .*--csv"):
        csvmodes.generate(path, [row()])
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("old", "new", "marker", "kept"),
    [
        ("1e-5", "9.4e-6", "[UPDATE] my_op", "9.4e-6"),
        ("1e-5", "9.6e-6", "[KEEP] my_op Gain: 4.0%", "1e-5"),
        ("1e-5", "9.9e-6", "[KEEP] my_op Gain: 1.0%", "1e-5"),
        ("1e-5", "1.2e-5", "[KEEP] my_op Loss: 20.0%", "1e-5"),
        ("10us", "9e-6", "[UPDATE] my_op", "9e-6"),
        ("0.02 ms", "9e-6", "[UPDATE] my_op", "9e-6"),
        ("", "9e-6", "[IGNORED] my_op", ""),
        ("broken", "9e-6", "[IGNORED] my_op", "broken"),
    ],
)
def test_update_replaces_what_got_more_than_5_percent_faster(
    tmp_path: Path,
    row: MakeRow,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    marker: str,
    kept: str,
) -> None:
    path = tmp_path / "t.csv"
    csvmodes.generate(path, [row(gpu=old)])
    csvmodes.update(path, [row(gpu=new)])
    out = capsys.readouterr().out
    assert marker in out
    replaced = marker.startswith("[UPDATE]")
    assert f"[SUMMARY] Updated: {int(replaced)}, Kept: {int(not replaced)}" in out
    assert [cells[Col.GPU_TIME] for cells in csvtable.read(path).rows] == [kept]


def test_update_appends_what_is_new(
    tmp_path: Path, row: MakeRow, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    csvmodes.update(path, [row()])
    assert "[NEW] my_op" in capsys.readouterr().out
    assert len(csvtable.read(path).rows) == 1


def test_comparisons_never_mix_timers(tmp_path: Path, row: MakeRow) -> None:
    median = "GPU Median (sec)"
    both = row(gpu="2e-5", CPU_TIME="9e-5", **{median: "1e-5"})
    mean_only = row(gpu="3e-5", CPU_TIME="9e-5")
    cpu_only = row(CPU_TIME="9e-5")
    new = row(gpu="4e-5", CPU_TIME="8e-5", **{median: "5e-5"})
    assert csvmodes.times(both, new) == (1e-5, 5e-5, "GPU median")
    assert csvmodes.times(mean_only, new) == (3e-5, 4e-5, "GPU mean")
    assert csvmodes.times(cpu_only, new) is None
    assert csvmodes.times(cpu_only, row(CPU_TIME="8e-5")) == (9e-5, 8e-5, "CPU mean")


def test_sweep_cases_that_share_their_labels_stay_apart(tmp_path: Path, row: MakeRow) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "\n" + ",".join(row().cells) + "\n")
    # Which of the two the old row was cannot be told, so neither is taken for it.
    csvmodes.generate(path, [row(case="aaaa"), row(case="bbbb")])
    assert len(csvtable.read(path).rows) == 3


@pytest.mark.parametrize(
    ("acc", "measured", "shown"),
    [("Pass", True, "125.00%"), ("Fail", False, "None"), ("None", False, "None")],
)
def test_compare_prints_and_writes_no_table(
    tmp_path: Path,
    row: MakeRow,
    capsys: pytest.CaptureFixture[str],
    acc: str,
    measured: bool,
    shown: str,
) -> None:
    path, output = tmp_path / "t.csv", tmp_path / "o.csv"
    csvmodes.generate(path, [row(gpu="1e-5")])
    before = path.read_bytes()
    capsys.readouterr()
    for _ in range(2):
        csvmodes.compare(path, "my_op", [(acc, row(gpu="8e-6") if measured else None)], output)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["Result:", f"Acc verify:{acc}", f"Performance verify:{shown}"] * 2
    assert path.read_bytes() == before
    assert [cells[2] for cells in rows_of(output)] == ["acc", acc, acc]


def test_other_summaries_get_columns_of_their_own(tmp_path: Path) -> None:
    record = passed_record(summaries={"Op": "my_op", "Bits": 4, "Shape": "(1)"})
    path = tmp_path / "t.csv"
    csvmodes.generate(path, [csvtable.row_of(record, "0.00e+00")])
    header, cells = rows_of(path)
    assert header[-1] == "Bits" and cells[-1] == "4"
    assert (cells[Col.DTYPE], cells[Col.SHAPE], cells[Col.GPU_TIME]) == ("", "(1)", "1e-05")
    assert cells[header.index("GPU Median (sec)")] == "9e-06"


def test_concurrent_writers_lose_no_row(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from harness import csvmodes; "
        "from harness.csvtable import Row\n"
        "for i in range(10):\n"
        "    cells = [f'op{sys.argv[1]}_{i}', '0', 'MetaX C500'] + ['x'] * 15\n"
        "    csvmodes.generate(Path(sys.argv[2]), [Row(cells, {'case_id': 'a'})])\n"
    )
    path = tmp_path / "t.csv"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(number), str(path)],
            cwd=BENCHMARK,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        for number in range(4)
    ]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    names = [cells[0] for cells in csvtable.read(path).rows]
    assert sorted(names) == sorted(f"op{n}_{i}" for n in range(4) for i in range(10))
    assert sorted(p.name for p in tmp_path.iterdir()) == [".t.csv.lock", "t.csv"]


def test_a_table_that_cannot_be_written_is_left_as_it_was(tmp_path: Path, row: MakeRow) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(csvtable.TreeError, match="cannot be written"):
        csvmodes.generate(blocker / "t.csv", [row()])


def test_the_file_mode_and_a_symlink_stay(tmp_path: Path, row: MakeRow) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    csvmodes.generate(real, [row()])
    real.chmod(0o664)
    link.symlink_to(real)
    csvmodes.generate(link, [row(case="bbbb", SHAPE="(9)")])
    assert link.is_symlink() and len(csvtable.read(real).rows) == 2
    assert real.stat().st_mode & 0o777 == 0o664


BREAKS = ["a\rb", "a\nb", "a\r\nb", "\r", "\n", 'a"b\r"c', "a,b\r", "\x0b\x0c\x1c\x85\u2028"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", BREAKS)
def test_a_line_break_in_a_cell_costs_no_row(tmp_path: Path, text: str, line_end: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(f"{HEADER}{line_end}".encode())
    rows = [csvtable.row_of(passed_record({"Shape": text, text: text}), "0") for _ in range(2)]
    rows[1].extra["case_id"] = "bbbb"
    csvmodes.generate(path, rows)
    table = csvtable.read(path)
    assert not table.rejected and table.line_end == line_end
    assert [cells[Col.SHAPE] for cells in table.rows] == [text, text]
    assert [table.extra(cells, text) for cells in table.rows] == [text, text]
    # A cell that is there already stays too when the file is written again.
    csvtable.write(path, table)
    assert csvtable.read(path).rows == table.rows
    assert rows_of(path)[1:] == table.rows


@pytest.mark.parametrize("text", BREAKS)
def test_a_line_break_in_a_report_costs_no_row(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.csv"
    columns = [("A", sheets.TEXT), ("B", sheets.TEXT)]
    sheets.write_csv(path, sheets.Sheet("S", columns, [["x", text], ["y", "z"]]))
    assert [line[0] for line in rows_of(path)] == ["A", "x", "y"]


def test_rows_joined_are_rows_again() -> None:
    rows = [["a", *BREAKS], ["", *BREAKS], ["x"] * (len(BREAKS) + 1)]
    for line_end in ("\n", "\r\n"):
        assert [line.cells for line in csvlines.split(csvlines.join(rows, line_end))] == rows
