"""The main job: `mxfleet push && mxfleet run --op …` on two hosts, as a user types it."""

from __future__ import annotations

import csv
import itertools
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import LoopbackFleet
from .workbench import Bench, Result, snapshot, workbench

OPS = ("torch_rms_norm", "torch_softmax")
HOSTS = ("loop1", "loop2")
ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class MainJob:
    """The commands of one morning, each run once, with what they left."""

    bench: Bench
    pushed: Result
    pushed_again: Result
    first: Result
    table_after_first: dict[str, bytes]
    second: Result
    table_after_second: dict[str, bytes]


@pytest.fixture(scope="module")
def main_job(fleet: LoopbackFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MainJob]:
    folder = tmp_path_factory.mktemp("main")
    with workbench(fleet, folder, suite=None) as bench:
        bench.mxfleet("init")
        (folder / "inventory.yaml").write_text(
            fleet.inventory.replace("defaults:", f"defaults:\n  store: {bench.store}", 1)
        )
        bench.config("torch_rms_norm", num_tokens=64, hidden_size=256, samples=5)
        bench.config("torch_softmax", num_rows=64, row_size=256, samples=5)
        pushed = bench.mxfleet("push")
        pushed_again = bench.mxfleet("push")
        command = ("run", "--op", ",".join(OPS), "--hosts", "@loopback")
        statistics = folder / "benchmark" / "statistics"
        first = bench.mxfleet(*command)
        after_first = snapshot(statistics)
        second = bench.mxfleet(*command)
        yield MainJob(bench, pushed, pushed_again, first, after_first, second, snapshot(statistics))


def csv_of(files: dict[str, bytes]) -> list[list[str]]:
    names = [name for name in files if name.endswith(".csv")]
    assert len(names) == 1, names
    assert re.fullmatch(r"mcoplib_ops_performance_CPU_\w+\.csv", names[0])
    return list(csv.reader(files[names[0]].decode().splitlines()))


def test_two_hosts_make_one_row_an_operator(main_job: MainJob) -> None:
    assert main_job.pushed.code == main_job.first.code == 0
    header, *rows = csv_of(main_job.table_after_first)
    assert [row[0] for row in rows] == list(OPS)
    named = [dict(zip(header[18:], row[18:], strict=True)) for row in rows]
    for op, row, extra in zip(OPS, rows, named, strict=True):
        assert row[3] == "Yes"
        assert row[5:8] == [op, "bfloat16", "(64 256)"]
        assert float(row[9]) > 0  # CPU time
        assert row[11:13] == ["", ""]  # no GPU, no GPU time
        run = main_job.bench.runs()[0]
        cases = {main_job.bench.records(run, host, op)[0]["case_id"] for host in HOSTS}
        assert cases == {extra["case_id"]}


def test_records_of_both_hosts_are_in_the_runs_folder(main_job: MainJob) -> None:
    run = main_job.bench.runs()[0]
    for host in HOSTS:
        for op in OPS:
            (record,) = main_job.bench.records(run, host, op)
            assert record["status"] == "PASSED"
            assert (record["run"], record["host"], record["op"]) == (run.name, host, op)
            assert record["verification"]["passed"] is True
            # Five processes by themselves, each with the samples of the config.
            assert (record["repeats"], len(record["sampling"]["medians"])) == (5, 5)
            assert record["repeat_spread"] >= 0
            assert record["timers"]["cpu"]["samples"] == 5 * 5
            assert record["timers"]["cold_gpu"] is None
            assert record["library"]["name"] == "torch"
            assert (run / "csv" / host / f"{op}.csv").stat().st_size
            log = (run / "logs" / host / f"{op}.log").read_text()
            assert f"[VERIFY] {op} -> PASS" in log
    summary = json.loads((run / "run-summary.json").read_text())
    assert (summary["exit_code"], summary["counts"]) == (0, {"PASSED": 4})


def test_the_same_again_doubles_nothing(main_job: MainJob) -> None:
    assert main_job.second.code == 0
    assert csv_of(main_job.table_after_second) == csv_of(main_job.table_after_first)
    tables = [
        {name: data for name, data in files.items() if name.endswith(".csv")}
        for files in (main_job.table_after_first, main_job.table_after_second)
    ]
    assert tables[0] == tables[1]
    assert "2 were there already" in main_job.second.stdout


def test_unchanged_push_sends_nothing(main_job: MainJob) -> None:
    assert "sent " in main_job.pushed.stdout
    assert [
        line.partition(": ")[0] for host in HOSTS for line in main_job.pushed_again.said(host)
    ] == ["nothing to send"] * 2
    assert "pushing it" not in main_job.first.stderr  # what is there is not pushed by run again


