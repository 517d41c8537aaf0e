"""`mxfleet testall`: everywhere or shared out, on all lanes, with what goes wrong on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import LoopbackFleet
from .many import Many, many
from .sshd import free_port
from .workbench import Bench, Result, wait_until

LONG = 240.0  # seconds that a command may take on a busy machine


@pytest.fixture
def three(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Many]:
    with many(fleet, tmp_path, 3) as made:
        yield made


@pytest.fixture
def one(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Many]:
    with many(fleet, tmp_path) as made:
        yield made


def run_all(site: Many, *arguments: str, code: int | None = 0) -> Result:
    return site.bench.mxfleet("testall", "--cold", *arguments, code=code, seconds=LONG)


def events(result: Result, kind: str) -> list[dict[str, Any]]:
    return [event for event in result.events() if event["event"] == kind]


def latest(site: Many) -> Path:
    return site.bench.runs()[-1]


# Everywhere.


def test_every_operator_on_every_target_then_the_matrix(three: Many) -> None:
    three.ops(op_a={}, op_b={"early": 2}, op_c={})
    result = run_all(three, "--output", "json")
    assert three.noted("done") == Counter({"op_a": 3, "op_b": 3, "op_c": 3})
    assert all(sorted(hosts) == ["h1", "h2", "h3"] for hosts in three.done_by().values())
    assert sum(three.rows(latest(three)).values()) == 3 * (1 + 3 + 1)
    matrix = events(result, "matrix")
    assert {line["op"] for line in matrix} == {"op_a", "op_b", "op_c"}
    assert all(set(line["seconds"]) == {"h1", "h2", "h3"} for line in matrix)
    (started,) = events(result, "run_started")
    assert (started["jobs"], started["spread"]) == (9, "replicate")


@pytest.mark.parametrize(
    ("config", "arguments", "code", "status"),
    [
        ({"missing": True}, (), 0, "UNAVAILABLE"),
        ({"missing": True}, ("--strict",), 3, "UNAVAILABLE"),
        ({"missing": True}, ("--ops", "odd,fine"), 0, "UNAVAILABLE"),
        ({"wrong": True}, (), 1, "FAILED"),
    ],
)
def test_exit_codes(
    one: Many, config: dict[str, Any], arguments: tuple[str, ...], code: int, status: str
) -> None:
    one.ops(odd=config, fine={})
    result = run_all(one, "--output", "json", *arguments, code=code)
    (summary,) = events(result, "summary")
    assert summary["counts"] == {status: 1, "PASSED": 1}
    assert summary["exit_code"] == code


def test_operators_with_broken_files_are_told_and_the_others_run(one: Many) -> None:
    one.ops(fine={}, config_broken={}, runner_gone={})
    benchmark = one.bench.folder / "benchmark"
    (benchmark / "config" / "config_broken.json").write_text('{\n "a": }')
    (benchmark / "runners" / "mcoplib_mxbenchmark_runner_gone_runners.py").unlink()
    result = run_all(one, code=2)
    assert "left out: " in result.stderr and "config_broken.json:2: broken JSON" in result.stderr
    assert "the runner of 'runner_gone' is missing" in result.stderr
    assert one.noted("done") == Counter(["fine"])
    # Going on with it does not forget them.
    again = one.bench.mxfleet("testall", "--resume", latest(one).name, code=2, seconds=LONG)
    assert "nothing left to do" in again.stdout + again.stderr
    # Asked for by name, nothing is run.
    run_all(one, "--ops", "fine,config_broken", code=2)
    assert one.noted("done") == Counter(["fine"])


def test_a_verification_that_fails_is_never_tried_again(one: Many) -> None:
    one.ops(odd={"wrong": True})
    run_all(one, "--retries", "5", "--retry-hung", code=1)
    assert one.noted("begin") == Counter(["odd"])
    assert one.jobs("h1") == ["odd.a1"]


def test_only_what_failed_is_run_again(three: Many, tmp_path: Path) -> None:
    gate = tmp_path / "repaired"
    three.ops(fine={}, odd={"wrong": True}, missing={"missing": True})
    run_all(three, code=1)
    failed = latest(three).name
    three.op("odd")
    run_all(three, "--failed", failed, "--hosts", "h1,h3")
    assert three.noted("begin") == Counter({"fine": 3, "odd": 5, "missing": 3})
    again = three.rows(latest(three))
    assert again == Counter({("h1", "odd", "PASSED"): 1, ("h3", "odd", "PASSED"): 1})
    # Shared out, each once for its model, wherever it failed.
    run_all(three, "--failed", failed, "--spread", "shard")
    assert three.noted("begin")["odd"] == 6
    result = run_all(three, "--failed", latest(three).name, code=2)
    assert "nothing of what was chosen failed" in result.stderr
    assert not gate.exists()


# Shared out.


def test_each_operator_once_for_each_model_the_longest_first(three: Many) -> None:
    lengths = {"op_a": 2, "op_b": 30, "op_c": 8, "op_d": 15}
    three.ops(**{op: {"lines": lines, "pause": 0.1} for op, lines in lengths.items()})
    run_all(three, "--hosts", "h1")  # by which their durations are known
    three.inventory({"h1": {"model": "M"}, "h2": {"model": "M"}, "h3": {"model": "N"}})
    result = run_all(three, "--spread", "shard", "--output", "json")
    assert three.noted("done") == Counter(dict.fromkeys(lengths, 3))
    by_model = {"M": ("h1", "h2"), "N": ("h3",)}
    run = latest(three)
    for hosts in by_model.values():
        done = [op for host, op, _ in three.rows(run).elements() if host in hosts]
        assert sorted(done) == sorted(lengths)
    for host in ("h1", "h2", "h3"):
        began = [e["op"] for e in events(result, "job_started") if e["target"] == host]
        own = [lengths[op] for op in began]
        # What is taken over from others at the end may be of any length.
        assert own[:2] == sorted(own[:2], reverse=True)
    first = {e["target"]: e["op"] for e in reversed(events(result, "job_started"))}
    assert first["h3"] == "op_b"
    assert sorted((first["h1"], first["h2"])) == ["op_b", "op_d"]


def test_what_a_lost_host_leaves_is_done_by_the_others(three: Many, tmp_path: Path) -> None:
    """Nothing twice, nothing missing; what it had done stays done."""
    ops = {f"op_{number}": {"lines": 5, "pause": 0.1} for number in range(9)}
    three.ops(**ops)
    gate = tmp_path / "go"
    three.op("op_0", lines=5, until=str(gate))
    three.inventory(retries=0, timeouts={"dead_link": 3, "reattach": 0.5})
    running = three.bench.start("testall", "--cold", "--spread", "shard")
    # op_0 has no known duration either: it is the first of the first host.
    running.wait_for("h1 | op_0 line 4", seconds=LONG)
    three.down("h1")
    assert wait_until(lambda: not three.alive("h1"), 30)
    gate.touch()
    result = running.result(LONG)
    assert result.code == 3, result
    assert "op_0 is left to others" in result.stderr
    rows = three.rows(latest(three))
    assert sorted(op for _, op, _ in rows.elements()) == sorted(ops), rows
    assert {status for _, _, status in rows} == {"PASSED"}
    done = three.noted("done")
    assert done == Counter(list(ops))
    assert "op_0" in {op for host, op, _ in rows if host != "h1"}
    assert wait_until(lambda: not three.alive(), 20)


def test_a_container_that_is_killed_in_the_middle(
    fleet: LoopbackFleet, bench: Bench, tmp_path: Path
) -> None:
    """The same with real containers: each host is one of the loopback fleet."""
    site = Many(bench, {}, tmp_path)
    ops = {f"op_{number}": {"lines": 5, "pause": 0.1} for number in range(6)}
    for op in ops.values():
        op["ledger"] = f"{bench.store}-ledger"
    site.ops(**ops)
    site.op("op_0", lines=5, until="/nowhere", ledger=f"{bench.store}-ledger")
    bench.inventory(retries=0, timeouts={"reattach": 0.5})
    running = bench.start("testall", "--cold", "--spread", "shard")
    running.wait_for("loop1 | op_0 line 4", seconds=LONG)
    try:
        fleet.docker("loop1", "kill", fleet.container)
        # It waits for nothing any more where it runs next.
        fleet.in_container("loop2", "touch", "/nowhere")
        result = running.result(LONG)
    finally:
        fleet.docker("loop1", "start", fleet.container)
        fleet.in_container("loop2", "rm", "-f", "/nowhere", f"{bench.store}-ledger")
        fleet.in_container("loop1", "rm", "-f", f"{bench.store}-ledger")
    assert result.code == 3, result
    rows = site.rows(bench.runs()[-1])
    assert sorted(op for _, op, _ in rows.elements()) == sorted(ops), rows
    assert {status for _, _, status in rows} == {"PASSED"}


# Side by side.


@pytest.fixture
def two_gpus(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Many]:
    """A host that says it has two GPUs: a stand-in for nvidia-smi on its PATH.

    Only the tool is made up: there is no GPU on the machine. The lanes, their locks and what jobs
    see of their devices are the real thing.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    said = "\n".join(f"{n}, GPU-{n}{n}{n}-{n}, 00000000:{n}{n}:00.0, Probe {n}" for n in (0, 1))
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    (tools / "nvidia-smi").chmod(0o755)
    path = f"PATH={tools}:/usr/local/bin:/usr/bin:/bin"
    with many(fleet, tmp_path, 1, {"h1": {"SetEnv": path}}) as made:
        yield made


