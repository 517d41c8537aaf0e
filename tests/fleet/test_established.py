"""An established checkout: synced in place, run by its own scripts, judged by rows and markers.

What the checkout is, and where it lies: `checkout.py`.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from .checkout import OLD_ROWS, SCRIPT, Site, everywhere
from .workbench import Bench, snapshot

HOSTS = ("loop1", "loop2")


def add_operator(bench: Bench, name: str, length: int = 500) -> None:
    """Write an operator as a user does: config, runner, a line in the whitelist."""
    benchmark = bench.folder / "benchmark"
    config = json.loads((benchmark / "config" / "est_axpy.json").read_text())
    path = benchmark / "config" / f"{name}.json"
    path.write_text(json.dumps({**config, "length": length}))
    runner = benchmark / "runners" / "mcoplib_mxbenchmark_est_axpy_runners.py"
    shutil.copy(runner, benchmark / "runners" / f"mcoplib_mxbenchmark_{name}_runners.py")
    script = benchmark / SCRIPT
    listed = '    "est_axpy",\n'
    script.write_text(script.read_text().replace(listed, f'    "{name}",\n{listed}'))


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before | after if before.get(name) != after.get(name)}


@everywhere
def test_push_in_place_then_run(site: Site) -> None:
    bench = site.bench
    add_operator(bench, "est_added")
    bench.config("est_axpy", length=3000)
    before = {host: site.files(host) for host in HOSTS}
    script = {host: site.read(host, SCRIPT).splitlines() for host in HOSTS}

    result = bench.mxfleet("push")
    for host in HOSTS:
        after = site.files(host)
        new = {
            "benchmark/config/est_added.json",
            "benchmark/runners/mcoplib_mxbenchmark_est_added_runners.py",
        }
        edited = {"benchmark/config/est_axpy.json", f"benchmark/{SCRIPT}"}
        assert changed(before[host], after) == new | edited
        for name in edited:  # owner and mode are what they were
            assert after[name].split()[:2] == before[host][name].split()[:2]
        owners = {text.split()[0] for text in before[host].values()}
        assert len(owners) == 1
        for name in new:
            assert after[name].split()[:2] == [*owners, "644"]
        lines = site.read(host, SCRIPT).splitlines()
        assert [line for line in lines if line not in script[host]] == ['    "est_added",']
        assert [line for line in lines if "est_added" not in line] == script[host]
        assert json.loads(site.read(host, "config/est_axpy.json"))["length"] == 3000
        leavings = bench.fleet.in_container(host, "ls", "-A", site.workdir).stdout.decode()
        assert ".mxfleet-stage" not in leavings
        said = result.said(host)
        assert "add config/est_added.json" in said
        assert "update config/est_axpy.json" in said

    again = bench.mxfleet("push")
    assert all("nothing to send" in line for host in HOSTS for line in again.said(host))

    bench.mxfleet("run", "--op", "est_added,est_axpy")
    ((name, lines),) = bench.tables().items()
    assert name == "mcoplib_ops_performance_C500.csv"
    _, *rows = csv.reader(lines)
    assert [(row[0], row[7]) for row in rows] == [
        ("est_added", "(500 1)"),
        ("est_axpy", "(3000 1)"),
    ]
    for host in HOSTS:
        assert site.read(host, "statistics/mcoplib_ops_performance_C500.csv") == OLD_ROWS
        (record,) = bench.records(bench.runs()[0], host, "est_added")
        assert (record["status"], record["parameters"]["length"]) == ("PASSED", 500)
        assert record["timers"]["cold_gpu"]["mean"] == record["timers"]["batch_gpu"]["mean"]

    tables = bench.tables()
    bench.mxfleet("run", "--op", "est_added,est_axpy")
    assert bench.tables() == tables


OUTCOMES = [
    # operator, status, exit code, in the message
    ("est_axpy", "PASSED", 0, ""),
    ("est_quiet", "ERROR", 1, "left no row"),  # exit code 0, no marker of failure, no row
    ("est_fatal", "FAILED", 1, "[FATAL] est_fatal: results differ"),  # with a row
    ("est_wrong", "FAILED", 1, "verification failed"),
    ("est_raises", "ERROR", 1, "no kernel image is available"),
]


def test_rows_and_markers_decide_not_the_exit_code(site: Site) -> None:
    bench = site.bench
    ops = ",".join(op for op, *_ in OUTCOMES)
    result = bench.mxfleet("run", "--op", ops, "--output", "json", code=1)
    ended = {(e["target"], e["op"]): e for e in result.events() if e["event"] == "job_ended"}
    for host in HOSTS:
        for op, status, _, message in OUTCOMES:
            event = ended[host, op]
            assert event["status"] == status, event
            assert message in (event["message"] or "")
            if op != "est_raises":
                assert event["exit_code"] == 0
    ((_, lines),) = bench.tables().items()
    assert [row[0] for row in csv.reader(lines)] == ["op_name", "est_axpy"]
    run = bench.runs()[0]
    assert (run / "csv" / "loop1" / "est_fatal.csv").read_text().count("est_fatal")
    (record,) = bench.records(run, "loop1", "est_raises")
    assert "Traceback" in record["error"]["traceback"]


@pytest.mark.parametrize(("op", "code"), [(op, code) for op, _, code, _ in OUTCOMES])
def test_exit_code_of_each_outcome(site: Site, op: str, code: int) -> None:
    site.bench.mxfleet("run", "--op", op, "--hosts", "loop2", code=code)


@everywhere
def test_samples_through_a_private_copy(site: Site) -> None:
    bench = site.bench
    before = {host: site.files(host) for host in HOSTS}
    here = snapshot(bench.folder / "benchmark")
    result = bench.mxfleet("run", "--op", "est_axpy", "--samples", "21")
    for host in HOSTS:
        assert site.files(host) == before[host]
        (folder,) = [line for line in result.said(host) if line.startswith("Folder: ")]
        assert folder.endswith("/shadow/benchmark")
        assert "Env: sourced from benchmark" in result.said(host)
        (record,) = bench.records(bench.runs()[0], host, "est_axpy")
        assert record["timers"]["cold_gpu"]["samples"] == 21 - 16
    shutil.rmtree(bench.folder / "benchmark" / "statistics")
    assert snapshot(bench.folder / "benchmark") == here


def test_strict_looks_at_the_device_afterwards(site: Site) -> None:
    """The scripts do not know what is expected; what they measured stays, the code says it."""
    site.bench.inventory(workdir=site.workdir, model="H200")
    command = ("run", "--op", "est_axpy", "--output", "json")
    odd = "measured on MetaX C500, but the inventory expects model H200 here"
    for more, code, status in ((), 0, "OK"), (("--strict",), 3, "UNUSABLE"):
        events = site.bench.mxfleet(*command, *more, code=code).events()
        rows = [event for event in events if event["event"] == "row"]
        assert [(row["status"], row["device_mismatch"]) for row in rows] == [("PASSED", odd)] * 2
        assert events[-1]["targets"] == dict.fromkeys(HOSTS, status)


@pytest.mark.parametrize("asked", [("--case", "length=2000"), ("--repeats", "5")])
def test_what_the_scripts_cannot_do_is_refused(site: Site, asked: tuple[str, str]) -> None:
    result = site.bench.mxfleet("run", "--op", "est_axpy", *asked, code=2)
    assert f"{' '.join(asked)} cannot be honoured by the established scripts" in result.stderr
    assert not site.bench.runs()


@everywhere
def test_env_script_beside_the_checkout_is_sourced(site: Site) -> None:
    result = site.bench.mxfleet("run", "--op", "est_axpy")
    for host in HOSTS:
        assert "Env: sourced from benchmark" in result.said(host)
        assert f"Folder: {site.workdir}" in result.said(host)


def test_lines_of_a_script_that_never_flushes_come_at_once(site: Site) -> None:
    bench = site.bench
    gate = f"{site.parent}/open"
    bench.config("est_waits", gate=gate)
    bench.mxfleet("push")
    running = bench.start("run", "--op", "est_waits")
    for host in HOSTS:
        running.wait_for(f"{host} | [VERIFY] est_waits -> PASS")
        running.wait_for(f"{host} | waiting at the gate", count=2)
    for host in HOSTS:
        bench.fleet.in_container(host, "touch", gate)
    assert running.result().code == 0


def test_a_file_that_differs_is_used_and_named(site: Site) -> None:
    bench = site.bench
    config = json.loads(site.read("loop2", "config/est_axpy.json"))
    site.write("loop2", "config/est_axpy.json", json.dumps({**config, "length": 77}))
    result = bench.mxfleet("run", "--op", "est_axpy")
    assert result.stderr.splitlines() == [
        "loop2 | warning: config/est_axpy.json there differs from here; `mxfleet push` brings it"
    ]
    (record,) = bench.records(bench.runs()[0], "loop2", "est_axpy")
    assert record["parameters"]["length"] == 77  # what ran there, not what lies here
    assert record["summaries"]["Shape"] == "(77 1)"
    # Said once more where the result is read, and kept with it, also when it is pulled again.
    assert record["checkout_differs"] == ["config/est_axpy.json"]
    remark = "ran the checkout's own config/est_axpy.json, not those from here"
    assert remark in " ".join(result.stdout.split())
    pulled = bench.mxfleet("pull")
    assert remark in " ".join(pulled.stdout.split())
    assert bench.records(bench.runs()[0], "loop2", "est_axpy") == [record]


def test_an_operator_that_only_the_checkout_has(site: Site) -> None:
    """It runs with the checkout's own config; one that nobody has is named."""
    bench = site.bench
    add_operator(bench, "est_added")
    bench.mxfleet("push", "--only", "est_added")
    for path in bench.folder.glob("benchmark/*/*est_added*"):
        path.unlink()
    front_door = bench.folder / "benchmark" / SCRIPT
    lines = front_door.read_text().splitlines(keepends=True)
    front_door.write_text("".join(line for line in lines if '"est_added"' not in line))
    before = site.files("loop1")
    bench.mxfleet("run", "--op", "est_added")
    assert site.files("loop1") == before
    result = bench.mxfleet("run", "--op", "est_nowhere", code=3)
    assert "the checkout does not list est_nowhere, nor are they here" in result.stderr


