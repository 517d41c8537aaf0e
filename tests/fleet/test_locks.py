"""Device locks on the real fleet: the queue, and whatever becomes of a holder or of its job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.transport.agent.proc import COOKIE

from .conftest import LoopbackFleet
from .workbench import Bench, Running, napping, wait_until, workbench

NAP = 86_417  # seconds; also the mark by which a lingering job's processes are found
FREEZER = Path("/sys/fs/cgroup/freezer")
PROTECTED = Path("/proc/sys/fs/protected_regular")


@pytest.fixture
def lingering(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """A folder with jobs that last; nothing of them survives, not even a failed test."""
    with workbench(fleet, tmp_path) as bench:
        bench.config("probe_linger", nap=NAP)
        yield bench
        for pid in job_processes(""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for host in fleet.hosts:
        fleet.in_container(host, "pkill", "-KILL", "-f", f"^sleep {NAP}$", check=False)


def job_processes(run: str) -> list[int]:
    """Processes of this test's jobs that carry a run's cookie, as this machine counts them.

    The containers' processes are this machine's as well.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            ours = b"probe_linger" in words or words[:2] == [b"sleep", str(NAP).encode()]
            if ours and f"{COOKIE}={run}".encode() in environment:
                found.append(int(entry.name))
    return found


def hold(bench: Bench, host: str = "loop1", **environment: str) -> tuple[Running, str]:
    """A run whose job has begun and lasts, and the run's id."""
    known = set(bench.runs())
    running = bench.start("run", "--op", "probe_linger", "--hosts", host, **environment)
    running.wait_for(f"{host} | step 1")
    (run,) = set(bench.runs()) - known
    return running, run.name


def queue(bench: Bench, host: str = "loop1") -> Running:
    """A run that wants the same device."""
    return bench.start("run", "--op", "probe_digest", "--hosts", host, "--output", "json")


def events(running: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in running.lines]


def notes(running: Running) -> list[str]:
    return [event["message"] for event in events(running) if event["event"] == "note"]


def started(running: Running) -> bool:
    return any(event["event"] == "job_started" for event in events(running))


def lock_checks(bench: Bench, host: str = "loop1") -> list[dict[str, Any]]:
    result = bench.mxfleet("doctor", host, "--output", "json", code=None)
    return [e for e in result.events() if e["event"] == "check" and e["name"] == "lock"]


