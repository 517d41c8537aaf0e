"""Established scripts: what their row and markers mean, and what their silence means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import Record, Status
from orchestrator.results.case_id import case_id
from orchestrator.results.device_csv import ESTABLISHED, EXTRA, DeviceTable
from orchestrator.results.established import Job
from orchestrator.results.established import established_records as records_of
from orchestrator.results.merge import merge
from orchestrator.results.store import Report, log_report
from orchestrator.suites.markers import scan

CONFIG = {"device_id": 0, "device_name": "MetaX C500", "dtype": "float16", "n": 16, "samples": 9}
SWEEP = {**CONFIG, "n": [16, 32, 64]}
PASS = "[VERIFY] op -> PASS (1-CosSim: 1.00e-07)"
FAIL = "[VERIFY] op -> FAIL (1-CosSim: 3.00e-02)"
FATAL = "[FATAL] op: verification failed"
ABSENT = """Traceback (most recent call last):
  File "x.py", line 1, in <module>
    import mcoplib.op
ModuleNotFoundError: No module named 'mcoplib'""".splitlines()
CRASH = """Traceback (most recent call last):
  File "x.py", line 3, in run
    boom()
RuntimeError: out of memory: tried to allocate 3 GiB""".splitlines()


def row(
    shape: str = "(16 512)",
    accuracy: str = "Yes",
    op: str = "op",
    gpu: str = "1.5e-05",
    distance: str = "3.58e-07",
    device: str = "MetaX C500",
) -> str:
    cells = [op, "2", device, accuracy, distance, op, "torch.float16", shape, "986"]
    cells += ["2e-05", "0.25", gpu, "0.125", "1e9", "2e9", "37.5%", "500", "30 us"]
    return ",".join(cells)


def write(folder: Path, *rows: str) -> Path:
    path = folder / "result.csv"
    if rows:
        path.write_text("".join(f"{line}\n" for line in [",".join(ESTABLISHED), *rows]))
    return path


def job(
    config: dict[str, Any] = CONFIG,
    exit_code: int | None = 0,
    signal: int | None = None,
    **more: Any,
) -> Job:
    outcome = {"ended": "exited", "exit_code": exit_code, "signal": signal}
    return Job("op", "job-1", config, outcome, **more)


def established_records(
    job: Job, path: Path, output: list[str], report: Report = log_report
) -> list[Record]:
    return records_of(job, path, scan(output), report=report)


def test_a_row_becomes_a_record(tmp_path: Path) -> None:
    csv_path = write(tmp_path, row())
    [record] = established_records(job(), csv_path, [PASS, "[APPEND] op"])
    assert record.status is Status.PASSED
    assert record.case_id == case_id("op", CONFIG)
    assert record.parameters == {"dtype": "float16", "n": 16}
    assert record.verification is not None
    assert record.verification.metrics == {"one_minus_cosine": 3.58e-07}
    assert record.summaries == {"Op": "op", "dtype": "torch.float16", "Shape": "(16 512)"}
    timers = record.timers
    assert timers.cold_gpu and timers.cpu and timers.batch_gpu
    assert (timers.cold_gpu.mean, timers.cold_gpu.noise, timers.cold_gpu.samples) == (
        1.5e-5,
        0.125,
        986,
    )
    assert (timers.cpu.mean, timers.cpu.noise) == (2e-5, 0.25)
    assert (timers.batch_gpu.mean, timers.batch_gpu.samples) == (pytest.approx(3e-5), 500)
    assert timers.cold_gpu.median is None
    assert record.rates.bandwidth_utilisation == 0.375
    assert record.device is not None
    assert (record.device.kind, record.device.name, record.device.index) == (
        "maca",
        "MetaX C500",
        2,
    )
    assert (record.library, record.definition, record.environment) == (None, None, {})
    again = established_records(job(), csv_path, [PASS])
    assert again[0].record_id == record.record_id


def test_a_noise_that_the_other_one_overwrote_is_unknown(tmp_path: Path) -> None:
    line = row().replace(",0.25,", ",0.125,")
    [record] = established_records(job(), write(tmp_path, line), [])
    assert record.timers.cpu is not None
    assert record.timers.cpu.noise is None


P, F, E, U = Status.PASSED, Status.FAILED, Status.ERROR, Status.UNAVAILABLE
T = Status.TIMEOUT
STOPPED = (T, "no output for 600 s")
KILLED = {"exit_code": None, "signal": 9}


@pytest.mark.parametrize(
    ("rows", "output", "ended", "statuses"),
    [
        pytest.param([row()], [PASS], {}, [P], id="row"),
        pytest.param([row(accuracy="No")], [], {}, [F], id="row that says No"),
        pytest.param([row(accuracy="")], [], {}, [Status.UNVERIFIED], id="row without accuracy"),
        pytest.param([row()], [FAIL], {}, [F], id="row says Yes, output says FAIL"),
        pytest.param([], [FAIL, FATAL], {}, [F], id="failed, exit 0"),
        pytest.param([], [FATAL], {}, [F], id="fatal"),
        pytest.param([], [], {}, [E], id="nothing, exit 0"),
        pytest.param([], [PASS], {}, [E], id="verified, no row"),
        pytest.param([row(op="other")], [PASS], {}, [E], id="row of another operator"),
        pytest.param([], CRASH, {"exit_code": 1}, [E], id="exception"),
        pytest.param([], [*CRASH, FATAL], {}, [E], id="exception that became fatal"),
        pytest.param([], ABSENT, {"exit_code": 1}, [U], id="no library"),
        pytest.param([], [], {"stopped": STOPPED}, [Status.TIMEOUT], id="stopped"),
        pytest.param([], [FAIL], {"stopped": STOPPED}, [F], id="failed, then hung"),
        pytest.param([row()], [], {"stopped": STOPPED}, [P, T], id="hung at exit"),
        pytest.param([row(accuracy="No")], [], {"stopped": STOPPED}, [F, T], id="No, hung at exit"),
        pytest.param([row()], [], {"exit_code": 139}, [P, E], id="exit code after its row"),
        pytest.param([row()], [], {"exit_code": None}, [P, E], id="no exit code known"),
        pytest.param([row()], [], {**KILLED, "signal": 11}, [P, E], id="crash after its row"),
        pytest.param([row()], [], KILLED, [P, E], id="killed after its row"),
        pytest.param([row()], [], {"exit_code": 0, "signal": 15}, [P, E], id="signal and code 0"),
        pytest.param([row(accuracy="No")], [], KILLED, [F, E], id="killed after a No"),
        pytest.param([row(accuracy="No")], [FATAL], {"exit_code": 1}, [F], id="No and exit 1"),
        pytest.param([row()], CRASH, {"exit_code": 1}, [P, E], id="exception after its row"),
        pytest.param([row()], ABSENT, {"exit_code": 1}, [P, E], id="import after its row"),
        pytest.param(["op,1,2"], [], {}, [E], id="row of the wrong width"),
        pytest.param([row(), "op,1,2"], [], {}, [P, E], id="and one of the wrong width"),
        pytest.param([row(), row(op="other")], [], {}, [P, E], id="and one of another operator"),
        pytest.param([row(), row()], [], {}, [E, E], id="two rows"),
        pytest.param([row(), row(accuracy="No")], [], {}, [E, F], id="Yes and No"),
        pytest.param([row(accuracy=""), row()], [], {}, [E, E], id="Yes and nothing"),
        pytest.param([row(), row()], [FAIL], {}, [F, F], id="two rows, output says FAIL"),
        *(
            pytest.param([row(gpu=gpu)], [PASS], {}, [E], id=f"GPU time {gpu!r}")
            for gpu in ("nan", "", "skipped", "-1e-5", "0", "0.0 us", "inf", "1e999", "1.5.2")
        ),
        pytest.param([row(accuracy="", gpu="")], [], {}, [E], id="neither accuracy nor time"),
        *(
            pytest.param([row(distance=text)], [PASS], {}, [F], id=f"Cos_Dist {text}")
            for text in ("nan", "NaN", "inf", "-inf")
        ),
        pytest.param([row(distance="")], [PASS], {}, [P], id="no Cos_Dist"),
        pytest.param([row(device=" ")], [PASS], {}, [E], id="no device"),
    ],
)
def test_statuses(
    tmp_path: Path,
    rows: list[str],
    output: list[str],
    ended: dict[str, Any],
    statuses: list[Status],
) -> None:
    heard: list[str] = []
    csv_path = write(tmp_path, *rows)
    records = established_records(job(**ended), csv_path, output, report=heard.append)
    assert [record.status for record in records] == statuses
    assert len({record.record_id for record in records}) == len(records)
    assert all(r.error is not None or r.status in (P, F, Status.UNVERIFIED) for r in records)
    assert bool(heard) == any(not line.startswith("op,2") for line in rows)
    merged = merge(records, tmp_path / "statistics")
    assert sum(report.appended for report in merged) == int(statuses == [P])


def test_a_row_of_our_own_front_door_on_a_cpu(tmp_path: Path) -> None:
    """It leaves the GPU's cells empty there; any other row without a GPU time is an error."""
    path = tmp_path / "result.csv"
    cells = row(device="Intel Xeon").split(",")
    cells[11] = cells[12] = cells[16] = cells[17] = ""
    path.write_text(
        f"{','.join([*ESTABLISHED, *EXTRA])}\n{','.join([*cells, '', '1', '', '', '', 'aa'])}\n"
    )
    [record] = established_records(job(), path, [])
    assert (record.status, record.device and record.device.kind) == (P, "cpu")
    path.write_text(f"{','.join(ESTABLISHED)}\n{','.join(cells)}\n")
    assert [r.status for r in established_records(job(), path, [])] == [E]