def test_only_what_is_there(site: Site) -> None:
    result = site.bench.mxfleet("push", "--only", "est_axpy", "--only", "nope*", code=2)
    assert "--only 'nope*' matches no file" in result.stderr


def test_run_pushes_an_operator_that_is_missing_there(site: Site) -> None:
    add_operator(site.bench, "est_added")
    add_operator(site.bench, "est_other")
    before = site.files("loop1")
    result = site.bench.mxfleet("run", "--op", "est_added")
    assert result.stderr.count("operators are missing in the checkout, pushing them") == 2
    assert changed(before, site.files("loop1")) == {
        "benchmark/config/est_added.json",
        "benchmark/runners/mcoplib_mxbenchmark_est_added_runners.py",
        f"benchmark/{SCRIPT}",
    }
    assert "est_other" not in site.read("loop1", SCRIPT)


def test_only_delete_and_dry_run(site: Site) -> None:
    bench = site.bench
    add_operator(bench, "est_added")
    bench.config("est_axpy", length=3000)
    site.write("loop1", "config/est_theirs.json", "{}")
    before = site.files("loop1")

    result = bench.mxfleet("push", "--delete", "--dry-run", "--hosts", "loop1")
    assert site.files("loop1") == before
    said = result.said("loop1")
    assert "add config/est_added.json" in said
    assert "delete config/est_theirs.json" in said
    assert f"list est_added in {SCRIPT}" in said

    bench.mxfleet("push", "--only", "est_added", "--hosts", "loop1")
    after = site.files("loop1")
    assert "benchmark/config/est_axpy.json" not in changed(before, after)
    assert "benchmark/config/est_added.json" in after
    assert "benchmark/config/est_theirs.json" in after

    bench.mxfleet("push", "--hosts", "loop1")
    assert "benchmark/config/est_theirs.json" in site.files("loop1")
    bench.mxfleet("push", "--delete", "--hosts", "loop1")
    assert "benchmark/config/est_theirs.json" not in site.files("loop1")
    assert site.read("loop1", "statistics/mcoplib_ops_performance_C500.csv") == OLD_ROWS


@everywhere
def test_hosts_check_finds_the_checkout(site: Site) -> None:
    """And says where it lies on the host, or who else has it when this container has not."""
    bench = site.bench
    events = bench.mxfleet("hosts", "--check", "--output", "json", code=None).events()
    facts = {event["target"]: event["facts"] for event in events if event["event"] == "target"}
    for host in HOSTS:
        assert facts[host]["workdir"]["established"] is True
        place = facts[host]["container"]["workdir_on_host"]
        if site.shared:
            folder = bench.fleet.share(host) / Path(site.workdir).relative_to("/share")
            assert place == str(folder)
        else:
            assert place is None
