"""The loopback fleet is what other tests take it for: isolated, repairable, gone after `down`."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import DEFAULT_STATE, FLEET, LoopbackFleet, bring_up, fleet_command

PARTS = ("sshd", "containerd", "dockerd")


def pids(fleet: LoopbackFleet, host: str) -> dict[str, int]:
    known = json.loads((fleet.state / "hosts" / host / "processes.json").read_text())
    return {part: known[part]["pid"] for part in PARTS}


def traces(state: Path) -> list[str]:
    """Processes that carry the state folder in their command line or environment, and mounts."""
    mark, found = os.fsencode(state), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                said = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mark in said:
                found.append(said.replace(b"\0", b" ").decode(errors="replace"))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return found + [line for line in mounts if str(state) in line]


@pytest.fixture
def lone_state(fleet: LoopbackFleet) -> Iterator[Path]:
    """A state folder of its own, for tests that break things; the root file system is shared."""
    state = Path(tempfile.mkdtemp(prefix="mxloop-", dir="/var/tmp"))
    state.chmod(0o755)
    (state / "cache").symlink_to(fleet.state / "cache")
    user = pwd.getpwnam(fleet.user)
    yield state
    done = fleet_command("down", "--purge", state=state)
    assert done.returncode == 0, done.stderr
    assert not state.exists()
    assert pwd.getpwnam(fleet.user) == user  # the other fleet's, so it stays


def test_up_again_keeps_everything(fleet: LoopbackFleet) -> None:
    def running() -> list[object]:
        ids = [fleet.docker(host, "ps", "-q", "--no-trunc").stdout for host in fleet.hosts]
        return [*ids, *(pids(fleet, host) for host in fleet.hosts)]

    before = running()
    again = fleet_command("up", "2")
    assert again.stdout == fleet.inventory
    assert running() == before
    assert fleet_command("status").returncode == 0


def test_inventory_is_printed_again(fleet: LoopbackFleet) -> None:
    assert fleet_command("inventory").stdout == fleet.inventory
    assert "hosts: loop[1-2]" in fleet.inventory
    # Another fleet on this machine locks elsewhere.
    assert f"lock_folder: {fleet.state}/hosts/loop1/locks}}" in fleet.inventory


@pytest.mark.parametrize("host", ["loop1", "loop2"])
@pytest.mark.parametrize(("suffix", "user"), [("", "root"), ("-user", "mxloop")])
def test_both_logins_reach_their_own_container(
    fleet: LoopbackFleet, host: str, suffix: str, user: str
) -> None:
    command = "id -un; docker exec vllm-dsv4 hostname; touch ~/here && echo $HOME"
    said = fleet.ssh(host + suffix, command).stdout.decode().split()
    assert said == [user, host, str(fleet.state / "hosts" / host / "home" / user)]


def test_hosts_are_isolated(fleet: LoopbackFleet) -> None:
    first, second = (
        set(fleet.ssh(host, "docker ps --all --quiet --no-trunc").stdout.split())
        for host in fleet.hosts
    )
    assert first
    assert second
    assert not first & second
    fleet.in_container("loop1", "touch", "/share/only-1", "/root/only-1")
    try:
        assert (fleet.share("loop1") / "only-1").exists()
        for path in ("/share/only-1", "/root/only-1"):
            assert fleet.in_container("loop2", "test", "-e", path, check=False).returncode == 1
    finally:
        fleet.in_container("loop1", "rm", "/share/only-1", "/root/only-1")


def test_container_has_torch_and_no_network(fleet: LoopbackFleet) -> None:
    code = "import torch; print(torch.ones(3).sum().item())"
    assert fleet.in_container("loop1", fleet.python, "-c", code).stdout.strip() == b"3.0"
    devices = fleet.in_container("loop1", "ls", "/sys/class/net").stdout.split()
    assert b"eth0" not in devices


def test_orphans_in_the_container_are_reaped(fleet: LoopbackFleet) -> None:
    fleet.in_container("loop1", "bash", "-c", "(sleep 0.1 &) ; sleep 0.5")
    states = fleet.in_container("loop1", "ps", "-eo", "stat=").stdout.split()
    assert not [state for state in states if state.startswith(b"Z")]


def test_only_loopback_is_listened_on(fleet: LoopbackFleet) -> None:
    ports = {f"{fleet.port(host):04X}" for host in fleet.hosts}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].partition(":")[2] in ports}
    assert listening == {f"0100007F:{port}" for port in ports}
    six = Path("/proc/net/tcp6")
    rows = [line.split() for line in six.read_text().splitlines()[1:]] if six.exists() else []
    assert not [row for row in rows if row[3] == "0A" and row[1].partition(":")[2] in ports]


def test_what_was_killed_or_stopped_comes_back_and_down_leaves_nothing(lone_state: Path) -> None:
    lone = bring_up(1, lone_state)
    container = lone.docker("loop1", "ps", "-aq").stdout

    for part in PARTS:
        os.kill(pids(lone, "loop1")[part], signal.SIGKILL)
    assert fleet_command("status", state=lone_state).returncode == 1
    lone.repair()
    assert lone.ssh("loop1", "docker ps -q").stdout == container

    lone.stop("loop1", "container")
    assert "exited" in fleet_command("status", state=lone_state).stdout
    lone.repair()
    assert lone.ssh("loop1-user", "docker ps -q").stdout == container

    # A session's own daemon and a stubborn process in the container have to go as well.
    lone.ssh("loop1", "setsid sleep 7777 >/dev/null 2>&1 </dev/null &")
    lone.docker("loop1", "exec", "-d", lone.container, "bash", "-c", "trap '' TERM; sleep 8888")
    assert traces(lone_state)
    done = fleet_command("down", state=lone_state)
    assert done.returncode == 0, done.stderr
    assert traces(lone_state) == []
    commands = subprocess.run(["ps", "-eo", "args="], capture_output=True, check=True).stdout
    assert b"sleep 7777" not in commands
    assert b"sleep 8888" not in commands


def test_two_ups_at_once_make_one_fleet(lone_state: Path) -> None:
    command = [sys.executable, str(FLEET), "up", "1", "--state", str(lone_state)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second,
    ):
        said = {first.communicate()[0], second.communicate()[0]}
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(said) == 1
    lone = bring_up(1, lone_state)
    assert len(lone.docker("loop1", "ps", "--all", "--quiet").stdout.split()) == 1


def test_taken_port_is_replaced(lone_state: Path) -> None:
    lone = bring_up(1, lone_state)
    lone.stop("loop1", "sshd")
    taken = lone.port("loop1")
    with socket.create_server(("127.0.0.1", taken)):
        lone.repair()
        assert lone.port("loop1") != taken
        assert lone.ssh("loop1", "echo reached").stdout == b"reached\n"


def test_pid_of_another_process_is_left_alone(lone_state: Path) -> None:
    """After a reboot a remembered pid may be anybody's: start time and boot have to agree."""
    lone = bring_up(1, lone_state)
    memory = lone_state / "hosts" / "loop1" / "processes.json"
    known = json.loads(memory.read_text())
    with subprocess.Popen(["sleep", "600"]) as stranger:
        lone.stop("loop1", "sshd")
        known["sshd"]["pid"] = stranger.pid
        memory.write_text(json.dumps(known))
        fleet_command("down", state=lone_state)
        assert stranger.poll() is None
        stranger.kill()


