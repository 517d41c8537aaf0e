"""Merging: a set union first, then rows by the established rules; again changes nothing."""

from __future__ import annotations

import csv
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import MxfleetError, TreeError
from orchestrator.records import Record
from orchestrator.results.case_name import case_names
from orchestrator.results.device_csv import ESTABLISHED, EXTRA, Column
from orchestrator.results.merge import MergeReport, Mode, UnmergedError, Withheld, merge
from orchestrator.results.rows import row_of
from orchestrator.results.store import load_records

MakeRecord = Callable[..., Record]
C500 = "mcoplib_ops_performance_C500.csv"


def cold(median: float, mean: float | None = None) -> dict[str, Any]:
    timer = {"mean": median if mean is None else mean, "median": median, "samples": 100}
    return {"cold_gpu": timer, "cpu": {"mean": 5e-5}}


def rows(folder: Path, name: str = C500) -> list[dict[str, str]]:
    """The rows of a CSV by column name (the doubled names are not looked at)."""
    path = folder / name
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def counts(report: MergeReport) -> tuple[int, int, int, int]:
    return (report.appended, report.skipped, report.updated, report.kept)


def test_a_row_is_the_median_over_hosts_and_the_worst_accuracy(make_record: MakeRecord) -> None:
    records = [
        make_record(
            target=f"h{number}",
            timers=cold(median, mean=median * 2),
            verification={"passed": True, "metrics": {"one_minus_cosine": distance}},
        )
        for number, (median, distance) in enumerate([(3e-5, 1e-7), (1e-5, -9e-6), (2e-5, 0.0)])
    ]
    for order in itertools.permutations(records):
        row = row_of(order)
        assert row.cells[Column.GPU_TIME] == "4e-05"
        assert row.cells[Column.COS_DIST] == "-9.00e-06"
        assert row.cells[Column.SAMPLES] == "100"
        assert row.extra["GPU Median (sec)"] == "2e-05"


def test_cells_are_written_as_the_established_files_have_them(make_record: MakeRecord) -> None:
    timers = {
        "cold_gpu": {"mean": 7.410691809320935e-05, "noise": 0.0089, "samples": 20256},
        "cpu": {"mean": 0.00015243427108017365, "noise": 0.02},
        "batch_gpu": {"mean": 7.15e-05, "samples": 900},
    }
    rates = {"elements_per_second": 608428594254.7059, "bandwidth_utilisation": 0.758}
    row = row_of([make_record(timers=timers, rates=rates, repeat_spread=0.01, repeats=5)])
    assert ",".join(row.cells) == (
        "rms_norm,0,MetaX C500,Yes,1.00e-07,rms_norm,float16,(16 512),20256,"
        "0.00015243427108017365,0.02,7.410691809320935e-05,0.0089,608428594254.7059,,0.758,900,"
        "7.15e-05"
    )
    assert row.extra == {
        "GPU Median (sec)": "",
        "Repeats": "5",
        "Repeat Spread": "0.01",
        "FLOP/s": "",
        "Flags": "",
        "case_id": "00000000000000aa",
    }


def test_hosts_share_a_row_with_the_flags_of_all(make_record: MakeRecord) -> None:
    each = [
        (0.25, 1000, ["LAUNCH_BOUND"], 5, 0.25),
        (0.5, 1000, [], 5, 0.75),
        (1.0, None, ["CONTENDED", "LAUNCH_BOUND"], 1, None),
    ]
    records = [
        make_record(
            target=f"h{number}",
            timers=cold(time, mean=time * 3),
            flops=flops,
            flags=flags,
            repeats=repeats,
            repeat_spread=spread,
        )
        for number, (time, flops, flags, repeats, spread) in enumerate(each)
    ]
    for order in itertools.permutations(records):
        extra = row_of(order).extra
        assert (extra["FLOP/s"], extra["Repeats"]) == ("3000.0", "5")
        assert (extra["Repeat Spread"], extra["Flags"]) == ("0.5", "LAUNCH_BOUND CONTENDED")