def test_two_lanes_side_by_side_know_of_each_other(two_gpus: Many, tmp_path: Path) -> None:
    gate = str(tmp_path / "go")
    site = two_gpus
    shown = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
    site.ops(
        op_a={"until": gate, "shows": shown, "lines": 1},
        op_b={"until": gate, "shows": shown, "lines": 1},
        op_c={},
    )
    running = site.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 0", seconds=LONG)
    running.wait_for("h1 | op_b line 0", seconds=LONG)  # neither has ended
    Path(gate).touch()
    result = running.result(LONG)
    assert result.code == 0, result
    seen = [line for line in result.said("h1") if line.startswith("shows ")]
    assert len(seen) == 2
    for number in (0, 1):
        assert sum(f"GPU-{number}{number}{number}-{number}" in line for line in seen) == 1
    assert all("'--device', '0'" in line for line in seen)
    run = latest(site)
    beside = {op: site.bench.records(run, "h1", op)[0].get("co_runners") for op in ("op_a", "op_b")}
    assert beside["op_a"] in (["h1 gpu0: op_b"], ["h1 gpu1: op_b"])
    assert beside["op_b"] is not None and any("op_a" in name for name in beside["op_b"])
    assert sum(site.rows(run).values()) == 3


def test_serial_is_one_at_a_time_on_the_first_gpu(two_gpus: Many) -> None:
    site = two_gpus
    site.ops(**{f"op_{n}": {"lines": 3, "shows": ["CUDA_VISIBLE_DEVICES"]} for n in range(4)})
    result = run_all(site, "--serial")
    order = [line.split(" ")[0] for line in site.ledger.read_text().splitlines()]
    assert order == ["begin", "done"] * 4
    seen = [line for line in result.said("h1") if line.startswith("shows ")]
    assert len(seen) == 4 and all("GPU-000-0" in line for line in seen)
    for path in latest(site).glob("records/*/*.jsonl"):
        assert "co_runners" not in json.loads(path.read_text())


