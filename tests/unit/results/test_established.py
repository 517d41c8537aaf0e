"""Established scripts: what their row and markers mean, and what their silence means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import Status
from orchestrator.results.case_id import case_id
from orchestrator.results.device_csv import ESTABLISHED, DeviceTable
from orchestrator.results.established import Job, established_records
from orchestrator.results.merge import merge

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


def row(shape: str = "(16 512)", accuracy: str = "Yes", op: str = "op") -> str:
    cells = [op, "2", "MetaX C500", accuracy, "3.58e-07", op, "torch.float16", shape, "986"]
    cells += ["2e-05", "0.25", "1.5e-05", "0.125", "1e9", "2e9", "37.5%", "500", "30 us"]
    return ",".join(cells)


def write(folder: Path, *rows: str) -> Path:
    path = folder / "result.csv"
    if rows:
        path.write_text("".join(f"{line}\n" for line in [",".join(ESTABLISHED), *rows]))
    return path


def job(config: dict[str, Any] = CONFIG, exit_code: int | None = 0, **more: Any) -> Job:
    return Job("op", "job-1", config, exit_code, **more)


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
STOPPED = (Status.TIMEOUT, "no output for 600 s")


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
        pytest.param([row()], [], {"stopped": STOPPED}, [P, Status.TIMEOUT], id="hung at exit"),
        pytest.param([row()], [], {"exit_code": 139}, [P, E], id="crash after its row"),
        pytest.param(["op,1,2"], [], {}, [E], id="row of the wrong width"),
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
    assert bool(heard) == (rows == ["op,1,2"])
    merged = merge(records, tmp_path / "statistics")
    assert sum(report.appended for report in merged) == int(P in statuses)


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
            [P, P, P],
            ids(None, None, None),
            id="the shape says nothing",
        ),
        pytest.param(
            [row("(16 32)"), row("(32 32)"), row("(64 32)")],
            [],
            [P, P, P],
            ids(None, 32, None),
            id="the shape says it of one",
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


def test_rows_of_real_runs(real_csv: Path, tmp_path: Path) -> None:
    """Each row of a file from hardware comes back as it was through record and merge."""
    table = DeviceTable.read(real_csv)
    records = []
    for line in table.lines:
        config = {"dtype": line.cells[6] or "float16"}
        work = Job(line.cells[0], f"job-{line.cells[0]}", config, 0)
        records += established_records(work, real_csv, [])
    assert {record.status for record in records} == {P}
    [report] = merge(records, tmp_path)
    assert report.appended == len(table.lines)
    merged = {line.cells[0]: line.cells for line in DeviceTable.read(report.path).lines}
    overwritten = {10}  # the CPU's noise, by the GPU's
    for line in table.lines:
        cells = [cell for at, cell in enumerate(line.cells[:18]) if at not in overwritten]
        found = [
            cell for at, cell in enumerate(merged[line.cells[0]][:18]) if at not in overwritten
        ]
        assert found == cells