def test_a_row_that_is_not_utf_8_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path, row())
    path.write_bytes(path.read_bytes().replace(b"(16 512)", b"\xd6\xd0"))
    assert [r.status for r in established_records(job(), path, [])] == [P]


def test_an_exception_keeps_its_traceback(tmp_path: Path) -> None:
    output = ["before", *CRASH, "after"]
    [record] = established_records(job(exit_code=1), write(tmp_path), output)
    assert record.error is not None
    assert record.error.type == "RuntimeError"
    assert record.error.message == "out of memory: tried to allocate 3 GiB"
    assert record.error.traceback == "\n".join(CRASH)


def test_a_csv_of_another_kind_is_an_error_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    path.write_text("a,b\n1,2\n")
    heard: list[str] = []
    [record] = established_records(job(), path, [], report=heard.append)
    assert record.status is E
    assert heard and heard[0].startswith(f"{path}:1:")


def ids(*values: int | None) -> list[str | None]:
    return [None if n is None else case_id("op", {**CONFIG, "n": n}) for n in values]


@pytest.mark.parametrize(
    ("rows", "output", "statuses", "cases"),
    [
        pytest.param(
            [row("(64 512)"), row("(16 512)"), row("(32 512)")],
            [],
            [P, P, P],
            ids(64, 16, 32),
            id="told apart by the shape",
        ),
        pytest.param(
            [row("(8 512)"), row("(8 512)"), row("(8 512)")],
            [],
            [E, E, E],
            ids(None, None, None),
            id="the shape says nothing",
        ),
        pytest.param(
            [row("(16 32)"), row("(32 32)"), row("(64 32)")],
            [],
            [P, P, P],
            ids(16, 32, 64),
            id="the shape says it of one, so of the others",
        ),
        pytest.param(
            [row("(16 32)"), row("(32 16)"), row("(64 9)")],
            [],
            [E, E, P],
            ids(None, None, 64),
            id="two that may be either",
        ),
        pytest.param(
            [row("(16 1)"), row("(16 1)"), row("(64 1)")],
            [],
            [E, E, P, E],
            ids(16, 16, 64, 32),
            id="two of one, none of another",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)"), row("(64 1)"), row("(64 1)", "No")],
            [],
            [P, P, E, F],
            ids(16, 32, 64, 64),
            id="Yes and No of one",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)"), row("(64 1)"), row("(8 1)")],
            [],
            [P, P, P, E],
            ids(16, 32, 64, None),
            id="one too many",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)"), row("(64 1)")],
            [FAIL],
            [P, P, P, F],
            ids(16, 32, 64, None),
            id="all say Yes, output says FAIL",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)"), row("(64 1)", "No")],
            [FAIL, PASS, FAIL],
            [P, P, F, F],
            ids(16, 32, 64, None),
            id="one says No, output FAIL twice",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)"), row("(64 1)", "No")],
            [FAIL, FATAL],
            [P, P, F],
            ids(16, 32, 64),
            id="one says No, so does the output",
        ),
        pytest.param(
            [row("(16 1)"), row("(32 1)")],
            [FAIL, FAIL],
            [P, P, F, F],
            ids(16, 32, 64, None),
            id="one without a row, FAIL twice",
        ),
        pytest.param([row("(16 1)")], [], [P, E, E], ids(16, 32, 64), id="rows are missing"),
        pytest.param(
            [row("(16 1)"), row("(32 1)")],
            [PASS, PASS, FAIL],
            [P, P, F],
            ids(16, 32, 64),
            id="the one without a row failed",
        ),
        pytest.param(
            [row("(16 1)")],
            [PASS, FAIL],
            [P, F, Status.NOT_RUN],
            ids(16, None, None),
            id="one of two failed and ended the script",
        ),
        pytest.param([], ABSENT, [U, U, U], ids(16, 32, 64), id="no library"),
    ],
)
def test_sweeps(
    tmp_path: Path,
    rows: list[str],
    output: list[str],
    statuses: list[Status],
    cases: list[str | None],
) -> None:
    records = established_records(job(SWEEP), write(tmp_path, *rows), output)
    assert [record.status for record in records] == statuses
    assert [record.case_id for record in records] == cases
    assert len({record.record_id for record in records}) == len(records)
    merged = merge(records, tmp_path / "statistics")
    # What names no case, and what has a case twice, leaves nothing to go by.
    blocked = {r.case_id for r in records if r.status in (F, E)}
    good = [r for r in records if r.status is P and not blocked & {None, r.case_id}]
    assert sum(report.appended for report in merged) == len(good)