# Links.


def numbers(lines: list[str], op: str) -> list[int]:
    return [int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{op} line ")]


def test_a_cut_link_is_taken_up_again_with_no_line_lost(one: Many) -> None:
    one.ops(op_a={"lines": 80, "pause": 0.1, "early": 1})
    one.inventory(timeouts={"reattach": 60})
    running = one.bench.start("testall", "--cold")
    for line in (10, 35):
        running.wait_for(f"h1 | op_a line {line}", seconds=LONG)
        one.cut("h1")
    result = running.result(LONG)
    assert result.code == 0, result
    assert numbers(result.said("h1"), "op_a") == list(range(80))
    log = (latest(one) / "logs" / "h1" / "op_a.log").read_text().splitlines()
    assert numbers(log, "op_a") == list(range(80))
    assert one.jobs("h1") == ["op_a.a1"]
    assert one.noted("begin") == one.noted("done") == Counter(["op_a"])
    assert one.rows(latest(one)) == Counter({("h1", "op_a", "PASSED"): 2})


@pytest.mark.parametrize("retries", [0, 1])
def test_a_link_that_is_lost_for_longer_than_jobs_are_held(one: Many, retries: int) -> None:
    """The former attempt is dead before the next begins, which has a log of its own."""
    one.ops(op_a={"lines": 60, "pause": 0.1, "early": 2})
    one.inventory(timeouts={"dead_link": 3, "reattach": 1})
    running = one.bench.start("testall", "--cold", "--retries", str(retries))
    running.wait_for("h1 | op_a line 5", seconds=LONG)
    one.down("h1")
    assert wait_until(lambda: not one.alive(), 30), one.alive()
    one.sshds["h1"].start()
    result = running.result(LONG)
    run = latest(one)
    logs = {path.name for path in (run / "logs" / "h1").iterdir()}
    first = numbers((run / "logs" / "h1" / "op_a.log").read_text().splitlines(), "op_a")
    assert first == list(range(len(first))) and 5 < len(first) < 60  # whole until its end
    statuses = [record["status"] for record in one.bench.records(run, "h1", "op_a")]
    if retries:
        assert result.code == 0, result
        assert one.jobs("h1") == ["op_a.a1", "op_a.a2"]
        assert logs == {"op_a.log", "op_a.2.log"}
        assert "its link was lost, trying again (attempt 2)" in result.stderr
        assert statuses == ["PASSED"] * 3
        assert {record["attempt"] for record in one.bench.records(run, "h1", "op_a")} == {2}
    else:
        assert result.code == 3, result
        assert one.jobs("h1") == ["op_a.a1"] and logs == {"op_a.log"}
        assert statuses == ["PASSED", "PASSED", "NOT_RUN"]
    assert one.alive() == []


def test_a_link_that_is_silent_is_given_up(one: Many) -> None:
    one.ops(op_a={"lines": 60, "pause": 0.1})
    one.inventory(timeouts={"dead_link": 3, "reattach": 60})
    running = one.bench.start("testall", "--cold")
    running.wait_for("h1 | op_a line 5", seconds=LONG)
    frozen = one.signal_carriers("h1", signal.SIGSTOP)
    try:
        result = running.result(LONG)
    finally:
        one.cut("h1")
    assert frozen and result.code == 0, result
    assert "nothing heard for" in result.stderr
    assert numbers(result.said("h1"), "op_a") == list(range(60))
    assert one.noted("begin") == Counter(["op_a"])


# Limits.


@pytest.mark.parametrize(
    ("arguments", "code", "statuses", "attempts"),
    [
        (("--silence", "2"), 4, {"TIMEOUT"}, ["hangs.a1"]),
        (("--silence", "2", "--retry-hung"), 0, {"PASSED"}, ["hangs.a1", "hangs.a2"]),
        (("--job-timeout", "3"), 4, {"TIMEOUT"}, ["hangs.a1"]),
        (("--job-timeout", "3", "--retry-hung"), 0, {"PASSED"}, ["hangs.a1", "hangs.a2"]),
        (("--run-timeout", "4"), 4, {"TIMEOUT"}, ["hangs.a1"]),
    ],
)
def test_limits(
    one: Many,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    statuses: set[str],
    attempts: list[str],
) -> None:
    one.ops(hangs={"hangs": str(tmp_path / "hung"), "once": True, "early": 1})
    run_all(one, *arguments, code=code)
    rows = one.rows(latest(one))
    assert {status for _, _, status in rows} == statuses | {"PASSED"}
    assert one.jobs("h1") == attempts
    assert wait_until(lambda: not one.alive(), 20)


def test_a_job_that_hangs_for_ever_is_asked_once_more_only(one: Many, tmp_path: Path) -> None:
    one.ops(hangs={"hangs": str(tmp_path / "hung")}, fine={})
    run_all(one, "--silence", "2", "--retry-hung", code=4)
    assert one.jobs("h1") == ["fine.a1", "hangs.a1", "hangs.a2"]


def test_the_runs_time_ends_what_is_left_and_says_so(three: Many) -> None:
    three.ops(**{f"op_{n}": {"lines": 600, "pause": 0.05} for n in range(2)})
    result = run_all(three, "--run-timeout", "6", code=4)
    assert three.noted("begin") == Counter({"op_0": 3})
    rows = three.rows(latest(three))
    assert {(op, status) for _, op, status in rows} == {
        ("op_0", "TIMEOUT"),
        ("op_1", "NOT_RUN"),
    }
    assert "ended by the run's limit of 6 s" in result.stdout
    assert "the run's limit of 6 s is over" in result.stdout
    assert "fail the same way" not in result.stderr


def test_the_time_to_connect(one: Many) -> None:
    one.ops(op_a={})
    os.kill(one.sshds["h1"].listener, signal.SIGSTOP)  # it takes connections and says nothing
    try:
        began = time.monotonic()
        result = run_all(one, "--connect-timeout", "2", "--retries", "0", code=3)
        took = time.monotonic() - began
    finally:
        os.kill(one.sshds["h1"].listener, signal.SIGCONT)
    assert "UNREACHABLE" in result.stdout and one.jobs("h1") == []
    assert took < 14, (took, result)  # the inventory's would be 15


# Most alike.


def test_most_targets_unreachable_is_said_once(one: Many) -> None:
    one.ops(op_a={})
    port = free_port()
    gone = {f"g{n}": {"ssh_config": "none", "address": "127.0.0.1", "port": port} for n in range(6)}
    hosts = {name: dict(settings) for name, settings in gone.items()}
    one.bench.inventory(hosts=hosts, container="none", env_script="none", retries=1)
    result = run_all(one, code=3)
    said = [line for line in result.stderr.splitlines() if "fail the same way, stopping" in line]
    assert len(said) == 1 and "4 of 6 targets" in said[0]
    summary = json.loads((latest(one) / "testall-summary.json").read_text())
    assert set(summary["targets"].values()) == {"UNREACHABLE", "UNUSABLE"} or set(
        summary["targets"].values()
    ) == {"UNREACHABLE"}
    assert len(summary["targets"]) == 6
    told = [line for line in result.stdout.splitlines() if "UNREACHABLE" in line]
    assert result.stderr.count("refused") <= 4 * 3 + 2, (told, result)


def test_most_targets_unusable_is_said_once_and_who_works_goes_on(
    fleet: LoopbackFleet, one: Many
) -> None:
    one.ops(op_a={"lines": 20, "pause": 0.1})
    one.inventory(
        {
            "h1": None,
        }
    )
    inventory = json.loads((one.bench.folder / "inventory.yaml").read_text())
    here = inventory["hosts"]["h1"]
    engine = f"unix://{fleet.state}/hosts/loop1/docker.sock"
    for number in range(4):
        inventory["hosts"][f"u{number}"] = {
            **here,
            "address": "127.0.0.1",
            "port": one.sshds["h1"].port,
            "ssh_config": str(one.sshds["h1"].endpoint(name=f"u{number}").ssh_config),
            "container": "no-such-container",
            "docker_command": ["docker", "-H", engine],
        }
    (one.bench.folder / "inventory.yaml").write_text(json.dumps(inventory))
    result = run_all(one, code=3)
    assert result.stderr.count("fail the same way, stopping") == 1, result
    assert one.rows(latest(one))["h1", "op_a", "PASSED"] == 1


def test_ctrl_c_then_resume(three: Many, tmp_path: Path) -> None:
    gate = tmp_path / "go"
    three.ops(op_a={}, op_b={"early": 1, "lines": 1, "until": str(gate)}, op_c={})
    running = three.bench.start("testall", "--cold")
    for host in three.sshds:
        running.wait_for(f"{host} | op_b line 0", seconds=LONG)
    running.signal_group(signal.SIGINT)
    assert running.result(LONG).code == 130
    assert wait_until(lambda: not three.alive(), 20)
    gate.touch()
    result = three.bench.mxfleet("testall", "--resume", latest(three).name, seconds=LONG)
    assert "3 of 9 jobs are done, 3 had been started, 3 not yet" in result.stdout + result.stderr
    assert three.noted("done") == Counter({"op_a": 3, "op_b": 3, "op_c": 3})
    assert three.noted("begin") == Counter({"op_a": 3, "op_b": 6, "op_c": 3})
    for host in three.sshds:
        assert three.jobs(host) == ["op_a.a1", "op_b.a1", "op_b.a2", "op_c.a1"]
    rows = three.rows(latest(three))
    assert {status for _, _, status in rows} == {"PASSED"} and sum(rows.values()) == 12
    assert sorted(three.csv_rows()) == ["op_a", "op_b", "op_b", "op_c"]