@pytest.mark.parametrize(
    ("flops", "timers", "kind", "cell"),
    [
        (10**9, cold(1e-3, mean=1.0), "cuda", "1000000000000.0"),
        (10**9, {"cold_gpu": {"mean": 1e-3}}, "cuda", "1000000000000.0"),
        (10**9, {"cpu": {"mean": 1.0, "median": 1e-3}}, "cpu", "1000000000000.0"),
        (0, cold(1e-3), "cuda", "0.0"),
        (None, cold(1e-3), "cuda", ""),
        (10**9, cold(5e-324), "cuda", ""),
    ],
)
def test_flop_rate_is_by_the_headline_time(
    make_record: MakeRecord, flops: int | None, timers: dict[str, Any], kind: str, cell: str
) -> None:
    device = {"kind": kind, "name": "D"}
    assert row_of([make_record(flops=flops, timers=timers, device=device)]).extra["FLOP/s"] == cell


def test_columns_that_a_file_of_ours_lacks_are_added(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    before = ["GPU Median (sec)", "Repeats", "Repeat Spread", "case_id"]
    cells = ["other", "0", "MetaX C500", *["x"] * 15, "1e-05", "1", "", "bb"]
    with (tmp_path / C500).open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\r\n").writerows([[*ESTABLISHED, *before], cells])
    merge([make_record(flops=100, flags=["LAUNCH_BOUND"])], tmp_path)
    header, old, new = csv.reader((tmp_path / C500).open(newline=""))
    assert header == [*ESTABLISHED, *before, "FLOP/s", "Flags"]
    assert old == [*cells, "", ""]
    assert new[-3:] == ["00000000000000aa", "10000000.0", "LAUNCH_BOUND"]
    assert (tmp_path / C500).read_bytes().count(b"\r\n") == 3


def test_a_cpu_has_no_gpu_time(make_record: MakeRecord, tmp_path: Path) -> None:
    record = make_record(
        device={"kind": "cpu", "name": "Intel(R) Xeon(R) Processor"},
        timers={"cpu": {"mean": 2e-3, "median": 1e-3, "noise": 0.1, "samples": 7}},
    )
    [report] = merge([record], tmp_path)
    assert report.path.name == "mcoplib_ops_performance_CPU_Intel_Xeon_Processor.csv"
    cells = list(csv.reader(report.path.open(newline="")))[1]
    assert cells[Column.SAMPLES] == "7"
    assert cells[Column.CPU_TIME] == "0.002"
    assert {cells[Column.GPU_TIME], cells[Column.GPU_NOISE], cells[Column.BATCH_TIME]} == {""}
    assert cells[18] == ""


@pytest.mark.parametrize("mode", ["generate", "update"])
def test_merging_again_changes_nothing(make_record: MakeRecord, tmp_path: Path, mode: Mode) -> None:
    records = [
        make_record(target="h1"),
        make_record(target="h2", timers=cold(3e-5)),
        make_record(op="softmax", case_id="bb"),
        make_record(op="softmax", case_id="bb", run="run-2", timers=cold(1e-6)),
        make_record(op="broken", status="ERROR", device=None, case_id=None),
    ]
    merge(records, tmp_path, mode)
    before = snapshot(tmp_path)
    for order in (records, records[::-1], load_records(tmp_path / "records")):
        reports = merge(order, tmp_path, mode)
        assert [(r.appended, r.updated) for r in reports] == [(0, 0)]
    assert snapshot(tmp_path) == before
    assert len(rows(tmp_path)) == 2


def test_nothing_of_a_real_csv_is_lost(
    make_record: MakeRecord, tmp_path: Path, real_csv: Path
) -> None:
    old = list(csv.reader(real_csv.open(newline="")))
    device = old[1][Column.DEVICE_NAME]
    path = tmp_path / f"mcoplib_ops_performance_{device.split()[-1]}.csv"
    shutil.copy(real_csv, path)
    path.chmod(0o640)
    labels = dict(zip(("Op", "dtype", "Shape"), old[1][Column.OP : Column.SHAPE + 1], strict=True))
    known = make_record(
        op=old[1][Column.OP_NAME], summaries=labels, device={"kind": "cuda", "name": device}
    )
    new = make_record(
        device={"kind": "cuda", "name": device, "index": 3},
        summaries={"Op": "rms, norm", "dtype": "f16", "Shape": '(1, "2"\n3)', "Bits": 8},
    )
    [report] = merge([known, new], tmp_path)
    assert counts(report) == (1, 1, 0, 0)
    after = list(csv.reader(path.open(newline="")))
    assert [row[: len(old[0])] for row in after[:-1]] == old
    assert after[-1][Column.OP : Column.SHAPE + 1] == ["rms, norm", "f16", '(1, "2"\n3)']
    assert after[-1][after[0].index("Bits")] == "8"
    assert path.stat().st_mode & 0o777 == 0o640
    head = real_csv.read_bytes()
    assert path.read_bytes().count(b"\r\n") >= head.count(b"\r\n")


def test_an_update_of_a_real_csv_changes_the_one_row_only(
    make_record: MakeRecord, tmp_path: Path, real_csv: Path
) -> None:
    old = list(csv.reader(real_csv.open(newline="")))
    wanted = old[2]
    device = wanted[Column.DEVICE_NAME]
    path = tmp_path / f"mcoplib_ops_performance_{device.split()[-1]}.csv"
    shutil.copy(real_csv, path)
    labels = dict(zip(("Op", "dtype", "Shape"), wanted[Column.OP : Column.SHAPE + 1], strict=True))
    device_of = {"kind": "cuda", "name": device}
    faster = make_record(
        op=wanted[Column.OP_NAME], summaries=labels, device=device_of, timers=cold(1e-9)
    )
    new = make_record(op="new", case_id="bb", device=device_of)
    [report] = merge([faster, new], tmp_path, "update")
    assert counts(report) == (1, 0, 1, 0)
    after = list(csv.reader(path.open(newline="")))
    width = len(old[0])
    assert after[0] == [*old[0], *EXTRA]
    assert [row[:width] for at, row in enumerate(after[:-1]) if at != 2] == [*old[:2], *old[3:]]
    assert after[2][Column.GPU_TIME] == "1e-09"
    assert after[2][len(ESTABLISHED) : width] == wanted[len(ESTABLISHED) :]
    assert path.read_bytes().endswith(b"\r\n") == real_csv.read_bytes().endswith(b"\r\n")


def old_file(folder: Path, *, gpu: str, median: str | None = None, case: str = "") -> None:
    """A CSV with one row of ``rms_norm``; without ``median`` as established scripts write it."""
    cells = ["rms_norm", "5", "MetaX C500", "Yes", "0", "rms_norm", "float16", "(16 512)", "9"]
    cells += ["5e-05", "", gpu, "", "", "", "", "", "1e-09"]
    header = [*ESTABLISHED]
    if median is not None:
        header += EXTRA
        cells += [median, "1", "", "", "", case]
    with (folder / C500).open("w", newline="") as stream:
        csv.writer(stream).writerows([header, cells])


@pytest.mark.parametrize(
    ("old", "new", "replaced"),
    [
        pytest.param({"gpu": "1e-05"}, cold(9e-6, 9.4e-6), True, id="6 % by the means"),
        pytest.param({"gpu": "1e-05"}, cold(1e-6, 9.6e-6), False, id="old without median: means"),
        pytest.param({"gpu": "10 us"}, cold(9e-6, 9.4e-6), True, id="unit in the old cell"),
        pytest.param({"gpu": "1e-05"}, cold(9e-6, 2e-5), False, id="slower"),
        pytest.param(
            {"gpu": "1e-05", "median": "1e-05", "case": "00000000000000aa"},
            cold(9.4e-6, 2e-5),
            True,
            id="medians, whatever the means",
        ),
        pytest.param(
            {"gpu": "1e-05", "median": "1e-05", "case": "00000000000000aa"},
            cold(9.6e-6, 1e-6),
            False,
            id="4 % is the same",
        ),
        pytest.param({"gpu": ""}, cold(1e-9), False, id="no timer in common"),
        pytest.param({"gpu": "fast"}, cold(1e-9), False, id="no number"),
    ],
)
def test_update_replaces_what_is_faster_by_one_timer(
    make_record: MakeRecord,
    tmp_path: Path,
    old: dict[str, str],
    new: dict[str, Any],
    replaced: bool,
) -> None:
    old_file(tmp_path, **old)
    before = (tmp_path / C500).read_bytes()
    [report] = merge([make_record(timers=new)], tmp_path, "update")
    assert counts(report) == (0, 0, int(replaced), int(not replaced))
    assert ((tmp_path / C500).read_bytes() == before) is not replaced
    assert len(rows(tmp_path)) == 1
    assert merge([make_record(timers=new)], tmp_path, "update")[0].updated == 0


def test_generate_never_replaces(make_record: MakeRecord, tmp_path: Path) -> None:
    old_file(tmp_path, gpu="1")
    [report] = merge([make_record()], tmp_path)
    assert counts(report) == (0, 1, 0, 0)


@pytest.mark.parametrize(
    ("factor", "differing"), [(1.0, 0), (1.04, 0), (1.06, 1), (0.5, 1), (0.97, 0)]
)
def test_what_is_there_already_is_held_against_it(
    make_record: MakeRecord, tmp_path: Path, factor: float, differing: int
) -> None:
    merge([make_record(timers=cold(1e-5))], tmp_path)
    [report] = merge([make_record(timers=cold(1e-5 * factor))], tmp_path)
    assert (report.skipped, report.differing) == (1, differing)
    assert report.event().differing == differing


def test_cases_that_look_alike_all_enter(make_record: MakeRecord, tmp_path: Path) -> None:
    """The old row may be any case of the sweep, so it stands for none of them."""
    old_file(tmp_path, gpu="1e-05")
    sweep = [make_record(case_id=f"{number:016x}") for number in range(3)]
    [report] = merge(sweep, tmp_path)
    assert counts(report) == (3, 0, 0, 0)
    assert [row["case_id"] for row in rows(tmp_path)] == ["", *(r.case_id for r in sweep)]
    assert counts(merge(sweep, tmp_path)[0]) == (0, 3, 0, 0)


def test_a_row_of_unknown_case_never_replaces_a_known_one(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    old_file(tmp_path, gpu="1e-05", median="1e-05", case="00000000000000aa")
    [report] = merge([make_record(case_id=None, timers=cold(1e-9))], tmp_path, "update")
    assert counts(report) == (0, 0, 0, 1)


@pytest.mark.parametrize("status", ["FAILED", "ERROR", "TIMEOUT"])
@pytest.mark.parametrize("device", [None, {"kind": "maca", "name": "C500"}])
def test_what_names_no_case_withholds_all_of_its_operator(
    make_record: MakeRecord, tmp_path: Path, status: str, device: dict[str, Any] | None
) -> None:
    """Also on a target that says to have passed: which of its cases it was cannot be told."""
    sweep = [sweep_record(make_record, number) for number in (1, 2, 3)]
    bad = make_record(status=status, case_id=None, device=device, verification=None, timers={})
    [report] = merge([*sweep, bad, make_record(op="softmax")], tmp_path)
    assert report.event().withheld == (f"rms_norm on h1: {status}",)
    assert [row["op_name"] for row in rows(tmp_path)] == ["softmax"]


def test_a_csv_that_is_wrong_keeps_nothing_out_of_the_others(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    names = ["MetaX C500", "NVIDIA H200", "A" * 400, "B" * 400, "NVIDIA H100"]
    records = [make_record(device={"kind": "maca", "name": name}) for name in names]
    (tmp_path / C500).write_text("not,ours\n")
    (tmp_path / "mcoplib_ops_performance_H100.csv").mkdir()
    with pytest.raises(UnmergedError) as caught:
        merge([*records, make_record(run="run-2")], tmp_path)
    assert caught.value.code == 2
    assert f"{C500}:1" in str(caught.value) and "H100.csv" in str(caught.value)
    written = [report.path for report in caught.value.reports if report.appended == 1]
    assert len(written) == len(set(written)) == 3
    assert all(path.is_file() and len(path.name) <= 100 for path in written)
    assert tmp_path / "mcoplib_ops_performance_H200.csv" in written
    assert (tmp_path / C500).read_text() == "not,ours\n"


@pytest.mark.parametrize(
    "name",
    [
        "GPU Time (sec)",
        "op_name",
        "Samples",
        "gpu time (SEC)",
        " op_name\t",
        "GPU  Time (sec)",
        "case_id",
        "Repeats",
        "GPU Median (sec)",
    ],
)
def test_a_summary_never_takes_the_name_of_a_column(
    make_record: MakeRecord, tmp_path: Path, name: str
) -> None:
    heard: list[str] = []
    record = make_record(summaries={"Shape": "(1)", name: "9", "Bits": 8})
    merge([record], tmp_path, report=heard.append)
    assert heard == [
        f"rms_norm: its summary {name!r} is named like a column that is there; left out"
    ]
    header, cells = csv.reader((tmp_path / C500).open(newline=""))
    assert header == [*ESTABLISHED, *EXTRA, "Bits"]
    assert "9" not in cells


def test_columns_of_hostile_names_are_the_same_each_time(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    names = [" a  b ", "a\nb", "\x1b[2J", "\u202ex", "\x9b", "\u2028", "", " "]
    record = make_record(summaries=dict.fromkeys(names, "v"))
    merge([record], tmp_path)
    header = next(csv.reader((tmp_path / C500).open(newline="")))
    assert header[len(ESTABLISHED) + len(EXTRA) :] == ["a b", "\\x1b[2J", "\\u202ex", "\\x9b"]
    merge([make_record(case_id="bb", summaries=record.summaries)], tmp_path)
    assert next(csv.reader((tmp_path / C500).open(newline=""))) == header


BAD = {"target": "h2", "verification": {"passed": False}}


@pytest.mark.parametrize(
    ("bad", "withheld"),
    [
        pytest.param({**BAD, "status": "FAILED"}, "FAILED", id="failed"),
        pytest.param({**BAD, "status": "ERROR", "verification": None}, "ERROR", id="error"),
        pytest.param({**BAD, "status": "TIMEOUT"}, "TIMEOUT", id="timeout"),
        pytest.param({**BAD, "status": "ERROR", "device": None}, "ERROR", id="no device known"),
        pytest.param({**BAD, "status": "ERROR", "case_id": None}, "ERROR", id="no case known"),
        pytest.param({**BAD, "status": "PASSED"}, "FAILED", id="says PASSED, did not verify"),
        pytest.param({"target": "h2", "timers": {}}, "ERROR", id="says PASSED, no time"),
    ],
)
def test_a_case_that_failed_anywhere_is_withheld(
    make_record: MakeRecord, tmp_path: Path, bad: dict[str, Any], withheld: str
) -> None:
    other = make_record(op="softmax", case_id="bb")
    [report] = merge([make_record(), make_record(**bad), other], tmp_path)
    assert report.withheld == [Withheld("rms_norm", "h2", "", withheld)]
    assert report.event().withheld == (f"rms_norm on h2: {withheld}",)
    assert [row["op_name"] for row in rows(tmp_path)] == ["softmax"]
    assert len(load_records(tmp_path / "records")) == 3


@pytest.mark.parametrize(
    ("other", "withheld"),
    [
        pytest.param({"status": "UNAVAILABLE", "target": "h2"}, [], id="unavailable elsewhere"),
        pytest.param({"status": "NOT_RUN", "target": "h2"}, [], id="not run elsewhere"),
        pytest.param(
            {"status": "PASSED", "target": "h2", "verification": None},
            ["rms_norm on h2: UNVERIFIED"],
            id="unverified elsewhere",
        ),
        pytest.param({**BAD, "status": "FAILED", "op": "softmax"}, None, id="another operator"),
        pytest.param({**BAD, "status": "FAILED", "case_id": "bb"}, None, id="another case"),
        pytest.param(
            {"status": "ERROR", "case_id": None, "target": "h1", "attempt": 0},
            [],
            id="an attempt before",
        ),
    ],
)
def test_what_does_not_withhold_a_row(
    make_record: MakeRecord,
    tmp_path: Path,
    other: dict[str, Any],
    withheld: list[str] | None,
) -> None:
    [report] = merge([make_record(attempt=1), make_record(**{"attempt": 1, **other})], tmp_path)
    assert [row["op_name"] for row in rows(tmp_path)] == ["rms_norm"]
    if withheld is not None:
        assert [str(one) for one in report.withheld] == withheld


@pytest.mark.parametrize(
    ("attempts", "merged", "withheld"),
    [
        # number of the attempt, case, status
        ([(1, 1, "PASSED"), (2, 2, "PASSED")], [1, 2], False),
        ([(1, 1, "PASSED"), (2, None, "NOT_RUN")], [1], False),
        ([(1, 1, "FAILED"), (2, 1, "PASSED")], [1], False),
        ([(1, 1, "PASSED"), (2, 1, "FAILED")], [], True),
        ([(1, 1, "FAILED"), (2, 2, "PASSED")], [2], True),
        ([(1, 1, "PASSED"), (1, None, "ERROR"), (2, 1, "PASSED")], [1], False),
    ],
)
def test_attempts_of_a_job_are_taken_together(
    make_record: MakeRecord,
    tmp_path: Path,
    attempts: list[tuple[int, int | None, str]],
    merged: list[int],
    withheld: bool,
) -> None:
    """A case that the last attempt did not come to is not lost."""
    records = []
    for attempt, case, status in attempts:
        record = sweep_record(make_record, case or 0, status=status, attempt=attempt)
        if case is None:
            record = record.model_copy(update={"case_id": None, "device": None, "summaries": {}})
        records.append(record)
    [report] = merge(records, tmp_path)
    assert [row["case_id"] for row in rows(tmp_path)] == [f"{case:016x}" for case in merged]
    assert bool(report.withheld) is withheld


def sweep_record(make_record: MakeRecord, rows: int, **changes: Any) -> Record:
    """A case of a sweep over ``rows``; one that failed has no labels, as from the harness."""
    passed = changes.get("status", "PASSED") == "PASSED"
    values = {"parameters": {"bits": 4, "rows": rows}, "case_id": f"{rows:016x}"}
    if not passed:
        values |= {"summaries": {}, "timers": {}, "verification": {"passed": False}}
    return make_record(**{**values, **changes})


def test_a_withheld_case_of_a_sweep_is_named_with_its_former_row(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    merge([sweep_record(make_record, rows) for rows in (1, 2, 3)], tmp_path)
    before = rows(tmp_path)
    again = [
        sweep_record(make_record, 1, run="run-2"),
        sweep_record(make_record, 2, run="run-2", status="FAILED"),
        sweep_record(make_record, 3, run="run-2", target="h2", status="ERROR", device=None),
        sweep_record(make_record, 3, run="run-2"),
        sweep_record(make_record, 4, run="run-2", status="FAILED"),
        make_record(op="softmax", run="run-2", status="ERROR", parameters={"bits": 8}),
    ]
    [report] = merge(again, tmp_path)
    assert report.event().withheld == (
        "rms_norm on h1, rows=2: FAILED; its former row stays",
        "rms_norm on h1, rows=4: FAILED",
        "rms_norm on h2, rows=3: ERROR; its former row stays",
        "softmax on h1: ERROR",
    )
    assert rows(tmp_path) == before


@pytest.mark.parametrize(
    ("bad", "former"),
    [
        pytest.param({}, True, id="the operator's only case and row"),
        pytest.param({"device": {"kind": "maca", "name": "C500"}}, True, id="without its vendor"),
        pytest.param({"device": {"kind": "cuda", "name": "NVIDIA H200"}}, False, id="elsewhere"),
        pytest.param({"case_id": None}, False, id="case unknown"),
        pytest.param({"op": "softmax"}, False, id="another operator"),
    ],
)
def test_a_former_row_from_before_there_was_a_case_id(
    make_record: MakeRecord, tmp_path: Path, bad: dict[str, Any], former: bool
) -> None:
    old_file(tmp_path, gpu="1e-05")
    [report] = merge([sweep_record(make_record, 1, status="FAILED", **bad)], tmp_path)
    assert [one.former for one in report.withheld] == [former]


def test_which_case_an_old_row_is_cannot_be_told_in_a_sweep(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    old_file(tmp_path, gpu="1e-05")
    failed = [sweep_record(make_record, number, status="FAILED") for number in (1, 2)]
    [report] = merge(failed, tmp_path)
    assert report.event().withheld == (
        "rms_norm on h1, rows=1: FAILED",
        "rms_norm on h1, rows=2: FAILED",
    )


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ([{"a": 1}, {"a": 1}], ["", ""]),
        ([{"a": 1, "b": "x"}, {"a": 2, "b": "x"}], ["a=1", "a=2"]),
        ([{"a": 1}, {"a": True}], ["a=1", "a=True"]),
        ([{"a": 1, "b": [1]}, {"a": 2}], ["a=1 b=[1]", "a=2"]),
    ],
)
def test_a_case_is_named_by_what_differs(
    make_record: MakeRecord, parameters: list[dict[str, Any]], names: list[str]
) -> None:
    records = [make_record(parameters=values) for values in parameters]
    other = [
        make_record(op="softmax", parameters={"a": 9}),
        make_record(case_id=None, parameters={"a": [1, 2]}),
    ]
    found = case_names([*records, *other])
    assert [found[record.record_id] for record in records] == names
    assert [found.get(record.record_id, "") for record in other] == ["", ""]


def test_another_device_model_has_its_own_file(make_record: MakeRecord, tmp_path: Path) -> None:
    bad = make_record(status="FAILED", target="h2", device={"kind": "cuda", "name": "NVIDIA H200"})
    reports = merge([make_record(), bad], tmp_path)
    assert {r.path.name: (r.appended, r.event().withheld) for r in reports} == {
        C500: (1, ()),
        "mcoplib_ops_performance_H200.csv": (0, ("rms_norm on h2: FAILED",)),
    }
    assert not (tmp_path / "mcoplib_ops_performance_H200.csv").exists()


def test_broken_lines_are_reported_with_their_place(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    old_file(tmp_path, gpu="1e-05")
    with (tmp_path / C500).open("a") as stream:
        stream.write("1,2,3\n")
    heard: list[str] = []
    merge([make_record(op="new")], tmp_path, report=heard.append)
    assert len(heard) == 1
    assert heard[0].startswith(f"{tmp_path / C500}:3: 3 cells where the header has 18")
    assert (tmp_path / f"{C500}.rejected.csv").read_text() == "1,2,3\n"


def test_a_foreign_csv_costs_no_record(make_record: MakeRecord, tmp_path: Path) -> None:
    (tmp_path / C500).write_text("not,ours\n")
    with pytest.raises(TreeError, match=f"{C500}:1"):
        merge([make_record()], tmp_path)
    assert (tmp_path / C500).read_text() == "not,ours\n"
    assert len(load_records(tmp_path / "records")) == 1


def test_hostile_text_cannot_break_a_csv(make_record: MakeRecord, tmp_path: Path) -> None:
    shapes = ['a,b\r\n"c"', "\x00\x1b[2J", "\ud800", "é\u202e", "x" * 1_000_000, " ", ""]
    records = [
        make_record(case_id=f"{number:016x}", summaries={"Shape": shape})
        for number, shape in enumerate(shapes)
    ]
    merge(records, tmp_path)
    before = snapshot(tmp_path)
    written = ['a,b\\r\n"c"', "\\x00\\x1b[2J", "?", "é\\u202e", *shapes[4:]]
    assert [row["Shape"] for row in rows(tmp_path)] == written
    assert counts(merge(records, tmp_path)[0]) == (0, len(shapes), 0, 0)
    assert snapshot(tmp_path) == before


MERGER = """
import sys
from pathlib import Path
from orchestrator.records import Record
from orchestrator.results.merge import merge
who, folder = sys.argv[1], Path(sys.argv[2])
for number in range(50):
    case = f"{who}-{number}"
    merge([Record.model_validate({
        "schema": "mxfleet-result/1", "record_id": case, "suite": "mcoplib", "op": "rms_norm",
        "case_id": case, "status": "PASSED", "verification": {"passed": True}, "run": "shared",
        "timers": {"cold_gpu": {"mean": 1e-5}}, "device": {"kind": "maca", "name": "MetaX C500"},
    })], folder)
"""


def test_two_processes_that_merge_lose_nothing(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", MERGER, who, str(tmp_path)]) for who in "ab"
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    wanted = {f"{who}-{number}" for who in "ab" for number in range(50)}
    found = [row["case_id"] for row in rows(tmp_path)]
    assert len(found) == 100
    assert set(found) == wanted
    assert {record.record_id for record in load_records(tmp_path / "records")} == wanted


@pytest.mark.parametrize("mode", ["generate", "update"])
@pytest.mark.parametrize("status", ["PASSED", "FAILED", "UNVERIFIED"])
def test_what_was_only_verified_is_no_part_of_it(
    make_record: MakeRecord, tmp_path: Path, mode: Mode, status: str
) -> None:
    """Neither of a CSV nor of the store, not even against a row of the same case."""
    merge([make_record()], tmp_path)
    before = snapshot(tmp_path)
    passed = status == "PASSED"
    only = make_record(
        status=status, measured=False, timers={}, verification={"passed": passed}, run="run-2"
    )
    quick = make_record(measured=False, case_id="bb", timers={"cold_gpu": {"mean": 1e-9}})
    assert merge([only, quick], tmp_path, mode) == []
    assert snapshot(tmp_path) == before
    (report,) = merge([only, make_record(case_id="cc", run="run-2")], tmp_path, mode)
    assert (report.appended, report.withheld) == (1, [])


def test_a_full_disk_is_one_sentence_and_leaves_the_csv(
    make_record: MakeRecord, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        merge([make_record()], disk)
        before = snapshot(disk)
        big = make_record(case_id="bb", summaries={"Shape": "x" * 100_000})
        with pytest.raises(MxfleetError, match="No space left on device"):
            merge([big], disk)
        assert snapshot(disk) == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)
