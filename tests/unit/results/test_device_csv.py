"""Device CSVs: nothing lost, nothing mended, replaced as a whole or not at all."""

from __future__ import annotations

import csv
import io
import subprocess
from pathlib import Path

import pytest

from orchestrator.errors import MxfleetError, TreeError
from orchestrator.results.device_csv import ESTABLISHED, EXTRA, DeviceTable, Row, parse_seconds

HEADER = ",".join(ESTABLISHED)


def line(op: str, shape: str = "(1 2)", *extra: str) -> str:
    cells = [op, "0", "MetaX C500", "Yes", "0.00e+00", op, "float16", shape]
    cells += ["9", "2e-05", "0.1", "1e-05", "0.2", "1.0", "2.0", "0.5", "9", "3e-05"]
    return ",".join([*cells, *extra])


def new_row(op: str = "new", **extra: str) -> Row:
    return Row(tuple(line(op).split(",")), extra)


def text_of(*lines: str, header: str = HEADER, end: str = "\n") -> str:
    return "".join(one + end for one in [header, *lines])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text_of(line("a")), id="plain"),
        pytest.param(text_of(line("a"), end="\r\n"), id="CRLF"),
        pytest.param("\ufeff" + text_of(line("a")), id="BOM"),
        pytest.param(text_of(line("a", "s", ""), header=HEADER + ","), id="trailing empty column"),
        pytest.param(text_of(line("a", "s", "4"), header=HEADER + ",Bits"), id="unknown column"),
        pytest.param(text_of(line("a", '"(1, 2)"')), id="quoted comma"),
        pytest.param(text_of(line("a", '"say ""4"""')), id="quoted quotes"),
        pytest.param(text_of(line("a", '"two\nlines"'), end="\r\n"), id="newline in a cell"),
        pytest.param(text_of('"a"' + line("a")[1:]), id="needless quotes"),
        pytest.param(text_of(line("a", " padded ")), id="blanks around"),
        pytest.param(text_of(line("a", "x" * 1_000_000)), id="cell of 1 MB"),
        pytest.param(text_of(line("a", "\udcb0\udca1")), id="not UTF-8"),
    ],
)
def test_what_is_not_changed_stays_byte_for_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    data = text.encode("utf-8", "surrogateescape")
    path.write_bytes(data)
    table = DeviceTable.read(path)
    assert len(table.lines) == 1
    assert not table.rejected
    assert table.encode() == data
    table.append(Row(tuple(line("b").split(","))))
    grown = table.encode()
    assert grown.startswith(data)
    assert grown.endswith(b"\r\n") == data.endswith(b"\r\n")


def test_real_files_survive_and_new_columns_move_no_cell(real_csv: Path, tmp_path: Path) -> None:
    table = DeviceTable.read(real_csv)
    assert table.encode() == real_csv.read_bytes()
    before = list(csv.reader(io.StringIO(real_csv.read_text(), newline="")))
    table.path = tmp_path / "grown.csv"
    table.append(new_row(**dict.fromkeys(EXTRA, "x")))
    table.write()
    after = list(csv.reader(table.path.open(newline="")))
    width = len(before[0])
    assert [row[:width] for row in after[:-1]] == before
    assert after[0][width:] == list(EXTRA)
    assert {tuple(row[width:]) for row in after[1:-1]} == {("",) * len(EXTRA)}
    assert after[-1][width:] == ["x"] * len(EXTRA)


def test_a_last_line_without_its_end_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}\n{line('a')}")
    table = DeviceTable.read(path)
    table.append(new_row())
    assert table.encode().decode() == f"{HEADER}\n{line('a')}\n{line('new')}\n"