def test_piped_output_is_plain_and_narrow(main_job: MainJob) -> None:
    text = main_job.first.stdout
    assert not ESCAPE.search(text.replace("\n", ""))
    blocks = text.split("\n\n")
    (table,) = [block for block in blocks if block.startswith("operator")]
    lines = table.splitlines()
    assert max(map(len, lines)) <= 80
    titles = ["operator", "host", "status", "Acc_Pass", "dtype", "shape", "CPU", "time"]
    assert lines[0].split() == [*titles, "spread", "BWUtil"]
    assert sum("PASSED" in line and "Yes" in line for line in lines) == 4
    merged = [line for line in text.splitlines() if line.startswith("merged into")]
    assert len(merged) == 1
    assert "2 appended" in " ".join(merged)
    run = main_job.bench.runs()[0]
    for host in HOSTS:
        assert f"runs/{run.name}/logs/{host}/torch_softmax.log" in text
    assert text.splitlines()[-1].startswith("run: 4 PASSED")


def test_pull_brings_back_what_was_lost_here(main_job: MainJob) -> None:
    bench = main_job.bench
    run = bench.runs()[0]
    parts = ("logs", "records", "csv")
    before = {part: snapshot(run / part) for part in parts}
    tables = bench.tables()
    for part in parts:
        shutil.rmtree(run / part)
    for _ in range(2):
        pulled = bench.mxfleet("pull", run.name)
        assert "4 PASSED" in pulled.stdout
        assert {part: snapshot(run / part) for part in parts} == before
        assert bench.tables() == tables

    # Also when the merged results are gone: one row an operator again, from both hosts.
    shutil.rmtree(bench.folder / "benchmark" / "statistics")
    bench.mxfleet("pull", run.name)
    assert bench.tables() == tables


def test_hosts_check_says_what_the_targets_are(main_job: MainJob) -> None:
    listed = main_job.bench.mxfleet("hosts")
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:4]] == list(HOSTS)
    checked = main_job.bench.mxfleet("hosts", "--check")
    assert checked.stdout.count("OK") >= 2
    assert checked.stdout.count("torch 2.") == 2
    assert max(map(len, checked.stdout.splitlines())) <= 80
    events = main_job.bench.mxfleet("hosts", "--check", "--output", "json").events()
    facts = {event["target"]: event["facts"] for event in events if event["event"] == "target"}
    assert facts.keys() == set(HOSTS)
    for found in facts.values():
        assert found["python"]["torch"]["version"]
        assert found["store"]["disk"]["free"] > 0
        assert found["container"]["status"] == "running"


def test_lines_come_while_the_jobs_run(bench: Bench) -> None:
    """Both jobs go on until this test, having read lines of both, opens the gate."""
    gate = f"gate-{secrets.token_hex(4)}"
    bench.config("probe_linger", until=f"/share/{gate}")
    running = bench.start("run", "--op", "probe_linger")
    try:
        for host in HOSTS:
            running.wait_for(f"{host} | measured 2048")
            running.wait_for(f"{host} | step 3")
        for host in HOSTS:
            bench.fleet.in_container(host, "touch", f"/share/{gate}")
        result = running.result()
    finally:
        for host in HOSTS:
            bench.fleet.in_container(host, "rm", "-f", f"/share/{gate}")
    assert result.code == 0, result
    order = [line.split(" | ")[0] for _, line in running.lines if " | step " in line]
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes > 3, order


def test_run_pushes_what_is_not_there_and_says_so(bench: Bench) -> None:
    first = bench.mxfleet("run", "--op", "probe_digest")
    assert re.findall(r"(loop\d) +\| tree \w+ is not there yet, pushing it", first.stderr)
    assert all(any(line.startswith("sent 9 files") for line in first.said(h)) for h in HOSTS)
    second = bench.mxfleet("run", "--op", "probe_digest")
    assert "pushing" not in second.stdout + second.stderr
    assert "sent" not in second.stdout
    # An edit is another tree; the first one stays as it was.
    bench.config("probe_digest", size=1000)
    third = bench.mxfleet("run", "--op", "probe_digest")
    assert third.stderr.count("pushing it") == 2
    assert any(line.startswith("sent 1 file ") for line in third.said("loop1"))
    assert len(bench.trees("loop1")) == 2


def test_samples_change_no_file(bench: Bench) -> None:
    bench.mxfleet("push")
    benchmark = bench.folder / "benchmark"
    before = snapshot(benchmark)
    config = f"{bench.store}/trees/{bench.trees('loop1')[0]}/benchmark/config/probe_speak.json"
    there = bench.fleet.in_container("loop1", "cat", config).stdout
    result = bench.mxfleet("run", "--op", "probe_speak", "--samples", "3")
    assert [line for host in HOSTS for line in result.said(host) if "said samples" in line] == [
        "said samples 3"
    ] * 2
    shutil.rmtree(benchmark / "statistics")
    assert snapshot(benchmark) == before
    assert bench.fleet.in_container("loop1", "cat", config).stdout == there
    assert len(bench.trees("loop1")) == 1
    (record,) = bench.records(bench.runs()[0], "loop1", "probe_speak")
    assert record["timers"]["cpu"]["samples"] == 3