def no_torch(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True)
    return folder / "bare" / "bin" / "python"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["up", "1", "--python", "{folder}/nowhere"], 3, "nowhere: no such Python"),
        (["up", "1", "--python", "{no_torch}"], 3, "torch is not installed there"),
        (["up", "1", "--bind", "{folder}/nowhere"], 1, "nowhere: no such folder"),
        (["up", "0"], 2, "between 1 and 99"),
        (["inventory"], 1, "bring some up first"),
        (["stop", "loop7", "sshd"], 1, "loop7: no such host"),
    ],
)
def test_mistakes_are_named(
    fleet: LoopbackFleet, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    words = [word.format(folder=tmp_path, no_torch=no_torch(tmp_path)) for word in arguments]
    state = Path(tempfile.mkdtemp(prefix="mxloop-", dir="/var/tmp"))
    state.chmod(0o755)
    try:
        done = fleet_command(*words, state=state)
    finally:
        shutil.rmtree(state)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("state", "said"),
    [("/tmp/a b", "blanks"), ("/tmp/" + "x" * 90, "too long"), ("/tmp/mxloop-closed/x", "closed")],
)
def test_unusable_state_folders_are_named(fleet: LoopbackFleet, state: str, said: str) -> None:
    closed = Path("/tmp/mxloop-closed")
    closed.mkdir(mode=0o700)
    try:
        done = fleet_command("up", "1", state=Path(state))
    finally:
        shutil.rmtree(closed)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ordinary_user_is_told_to_use_root(fleet: LoopbackFleet) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        shutil.copytree(FLEET.parent, Path(folder) / "loopback")
        command = f"python3 {folder}/loopback/fleet.py up 1"
        done = fleet.ssh("loop1-user", command, check=False)
    assert done.returncode == 3
    assert b"needs root" in done.stderr


def test_import_leaves_no_cache_in_the_shipped_folder(fleet: LoopbackFleet) -> None:
    assert DEFAULT_STATE.exists()
    assert not list(FLEET.parent.rglob("__pycache__"))