def agents_with(folder: str) -> list[int]:
    """The agents on this machine that have a lock of the folder open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if any(str(fd.readlink()).startswith(folder) for fd in (entry / "fd").iterdir()):
                    found.append(int(entry.name))
    return found


def test_two_controllers_queue_and_the_second_names_the_first(lingering: Bench) -> None:
    bench = lingering
    first, run = hold(bench)
    second = queue(bench)
    second.wait_for("waiting for cpu")
    (note,) = [note for note in notes(second) if "waiting for" in note]
    assert f"run {run}" in note and "vllm-dsv4" in note and os.uname().nodename in note
    (check,) = lock_checks(bench)
    assert check["status"] == "WARNING" and run in check["message"], check
    assert not started(second)
    first.signal_group(signal.SIGINT)
    assert first.result(20).code == 130
    result = second.result(30)
    assert result.code == 0, result
    assert lock_checks(bench)[0]["status"] == "OK"


def test_other_hosts_are_not_waited_for(lingering: Bench) -> None:
    first, _ = hold(lingering)
    assert queue(lingering, "loop2").result(60).code == 0
    first.signal_group(signal.SIGINT)
    first.result(20)


@pytest.mark.parametrize("number", [0, signal.SIGSTOP], ids=["running", "stopped"])
def test_of_a_killed_controller_the_lock_is_free_when_the_job_is_gone(
    lingering: Bench, number: int
) -> None:
    bench = lingering
    first, run = hold(bench)
    for pid in job_processes(run):
        os.kill(pid, number)
    second = queue(bench)
    second.wait_for("waiting for cpu")
    first.process.kill()
    began = time.monotonic()
    assert wait_until(lambda: started(second) or second.process.poll() is not None, 40)
    assert napping(bench.fleet, NAP) == [] and job_processes(run) == []
    assert time.monotonic() - began < 25
    result = second.result(30)
    assert result.code == 0, result


def test_of_a_killed_agent_the_next_one_ends_the_job(lingering: Bench) -> None:
    """Agent and guardian on the host are killed; the container's know nothing of it."""
    bench = lingering
    first, run = hold(bench)
    (agent,) = agents_with(f"{bench.locks}-loop1")
    guardian = int(Path(f"/proc/{agent}/stat").read_bytes().rpartition(b")")[2].split()[1])
    first.process.send_signal(signal.SIGSTOP)  # it cannot stop its job
    os.kill(guardian, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    second = queue(bench)
    second.wait_for("is its job dead as well?")
    assert job_processes(run) and not started(second)
    assert wait_until(lambda: started(second), 40), second.result(1)
    assert job_processes(run) == []
    assert second.result(30).code == 0
    first.process.send_signal(signal.SIGCONT)
    first.signal_group(signal.SIGINT)
    first.result(40)


@pytest.mark.skipif(not (FREEZER / "tasks").exists(), reason="no cgroup v1 freezer here")
def test_what_cannot_be_killed_keeps_its_device(lingering: Bench) -> None:
    bench = lingering
    first, run = hold(bench)
    freezer = FREEZER / f"mxfleet-{os.getpid()}"
    freezer.mkdir()
    try:
        for pid in job_processes(run):
            (freezer / "cgroup.procs").write_text(str(pid))
        (freezer / "freezer.state").write_text("FROZEN")
        frozen = [int(pid) for pid in (freezer / "cgroup.procs").read_text().split()]
        first.process.kill()
        second = queue(bench)
        result = second.result(60)
        assert result.code == 3 and not started(second), result
        (failed,) = [e for e in events(second) if e["event"] == "target_failed"]
        assert failed["status"] == "UNUSABLE" and "cpu is left alone" in failed["message"]
        assert str(frozen[0]) in failed["message"] and run in failed["message"]
        (check,) = lock_checks(bench)
        assert check["status"] == "FAILED" and str(frozen[0]) in check["message"], check
        again = queue(bench)  # as long as it is there
        assert again.result(60).code == 3
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        wait_until(lambda: not (freezer / "cgroup.procs").read_text().split(), 10)
        freezer.rmdir()
    assert queue(bench).result(60).code == 0
    assert lock_checks(bench)[0]["status"] == "OK"


@pytest.mark.parametrize("order", [("loop1", "loop1-user"), ("loop1-user", "loop1")])
def test_two_users_share_the_folder(lingering: Bench, order: tuple[str, str]) -> None:
    """Also where the kernel refuses O_CREAT for files of others in such a folder."""
    bench = lingering
    bench.inventory(
        hosts={
            "loop1": {"user": "root", "lock_folder": f"{bench.locks}-shared"},
            "loop1-user": {"user": bench.fleet.user, "lock_folder": f"{bench.locks}-shared"},
        }
    )
    before = PROTECTED.read_text()
    PROTECTED.write_text("2")
    try:
        first, run = hold(bench, order[0])
        second = queue(bench, order[1])
        second.wait_for("waiting for cpu")
        assert run in notes(second)[0]
        first.process.kill()
        result = second.result(60)
        assert result.code == 0, result
        assert queue(bench, order[0]).result(60).code == 0
    finally:
        PROTECTED.write_text(before)


def test_an_ordinary_user_proves_a_death_in_a_container(lingering: Bench) -> None:
    """It may not look into the processes of root's job, but docker lets it look inside."""
    bench = lingering
    folder = f"{bench.locks}-shared"
    bench.inventory(
        hosts={
            "loop1": {"user": "root", "lock_folder": folder},
            "loop1-user": {"user": bench.fleet.user, "lock_folder": folder},
        }
    )
    first, run = hold(bench)
    (agent,) = agents_with(folder)
    guardian = int(Path(f"/proc/{agent}/stat").read_bytes().rpartition(b")")[2].split()[1])
    first.process.send_signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    second = queue(bench, "loop1-user")
    second.wait_for("is its job dead as well?")
    assert wait_until(lambda: started(second), 40), second.result(1)
    assert job_processes(run) == []
    assert second.result(30).code == 0
    first.process.send_signal(signal.SIGCONT)
    first.signal_group(signal.SIGINT)
    first.result(40)


def test_a_link_that_somebody_planted_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = Path(f"{bench.locks}-loop1")
    folder.mkdir()
    folder.chmod(0o1777)
    bench.fleet.ssh("loop1-user", f"ln -s {victim} {folder}/cpu")
    result = queue(bench).result(60)
    assert result.code == 3 and "no ordinary file" in result.stdout, result
    assert victim.read_text() == "precious"
    (check,) = lock_checks(bench)
    assert check["status"] == "FAILED" and "no ordinary file" in check["message"]
