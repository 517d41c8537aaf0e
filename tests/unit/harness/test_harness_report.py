"""testall's comparison report, read back with openpyxl: nothing vanishes, no text is a formula."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import csvtable, report, sheets
from harness.csvtable import ESTABLISHED, EXTRA
from harness.errors import ForeignFileError, TreeError
from harness_tree import BENCHMARK, rows_of

openpyxl = pytest.importorskip("openpyxl")

DEVICE = {"kind": "maca", "name": "MetaX C500", "index": 0, "uuid": None}
NONE = {"cold_gpu": None, "cpu": None, "batch_gpu": None}


def record(op: str = "gemm", **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "op": op,
        "case_id": "aaaa",
        "parameters": {"rows": 8},
        "status": "PASSED",
        "flags": [],
        "verification": {"passed": True, "metrics": {"one_minus_cosine": 2e-7}},
        "summaries": {"Op": op, "dtype": "float16", "Shape": "(8 8)"},
        "timers": {
            "cold_gpu": {"mean": 1.1e-5, "median": 8e-6, "noise": 0.02, "samples": 450},
            "cpu": {"mean": 3e-5, "noise": 0.1},
            "batch_gpu": {"mean": 7e-6, "samples": 900},
        },
        "repeats": 5,
        "repeat_spread": 0.004,
        "flops": 8000,
        "rates": dict.fromkeys(
            ("elements_per_second", "bytes_per_second", "bandwidth_utilisation"), 0.5
        ),
        "device": DEVICE,
        "error": None,
        "known_failure": None,
        "environment": {"device_expected": None},
    }
    return values | changes


def failed(status: str = "FAILED", **changes: Any) -> dict[str, Any]:
    """What did not get as far as its labels and times."""
    nothing = {"summaries": {}, "timers": NONE, "flops": None, "repeats": 1, "repeat_spread": None}
    error = {"type": status, "message": f"it is {status}"}
    none = dict.fromkeys(("elements_per_second", "bytes_per_second", "bandwidth_utilisation"))
    verification = {"passed": False, "metrics": {"one_minus_cosine": 0.5}}
    return record(
        **{
            "status": status,
            "error": error,
            "rates": none,
            "verification": verification if status == "FAILED" else None,
            **nothing,
            **changes,
        }
    )


def table(folder: Path, *rows: tuple[str, str, str, str], extra: bool = True) -> Path:
    """A table of rows (op, shape, mean GPU time, case_id); ``extra``: with our columns."""
    path = folder / "t.csv"
    lines = [[*ESTABLISHED, *(EXTRA if extra else ["Bits"])]]
    for op, shape, mean, case in rows:
        cells = [op, "3", "MetaX C500", "Yes", "1.00e-07", op, "float16", shape, "100", "4e-05"]
        cells += ["0.1", mean, "0.01", "1e9", "2e12", "50%", "900", "9us"]
        lines.append([*cells, *(["", "1", "", "", "", case] if extra else ["4"])])
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return path


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The sheets of a workbook: rows as dicts by column."""
    book = openpyxl.load_workbook(path)
    found = {}
    for sheet in book:
        header, *rows = sheet.iter_rows(values_only=True)
        assert len(set(header)) == len(header)
        found[sheet.title] = [dict(zip(header, row, strict=True)) for row in rows]
    return found