def test_a_killed_sweep_leaves_no_row(tmp_path: Path) -> None:
    rows = write(tmp_path, row("(16 1)"), row("(32 1)"))
    records = established_records(job(SWEEP, None, 9), rows, [FAIL])
    assert [(r.status, r.case_id) for r in records] == list(
        zip([P, P, F, E], ids(16, 32, 64, None), strict=True)
    )
    assert records[-1].error is not None and "SIGKILL" in records[-1].error.message
    assert all(not report.appended for report in merge(records, tmp_path / "statistics"))


def test_rows_of_real_runs(real_csv: Path, tmp_path: Path) -> None:
    """Each row of a file from hardware comes back as it was through record and merge."""
    table = DeviceTable.read(real_csv)
    records = []
    for line in table.lines:
        config = {"dtype": line.cells[6] or "float16"}
        work = replace(job(config), op=line.cells[0], job=f"job-{line.cells[0]}")
        assert line.raw is not None
        header = real_csv.read_text().splitlines()[0]
        path = tmp_path / "one.csv"
        path.write_text(f"{header}\n{line.raw}", newline="")
        records += established_records(work, path, [])
    assert {record.status for record in records} == {P}
    [report] = merge(records, tmp_path / "statistics")
    assert report.appended == len(table.lines)
    merged = {line.cells[0]: line.cells for line in DeviceTable.read(report.path).lines}
    overwritten = {10}  # the CPU's noise, by the GPU's
    for line in table.lines:
        cells = [cell for at, cell in enumerate(line.cells[:18]) if at not in overwritten]
        found = [
            cell for at, cell in enumerate(merged[line.cells[0]][:18]) if at not in overwritten
        ]
        assert found == cells