@pytest.mark.parametrize(
    ("bad", "number"),
    [
        pytest.param(line("bad", "(1, 2)"), 3, id="a comma shifts the columns"),
        pytest.param("bad,0,MetaX C500", 3, id="too short"),
        pytest.param(line("bad", '"(1 2'), 3, id="a quote that is not closed"),
    ],
)
def test_a_line_of_the_wrong_width_is_kept_aside(tmp_path: Path, bad: str, number: int) -> None:
    path = tmp_path / "t.csv"
    text = f"{HEADER}\n{line('a')}\n{bad}\n{line('b')}\n{line('c')}\n"
    path.write_text(text)
    for _ in range(2):
        table = DeviceTable.read(path)
        assert [row.cells[0] for row in table.lines] == ["a", "b", "c"]
        table.write()
    assert path.read_text() == text.replace(f"{bad}\n", "")
    assert (tmp_path / "t.csv.rejected.csv").read_text() == f"{bad}\n"
    path.write_text(text)
    rejected = DeviceTable.read(path).rejected
    assert [(r.number, r.raw) for r in rejected] == [(number, f"{bad}\n")]


def test_lines_of_a_linked_file_are_kept_beside_the_file(tmp_path: Path) -> None:
    path, link = tmp_path / "real" / "t.csv", tmp_path / "link.csv"
    path.parent.mkdir()
    path.write_text(f"{HEADER}\nbad\n{line('a')}\n")
    link.symlink_to(path)
    DeviceTable.read(link).write()
    assert (path.parent / "t.csv.rejected.csv").read_text() == "bad\n"
    assert link.is_symlink() and path.read_text() == f"{HEADER}\n{line('a')}\n"


@pytest.mark.parametrize(
    "text", ["a,b,c\n1,2,3\n", HEADER.replace("Shape", "shape") + "\n", "\x00\x01", "\n\n"]
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TreeError, match=r"t\.csv:1: column \d+ of the header"):
        DeviceTable.read(path)
    assert path.read_text() == text


def test_a_replaced_line_keeps_the_columns_that_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER},Bits,note\n{line('a', '(1 2)', '4', 'mine')}\n")
    table = DeviceTable.read(path)
    table.replace(table.lines[0], new_row("a", Bits="8"))
    assert table.lines[0].cells[len(ESTABLISHED) :] == ["8", "mine"]


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("1.5e-05", 1.5e-5),
        ("3", 3.0),
        ("12.5 us", 12.5e-6),
        ("12.5us", 12.5e-6),
        ("2 µs", 2e-6),
        ("2 μs", 2e-6),
        ("7ns", 7e-9),
        ("1.25 ms", 1.25e-3),
        (" 2 s ", 2.0),
        ("", None),
        ("n/a", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("-1", None),
        ("3 h", None),
        ("1.2.3", None),
    ],
)
def test_time_cells(cell: str, seconds: float | None) -> None:
    assert parse_seconds(cell) == (None if seconds is None else pytest.approx(seconds))


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        path = disk / "t.csv"
        path.write_text(f"{HEADER}\n{line('a')}\n")
        table = DeviceTable.read(path)
        table.append(Row(tuple(line("b", "x" * 100_000).split(","))))
        with pytest.raises(MxfleetError, match=r"t\.csv: cannot write it.*No space left"):
            table.write()
        assert path.read_text() == f"{HEADER}\n{line('a')}\n"
        assert [p.name for p in disk.iterdir()] == ["t.csv"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("cell", ["two\rlines", "two\nlines", "\r", "a\r\nb"])
def test_line_ends_within_a_cell_lose_no_row(tmp_path: Path, end: str, cell: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text_of(line("a"), end=end).encode())
    table = DeviceTable.read(path)
    cells = line("b").split(",")
    table.append(Row((*cells[:7], cell, *cells[8:])))
    table.append(Row(tuple(line("c").split(","))))
    path.write_bytes(table.encode())
    again = DeviceTable.read(path)
    assert [one.cells[0] for one in again.lines] == ["a", "b", "c"] and not again.rejected
    assert again.lines[1].cells[7] == cell
