"""The loopback fleet as a fixture: two hosts of this machine, each with its own sshd and Docker.

Tests in this folder are skipped, with the reason, where the fleet cannot be; with
MXFLEET_REQUIRE_FLEET=1 that is a failure. A fleet that was up is used and left up. Tests that
break a part of it call `fleet.repair()` when they are done.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from .checkout import Site, laid_out
from .workbench import Bench, workbench

ROOT = Path(__file__).resolve().parents[2]
FLEET = ROOT / "env" / "loopback" / "fleet.py"
DEFAULT_STATE = Path(os.environ.get("MXFLEET_LOOPBACK") or "/var/lib/mxfleet-loopback")
UNFIT = 3  # exit code of fleet.py: this machine cannot carry a fleet


def fleet_command(
    *arguments: str, state: Path = DEFAULT_STATE, script: Path = FLEET
) -> subprocess.CompletedProcess[str]:
    """Run fleet.py to its end; the caller looks at the exit code."""
    return subprocess.run(
        [sys.executable, str(script), *arguments, "--state", str(state)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@dataclass(frozen=True)
class LoopbackFleet:
    """What a test needs of a running fleet. Hosts are named loop1, loop2, …"""

    state: Path
    hosts: tuple[str, ...]
    inventory: str  # the inventory file's text, group `loopback`
    container: str = "vllm-dsv4"
    user: str = "mxloop"  # the ordinary login; alias loop1-user

    @property
    def ssh_config(self) -> Path:
        return self.state / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        return self.state / "known_hosts"

    @property
    def client_key(self) -> Path:
        return self.state / "client_key"

    @property
    def python(self) -> str:
        """The Python with torch, in the containers (and on this machine) at this path."""
        lines = [line.strip() for line in self.inventory.splitlines()]
        return next(line for line in lines if line.startswith("python:")).partition(": ")[2]

    def share(self, host: str) -> Path:
        """The host's folder that its container has at /share."""
        return self.state / "hosts" / host / "share"

    def port(self, host: str) -> int:
        """The port of the host's sshd on 127.0.0.1."""
        return int(self._ssh_setting(host, "port"))

    def ssh(
        self,
        host: str,
        command: str,
        *,
        check: bool = True,
        input: bytes = b"",
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command on a host (an alias: loop1 as root, loop1-user as the user)."""
        argv = ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", host, command]
        return _run(argv, check, input, timeout)

    def docker(
        self,
        host: str,
        *arguments: str,
        check: bool = True,
        input: bytes = b"",
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run the docker command against a host's engine, past ssh."""
        engine = f"unix://{self.state}/hosts/{host}/docker.sock"
        return _run(["docker", "-H", engine, *arguments], check, input, timeout)

    def in_container(
        self, host: str, *argv: str, check: bool = True, input: bytes = b"", timeout: float = 120
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in a host's container, as root there."""
        arguments = ("exec", "-i", self.container, *argv)
        return self.docker(host, *arguments, check=check, input=input, timeout=timeout)

    def stop(self, host: str, part: str) -> None:
        """End the host's `sshd` (with its sessions), `engine` or `container`."""
        _expect_success(fleet_command("stop", host, part, state=self.state))

    def restart_sshd(self, host: str) -> None:
        """Break every connection to the host; new ones work at once, on the same port."""
        self.stop(host, "sshd")
        self.repair()

    def repair(self) -> None:
        """Bring back whatever was stopped or died."""
        _expect_success(fleet_command("up", str(len(self.hosts)), state=self.state))

    def _ssh_setting(self, host: str, key: str) -> str:
        argv = ["ssh", "-F", str(self.ssh_config), "-G", host]
        lines = _run(argv, True, b"", 10).stdout.decode().splitlines()
        return next(line for line in lines if line.startswith(f"{key} ")).partition(" ")[2]


def _run(
    argv: Sequence[str], check: bool, input: bytes, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(argv, input=input, capture_output=True, timeout=timeout, check=False)
    if check and done.returncode:
        words = done.stderr.decode(errors="replace")
        raise AssertionError(f"{' '.join(argv)} exited {done.returncode}: {words}")
    return done


def _expect_success(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def bring_up(count: int, state: Path) -> LoopbackFleet:
    """A running fleet; skips where the machine cannot carry one, fails where it should."""
    done = fleet_command("up", str(count), state=state)
    if done.returncode == UNFIT and os.environ.get("MXFLEET_REQUIRE_FLEET") != "1":
        pytest.skip(done.stderr.strip().splitlines()[-1])
    _expect_success(done)
    names = tuple(f"loop{number}" for number in range(1, count + 1))
    return LoopbackFleet(state, names, done.stdout)


@pytest.fixture(scope="session")
def fleet() -> Iterator[LoopbackFleet]:
    """Two hosts, loop1 (root in the inventory) and loop2 (the ordinary user)."""
    was_up = fleet_command("status").returncode == 0
    yield bring_up(2, DEFAULT_STATE)
    if not was_up:
        fleet_command("down")


@pytest.fixture
def bench(fleet: LoopbackFleet, tmp_path: Path) -> Iterator[Bench]:
    """A working folder with the quick suite and the fleet's inventory."""
    with workbench(fleet, tmp_path) as made:
        yield made


@pytest.fixture
def site(fleet: LoopbackFleet, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Established checkouts: "share" (default) in a mounted folder, "inside" in the container."""
    with laid_out(fleet, tmp_path, shared=getattr(request, "param", "share") == "share") as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.fleet)
