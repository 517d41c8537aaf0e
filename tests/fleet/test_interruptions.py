"""Interrupted in the middle: a push is whole or absent, a job is dead and what it measured kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .checkout import Site, everywhere
from .conftest import LoopbackFleet
from .workbench import Bench, Running, napping, wait_until, workbench

HOSTS = ("loop1", "loop2")
NAP = 86_413  # seconds; also the mark by which a lingering job's processes are found


def kill_once(running: Running, seen: Callable[[], bool]) -> None:
    """Let a command run in short steps until something is seen, then kill it right there."""
    for _ in range(600):
        time.sleep(0.1)
        running.process.send_signal(signal.SIGSTOP)
        if seen():
            break
        running.process.send_signal(signal.SIGCONT)
    running.process.kill()
    assert running.result().code == -signal.SIGKILL
    assert running.lines == []  # it had not said that anything was sent


def add_blobs(folder: Path, megabytes: int = 48) -> None:
    """Content that compression does not help, so that a push takes its time."""
    for number in range(megabytes):
        (folder / f"blob{number:02}.bin").write_bytes(os.urandom(1 << 20))


def test_interrupted_push_leaves_no_tree(bench: Bench) -> None:
    add_blobs(bench.folder / "benchmark")
    running = bench.start("push", "--hosts", "loop1")
    kill_once(running, lambda: any(name.startswith(".stage") for name in bench.trees("loop1")))
    assert wait_until(lambda: bench.trees("loop1") == [], 30), bench.trees("loop1")

    result = bench.mxfleet("push", "--hosts", "loop1")
    assert "sent 57 files" in result.stdout
    assert len(bench.trees("loop1")) == 1
    assert "1 PASSED" in bench.mxfleet("run", "--op", "probe_digest", "--hosts", "loop1").stdout


@everywhere
def test_interrupted_push_in_place_changes_nothing(site: Site) -> None:
    bench = site.bench
    bench.config("est_axpy", length=3000)
    add_blobs(bench.folder / "benchmark" / "config")
    before = site.files("loop2")

    def staged() -> bool:
        names = bench.fleet.in_container("loop2", "ls", "-A", site.workdir).stdout.decode()
        return ".mxfleet-stage" in names

    kill_once(bench.start("push", "--hosts", "loop2"), staged)
    assert wait_until(lambda: not staged(), 30)
    assert site.files("loop2") == before
    assert "sent 49 files" in bench.mxfleet("push", "--hosts", "loop2").stdout


@pytest.fixture
def lingering(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """A folder whose jobs leave processes behind; none may survive, not even a failed test."""
    with workbench(fleet, tmp_path) as bench:
        bench.config("probe_linger", nap=NAP)
        yield bench
    for host in fleet.hosts:
        fleet.in_container(host, "pkill", "-KILL", "-f", f"^sleep {NAP}$", check=False)


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_ctrl_c_ends_the_jobs_and_keeps_what_was_measured(lingering: Bench, transport: str) -> None:
    bench = lingering
    bench.inventory(transport=transport)
    running = bench.start("run", "--op", "probe_linger,probe_digest")
    for host in HOSTS:
        running.wait_for(f"{host} | step 1")
    assert len(napping(bench.fleet, NAP)) == 8
    running.signal_group(signal.SIGINT)
    result = running.result(seconds=12)
    assert result.code == 130, result
    assert napping(bench.fleet, NAP) == []  # proven dead before it says so
    assert "Traceback" not in result.stderr
    run = bench.runs()[0]
    for host in HOSTS:
        statuses = [r["status"] for r in bench.records(run, host, "probe_linger")]
        assert statuses == ["PASSED", "PASSED", "NOT_RUN"]
        assert [r["status"] for r in bench.records(run, host, "probe_digest")] == ["NOT_RUN"]
    ((_, lines),) = bench.tables().items()
    assert len(lines) == 3
    summary = json.loads((run / "run-summary.json").read_text())
    assert (summary["exit_code"], summary["message"]) == (130, "interrupted")
    last = result.stdout.splitlines()[-1]
    assert last.startswith("run: 4 PASSED, 4 NOT_RUN in ") and "; interrupted" in last


@pytest.mark.parametrize(
    ("transport", "command"),
    [("ssh", ("run", "--op", "probe_digest")), ("openssh", ("hosts", "--check"))],
)
def test_ctrl_c_does_not_wait_for_a_host_that_never_answers(
    bench: Bench, transport: str, command: tuple[str, ...]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        hosts = {"a": {"address": "127.0.0.1", "port": port}}
        bench.inventory(hosts=hosts, transport=transport, connect_timeout=60)
        running = bench.start(*command)
        silent.settimeout(30)
        connection, _ = silent.accept()
        with connection:
            running.signal_group(signal.SIGINT)
            result = running.result(seconds=20)
    assert result.code == 130, result


@pytest.mark.parametrize("transport", ["ssh", "openssh"])
def test_a_killed_controller_leaves_no_process(lingering: Bench, transport: str) -> None:
    bench = lingering
    bench.inventory(transport=transport)
    running = bench.start("run", "--op", "probe_linger")
    for host in HOSTS:
        running.wait_for(f"{host} | step 1")
    running.process.kill()
    assert wait_until(lambda: not napping(bench.fleet, NAP), 20), napping(bench.fleet, NAP)
    # What was measured lies on the hosts.
    assert wait_until(lambda: bench.mxfleet("pull", code=None).code == 3, 10)
    for host in HOSTS:
        records = bench.records(bench.runs()[0], host, "probe_linger")
        assert [r["status"] for r in records] == ["PASSED", "PASSED", "NOT_RUN"]
    ((_, lines),) = bench.tables().items()
    assert len(lines) == 3
    with contextlib.suppress(ProcessLookupError):
        running.signal_group(signal.SIGKILL)