def written(folder: Path, old: Path, *records: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    path = folder / "report.xlsx"
    report.check(path)
    report.write(path, report.pair(old, records))
    return read(path)


def test_a_case_stands_beside_its_row_of_the_table(tmp_path: Path) -> None:
    old = table(tmp_path, ("gemm", "(8 8)", "2.2e-05", "aaaa"), ("other", "(1)", "1", "bbbb"))
    sheets_read = written(tmp_path, old, record(flags=["LAUNCH_BOUND", "CONTENDED"]))
    assert list(sheets_read) == ["Summary", "gemm"]
    assert sheets_read["Summary"] == [
        {
            "Operator": "gemm",
            "Case": "float16 (8 8)",
            "Device": "MetaX C500",
            "Acc verify": "Pass",
            # The table has no median there: means against means.
            "Baseline time (sec)": 2.2e-5,
            "Current time (sec)": 1.1e-5,
            "Performance": pytest.approx(2.0),
            "Status": "PASSED",
            "Flags": "LAUNCH_BOUND CONTENDED",
            "Noise": 0.02,
            "Repeat spread": 0.004,
            "Timer": "GPU mean",
            "Note": None,
        }
    ]
    [row] = sheets_read["gemm"]
    assert (row["Shape baseline"], row["Shape current"]) == ("(8 8)", "(8 8)")
    assert (row["CPU Noise baseline"], row["GPU Noise baseline"]) == (0.1, 0.01)
    assert (row["Samples baseline"], row["Batch Samples baseline"]) == (100, 900)
    assert row["GPU Time (sec) change"] == pytest.approx(-0.5)
    assert row["CPU Time (sec) change"] == pytest.approx(-0.25)
    assert row["Batch GPU (sec) baseline"] == pytest.approx(9e-6)
    assert row["GPU Noise difference"] == pytest.approx(0.01)
    assert row["Cos_Dist difference"] == pytest.approx(1e-7)
    assert row["BWUtil baseline"] == row["BWUtil current"] == 0.5
    assert row["Samples difference"] == 350
    assert row["GPU Median (sec) baseline"] is row["GPU Median (sec) change"] is None
    assert (row["GPU Median (sec) current"], row["FLOP/s current"]) == (8e-6, pytest.approx(1e9))
    for name in ESTABLISHED:
        if name not in ("Samples", "Noise"):
            assert f"{name} baseline" in row and f"{name} current" in row


@pytest.mark.parametrize(
    ("status", "acc"),
    [
        ("FAILED", "Fail"),
        ("ERROR", "None"),
        ("TIMEOUT", "None"),
        ("UNAVAILABLE", "None"),
        ("UNVERIFIED", "None"),
        ("NOT_RUN", "None"),
        ("SKIPPED", "None"),
    ],
)
@pytest.mark.parametrize("labelled", [True, False])
def test_what_did_not_pass_is_there_with_its_reason_and_old_time(
    tmp_path: Path, status: str, acc: str, labelled: bool
) -> None:
    old = table(tmp_path, ("gemm", "(8 8)", "2e-05", "aaaa"), ("gemm", "(9 9)", "1", "bbbb"))
    labels = {"Op": "gemm", "dtype": "float16", "Shape": "(8 8)"} if labelled else {}
    found = written(tmp_path, old, failed(status, summaries=labels), record("silu", case_id="s"))
    row = found["Summary"][0]
    assert (row["Status"], row["Acc verify"], row["Note"]) == (status, acc, f"it is {status}")
    assert (row["Baseline time (sec)"], row["Current time (sec)"]) == (2e-5, None)
    assert row["Performance"] is None
    assert found["gemm"][0]["Status"] == status
    assert found["gemm"][0]["Acc_Pass current"] == ("No" if status == "FAILED" else None)
    assert [line["Operator"] for line in found["Summary"]] == ["gemm", "silu"]


def test_a_time_that_nothing_verified_is_shown_and_held_against_nothing(tmp_path: Path) -> None:
    old = table(tmp_path, ("gemm", "(8 8)", "2.2e-05", "aaaa"))
    [row] = written(tmp_path, old, record(status="UNVERIFIED", verification=None))["Summary"]
    assert (row["Current time (sec)"], row["Timer"]) == (8e-6, "GPU median")
    assert (row["Acc verify"], row["Performance"]) == ("None", None)


def test_an_operator_without_a_record_is_there(tmp_path: Path) -> None:
    left = report.stand_in("gemm", "ERROR", "killed by SIGSEGV")
    old = table(tmp_path, ("gemm", "(8 8)", "2e-05", ""))
    found = written(tmp_path, old, left, record("silu"))
    assert [row["Status"] for row in found["Summary"]] == ["ERROR", "PASSED"]
    assert found["Summary"][0]["Note"] == "killed by SIGSEGV"
    assert [row["Status"] for row in found["gemm"]] == ["ERROR"]


def test_what_a_runner_wrote_among_its_records_does_not_stop_the_report(tmp_path: Path) -> None:
    odd = [
        {"status": "PASSED"},
        record(timers="fast"),
        record(timers={"cold_gpu": {"median": "x"}, "cpu": 3, "batch_gpu": []}),
        record(flags=[1]),
        record(device=None, parameters=[], verification=7, error="no", environment=None),
        record(verification={"metrics": {"one_minus_cosine": "1e-7"}, "thresholds": 3}),
        record(verification={"metrics": {}, "thresholds": [1, {"outside_rules": True}]}),
        record(case_id=None, op=None),
        record(flops=10**400),
        record(known_failure="yes", repeat_spread=float("nan")),
    ]
    found = written(tmp_path, table(tmp_path, ("gemm", "(8 8)", "2e-05", "aaaa")), *odd)
    assert [row["Status"] for row in found["Summary"]] == ["PASSED"] * len(odd)


def test_cases_of_a_sweep_are_named_by_what_differs(tmp_path: Path) -> None:
    cases = [
        record(case_id=f"{rows}{bits}", parameters={"rows": rows, "bits": bits, "eps": 1e-6})
        for rows in (8, 16)
        for bits in (4, 8)
    ]
    # An old row that any of them may be is none of theirs.
    found = written(tmp_path, table(tmp_path, ("gemm", "(8 8)", "2e-05", "")), *cases)
    names = ["rows=8 bits=4", "rows=8 bits=8", "rows=16 bits=4", "rows=16 bits=8"]
    for rows in (found["Summary"], found["gemm"]):
        assert [row["Case"] for row in rows] == names
    assert {row["Baseline time (sec)"] for row in found["Summary"]} == {None}
    assert {row["Note"] for row in found["Summary"]} == {"no row in the table"}


@pytest.mark.parametrize(
    ("rows", "records", "times"),
    [
        pytest.param(
            [("gemm", "(8 8)", "2e-05", "")], [failed()], [2e-5], id="the only row and case"
        ),
        pytest.param(
            [("gemm", "(8 8)", "2e-05", "")],
            [failed(), failed(case_id="bb")],
            [None, None],
            id="one row, two cases",
        ),
        pytest.param(
            [("gemm", "(8 8)", "2e-05", ""), ("gemm", "(9)", "1", "")],
            [failed()],
            [None],
            id="two rows, one case",
        ),
        pytest.param(
            [("gemm", "(8 8)", "2e-05", "zz")], [failed()], [None], id="the row of another case"
        ),
        pytest.param(
            [("gemm", "(8 8)", "2e-05", "")], [failed(case_id=None)], [2e-5], id="no case_id"
        ),
        pytest.param([("gemm", "(8 8)", "2e-05", "")], [record()], [2e-5], id="old, by labels"),
        pytest.param([("gemm", "(9 9)", "2e-05", "")], [record()], [None], id="other labels"),
        pytest.param(
            [("gemm", "(8 8)", "2e-05", "")],
            [record(device={**DEVICE, "name": "MetaX C600"})],
            [None],
            id="other device",
        ),
    ],
)
def test_which_row_of_the_table_is_the_baseline(
    tmp_path: Path,
    rows: list[tuple[str, str, str, str]],
    records: list[dict[str, Any]],
    times: list[float | None],
) -> None:
    found = written(tmp_path, table(tmp_path, *rows), *records)
    assert [row["Baseline time (sec)"] for row in found["Summary"]] == times


def test_notes_say_what_a_reader_has_to_know(tmp_path: Path) -> None:
    old = table(tmp_path)
    limits = [
        {"check": "cosine", "threshold": 0.98, "reason": "4 bit weights", "outside_rules": True},
        {"threshold": 0.9, "reason": None, "outside_rules": True},
        {"threshold": 0.999999, "reason": None, "outside_rules": False},
    ]
    known = {"reason": "wrong\ntail", "expires": "2026-12-31", "expired": False}
    found = written(
        tmp_path,
        old,
        record("a", verification={"metrics": {}, "thresholds": limits}),
        failed(op="b", known_failure=known),
        failed(op="c", known_failure={**known, "expired": True}),
        failed("ERROR", op="d", error={"type": "TypeError", "message": "two\nlines"}),
        record("f", verification={"metrics": {}, "own_check": True, "overruled": ["bad row"]}),
        record("e", environment={"device_expected": "C500 is not the H200"}),
    )
    assert [row["Note"] for row in found["Summary"]] == [
        "cosine threshold 0.98 is outside the rules: 4 bit weights; "
        "threshold 0.9 is outside the rules: no reason given; no row in the table",
        "it is FAILED; known failure (until 2026-12-31): wrong tail",
        "it is FAILED; known failure (expired 2026-12-31): wrong tail",
        "TypeError: two lines",
        "the runner passes what the check refused: bad row; "
        "verified by a check of the runner's own; no row in the table",
        "C500 is not the H200; no row in the table",
    ]


def test_a_cpu_is_compared_by_its_cpu_time(tmp_path: Path) -> None:
    path = table(tmp_path, ("gemm", "(8 8)", "", "aaaa"))
    timers = {**NONE, "cpu": {"mean": 2e-5, "median": 1e-5, "noise": 0.3}}
    [row] = written(tmp_path, path, record(timers=timers, device={**DEVICE, "kind": "cpu"}))[
        "Summary"
    ]
    assert (row["Timer"], row["Performance"], row["Noise"]) == ("CPU mean", 2.0, 0.3)


def test_a_table_of_the_established_scripts_is_compared_with(tmp_path: Path) -> None:
    path = table(tmp_path, ("gemm", "(8 8)", "2.2e-05", ""), extra=False)
    [row] = written(tmp_path, path, record())["gemm"]
    assert row["Bits baseline"] == "4" and row["Bits current"] is None
    assert row["GPU Time (sec) change"] == pytest.approx(-0.5)


def test_how_the_sheets_look(tmp_path: Path) -> None:
    path = tmp_path / "r.xlsx"
    report.write(path, report.pair(table(tmp_path, ("gemm", "(8 8)", "2e-05", "aaaa")), [record()]))
    for sheet in openpyxl.load_workbook(path):
        assert sheet.freeze_panes == "A2"
        last = openpyxl.utils.get_column_letter(sheet.max_column)
        assert sheet.auto_filter.ref == f"A1:{last}{sheet.max_row}"
        assert all(cell.font.bold for cell in sheet[1])
        formats = {cell.value: sheet.cell(2, cell.column).number_format for cell in sheet[1]}
        time = next(name for name in formats if "time" in name.lower())
        assert formats[time] == sheets.SECONDS
        for name, shown in formats.items():
            if name in ("Performance", "Noise", "BWUtil current", "GPU Time (sec) change"):
                assert shown == sheets.SHARE, name
        assert all(8 <= each.width <= 62 for each in sheet.column_dimensions.values())


HOSTILE = [
    "=1+1",
    "+1",
    "-cmd",
    "@SUM(A1)",
    "=HYPERLINK(1)",
    "#N/A",
    "\t=1",
    "a\x00b\x1b",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_text_in_every_cell(tmp_path: Path, text: str) -> None:
    hostile = record(
        op=text or "gemm",
        status="FAILED",
        summaries={"Op": text, "dtype": text, "Shape": text, text: text},
        error={"type": text, "message": text},
        flags=[text],
        device={**DEVICE, "name": text},
        parameters={text: text},
    )
    path, flat = tmp_path / "r.xlsx", tmp_path / "r.csv"
    entries = report.pair(table(tmp_path), [hostile, {**hostile, "parameters": {text: 1}}])
    report.write(path, entries)
    report.write(flat, entries)
    cells = [cell for sheet in openpyxl.load_workbook(path) for row in sheet for cell in row]
    assert not {cell.data_type for cell in cells} & {"f", "e"}
    starts = [cell for cell in cells if isinstance(cell.value, str) and cell.value[0] in "=+-@\t"]
    assert all(cell.quotePrefix for cell in starts)
    assert bool(starts) == (text[0] in "=+-@\t")
    written_cells = [cell for row in rows_of(flat) for cell in row]
    assert not [cell for cell in written_cells if cell.startswith(("=", "+", "-", "@", "\t"))]


@pytest.mark.parametrize(
    ("titles", "names"),
    [
        (["Summary", "summary", "gemm"], ["Summary", "summary~2", "gemm"]),
        (["a" * 40, "a" * 31, "A" * 35], ["a" * 31, "a" * 29 + "~2", "A" * 29 + "~3"]),
        (["a[b]:c*?/\\d", "a_b__c____d"], ["a_b__c____d", "a_b__c____d~2"]),
        (["'quoted'", "", "  ", "History"], ["quoted", "_", "_~2", "History~2"]),
        (["中" * 40, "x\ud800\x00y", "\ufffe\uffffz"], ["中" * 31, "x__y", "__z"]),
    ],
)
def test_sheet_names_are_allowed_and_different(titles: list[str], names: list[str]) -> None:
    taken: set[str] = set()
    assert [sheets.sheet_name(title, taken) for title in titles] == names
    book = openpyxl.Workbook()
    for name in names:
        assert book.create_sheet(name).title == name


def test_many_operators_of_one_name_have_sheets_of_their_own(tmp_path: Path) -> None:
    long = "very_long_operator_name_that_excel_would_cut_"
    records = [record(f"{long}{number}") for number in range(12)]
    found = written(tmp_path, table(tmp_path), *records)
    assert len(found) == 13 and max(map(len, found)) <= 31


def test_a_huge_message_is_cut(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        table(tmp_path),
        failed("ERROR", error={"type": "ERROR", "message": "x" * 100_000}),
    )
    assert len(found["Summary"][0]["Note"]) == 32_767


def test_the_summary_as_csv(tmp_path: Path) -> None:
    path = tmp_path / "new" / "R.CSV"
    old = table(tmp_path, ("gemm", "(8 8)", "2.2e-05", "aaaa"))
    report.check(path)
    report.write(path, report.pair(old, [record(), failed(op="b", case_id="bb")]))
    header, first, second = rows_of(path)
    assert header[:4] == ["Operator", "Case", "Device", "Acc verify"]
    assert dict(zip(header, first, strict=True))["Performance"] == "2.0"
    assert second[header.index("Status")] == "FAILED"


@pytest.mark.parametrize("name", ["r.txt", "r", "r.xls", "r.xlsm", ".xlsx", "r.csv.gz"])
def test_another_ending_is_an_error_before_anything_is_measured(tmp_path: Path, name: str) -> None:
    with pytest.raises(TreeError, match=r"ends in \.xlsx or \.csv"):
        report.check(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_without_openpyxl_the_error_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['openpyxl'] = None\n"
        "from pathlib import Path; from harness import report\n"
        "report.check(Path(sys.argv[1]) / 'r.csv')\n"
        "try: report.check(Path(sys.argv[1]) / 'r.xlsx')\n"
        "except report.TreeError as error: print(error.code, error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=BENCHMARK,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.stdout.startswith("2 ") and "pip install openpyxl" in ran.stdout, ran.stderr


def test_importing_the_report_does_not_import_openpyxl() -> None:
    script = "import sys; from harness import report; sys.exit('openpyxl' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=BENCHMARK,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.returncode == 0


@pytest.mark.parametrize("name", ["r.xlsx", "r.csv"])
def test_where_nothing_can_be_written_is_found_early(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / f"fifo{name}")
    with pytest.raises(TreeError, match="cannot be written"):
        report.check(tmp_path / "file" / name)
    for taken in (tmp_path / name, tmp_path / f"fifo{name}"):
        with pytest.raises(ForeignFileError, match="no regular file"):
            report.check(taken)


@pytest.mark.parametrize("name", ["r.xlsx", "r.csv"])
def test_an_old_report_is_replaced_whole_or_not_at_all(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_text("old")
    path.chmod(0o640)
    entries = report.pair(table(tmp_path), [record()])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(TreeError, match="No space left on device"):
            report.write(path, entries)
    assert path.read_text() == "old"
    report.check(path)
    report.write(path, entries)
    assert path.read_bytes()[:3] != b"old" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted([name, "t.csv"])


def test_a_foreign_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(csvtable.TreeError, match=r"t\.csv:1"):
        report.pair(path, [record()])
    assert report.pair(tmp_path / "absent.csv", [record()])[0][1] is None