@pytest.mark.parametrize(
    ("command", "names", "said"),
    [
        (("run", "--op", "probe_digest", "--dry-run"), HOSTS, "--op probe_digest --csv"),
        (("push", "--dry-run"), ("loop[1-2]",), "would send 9 files"),
    ],
)
def test_dry_run_changes_nothing_anywhere(
    bench: Bench, command: tuple[str, ...], names: tuple[str, ...], said: str
) -> None:
    before = snapshot(bench.folder)
    result = bench.mxfleet(*command)
    for name in names:
        assert any(said in line for line in result.said(name)), result
    for host in HOSTS:
        there = bench.fleet.in_container(host, "ls", "-A", bench.store, check=False)
        assert there.returncode == 2, there.stdout  # not even the store
    assert snapshot(bench.folder) == before


def test_dry_run_prints_the_command_that_runs(bench: Bench) -> None:
    """What it prints, pasted into a shell in the container, does the job."""
    bench.inventory(env={"TEST_VALUE": "a b;$(reboot)'\""}, path=["/opt/some tools"])
    bench.config("probe_speak", show=["TEST_VALUE", "PROBE_ENV_SCRIPT", "PATH"])
    bench.mxfleet("push")
    (command, *_) = bench.mxfleet("run", "--op", "probe_speak", "--dry-run").said("loop1")
    folder = f"{bench.store}/jobs/{command.partition('<store>/jobs/')[2].partition('/')[0]}"
    pasted = command.replace("<store>", bench.store)
    done = bench.fleet.in_container("loop1", "bash", "-c", f"mkdir -p {folder} && {{ {pasted}; }}")
    by_hand = [line for line in done.stdout.decode().splitlines() if line.startswith("said")]
    by_run = bench.mxfleet("run", "--op", "probe_speak").said("loop1")
    assert by_hand
    assert [line for line in by_run if line.startswith("said")] == by_hand


def test_json_is_lines_of_json_and_the_summary_last(bench: Bench) -> None:
    result = bench.mxfleet("run", "--op", "probe_digest,probe_speak", "--output", "json")
    events = result.events()
    assert [e["event"] for e in events].count("summary") == 1
    summary = events[-1]
    assert (summary["event"], summary["command"], summary["exit_code"]) == ("summary", "run", 0)
    assert summary["counts"] == {"PASSED": 4}
    assert summary["targets"] == {"loop1": "OK", "loop2": "OK"}
    ended = {(e["target"], e["op"]): e for e in events if e["event"] == "job_ended"}
    assert ended.keys() == {(h, op) for h in HOSTS for op in ("probe_digest", "probe_speak")}
    for event in ended.values():
        assert Path(event["log"]).is_file()
        assert Path(event["records"]).is_file()
    bad = bench.mxfleet(
        "run", "--op", "probe_digest", "--hosts", "loop9", "--output", "json", code=2
    )
    assert bad.stderr.count("\n") == 1


def test_hostile_values_arrive_as_themselves(bench: Bench) -> None:
    values = {
        "TEST_SHELL": "a b;$(reboot)'\"",
        "TEST_LINES": "one\ntwo\\n`id`",
        "TEST_UNICODE": "Prüfung 算子 !!",
        "TEST_EMPTY": "",
        "PROBE_OVERRIDDEN": "by inventory",
    }
    bench.inventory(env=values, ld_library_path=["/opt/a b", "/opt/c"])
    bench.config("probe_speak", show=[*values, "PROBE_ENV_SCRIPT", "LD_LIBRARY_PATH"])
    result = bench.mxfleet("run", "--op", "probe_speak")
    expected = {**values, "PROBE_ENV_SCRIPT": "sourced"}
    expected["LD_LIBRARY_PATH"] = "/from/script:/opt/a b:/opt/c"
    for host in HOSTS:
        said = [line.split(" ", 2)[1:] for line in result.said(host) if line.startswith("said")]
        found = {name: json.loads(value) for name, value in said}
        assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("factor", "mode", "outcome"),
    [
        (100.0, "--update", "1 updated"),  # what is in the file is slow
        (0.001, "--update", "1 kept"),
        (100.0, "--generate", "1 was there already"),
    ],
)
def test_update_replaces_what_got_faster(
    bench: Bench, factor: float, mode: str, outcome: str
) -> None:
    bench.mxfleet("run", "--op", "probe_digest", "--hosts", "loop1")
    (path,) = (bench.folder / "benchmark" / "statistics").glob("*.csv")
    header, row = csv.reader(path.read_text().splitlines())
    row[9] = repr(float(row[9]) * factor)
    path.write_text("\n".join(",".join(cells) for cells in (header, row)) + "\n")
    edited = path.read_bytes()
    result = bench.mxfleet("run", "--op", "probe_digest", "--hosts", "loop1", mode)
    assert outcome in result.stdout
    _, now = csv.reader(path.read_text().splitlines())
    if outcome == "1 updated":
        assert float(now[9]) < float(row[9]) / 10
    else:
        assert path.read_bytes() == edited
