"""The loopback fleet for a table: used when it is up, else brought up and ended again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.errors import Failed, Skip

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = "vllm-dsv4"
HOST = "loop1"  # logs in as root
_SCRIPT = ROOT / "env" / "loopback" / "fleet.py"
_FORGET = """
for process in /proc/[0-9]*; do
  case "$(readlink "$process/cwd")" in *"/$1"/*) kill -KILL "${process#/proc/}";; esac
done
rm -rf "$0"
"""
_UNFIT = 3  # exit code of fleet.py: this machine cannot carry a fleet


@dataclass(frozen=True)
class Loopback:
    """A running fleet: its state folder and its inventory's text."""

    state: Path
    inventory: str

    @property
    def ssh_config(self) -> Path:
        """For ``ssh -F``."""
        return self.state / "ssh_config"

    @property
    def python(self) -> str:
        """The Python with torch in the containers."""
        lines = [line.strip() for line in self.inventory.splitlines()]
        return next(line for line in lines if line.startswith("python:")).partition(": ")[2]

    @property
    def share(self) -> Path:
        """The folder of the host that its container has at /share."""
        return self.state / "hosts" / HOST / "share"

    @property
    def docker_host(self) -> str:
        """Where the host's engine listens."""
        return f"unix://{self.state}/hosts/{HOST}/docker.sock"

    def in_container(self, *words: str) -> None:
        """Run a command in the host's container, past ssh."""
        command = ["docker", "-H", self.docker_host, "exec", CONTAINER, *words]
        subprocess.run(command, capture_output=True, check=False)

    def forget(self, folder: Path) -> None:
        """Remove ``folder`` in the container, and first end what runs in a folder of its name.

        A command whose ssh is gone runs on, and would make its files again.
        """
        self.in_container("sh", "-c", _FORGET, str(folder), folder.name)


@contextmanager
def loopback_fleet() -> Iterator[Loopback]:
    """A fleet of at least one host. Raises Skip where the machine cannot carry one."""
    was_up = _fleet("status").returncode == 0
    if not was_up:
        print("bringing the loopback fleet up", file=sys.stderr, flush=True)
        done = _fleet("up", "1")
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1]
            if done.returncode == _UNFIT:
                raise Skip(f"no loopback fleet: {said}")
            raise Failed(f"the loopback fleet does not come up: {said}")
    try:
        state = Path(os.environ.get("MXFLEET_LOOPBACK") or "/var/lib/mxfleet-loopback")
        yield Loopback(state, _fleet("inventory").stdout)
    finally:
        if not was_up:
            _fleet("down")


def _fleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
